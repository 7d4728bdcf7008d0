"""Every row program against its meaning in a wider type, within the bound that follows from the program."""

import itertools

import numpy as np
import pytest
from trueno.discovery.protocol import Call
from trueno.judge.bound import bound, judge
from trueno.ops import TABLE
from trueno_scalar.backend import ACCURACY, ScalarBackend

ROWS = [
    (name, static)
    for name, op in TABLE.items()
    if not op.structured
    for static in ([{p.name: c} for p in op.static for c in p.choices] or [{}])
]
IDS = ["-".join([name, *map(str, static.values())]) for name, static in ROWS]
F32, F64 = np.float32, np.float64
# one tile; a row in several tiles; rows of a tile; several tiles of rows; narrow rows, which run across
SHAPES = [(1,), (7,), (1023,), (70_001,), (3, 5), (300, 1000), (500, 7), (2, 70_001)]
CASES = [(F32, s) for s in SHAPES] + [(F64, s) for s in [(7,), (1023,), (70_001,), (3, 5), (80, 1000), (90, 4)]]


def right(program, operands, params, dtype, outs, least=0.0):
    bounds = bound(program, operands, params, dtype, ACCURACY)
    for out, b in zip(outs, bounds, strict=True):
        verdict = judge(out.reshape(b.value.shape), b)
        assert verdict, str(verdict)
        assert 1 - verdict.free >= least


@pytest.mark.parametrize("dtype, shape", CASES, ids=lambda x: getattr(x, "__name__", None) or "x".join(map(str, x)))
@pytest.mark.parametrize("name, static", ROWS, ids=IDS)
def test_values(name, static, dtype, shape, launch, rng):
    call = launch(name, dtype, len(shape), **static)
    operands = call.operands(rng, shape)
    right(call.program, operands, call.params, dtype, call(operands, shape), least=0.5)


@pytest.mark.parametrize("dtype", [F32, F64])
@pytest.mark.parametrize("name, static", ROWS, ids=IDS)
def test_rows_that_are_not_finite(name, static, dtype, launch, rng):
    n = 40
    call = launch(name, dtype, 2, **static)
    huge = 0.9 * np.finfo(dtype).max
    special = [np.nan, np.inf, -np.inf, 0.0, -0.0, huge, -huge, np.finfo(dtype).tiny / 3, 1.0]
    shape = (2 * len(special), n)
    operands = call.operands(rng, shape)
    with np.errstate(all="ignore"):
        for i, (x, kind) in enumerate(zip(operands, call.layout, strict=True)):
            if kind == "e":
                for row, value in enumerate(special):
                    x[row, (5 * row + i) % n] = value  # one element of a row, and a whole row
                    x[len(special) + row] = value
    right(call.program, operands, call.params, dtype, call(operands, shape))


