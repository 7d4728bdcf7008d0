"""Row kernels called directly: every schedule at its seams, shared buffers, limits, flags, sums, positions.

The conformance kit judges every op; here is what depends on shapes and buffers.
"""

import re
from dataclasses import replace
from itertools import pairwise
from math import prod
from typing import Any

import numpy as np
import pytest
from trueno.batch.merged import Part, Recipe, merged
from trueno.discovery.protocol import Call
from trueno.errors import KernelError
from trueno.judge.bound import bound, judge
from trueno.ops import TABLE
from trueno.programs.trace import trace

pytest.importorskip("wgpu")
from trueno_wgpu.device.array import Array
from trueno_wgpu.rows.accuracy import ACCURACY
from trueno_wgpu.rows.rowprogram import CHUNK, LONG, MEDIUM, NARROW, kernel

F = np.float32


class Tight:
    """A device with other limits."""

    def __init__(self, gpu: Any, **limits: int) -> None:
        self.gpu, self.limits = gpu, replace(gpu.limits, **limits)
        self.grids: list[tuple[int, ...]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.gpu, name)

    def run(self, shader: Any, buffers: Any, uniforms: bytes, groups: tuple[int, ...]) -> None:
        for b in buffers:
            assert getattr(b, "nbytes", 0) <= self.limits.binding, "bound more than the device binds"
            assert getattr(b, "offset", 0) % self.limits.alignment == 0
        assert max(groups) <= self.limits.groups
        self.grids.append(groups)
        self.gpu.run(shader, buffers, uniforms, groups)


def key(op: Any, layout: str = "", rank: int = 1, guarded: bool = False, **static: Any) -> Call:
    chosen = {p.name: p.default for p in op.static} | static
    return Call(op, np.dtype(F), layout or op.layout, rank, (5,), tuple(chosen.items()), "wgpu", guarded)


def call(gpu: Any, op: Any, *operands: Any, layout: str = "", params: tuple[float, ...] = (), **more: Any) -> Any:
    """Run a kernel on NumPy operands, judge its results and give them."""
    op = TABLE[op] if isinstance(op, str) else op
    layout = layout or op.layout
    rank = 2 if any(x.ndim == 2 for x in operands) or ("r" in layout and operands[layout.index("r")].ndim) else 1
    made = key(op, layout, rank, **more)
    program = op.program(layout, **dict(made.static))
    n = next(x.shape[-1] for x, k in zip(operands, layout, strict=True) if k in "ew")
    rows = max(x.shape[0] for x, k in zip(operands, layout, strict=True) if k in "er") if rank == 2 else 1
    outs = []
    for o in program.outputs:
        node = program.nodes[o]
        shape = ((rows, n) if rank == 2 else (n,)) if node.space == "e" else ((rows,) if rank == 2 else ())
        outs.append(Array.of(gpu, np.full(shape, 77, np.int64 if node.type == "index" else F)))
    built = kernel(gpu, made)
    assert built(*(Array.of(gpu, x) for x in operands), *params, *outs) == 0
    got = [y.numpy() for y in outs]
    for result, allowed in zip(got, bound(program, operands, params, F, ACCURACY), strict=True):
        verdict = judge(result, allowed.reshape(result.shape))
        assert verdict.ok, f"{op.name} {[x.shape for x in operands]}: {verdict}"
    return got


def chain(kinds: str, rows: bool, space: str, *parts: Part) -> Any:
    """The op of parts one after the other, whose result is that of the last."""
    return merged(Recipe(kinds, 0, parts, ((len(parts) - 1, 0, space),), rows))


class Written:
    """An op of one operand that is in no table."""

    name, doc, layout, static = "written", "", "e", ()

    class signature:
        text = ""

    def __init__(self, body: Any) -> None:
        self.body = body

    def program(self, layout: str, **static: Any) -> Any:
        return trace(self.body, [("x", layout)], (), {})


# ---- schedules --------------------------------------------------------------------------------------

ROWS = [1, 2, 31, NARROW, NARROW + 1, 127, MEDIUM, MEDIUM + 1, 8 * 1024 + 1, LONG - 1, LONG, LONG + CHUNK + 1]


@pytest.mark.parametrize("n", ROWS)
@pytest.mark.parametrize("rows", [1, 3, 35])
def test_rows_of_every_length(n: int, rows: int, gpu: Any, rng: np.random.Generator) -> None:
    """Lanes of a team, blocks of a lane and chunks of a row all have ragged ends."""
    x = rng.standard_normal((rows, n)).astype(F)
    for op in ("softmax", "argmax", "sum"):
        call(gpu, op, x)
    call(gpu, "layer_norm", x, *rng.standard_normal((2, n)).astype(F), params=(1e-5,))


