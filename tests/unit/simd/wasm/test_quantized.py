"""Ops on blocks as kernels of WebAssembly, whatever the format: float64 products of what the bytes stand for."""

import numpy as np
import pytest

pytest.importorskip("numba", reason="needs numba")
import trueno
from seeds import fresh_seed
from trueno.formats import FORMATS, WEIGHTS, decode
from unit.simd.quant import products

from .node import compiled

DRAWN = 2
"""Formats that a run of the test draws: three kernels of each, which take a process seconds."""
ROWS, BLOCKS, IDS = 21, 2, [3, 20, 0]


def test_products_and_rows() -> None:
    seed = fresh_seed()
    print("seed", seed)
    rng = np.random.default_rng(seed)
    names = [WEIGHTS[i] for i in rng.permutation(len(WEIGHTS))[:DRAWN]]
    inputs, outputs, values, matrices = {}, {}, {}, {}
    with trueno.Batch("simd") as batch:
        ids = batch.upload(np.array(IDS))
        for name in names:
            f = FORMATS[name]
            w = matrices[name] = products.weights(rng, f, ROWS, BLOCKS * 256)
            blocks, x = batch.upload(w), batch.upload(np.zeros(BLOCKS * 256, np.float32))
            inputs[f"x_{name}"] = x
            values[f"x_{name}"] = rng.standard_normal(BLOCKS * 256).astype(np.float32)
            for way in ("q8", "f32"):
                outputs[f"{way}_{name}"] = batch.quant_matvec(blocks, x, format=name, activations=way)
            outputs[f"rows_{name}"] = batch.quant_embedding_lookup(blocks, ids, format=name)
        code = compiled(batch, inputs, outputs)
    (got,) = code.run(values)
    assert got["status"] == 0
    for name in names:
        for way in ("q8", "f32"):
            products.right(FORMATS[name], way, values[f"x_{name}"][None], matrices[name], got[f"{way}_{name}"][None])
        assert np.array_equal(got[f"rows_{name}"], decode(FORMATS[name], matrices[name][IDS]), equal_nan=True)
