"""Products of wgpu with what follows them: every head and kind of operand, judged by the op's own bound."""

from dataclasses import replace

import numpy as np
import pytest
import trueno
from trueno.batch.epilogue import with_epilogue
from trueno.batch.merged import Part, Recipe, merged
from trueno.discovery.protocol import Call
from trueno.errors import KernelError
from trueno.judge.structured import judge_structured
from trueno.ops import TABLE

pytest.importorskip("wgpu")
from trueno_wgpu.device.array import Array
from trueno_wgpu.kernels import KERNELS, matmul
from trueno_wgpu.rows.accuracy import ACCURACY
from unit.wgpu.products import floats, unwritten

KINDS = {"matmul": "ewreu", "batched_matmul": "ewru", "matvec": "eeu", "vecmat": "eeu"}
SHAPES = {
    "matmul": [(1, 1, 1), (5, 7, 9), (64, 64, 64), (70, 66, 40), (1, 50, 33), (50, 1, 33), (3, 40, 12)],
    "batched_matmul": [(5, 7, 9), (33, 20, 16)],
    "matvec": [(1, 1, 1), (40, 1, 33), (70, 1, 64)],
    "vecmat": [(1, 1, 1), (1, 50, 33), (1, 64, 300)],
}
BATCH = (2, 3)


def op_of(head, kinds=None, last="abs"):
    """number · product, then + each other operand in turn and `last` of it."""
    kinds = kinds or KINDS[head]
    parts = [Part("scale", (("x", 0, 0),), (("s", 0, 0),), ())]
    for i in range(1, len(kinds)):
        parts.append(Part("add", (("v", len(parts) - 1, 0), ("x", i, 0)), (), ()))
        parts.append(Part(last, (("v", len(parts) - 1, 0),), (), ()))
    recipe = Recipe(kinds, 1, tuple(parts), ((len(parts) - 1, 0, "e"),), rows=False)
    return with_epilogue(TABLE[head], merged(recipe), recipe.kinds, [p.op for p in recipe.parts])


def call_of(op, rank=2, guarded=False):
    return Call(op, np.dtype("f4"), op.layout, rank, (5,) * len(op.operands), (), "wgpu", guarded)


def operands_of(op, m, n, k, rng):
    """Operands, and the shape of the result."""
    given, whole = {
        "matmul": (((m, k), (k, n)), (m, n)),
        "batched_matmul": (((*BATCH, m, k), (*BATCH, k, n)), (*BATCH, m, n)),
        "matvec": (((m, k), (k,)), (m,)),
        "vecmat": (((k,), (k, n)), (n,)),
    }[op.head.name]
    beside = {"e": whole, "w": whole[-1:], "r": whole[:-1], "u": ()}
    return [np.asarray(floats(rng, *s)) for s in (*given, *(beside[kind] for kind in op.kinds[1:]))], whole


def judged(gpu, op, operands, shape, guarded=False, number=-1.25):
    call = call_of(op, operands[0].ndim, guarded)
    assert KERNELS.refusal(call) is None
    out = unwritten(gpu, shape)
    assert KERNELS.kernel(call, gpu)(*(Array.of(gpu, x) for x in operands), number, out) == 0
    found = judge_structured(op, operands, {}, call.dtype, [out.numpy()], (number,), ACCURACY)
    assert found.ok, str(found)
    assert found.free < 0.5
    return out.numpy()


@pytest.mark.parametrize("guarded", [False, True])
@pytest.mark.parametrize("head", KINDS)
def test_every_head_and_kind(gpu, rng, head, guarded):
    op = op_of(head)
    gpu.take_status()
    for m, n, k in SHAPES[head]:
        judged(gpu, op, *operands_of(op, m, n, k, rng), guarded=guarded)
    assert gpu.take_status() == 0


@pytest.mark.parametrize("last", ["gelu", "sigmoid", "relu"])
def test_activations(gpu, rng, last):
    op = op_of("matmul", "ew", last)
    judged(gpu, op, *operands_of(op, 33, 36, 20, rng))