@pytest.mark.parametrize("n", [1, 255, 1023, 1024, 1025, 4097])
def test_elementwise_of_every_length(n: int, gpu: Any, rng: np.random.Generator) -> None:
    x, y = rng.standard_normal((2, n)).astype(F)
    (got,) = call(gpu, "add", x, y)
    assert (got == x + y).all()
    call(gpu, "gelu", x)


@pytest.mark.parametrize("layout", ["ee", "ew", "we", "er", "re", "eu", "ue", "wr", "rw"])
def test_what_rows_share(layout: str, gpu: Any, rng: np.random.Generator) -> None:
    shapes = {"e": (37, 91), "w": (91,), "r": (37,), "u": ()}
    operands = [np.asarray(rng.standard_normal(shapes[k]), F) for k in layout]
    call(gpu, "sub", *operands, layout=layout)


def test_one_row_of_each_kind(gpu: Any, rng: np.random.Generator) -> None:
    shapes = {"e": (91,), "w": (91,), "r": (), "u": ()}
    for layout in ("ew", "er", "ru", "eu"):
        if set(layout) & set("ew"):
            call(gpu, "sub", *(np.asarray(rng.standard_normal(shapes[k]), F) for k in layout), layout=layout)


def test_no_invocation_makes_too_many_trips(gpu: Any) -> None:
    """Mesa's software ends loops silently after 65 535: a row of 2^24 ones would count as far fewer."""
    x = np.ones(1 << 24, F)
    for op in ("sum", "sum_kahan"):
        y = Array.empty(gpu, (), F)
        assert kernel(gpu, key(TABLE[op]))(Array.of(gpu, x), y) == 0
        assert y.numpy() == 1 << 24
    x[-1] = 2
    k = Array.empty(gpu, (), np.int64)
    assert kernel(gpu, key(TABLE["argmax"]))(Array.of(gpu, x), k) == 0
    assert k.numpy() == x.size - 1


def test_a_small_budget_makes_long_rows_of_shorter_ones(gpu: Any, rng: np.random.Generator) -> None:
    tight = Tight(gpu, trips=100)
    call(tight, "softmax", rng.standard_normal((200, 8000)).astype(F))
    assert len(tight.grids) == 3  # a dispatch a pass


def test_more_workgroups_than_an_axis_has(gpu: Any, rng: np.random.Generator) -> None:
    tight = Tight(gpu, groups=4)
    call(tight, "gelu", rng.standard_normal(8 * 1024 - 5).astype(F))
    call(tight, "softmax", rng.standard_normal((300, 9)).astype(F))
    call(tight, "softmax", rng.standard_normal((2, LONG)).astype(F))
    assert [grid[:2] for grid in tight.grids] == [(4, 2), (4, 3), (4, 4), (4, 4), (4, 4)]


# ---- limits of a binding ------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", ["ee", "ew", "re", "eu"])
def test_elementwise_beyond_a_binding(layout: str, gpu: Any, rng: np.random.Generator) -> None:
    shapes = {"e": (37, 91), "w": (91,), "r": (37,), "u": ()}
    tight = Tight(gpu, binding=1024)
    call(tight, "sub", *(np.asarray(rng.standard_normal(shapes[k]), F) for k in layout), layout=layout)
    assert len(tight.grids) == 14  # ⌈37 · 91 / 256⌉


def test_rows_beyond_a_binding(gpu: Any, rng: np.random.Generator) -> None:
    tight = Tight(gpu, binding=64 * 4 * 33)
    x = rng.standard_normal((150, 33)).astype(F)
    call(tight, "softmax", x)
    call(tight, "argmax", x)
    assert len(tight.grids) == 6


def test_a_long_row_beyond_a_binding(gpu: Any, rng: np.random.Generator) -> None:
    tight = Tight(gpu, binding=4 * 3 * CHUNK)
    x, w, b = rng.standard_normal((3, LONG + 7)).astype(F)
    call(tight, "softmax", x)
    assert len(tight.grids) == 9  # three passes over three bindings
    call(tight, "argmax", x)
    call(tight, "layer_norm", x, w, b, params=(1e-5,))


