"""Rows that lie across memory (`axis=0`): right at every size, not copied, and the same for any number of threads."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

pytest.importorskip("numba", reason="needs numba")

import trueno
from seeds import fresh_seed
from trueno.backend import Call
from trueno.dispatch import axes, host, state
from trueno.dispatch.call import request
from trueno.ops import TABLE
from trueno_simd.backend import SimdBackend

SEED = fresh_seed(__name__)
SHAPES = [(1, 16), (2, 17), (7, 40), (8, 64), (9, 33), (64, 512), (65, 513), (200, 1030), (3, 19, 21), (2, 1, 3, 30)]
ORACLES: dict[str, Callable[..., Any]] = {
    "sum": np.sum, "mean": np.mean, "variance": np.var, "max": np.max, "min": np.min, "argmax": np.argmax,
    "argmin": np.argmin, "norm_l2": lambda x, axis: np.sqrt(np.sum(x * x, axis=axis)),
    "softmax": lambda x, axis: np.exp(x - x.max(axis, keepdims=True)) / np.exp(x - x.max(axis, keepdims=True)).sum(
        axis, keepdims=True),
    "minmax_normalize": lambda x, axis: (x - x.min(axis, keepdims=True)) / np.ptp(x, axis=axis, keepdims=True),
}  # fmt: skip


@pytest.fixture(autouse=True)
def on_simd() -> Iterator[None]:
    with trueno.use("simd"):
        yield


@pytest.fixture
def uncopied(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call that would copy rows fails."""

    def copies(*_: Any) -> Any:
        raise AssertionError("the operands were copied")

    monkeypatch.setattr(host, "_run", copies)


