"""Ops that subtract a mean, on rows of equal numbers: there is nothing to round, whatever the mean's own rounding.

They do not see a constant that is added to a whole row.  So a constant row gives what a row of zeros does, to the bit;
in it no sum, mean or product can err.
"""

import os

import numpy as np
import trueno
from ml_dtypes import bfloat16
from seeds import fresh_seed
from trueno.ops import TABLE
from trueno.ops.op import Op

SEED = int(os.environ.get("ROWS_SEED", "0")) or fresh_seed(__name__)
LENGTHS = (3, 33, 130, 1000)
"""Of narrow rows, and of such whose sums are rounded in many ways."""
HALVES = (np.dtype(np.float16), np.dtype(bfloat16))


def subtracts_a_mean(op: Op) -> bool:
    """Whether the op's program takes Σ/n, bounded or not, off an element."""
    if op.structured or op.over is None:
        return False
    program = op.program()
    nodes = program.nodes
    less = [n.args for n in nodes if n.kind == "sub" and [nodes[a].space for a in n.args] == ["e", "r"]]
    return any("count" in {nodes[i].kind for i in program.live([mean])} for _, mean in less)


OPS = tuple(name for name, op in TABLE.items() if subtracts_a_mean(op))


def equal(got, want, said=""):
    """To the bit but for the sign of zeros; NaN is NaN, of which NumPy is not sure in bfloat16."""
    want = np.broadcast_to(want, got.shape)
    np.testing.assert_array_equal(got.astype(np.float64), want.astype(np.float64), err_msg=said)


def check(backend, dtype, lengths=LENGTHS, leads=((), (70,)), ops=OPS):
    """Each op in every shape; where all are asked for, layer_norm guarded and in a batch, between add and gelu, too."""
    rng = np.random.default_rng(SEED)
    print(f"ROWS_SEED={SEED}")
    for n in lengths:
        for lead in leads:
            constant = rng.uniform(1, 2, (*lead, 1)) * 10.0 ** rng.integers(-2, 4)
            x = np.broadcast_to(constant, (*lead, n)).astype(dtype)
            w, b = rng.normal(1, 1, (2, n)).astype(dtype)
            for name in ops:
                op = TABLE[name]
                others = {"w": w, "b": b}
                arrays = [others.get(operand, x) for operand in op.operands]
                zeros = [others.get(operand, np.zeros_like(x)) for operand in op.operands]
                with trueno.use(backend):
                    got, want = getattr(trueno, name)(*arrays), getattr(trueno, name)(*zeros)
                    equal(got, want, f"{name} of {constant.ravel()[:3]}, {x.shape}")
                    if name == "layer_norm":
                        equal(got, b)
                    if name in ("variance", "stddev", "covariance"):
                        assert not np.any(got), f"{name} of {constant.ravel()[:3]}"
            if np.dtype(dtype) in HALVES or ops != OPS:
                continue
            with trueno.use(backend):
                with trueno.JidokaGuard():
                    equal(trueno.layer_norm(x, w, b), b)
                with trueno.Batch(backend) as batch:
                    rest = (x - constant.astype(dtype) / 2).astype(dtype)
                    h = batch.add(batch.upload((x - rest).astype(dtype)), batch.upload(rest))
                    normal = batch.layer_norm(h, batch.upload(w), batch.upload(b))
                    curved = batch.gelu(normal)
                    batch.execute()
                    equal(batch.read(normal), b)
                    equal(batch.read(curved), trueno.gelu(b))