def test_what_cannot_be_split_is_refused_in_words(gpu: Any) -> None:
    tight = Tight(gpu, binding=1024)
    x, w = Array.empty(gpu, (9, 999), F), Array.empty(gpu, (999,), F)
    y, one = Array.empty(gpu, (9, 999), F), Array.empty(gpu, (9,), F)
    with pytest.raises(KernelError, match=r"softmax.*64 rows.*bytes.*1024"):
        kernel(tight, key(TABLE["softmax"], rank=2))(x, y)
    with pytest.raises(KernelError, match=r"add.*share.*3996 bytes.*1024"):
        kernel(tight, key(TABLE["add"], "ew", 2))(x, w, y)
    big = Array.empty(gpu, (2, LONG), F)
    with pytest.raises(KernelError, match=r"sum.*2 rows.*1024"):
        kernel(tight, key(TABLE["sum"], rank=2))(big, Array.empty(gpu, (2,), F))
    assert one.shape == (9,) and not tight.grids


# ---- shared buffers -----------------------------------------------------------------------------------


def test_the_same_operand_twice(gpu: Any, rng: np.random.Generator) -> None:
    x = Array.of(gpu, rng.standard_normal(500).astype(F))
    y = Array.empty(gpu, (500,), F)
    assert kernel(gpu, key(TABLE["mul"]))(x, x, y) == 0
    assert (y.numpy() == x.numpy() ** 2).all()


@pytest.mark.parametrize("n", [50, 500, 5000, LONG + 1])
@pytest.mark.parametrize("op", ["gelu", "log_softmax", "minmax_normalize", "softmax"])
def test_in_place(op: str, n: int, gpu: Any, rng: np.random.Generator) -> None:
    host = rng.standard_normal((3, n)).astype(F)
    x = Array.of(gpu, host)
    built = kernel(gpu, key(TABLE[op], rank=2))
    assert built(x, x) == 0
    (allowed,) = bound(built.program, (host,), (), F, ACCURACY)
    assert judge(x.numpy(), allowed)


@pytest.mark.parametrize("n", [50, LONG])
def test_a_result_that_keeps_a_value_is_no_operand(n: int, gpu: Any, rng: np.random.Generator) -> None:
    """A power of a power is dear, so it stays in the result until the last pass, which reads the operand again."""
    op = chain(
        "ee", True, "e",
        Part("pow", (("x", 0, 0), ("x", 1, 0)), (), ()), Part("pow", (("v", 0, 0), ("x", 1, 0)), (), ()),
        Part("softmax", (("v", 1, 0),), (), ()), Part("add", (("v", 2, 0), ("x", 0, 0)), (), ()),
    )  # fmt: skip
    host = np.exp(rng.standard_normal((2, 3, n)) / 9).astype(F)
    call(gpu, op, *host)
    x, y = (Array.of(gpu, v) for v in host)
    built = kernel(gpu, key(op, rank=2))
    assert built.plan.hazards == {(0, "arg0")}
    assert built(x, y, x) == -1
    assert (x.numpy() == host[0]).all()


def test_into_either_operand(gpu: Any, rng: np.random.Generator) -> None:
    for k in range(2):
        host = rng.standard_normal((2, 300)).astype(F)
        x = [Array.of(gpu, v) for v in host]
        assert kernel(gpu, key(TABLE["sub"]))(*x, x[k]) == 0
        assert (x[k].numpy() == host[0] - host[1]).all() and (x[1 - k].numpy() == host[1 - k]).all()


def test_results_that_may_not_share(gpu: Any) -> None:
    x, w, h = Array.empty(gpu, (3, 9), F), Array.empty(gpu, (9,), F), Array.empty(gpu, (3, 9), F)
    two = kernel(gpu, key(TABLE["residual_rms_norm"], rank=2))
    assert two(x, x, w, 1e-6, h, h) == -1
    assert two(x, h, w, 1e-6, x, x) == -1
    square = Array.empty(gpu, (9, 9), F)
    column = Array(square.shape[:1], F, square.buffer)
    assert kernel(gpu, key(TABLE["add"], "ew", 2))(square, column, square) == -1, "a shared row is read by all rows"
    assert kernel(gpu, key(TABLE["sum"], rank=2))(x, Array((3,), F, x.buffer)) == -1


def test_shapes_that_do_not_agree(gpu: Any) -> None:
    def a(*shape: int) -> Array:
        return Array.empty(gpu, shape, F)

    add = kernel(gpu, key(TABLE["add"], "ew", 2))
    assert add(a(3, 5), a(5), a(3, 5)) == 0
    for shapes in ([(3, 5), (4,), (3, 5)], [(3, 5), (5,), (3, 6)], [(3, 5), (5,), (2, 5)], [(5,), (5,), (3, 5)],
                   [(3, 5), (1, 5), (3, 5)], [(3, 5), (5,), (15,)], [(3, 5), (1,), (3, 5)]):  # fmt: skip
        assert add(*(a(*s) for s in shapes)) == -1, shapes


