"""Products with an epilogue: every head and kind of operand, in place and packed, judged by their own bound."""

import zlib

import numpy as np
import pytest
import trueno
from trueno.batch.epilogue import shapes, with_epilogue
from trueno.batch.merged import Part, Recipe, merged
from trueno.discovery.protocol import Call
from trueno.judge.structured import judge_structured
from trueno.ops import TABLE

pytest.importorskip("numba")

from trueno_simd.backend import SimdBackend
from trueno_simd.kernels import matmul
from trueno_simd.rows import epilogue

BACKEND = SimdBackend()
KINDS = {"matmul": "ewreu", "batched_matmul": "ewreu", "matvec": "eeu", "vecmat": "eeu"}
SHAPES = {
    # in place, masked, wide and tall (so that a chunk is finished in parts), packed in one slab and in two
    "matmul": [(1, 1, 1), (5, 7, 9), (13, 40, 33), (2, 700, 16), (900, 31, 5), (70, 1100, 250), (61, 600, 530)],
    "batched_matmul": [(5, 7, 9), (3, 200, 150), (40, 1100, 250)],
    "matvec": [(1, 1, 1), (40, 1, 33), (700, 1, 300)],
    "vecmat": [(1, 1, 1), (1, 50, 33), (1, 700, 300)],
}
BATCH = (2, 3)
SENTINEL = -77.0


@pytest.fixture
def rng(request):
    seed = zlib.crc32(request.node.name.encode())
    print(f"seed {seed}")
    return np.random.default_rng(seed)


def chain(kinds, results=1):
    """number · product, then + each other operand in turn and the absolute value; the last values are the results."""
    parts = [Part("scale", (("x", 0, 0),), (("s", 0, 0),), ())]
    for i in range(1, len(kinds)):
        parts.append(Part("add", (("v", len(parts) - 1, 0), ("x", i, 0)), (), ()))
        parts.append(Part("abs", (("v", len(parts) - 1, 0),), (), ()))
    outputs = tuple((len(parts) - 1 - j, 0, "e") for j in range(results - 1)) + ((-1, 0, "e"),) * (results > 1)
    return Recipe(kinds, 1, tuple(parts), outputs or ((len(parts) - 1, 0, "e"),), rows=False)


def op_of(head, kinds=None, results=1):
    recipe = chain(kinds or KINDS[head], results)
    return with_epilogue(TABLE[head], merged(recipe), recipe.kinds, [p.op for p in recipe.parts])


def call_of(op, dtype, rank):
    return Call(op, np.dtype(dtype), op.layout, rank, (0,) * len(op.operands))


def operands_of(op, m, n, k, dtype, rng):
    """Operands, and the shape of a result."""
    given, whole = {
        "matmul": (((m, k), (k, n)), (m, n)),
        "batched_matmul": (((*BATCH, m, k), (*BATCH, k, n)), (*BATCH, m, n)),
        "matvec": (((m, k), (k,)), (m,)),
        "vecmat": (((k,), (k, n)), (n,)),
    }[op.head.name]
    beside = shapes(whole)
    made = [*given, *(beside[kind] for kind in op.kinds[1:])]
    return [np.asarray(rng.standard_normal(s), dtype) for s in made], whole


def guarded(shape, dtype):
    """A result between two runs of sentinels, full of NaN, which must not come in."""
    size = int(np.prod(shape))
    around = np.full(size + 64, SENTINEL, dtype)
    out = around[32 : 32 + size].reshape(shape)
    out.fill(np.nan)
    return around, out


def check(op, kernel, operands, whole, dtype):
    results = [guarded(whole, dtype) for _ in op.signature.outputs]
    assert kernel(*operands, 1.5, *(out for _, out in results)) == 0
    verdict = judge_structured(op, operands, {}, dtype, [out for _, out in results], [1.5], BACKEND.accuracy)
    assert verdict.ok and verdict.free == 0, str(verdict)
    for around, _ in results:
        assert (around[:32] == SENTINEL).all() and (around[-32:] == SENTINEL).all()


@pytest.mark.parametrize(("head", "dtype"), [*((head, "f4") for head in KINDS), ("matmul", "f8"), ("vecmat", "f8")])
def test_every_head_and_kind(head, dtype, rng):
    op = op_of(head)
    call = call_of(op, dtype, len(BATCH) + 2 if head == "batched_matmul" else 2)
    assert BACKEND.supports(call) is None
    kernel = BACKEND.kernel(call)
    for m, n, k in SHAPES[head]:
        operands, whole = operands_of(op, m, n, k, dtype, rng)
        check(op, kernel, operands, whole, dtype)
    operands, whole = operands_of(op, 3, 5, 0, dtype, rng)  # nothing to add: the epilogue of zeros
    check(op, kernel, operands, whole, dtype)


