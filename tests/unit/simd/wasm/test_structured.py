"""Products and other structured ops as kernels of WebAssembly, and what has no such kernel."""

from typing import Any

import numpy as np
import pytest

pytest.importorskip("numba", reason="needs numba")
import trueno
from seeds import fresh_seed
from trueno.errors import KernelError
from trueno.testing import assert_op

from .node import compiled

F32 = np.float32
PRODUCTS, DRAWN = 3, 2
"""Calls of `matmul`, which is one kernel, and how many others a run of the test draws: a kernel takes seconds."""


@pytest.fixture
def rng() -> np.random.Generator:
    seed = fresh_seed()
    print("seed", seed)
    return np.random.default_rng(seed)


def one_of_each(rng: np.random.Generator) -> list[tuple[str, tuple[Any, ...], dict[str, Any]]]:
    """Calls of ops whose kernels compiled code alone can run."""

    def normal(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape).astype(F32)

    return [
        ("matmul", (normal(33, 70), normal(70, 45)), {}),
        ("matmul", (normal(130, 300), normal(300, 129)), {}),
        ("matmul", (normal(1, 5), normal(5, 1)), {}),
        ("matvec", (normal(37, 90), normal(90)), {}),
        ("vecmat", (normal(90), normal(90, 37)), {}),
        ("transpose", (normal(37, 61),), {}),
        ("embedding_lookup", (normal(50, 19), rng.integers(0, 50, 12)), {}),
        ("rope", (normal(5, 3, 16), np.array([0, 1, 7, 4000, 2])), {}),
        ("rope", (normal(5, 3, 16), np.array([0, 1, 7, 4000, 2])), {"style": "interleaved", "dims": 8}),
        ("batched_matmul", (normal(3, 9, 20), normal(3, 20, 11)), {}),
        ("convolve2d", (normal(19, 23), normal(3, 5)), {"mode": "same"}),
        ("convolve2d", (normal(2, 12, 13), normal(4, 2, 3, 3)), {}),
        ("concatenate", (normal(4, 7), normal(4, 3)), {"axis": -1}),
        ("outer", (normal(9), normal(14)), {}),
        ("topk", (normal(3, 50),), {"k": 5}),
        ("attention", (normal(9, 4, 16), normal(12, 2, 16), normal(12, 2, 16)), {"causal": True}),
    ]


def test_structured_ops(rng: np.random.Generator) -> None:
    inputs, outputs, values = {}, {}, {}
    products, others = one_of_each(rng)[:PRODUCTS], one_of_each(rng)[PRODUCTS:]
    calls = [*products, *(others[i] for i in rng.permutation(len(others))[:DRAWN])]
    with trueno.Batch("simd") as batch:
        for number, (name, operands, given) in enumerate(calls):
            handles = [batch.upload(np.zeros_like(x)) for x in operands]
            inputs |= {f"x{number}_{i}": handle for i, handle in enumerate(handles)}
            values |= {f"x{number}_{i}": x for i, x in enumerate(operands)}
            results = getattr(batch, name)(*handles, **given)
            outputs |= {
                f"y{number}_{k}": y for k, y in enumerate(results if isinstance(results, tuple) else (results,))
            }
        code = compiled(batch, inputs, outputs)
    (got,) = code.run(values)
    assert got["status"] == 0
    for number, (name, operands, given) in enumerate(calls):
        results = tuple(got[key] for key in outputs if key.startswith(f"y{number}_"))
        assert_op(name, operands, results if len(results) > 1 else results[0], **given)


def test_a_kernel_that_refuses(rng: np.random.Generator) -> None:
    """`run` says which step it was, and the next run is as if there had been none."""
    table = rng.standard_normal((6, 4)).astype(F32)
    with trueno.Batch("simd") as batch:
        i = batch.upload(np.zeros(3, np.int64))
        rows = batch.embedding_lookup(batch.upload(table), i)
        code = compiled(batch, {"i": i}, {"twice": batch.add(rows, rows)})
    assert code.module.names[0] == "embedding_lookup"
    wrong, below, right = code.run({"i": [0, 6, 1]}, {"i": [0, -1, 1]}, {"i": [5, 0, 1]})
    assert (wrong["status"], below["status"], right["status"]) == (1, 1, 0)
    assert np.array_equal(right["twice"], 2 * table[[5, 0, 1]])


def test_ops_without_kernels(rng: np.random.Generator) -> None:
    """LAPACK's eigenvectors are NumPy's: the error names the op."""
    with trueno.Batch("simd") as batch:
        a = batch.upload(np.eye(4, dtype=F32))
        values, _ = batch.symmetric_eigen(a)
        with pytest.raises(KernelError, match="symmetric_eigen: no kernel of simd takes this call without Python"):
            compiled(batch, {"a": a}, {"values": values})
        empty = batch.upload(np.zeros((0, 3), F32))
        with pytest.raises(KernelError, match="exp has no kernel of WebAssembly here: it has no elements"):
            compiled(batch, {}, {"y": batch.exp(empty)})