@pytest.mark.parametrize("n", [2000, 70_001], ids=["tile", "tiles"])
def test_first_index_wins_and_nan_wins(n, launch):
    for name, best in ("argmax", 9.0), ("argmin", -9.0):
        call = launch(name, F32, 1)
        x = np.zeros(n, F32)
        x[[n // 2, n - 3, n - 2]] = best
        assert call([x], (n,))[0] == n // 2
        x[[n - 2, n - 1]] = np.nan
        assert call([x], (n,))[0] == n - 2
        assert call([np.full(n, -best * np.inf, F32)], (n,))[0] == 0


BINARY = ["".join(kinds) for kinds in itertools.product("ewru", repeat=2) if {"e", "w"} & set(kinds)]


@pytest.mark.parametrize("layout", BINARY)
@pytest.mark.parametrize("name", ["sub", "copysign", "maximum", "dot"])
@pytest.mark.parametrize("shape", [(9,), (70_001,), (3, 5), (300, 500), (900, 3), (2, 70_001)], ids=str)
def test_layouts(name, layout, shape, launch, rng):
    if "e" not in layout and len(shape) == 2 and set(layout) <= {"w", "u"} and name == "dot":
        pytest.skip("no operand says how many rows there are, and the judge takes one")
    call = launch(name, F32, len(shape), layout)
    operands = call.operands(rng, shape)
    outs = call(operands, shape)
    grown = [x[..., None] if kind == "r" else x for x, kind in zip(operands, layout, strict=True)]
    full = [np.ascontiguousarray(np.broadcast_to(x, shape)) for x in grown]
    right(TABLE[name].program("ee"), full, [], F32, outs)


@pytest.mark.parametrize("dtype", [F32, F64])
@pytest.mark.parametrize("layout", ["ueu", "eue", "uue", "euu", "rew", "wru", "urw"])
@pytest.mark.parametrize("name", ["fma", "lerp"])
@pytest.mark.parametrize("shape", [(9,), (7000,), (70_001,), (3, 5), (70, 100), (300, 500), (900, 3)], ids=str)
def test_layouts_of_functions_with_scratch(name, layout, shape, dtype, launch, rng):
    layout = layout[: len(TABLE[name].operands)]
    if not {"e", "w"} & set(layout):
        layout = "e" + layout[1:]
    call = launch(name, dtype, len(shape), layout)
    operands = call.operands(rng, shape)
    outs = call(operands, shape)
    grown = [x[..., None] if kind == "r" else x for x, kind in zip(operands, layout, strict=True)]
    full = [np.ascontiguousarray(np.broadcast_to(x, shape)) for x in grown]
    right(TABLE[name].program("e" * len(layout)), full, call.params, dtype, outs)


@pytest.mark.parametrize("layout", ["eww", "ewr", "eur", "eru", "err"])
@pytest.mark.parametrize("shape", [(40,), (70_001,), (300, 100), (500, 5), (2, 70_001)], ids=str)
def test_layouts_of_a_row_op(layout, shape, launch, rng):
    call = launch("layer_norm", F32, len(shape), layout)
    operands = call.operands(rng, shape)
    right(call.program, operands, call.params, F32, call(operands, shape), least=0.9)


@pytest.mark.parametrize("shape", [(50,), (70_001,), (300, 1000), (200, 6), (2, 70_001)], ids=str)
@pytest.mark.parametrize("name", ["exp", "softmax", "sum", "max", "residual_rms_norm", "norm_l2"])
@pytest.mark.parametrize("values", [[], [np.nan], [np.inf], [-np.inf], [np.inf, np.nan], [3e38]], ids=str)
def test_guarded_kernels_report_what_they_made(name, shape, values, launch, rng):
    call = launch(name, F32, len(shape), guarded=True)
    operands = call.operands(rng, shape)
    if values:
        operands[0].reshape(-1)[-len(values) :] = values
    outs = call.results(shape)
    status = call.kernel(*operands, *call.params, *outs)
    plain = launch(name, F32, len(shape))(operands, shape)
    for a, b in zip(outs, plain, strict=True):
        np.testing.assert_array_equal(a, b)
    assert status == any(np.isnan(y).any() for y in outs) * 1 | any(np.isinf(y).any() for y in outs) * 2


def test_no_warning_and_the_callers_error_state_is_kept(launch):
    with np.errstate(all="raise"):
        x = np.array([0.0, -1.0, 1e38, np.nan], F32)
        launch("ln", F32, 1)([x], (4,))
        launch("div", F32, 1)([x, np.zeros(4, F32)], (4,))
        assert np.geterr()["divide"] == "raise"


def test_only_floats_are_supported():
    backend = ScalarBackend()
    for dtype in (np.float16, np.int32, np.longdouble, np.complex64):
        refused = backend.supports(Call(TABLE["add"], np.dtype(dtype), "ee", 1, (1,)))
        assert refused is not None and refused.code == "unsupported_dtype"
    assert backend.supports(Call(TABLE["add"], np.dtype(F32), "ee", 1, (1,))) is None
    assert backend.probe(1).ok and backend.probe(2).ok


def test_every_op_is_supported_or_says_why():
    backend = ScalarBackend()
    for op in TABLE.values():
        layout = "" if op.structured else op.layout
        refused = backend.supports(Call(op, np.dtype(F32), layout, 2, (4, 4)))
        assert refused is None or refused.code == "no_kernel"