def test_several_results(rng):
    """The product itself among them."""
    op = op_of("matmul", "ew", results=3)
    kernel = BACKEND.kernel(call_of(op, "f4", 2))
    for m, n, k in ((5, 7, 9), (70, 1100, 250)):
        operands, whole = operands_of(op, m, n, k, "f4", rng)
        check(op, kernel, operands, whole, "f4")


@pytest.mark.slow
def test_the_number_of_threads_changes_nothing(rng):
    from trueno_simd.threads.pool import count, set_count

    before, op = count(), op_of("matmul")
    operands, whole = operands_of(op, 200, 1030, 260, "f4", rng)
    results = []
    try:
        for threads in (1, 3):
            set_count(threads)
            results.append(np.empty(whole, "f4"))
            assert BACKEND.kernel(call_of(op, "f4", 2))(*operands, 1.5, results[-1]) == 0
    finally:
        set_count(before)
    np.testing.assert_array_equal(*results)


def test_where_the_blas_makes_the_product(rng):
    """Then the epilogue goes over all of it, in bands; here another's product is already there."""
    op = op_of("matmul")
    operands, _ = operands_of(op, 150, 700, 30, "f4", rng)
    out = np.matmul(*operands[:2])
    compiled = epilogue._compiled(op, "float32", 2)
    assert compiled(*operands, 1.5, out, 0, epilogue.NONE) == 0
    verdict = judge_structured(op, operands, {}, "f4", [out], [1.5], BACKEND.accuracy)
    assert verdict.ok, str(verdict)
    answers = iter([matmul.ELSEWHERE, 0])
    seen = []

    def elsewhere(*args):
        seen.append(args[-3].copy())
        return next(answers)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(epilogue, "_compiled", lambda *_: elsewhere)
        out.fill(0)
        assert epilogue.with_epilogue(call_of(op, "f4", 2))(*operands, 1.5, out) == 0
    assert (seen[0] == 0).all()
    np.testing.assert_array_equal(seen[1], np.matmul(*operands[:2]))


def test_what_it_refuses(rng):
    op = op_of("matmul")
    kernel = BACKEND.kernel(call_of(op, "f4", 2))
    operands, whole = operands_of(op, 6, 8, 7, "f4", rng)
    out = np.full(whole, SENTINEL, "f4")
    for i, x in enumerate(operands):
        for axis in range(x.ndim):
            short = [*operands]
            short[i] = np.ascontiguousarray(np.delete(x, 0, axis))
            assert kernel(*short, 1.5, out) == -1, (i, axis)
        with pytest.raises(TypeError):
            kernel(*(o.astype("f8") if j == i else o for j, o in enumerate(operands)), 1.5, out)
    residual = op.kinds.index("e", 1) + 1
    assert kernel(*operands[:residual], out, *operands[residual + 1 :], 1.5, out) == -1
    assert (out == SENTINEL).all()
    assert "computes in float32 or float64, not float16" in BACKEND.supports(call_of(op, "f2", 2)).detail
    assert "takes no epilogue" in BACKEND.supports(call_of(op_of("outer", "ew"), "f4", 1)).detail
    from dataclasses import replace

    assert BACKEND.supports(replace(call_of(op, "f4", 2), guarded=True)).code == "unguarded"
    assert BACKEND.supports(call_of(op_of("batched_matmul"), "f4", 5)).code == "unsupported_op"


def test_in_a_batch_it_is_one_kernel_and_a_guard_sees_it(rng):
    x, w, bias = (rng.standard_normal(s).astype("f4") for s in ((40, 30), (30, 50), (50,)))
    with trueno.Batch("simd") as b:
        h = b.relu(b.add(b.matmul(b.upload(x), b.upload(w)), b.upload(bias)))
        b.execute()
        assert b.counts.kernels == 1
        np.testing.assert_allclose(b.read(h), np.maximum(x @ w + bias, 0), rtol=1e-4, atol=1e-5)
    guard = trueno.JidokaGuard().on(trueno.Condition.NAN, trueno.Action.STOP)
    with guard, trueno.Batch("simd") as b:
        h = b.sqrt(b.sub(b.matmul(b.upload(x), b.upload(w)), 1000.0))
        with pytest.raises(trueno.GuardError, match="matmul_sub_sqrt"):
            b.execute()
        assert b.counts.kernels == 0 and h.shape == (40, 50)
