"""Products with what follows them in the same kernel: every head and kind of operand, judged by the op's own bound."""

import numpy as np
import pytest
from trueno.batch.epilogue import with_epilogue
from trueno.batch.merged import Part, Recipe, merged
from trueno.discovery.protocol import Call
from trueno.judge.structured import judge_structured
from trueno.ops import TABLE
from trueno_cuda.kernels import KERNELS
from trueno_cuda.kernels.epilogue import spliced
from trueno_cuda.kernels.gemm import matmul
from trueno_cuda.kernels.gemm.matmul import TILES, Choice
from trueno_cuda.kernels.gemm.simt import simt
from trueno_cuda.kernels.store import Store
from trueno_cuda.ptx import f32
from trueno_cuda.rows.accuracy import ACCURACY
from unit.cuda.kernels.products import DEVICE, FLOATS, floats, fresh
from unit.cuda.ptx.assembler import assembled

KINDS = {"matmul": "ewreu", "batched_matmul": "ewru", "matvec": "eewu", "vecmat": "eewu"}
SHAPES = {
    "matmul": [(1, 1, 1), (5, 7, 9), (70, 66, 40), (1, 50, 33), (50, 1, 33), (3, 40, 36)],
    "batched_matmul": [(5, 7, 9), (33, 20, 16)],
    "matvec": [(1, 1, 1), (40, 1, 33)],
    "vecmat": [(1, 1, 1), (1, 50, 33)],
}
BATCH = (2, 3)


def op_of(head, kinds=None, last="abs"):
    """number * product, then + each other operand in turn and `last` of it."""
    kinds = kinds or KINDS[head]
    parts = [Part("scale", (("x", 0, 0),), (("s", 0, 0),), ())]
    for i in range(1, len(kinds)):
        parts.append(Part("add", (("v", len(parts) - 1, 0), ("x", i, 0)), (), ()))
        parts.append(Part(last, (("v", len(parts) - 1, 0),), (), ()))
    recipe = Recipe(kinds, 1, tuple(parts), ((len(parts) - 1, 0, "e"),), rows=False)
    return with_epilogue(TABLE[head], merged(recipe), recipe.kinds, [p.op for p in recipe.parts])


def call_of(op, dtype=np.float32, rank=2, guarded=False):
    return Call(op, np.dtype(dtype), op.layout, rank, (5,) * len(op.operands), (), "cuda_emulated", guarded)


def operands_of(op, m, n, k, dtype, rng):
    """Operands, and the shape of the result."""
    given, whole = {
        "matmul": (((m, k), (k, n)), (m, n)),
        "batched_matmul": (((*BATCH, m, k), (*BATCH, k, n)), (*BATCH, m, n)),
        "matvec": (((m, k), (k,)), (m,)),
        "vecmat": (((k,), (k, n)), (n,)),
    }[op.head.name]
    beside = {"e": whole, "w": whole[-1:], "r": whole[:-1], "u": ()}
    return [np.asarray(floats(rng, dtype, *s)) for s in (*given, *(beside[kind] for kind in op.kinds[1:]))], whole


def judged(op, operands, shape, guarded=False, number=-1.25):
    call = call_of(op, operands[0].dtype, operands[0].ndim, guarded)
    assert KERNELS.refusal(call) is None
    out = DEVICE.to_device(np.full(shape, np.nan, call.dtype))
    kernel = KERNELS.kernel(call, DEVICE)
    assert kernel(*map(DEVICE.to_device, operands), number, out) == 0
    got = DEVICE.to_host(out)
    found = judge_structured(op, operands, {}, call.dtype, [got], (number,), ACCURACY)
    assert found.ok, str(found)
    assert found.free < 0.5
    return got


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("guarded", [False, True])
@pytest.mark.parametrize("head", KINDS)
def test_every_head_and_kind(dtype, head, guarded):
    rng, op = fresh(), op_of(head)
    DEVICE.take_status()
    for m, n, k in SHAPES[head]:
        judged(op, *operands_of(op, m, n, k, dtype, rng), guarded=guarded)
    assert DEVICE.take_status() == 0


@pytest.mark.parametrize("last", ["gelu", "sigmoid", "relu"])
def test_activations(last):
    op = op_of("matmul", "ew", last)
    judged(op, *operands_of(op, 33, 36, 20, np.float32, fresh()))


@pytest.mark.parametrize("choice", [Choice("small", 2), Choice("middle"), Choice("large", 3)], ids=str)
def test_after_the_last_sum(choice, monkeypatch):
    op = op_of("matmul", "ewr")
    monkeypatch.setattr(matmul, "choose", lambda *_: choice)
    judged(op, *operands_of(op, 130, 132, 130, np.float32, fresh()))


def test_rows_of_stacks_that_several_grids_make(monkeypatch):
    monkeypatch.setattr(matmul, "GRID_Z", 2)
    op = op_of("batched_matmul", "erew")
    judged(op, *operands_of(op, 5, 7, 9, np.float32, fresh()))


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_what_the_epilogue_makes_is_told(value):
    op = op_of("matmul", "ew")
    operands, shape = operands_of(op, 20, 24, 8, np.float32, fresh())
    operands[2][3] = value
    DEVICE.take_status()
    judged(op, operands, shape, guarded=True)
    assert DEVICE.take_status() == (1 if np.isnan(value) else 2)


def test_no_terms_leave_what_follows():
    op = op_of("matmul", "ew", "relu")
    (a, b, w), shape = operands_of(op, 3, 5, 0, np.float32, fresh())
    got = judged(op, (a, b, np.abs(w) + 1), shape)  # relu keeps them all
    assert got.all()


def test_a_result_may_be_an_element_operand_and_nothing_else():
    op, rng = op_of("matmul", "ee"), fresh()
    (a, b, c), _ = operands_of(op, 20, 20, 20, np.float32, rng)
    x, y, z = map(DEVICE.to_device, (a, b, c))
    kernel = KERNELS.kernel(call_of(op), DEVICE)
    assert kernel(x, y, x, 2.0, x) == kernel(x, y, z, 2.0, y) == -1
    assert kernel(x, y, z, 2.0, z) == 0
    want = np.abs(2.0 * (a.astype(np.float64) @ b) + c)
    np.testing.assert_allclose(DEVICE.to_host(z), want, rtol=1e-4, atol=1e-4)


def test_refusals():
    refused = KERNELS.refusal(call_of(op_of("outer", "ew")))
    assert refused.code == "unsupported_op" and "takes no epilogue" in refused.detail
    refused = KERNELS.refusal(call_of(op_of("matmul", "ew", "softmax")))
    assert refused.code == "unsupported_op" and "knows one element" in refused.detail
    (a, b, w), shape = operands_of(op_of("matmul", "ew"), 6, 6, 6, np.float32, fresh())
    x, y = map(DEVICE.to_device, (a, b))
    kernel = KERNELS.kernel(call_of(op_of("matmul", "ew")), DEVICE)
    out = DEVICE.to_device(np.full(shape, 7, np.float32))
    assert kernel(x, y, DEVICE.to_device(w[:5]), 1.0, out) == -1
    assert (DEVICE.to_host(out) == 7).all()


@pytest.mark.parametrize("name", TILES[f32])
def test_ptxas_takes_an_epilogue(name):
    store = Store(epilogue=spliced(op_of("matmul", "ewr", "gelu")))
    report = assembled(simt("sm_90", f32, TILES[f32][name], True, store))
    print(f"{name}: {report.registers} registers, {report.spilled} bytes spilled")
    assert report.spilled <= 256  # behind the sum, once a tile