def test_nothing_to_do(gpu: Any) -> None:
    empty = Array.empty(gpu, (0,), F)
    before = gpu.counts.kernels
    assert kernel(gpu, key(TABLE["add"]))(empty, empty, empty) == 0
    assert kernel(gpu, key(TABLE["sum"]))(empty, Array.empty(gpu, (), F)) == -1, "it has a value, which is not ours"
    assert gpu.counts.kernels == before


# ---- sums, positions, flags -----------------------------------------------------------------------------


@pytest.mark.parametrize("n", [64, 1000, 20_000, 300_000])
def test_compensated_sums(n: int, gpu: Any, rng: np.random.Generator) -> None:
    """What a compiler that regroups additions would lose: 1e8 and −1e8 around small terms."""
    x = rng.standard_normal(n).astype(F)
    x[::7], x[3::7] = 1e8, -1e8
    x = x[: n // 7 * 7]
    (got,) = call(gpu, "sum_kahan", x)
    exact = np.sum(x.astype(np.float64))
    size = np.sum(np.abs(x.astype(np.float64)))
    assert abs(got - exact) <= 2.0**-24 * abs(exact) + n * 2.0**-48 * size


@pytest.mark.parametrize("n", [1000, 8000, 32_000, 1 << 20, 1 << 24])
def test_chains_of_additions_are_short(n: int, gpu: Any) -> None:
    """Ones behind a large term are lost in every addition that they make with it: at most as many as stated."""
    x = np.ones(n, F)
    x[0] = 2.0**24
    y = Array.empty(gpu, (), F)
    assert kernel(gpu, key(TABLE["sum"]))(Array.of(gpu, x), y) == 0
    exact = 2.0**24 + n - 1
    assert abs(float(y.numpy()) - exact) <= ACCURACY.chain * 2.0**-24 * exact


@pytest.mark.parametrize("n", [9, 300, 5000, LONG + 5, 1 << 20])
@pytest.mark.parametrize("op", ["argmax", "argmin"])
def test_positions(op: str, n: int, gpu: Any, rng: np.random.Generator) -> None:
    """The first of equals, the first NaN, −0 and +0 alike, all infinite; two words each."""
    rows = np.rint(2 * rng.standard_normal((7, n))).astype(F)
    rows[1, n // 2 :] = np.nan
    rows[2, n - 1] = np.nan
    rows[3] = -np.inf
    rows[4] = np.where(np.arange(n) % 2, 0.0, -0.0)
    rows[5] = np.inf
    rows[6] = np.nan
    k = Array.of(gpu, np.full(7, -1, np.int64))
    assert kernel(gpu, key(TABLE[op], rank=2))(Array.of(gpu, rows), k) == 0
    assert k.numpy().tolist() == getattr(np, op)(rows, axis=1).tolist()


@pytest.mark.parametrize("n", [9, 300, 5000, LONG + 5])
@pytest.mark.parametrize("value, bits", [(1.0, 0), (np.nan, 1), (np.inf, 2), (-np.inf, 2)])
def test_flags_in_every_schedule(n: int, value: float, bits: int, gpu: Any, rng: np.random.Generator) -> None:
    """One value in the last place of the last row; results as those of the plain kernel."""
    x = np.exp(rng.standard_normal((3, n))).astype(F)
    x[-1, -1] = value
    spoilt = int(not value < np.inf)  # −Inf among numbers gives 0
    for name, shape, expected in (("abs", (3, n), bits), ("norm_linf", (3,), bits), ("softmax", (3, n), spoilt)):
        y, z = Array.empty(gpu, shape, F), Array.empty(gpu, shape, F)
        gpu.take_status()
        assert kernel(gpu, key(TABLE[name], rank=2, guarded=True))(Array.of(gpu, x), y) == 0
        assert gpu.take_status() == expected, name
        assert kernel(gpu, key(TABLE[name], rank=2))(Array.of(gpu, x), z) == 0
        assert y.numpy().tobytes() == z.numpy().tobytes()


def test_both_flags(gpu: Any) -> None:
    x = np.ones(5000, F)
    x[7], x[4000] = np.nan, np.inf
    y = Array.empty(gpu, (5000,), F)
    assert kernel(gpu, key(TABLE["neg"], guarded=True))(Array.of(gpu, x), y) == 0
    assert gpu.take_status() == 3
    assert gpu.take_status() == 0


# ---- what compilers like to do away with ----------------------------------------------------------------


def test_zeros_of_a_body_are_not_folded_away(gpu: Any) -> None:
    x = np.array([1.0, -2.0, np.inf, -np.inf, np.nan, -0.0], F)
    (got,) = call(gpu, Written(lambda x: x * 0.0), x)
    assert np.isnan(got[2:5]).all()
    (got,) = call(gpu, Written(lambda x: 0.0 - (x + 0.0)), x)
    assert got[5] == 0 and not np.signbit(got[5])  # 0 − (−0 + 0)
    (got,) = call(gpu, Written(lambda x: (x + 0.0) * 1e39), x)
    assert np.isinf(got[:4]).all() and np.isnan(got[4:]).all()


def test_nothing_is_assumed_finite(gpu: Any) -> None:
    """x · 0, x + 0, x − x and (x + y) − x keep their NaN; −0 + 0 is 0."""
    x = np.array([1.0, -2.0, np.inf, -np.inf, np.nan, -0.0], F)
    (got,) = call(gpu, "scale", x, params=(0.0,))
    assert np.isnan(got[2:5]).all()
    zero = Recipe("e", 0, (Part("sub", (("x", 0, 0), ("x", 0, 0)), (), ()),), ((0, 0, "e"),), rows=False)
    (got,) = call(gpu, merged(zero), x)
    assert np.isnan(got[2:5]).all() and (got[:2] == 0).all()
    back = Recipe(
        "ee", 0, (Part("add", (("x", 0, 0), ("x", 1, 0)), (), ()), Part("sub", (("v", 0, 0), ("x", 0, 0)), (), ())),
        ((1, 0, "e"),), rows=False,
    )  # fmt: skip
    (got,) = call(gpu, merged(back), x, np.full(6, 3, F))
    assert np.isnan(got[2:5]).all()
    one = Recipe("e", 0, (Part("div", (("x", 0, 0), ("x", 0, 0)), (), ()),), ((0, 0, "e"),), rows=False)
    (got,) = call(gpu, merged(one), x)
    assert np.isnan(got[2:]).all() and (got[:2] == 1).all()
    (got,) = call(gpu, "fract", np.array([np.inf, -np.inf, np.nan, 1.5], F))
    assert np.isnan(got[:3]).all() and got[3] == 0.5


# ---- chains -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [5, 100, 3000, LONG])
def test_chains(n: int, gpu: Any, rng: np.random.Generator) -> None:
    column, w = rng.standard_normal(20).astype(F), rng.standard_normal(n).astype(F)
    x = rng.standard_normal((20, n)).astype(F)
    tanh = chain("e", False, "e", Part("relu", (("x", 0, 0),), (), ()), Part("tanh", (("v", 0, 0),), (), ()))
    call(gpu, tanh, x)
    first = chain(
        "re", True, "e", Part("add", (("x", 0, 0), ("x", 1, 0)), (), ()), Part("softmax", (("v", 0, 0),), (), ())
    )
    call(gpu, first, column, x, layout="re")
    nothing_fills = chain(
        "rw", True, "r", Part("mul", (("x", 0, 0), ("x", 1, 0)), (), ()), Part("sum", (("v", 0, 0),), (), ())
    )
    call(gpu, nothing_fills, column, w, layout="rw")


def test_shaders_are_made_once_a_schedule(gpu: Any, rng: np.random.Generator) -> None:
    built = kernel(gpu, key(TABLE["softmax"], rank=2))
    for shape in ((3, 5), (9, 64), (4, 1000), (2, 70), (7, 3000)):
        x = Array.of(gpu, rng.standard_normal(shape).astype(F))
        assert built(x, Array.empty(gpu, shape, F)) == 0
    assert built._shaders.cache_info().currsize == 3


def test_sizes_are_no_part_of_the_text(gpu: Any) -> None:
    """n, rows and parameters come as uniforms, so a new size compiles nothing."""
    from trueno_wgpu.rows.source import printed

    text = printed(TABLE["layer_norm"], "eww", schedule="rows64")
    numbers = {int(m) for m in re.findall(r"\b(\d+)u\b", text)}
    assert numbers <= {0, 1, 2, 4, 31, 32, 64, 256}
    assert all(a < b for a, b in pairwise(sorted(numbers))) and prod(numbers) == 0
