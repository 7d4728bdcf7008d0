"""Products with a few vectors, alone and several of one vector in a launch: against float64 over decoded blocks."""

from typing import Any

import numpy as np
import pytest
import trueno
from trueno.formats.activations import rounded_activations
from trueno.formats.decode import decode
from trueno.formats.samples import random_rows
from trueno.formats.table import FORMATS, WEIGHTS
from trueno.ops.shared import SharedOp
from trueno_cuda.kernels.quant import products
from unit.cuda.kernels.moves import random

BACKEND = "cuda_emulated"


def matrix(rng: np.random.Generator, name: str, n: int, k: int) -> trueno.QuantizedMatrix:
    f = FORMATS[name]
    return trueno.QuantizedMatrix(random_rows(f, (n, f.row_bytes(k)), rng), (n, k), f.name)


def wanted(q: Any, x: Any, activations: str = "q8") -> Any:
    f = FORMATS[q.format]
    return (
        rounded_activations(x, f, activations).astype(np.float64) @ decode(f, np.asarray(q.bytes)).astype(np.float64).T
    )


def close(got: Any, want: Any, bound: float = 3e-6) -> None:
    np.testing.assert_allclose(got, want, rtol=0, atol=bound * np.abs(want).max())


@pytest.mark.parametrize("name", WEIGHTS)
def test_formats(name: str) -> None:
    """Rows enough for several a block, and units for two warps, of which the second is not full."""
    rng = random()
    f = FORMATS[name]
    k = 5 * 256 if f.elements == 256 else 35 * 32
    q, x = matrix(rng, name, 23, k), rng.standard_normal((2, k)).astype(np.float32)
    with trueno.use(BACKEND):
        close(trueno.quant_matvec(q, x[0]), wanted(q, x[0]))
        close(trueno.quant_matmul(x, q, activations="f32"), wanted(q, x, "f32"))


@pytest.mark.parametrize("m", [3, 8, 17])
def test_more_vectors(m: int) -> None:
    rng = random()
    q, x = matrix(rng, "q6_k", 21, 256), rng.standard_normal((m, 256)).astype(np.float32)
    with trueno.use(BACKEND):
        close(trueno.quant_matmul(x, q), wanted(q, x))


def test_long_rows_are_taken_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products, "THREADS", {8: 64})
    rng = random()
    q, x = matrix(rng, "q8_0", 150, 32 * 50), rng.standard_normal((2, 1600)).astype(np.float32)
    with trueno.use(BACKEND):
        close(trueno.quant_matmul(x, q), wanted(q, x))


def kernels(b: Any) -> list[int]:
    return [len(step.members) or 1 for step in b._schedule().steps]


def test_products_of_one_vector_are_one_launch() -> None:
    """q, k, v with biases, in formats of blocks of 32 and of 256, and of different heights."""
    rng, k = random(), 512
    some = [matrix(rng, *shape, k) for shape in (("q4_k", 40), ("q6_k", 9), ("q5_0", 17))]
    x, biases = (
        rng.standard_normal(k).astype(np.float32),
        [rng.standard_normal(q.shape[0]).astype(np.float32) for q in some],
    )
    with trueno.Batch(BACKEND) as b:
        h = b.upload(x)
        results = [b.add(b.quant_matvec(b.upload(q), h), b.upload(v)) for q, v in zip(some, biases, strict=True)]
        assert kernels(b) == [3]
        for _ in range(2):
            b.execute()
            for result, q, v in zip(results, some, biases, strict=True):
                close(b.read(result), wanted(q, x) + v)


def test_gate_and_up_become_one_result() -> None:
    rng, k = random(), 512
    gate, up = matrix(rng, "q4_k", 70, k), matrix(rng, "q6_k", 70, k)
    x = rng.standard_normal(k).astype(np.float32)
    with trueno.Batch(BACKEND) as b:
        h = b.upload(x)
        y = b.swiglu(b.quant_matvec(b.upload(gate), h), b.quant_matvec(b.upload(up), h))
        b.execute()
        assert kernels(b) == [2]
        g = wanted(gate, x)
        close(b.read(y), g / (1 + np.exp(-g)) * wanted(up, x), 1e-5)
        (step,) = b._schedule().steps
        assert isinstance(step.op, SharedOp)