def spread(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> Any:
    """Numbers with a constant nowhere, so that every op has a value."""
    return (rng.random(shape) * 8 - 3).astype(dtype)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", ORACLES)
def test_every_size_is_right_and_not_copied(name: str, dtype: str, uncopied: None) -> None:
    rng = np.random.default_rng(SEED)
    for shape in SHAPES:
        for axis in range(len(shape) - 1):
            if np.prod(shape[axis + 1 :]) < axes.BESIDE or (name == "minmax_normalize" and shape[axis] == 1):
                continue
            x = spread(rng, shape, dtype)
            expected = ORACLES[name](x.astype(np.float64), axis=axis)
            for _ in range(3):  # the third call is a remembered one
                result = getattr(trueno, name)(x, axis=axis)
                assert result.shape == expected.shape
                close = np.isclose(result, expected, rtol=1e-5 if dtype == "float32" else 1e-12, atol=1e-6)
                assert close.all(), f"seed {SEED}: {name} of {shape} along {axis}"


def test_keepdims_and_out(uncopied: None) -> None:
    x = spread(np.random.default_rng(SEED), (30, 40), "float32")
    out = np.empty((1, 40), np.float32)
    for _ in range(3):
        assert trueno.sum(x, axis=0, keepdims=True, out=out) is out
    bound = len(x) * 2.0**-24 * np.abs(x).sum(0, dtype=np.float64)  # of terms that may cancel
    assert (np.abs(out[0] - x.sum(0, dtype=np.float64)) <= bound).all()
    expected = trueno.softmax(x, axis=0)
    for _ in range(3):
        y = x.copy()
        assert trueno.softmax(y, axis=0, out=y) is y
        assert np.array_equal(y, expected)


@pytest.mark.parametrize("name", ["max", "min", "argmax", "argmin"])
def test_nans_infinities_and_ties_are_those_of_a_row(name: str, uncopied: None) -> None:
    rng = np.random.default_rng(SEED)
    values = [0.0, -0.0, 1.0, 1.0, np.nan, np.inf, -np.inf]
    for dtype in ("float32", "float64"):
        x = rng.choice(values, (23, 300)).astype(dtype)
        assert np.array_equal(getattr(trueno, name)(x, axis=0), getattr(np, name)(x, axis=0), equal_nan=True)


def test_large_sums_keep_their_digits() -> None:
    x = np.full((100_003, 16), 0.1, np.float32)
    x[::7] = 1e4
    exact = x.sum(0, dtype=np.float64)
    assert np.max(np.abs(trueno.sum(x, axis=0) / exact - 1)) < 2e-7
    tiny = np.ones((4099, 16))
    tiny[0], tiny[-1] = 1e17, -1e17
    assert np.array_equal(trueno.sum_kahan(tiny, axis=0), np.full(16, 4097.0))


@pytest.mark.parametrize("name", ["sum", "argmax", "softmax", "layer_norm"])
def test_any_number_of_threads_gives_the_same_bits(name: str) -> None:
    rng = np.random.default_rng(SEED)
    x = spread(rng, (300, 2000), "float32")
    more = (spread(rng, (300,), "float32"), spread(rng, (300,), "float32")) if name == "layer_norm" else ()
    results = []
    for threads in (1, 2, 3):
        trueno.settings.override("TRUENO_THREADS", threads)
        try:
            results.append(getattr(trueno, name)(x, *more, axis=0).tobytes())
        finally:
            trueno.settings.override("TRUENO_THREADS", None)
    assert len(set(results)) == 1


@pytest.mark.parametrize("change", [
    lambda x: x[:, ::2], lambda x: x.astype(">f4"), lambda x: x[:, :8].copy(), lambda x: np.asfortranarray(x),
])  # fmt: skip
def test_other_operands_are_copied_and_right(change: Callable[[Any], Any]) -> None:
    x = change(spread(np.random.default_rng(SEED), (50, 64), "float32"))
    for _ in range(3):
        assert np.allclose(trueno.sum(x, axis=0), x.sum(0, dtype=np.float64), rtol=1e-5)
    assert np.allclose(trueno.add(x, x), x + x)


def test_overlaps_are_as_if_there_were_none() -> None:
    room = spread(np.random.default_rng(SEED), (61, 40), "float32")
    expected = trueno.softmax(room[:60].copy(), axis=0)
    for _ in range(3):
        own = room.copy()
        assert np.allclose(trueno.softmax(own[:60], axis=0, out=own[1:]), expected, rtol=1e-6)


@pytest.mark.parametrize("name", ["sum", "softmax"])
def test_a_trace_changes_no_result_and_sees_this_kernel(name: str) -> None:
    x = spread(np.random.default_rng(SEED), (200, 400), "float32")
    expected = getattr(trueno, name)(x, axis=0)
    with trueno.trace() as trace:
        for _ in range(3):
            result = getattr(trueno, name)(x, axis=0)
            assert np.array_equal(result, expected), f"seed {SEED}"
    runs = [event for event in trace.events if event.kind == "run"]
    assert [event.data["shapes"] for event in runs] == [[(1, 200, 400)]] * 3


GUARD = trueno.JidokaGuard().on(trueno.Condition.NAN, trueno.Action.STOP).on(trueno.Condition.INF, trueno.Action.STOP)


@pytest.mark.parametrize("name", ["sum", "argmax", "norm_l2", "softmax", "residual_rms_norm"])
def test_a_guard_copies_nothing_and_changes_no_result(name: str, uncopied: None) -> None:
    rng = np.random.default_rng(SEED)
    op = TABLE[name]
    for shape in ((200, 1030), (3, 19, 21)):
        kinds = {"e": shape, "w": shape[-2:-1]}
        operands = [spread(rng, kinds[kind], "float32") for kind in op.layout]
        expected = getattr(trueno, name)(*operands, axis=-2)
        for _ in range(3):
            with GUARD:
                result = getattr(trueno, name)(*operands, axis=-2)
            for a, b in zip(np.atleast_1d(result), np.atleast_1d(expected), strict=True):
                assert np.array_equal(a, b), f"seed {SEED}: {name} of {shape}"


@pytest.mark.parametrize("name", ["sum", "argmax", "softmax", "sum_kahan", "residual_rms_norm"])
def test_the_status_is_exactly_what_the_results_hold(name: str) -> None:
    rng = np.random.default_rng(SEED)
    op, dtype = TABLE[name], np.dtype(np.float32)
    params = [float(p.default) for p in op.params if p.symbolic]
    for outer, n, inner in ((3, 40, 300), (2, 200, 1030)):
        size = outer * n * inner
        call = Call(op, dtype, op.layout, 2, (size.bit_length(),), (), "host", True)
        kernel = SimdBackend().columns(call)
        assert kernel is not None
        along = [op.over in spec.dims for spec in op.signature.outputs]
        for special in ([], [np.nan], [np.inf], [-np.inf], [np.nan, np.inf], [3e38] * n):
            kinds = {"e": (outer, n, inner), "w": (n,)}
            operands = [spread(rng, kinds[kind], "float32") for kind in op.layout]
            column = operands[0][int(rng.integers(outer)), :, int(rng.integers(inner))]
            column[rng.permutation(n)[: len(special)]] = special[:n]
            results = [
                np.zeros(kinds["e"] if e else (outer, inner), np.int64 if spec.index else dtype)
                for e, spec in zip(along, op.signature.outputs, strict=True)
            ]
            floats = [r for r in results if r.dtype.kind == "f"]
            status = kernel(*operands, *params, *results)
            held = any(np.isnan(r).any() for r in floats) * 1 | any(np.isinf(r).any() for r in floats) * 2
            assert status == held, f"seed {SEED}: {name}, {special[:2]}"


def test_a_guard_names_the_place_in_the_callers_array() -> None:
    x = np.ones((7, 20, 32), np.float32)
    x[2, :, 30] = 3e38
    guard = trueno.JidokaGuard().on(trueno.Condition.OVERFLOW, trueno.Action.STOP)
    for _ in range(2):
        assert np.isinf(trueno.sum(x, axis=1)[2, 30])
        with guard, pytest.raises(trueno.GuardError) as caught:
            trueno.sum(x, axis=1)
        assert vars(caught.value)["index"] == (2, 30) and vars(caught.value)["shape"] == (7, 32)
    x = spread(np.random.default_rng(SEED), (7, 20, 32), "float32")
    x[2, :, 30] = 1.0  # its range is 0
    with GUARD, pytest.raises(trueno.GuardError) as caught:
        trueno.minmax_normalize(x, axis=1)
    assert vars(caught.value)["index"] == (2, 0, 30) and vars(caught.value)["shape"] == (7, 20, 32)


@pytest.mark.parametrize("name", ["sum", "softmax", "layer_norm"])
def test_a_guards_repair_reaches_the_result(name: str) -> None:
    rng = np.random.default_rng(SEED)
    x = spread(rng, (3, 60, 200), "float32")
    more = [spread(rng, (60,), "float32") for _ in TABLE[name].operands[1:]]
    guard = trueno.JidokaGuard().on(trueno.Condition.divergence(0.0), trueno.Action.FALL_BACK)
    with guard:
        result = getattr(trueno, name)(x, *more, axis=1)
        lying = getattr(trueno, name)(np.ascontiguousarray(x.swapaxes(1, 2)), *more)
        assert np.array_equal(result, lying if name == "sum" else lying.swapaxes(1, 2)), f"seed {SEED}"
        out = x.copy() if name != "sum" else np.empty((3, 200), np.float32)
        assert np.array_equal(getattr(trueno, name)(out if name != "sum" else x, *more, axis=1, out=out), result)


def test_the_first_call_compiles_one_kernel_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    x = spread(np.random.default_rng(SEED), (200, 400), "float32")
    monkeypatch.setattr(SimdBackend, "kernel", None)  # that of rows is not needed
    for guard in (trueno.JidokaGuard(), GUARD):
        with guard, trueno.trace() as trace:
            state.current.get().forget("mean")
            for _ in range(3):
                assert np.allclose(trueno.mean(x, axis=0), x.mean(0), rtol=1e-5)
        compiled = [event for event in trace.events if event.kind == "compile"]
        assert [(event.op, event.backend) for event in compiled] == [("mean", "simd")]
        assert compiled[0].seconds > 0


def test_a_backend_that_cannot_make_the_kernel_gets_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    x = spread(np.random.default_rng(SEED), (20, 32), "float32")
    plan = state.current.get().chosen(request(TABLE["sum"], (x,), {"axis": 0}))
    assert plan is not None

    def fails(call: Any) -> Any:
        raise RuntimeError("no such kernel")

    monkeypatch.setattr(plan.backend, "columns", fails)
    state.forget_plans("sum")
    try:
        assert np.allclose(trueno.sum(x, axis=0), x.sum(0), rtol=1e-5)
    finally:
        state.forget_plans("sum")