def test_splits_large_tiles_and_bands(gpu, rng, monkeypatch):
    """What comes after the last sum, and knows which row of the whole it is."""
    op = op_of("matmul", "ewr")
    monkeypatch.setattr(matmul, "choose", lambda *_: (matmul.SMALL, 2))
    judged(gpu, op, *operands_of(op, 40, 36, 200, rng))
    monkeypatch.setattr(matmul, "choose", lambda *_: (matmul.LARGE, 1))
    judged(gpu, op, *operands_of(op, 130, 132, 40, rng))
    monkeypatch.setattr(matmul, "choose", lambda *_: (matmul.MIDDLE, 2))
    monkeypatch.setattr(gpu, "limits", replace(gpu.limits, binding=64 << 10, trips=0))
    for m, n, k in ((300, 40, 128), (40, 40, 700)):
        judged(gpu, op, *operands_of(op, m, n, k, rng))
    op = op_of("matvec", "eeu")
    judged(gpu, op, *operands_of(op, 300, 1, 128, rng))
    op = op_of("matmul", "ew")
    large = operands_of(op, 300, 128, 16, rng)
    with pytest.raises(KernelError, match=r"call matmul and what follows it apart"):
        judged(gpu, op, *large)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_what_the_epilogue_makes_is_told(gpu, rng, value):
    op = op_of("matmul", "ew")
    operands, shape = operands_of(op, 20, 24, 8, rng)
    operands[2][3] = value
    gpu.take_status()
    judged(gpu, op, operands, shape, guarded=True)
    assert gpu.take_status() == (1 if np.isnan(value) else 2)


def test_refusals(gpu, rng):
    def reason(op):
        return KERNELS.refusal(call_of(op)).detail

    assert "takes no epilogue" in reason(op_of("outer", "ew"))
    assert "5 arrays beside a product" in reason(op_of("matmul", "eeeeee"))
    op = op_of("matmul", "ew")
    (a, b, w), shape = operands_of(op, 6, 6, 6, rng)
    held = [Array.of(gpu, x) for x in (a, b, w)]
    run = KERNELS.kernel(call_of(op), gpu)
    out = unwritten(gpu, shape)
    assert run(*held[:2], Array.of(gpu, floats(rng, 5)), 1.0, out) == -1
    assert run(*held, 1.0, unwritten(gpu, (6, 5))) == -1
    assert run(*held, 1.0, held[0]) == -1
    op = op_of("matmul", "ee")
    e = Array.of(gpu, floats(rng, 6, 6))
    assert KERNELS.kernel(call_of(op), gpu)(*held[:2], e, 1.0, e) == -1
    assert np.isnan(out.numpy()).all()


def test_a_batch_of_a_layer_is_one_kernel(chosen, rng):
    from trueno.discovery import registry

    x, w, bias = floats(rng, 20, 30), floats(rng, 30, 40), floats(rng, 40)
    backend = registry.load("wgpu")
    with trueno.Batch("wgpu") as batch:
        given = [batch.upload(v) for v in (x, w, bias)]
        y = batch.relu(batch.add(batch.matmul(given[0], given[1]), given[2]))
        backend.gpu.counts.reset()
        batch.execute()
        assert backend.gpu.counts.kernels == 1
        np.testing.assert_allclose(batch.read(y), np.maximum(x @ w + bias, 0), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("activations", ["f32", "q8"])
@pytest.mark.parametrize("op", ["quant_matvec", "quant_matmul"])
@pytest.mark.usefixtures("chosen")
def test_products_of_blocks_with_what_has_no_operand_of_its_own(rng, op, activations):
    w = trueno.quantize(rng.standard_normal((17, 96), np.float32), "mxfp4")
    x = rng.standard_normal((3, 96)[op == "quant_matvec" :], np.float32)
    operands = (w, x) if op == "quant_matvec" else (x, w)
    with trueno.Batch("wgpu") as batch:
        there = [batch.upload(one) for one in operands]
        y = batch.neg(batch.abs(getattr(batch, op)(*there, activations=activations)))
        batch.execute()
        got = batch.read(y)
    with trueno.use("reference"):
        wanted = -np.abs(getattr(trueno, op)(*operands, activations=activations))
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-4)
