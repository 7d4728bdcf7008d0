"""Row ops of the table as kernels of WebAssembly: within the op's own bound, on operands of every kind."""

from typing import Any
from zlib import crc32

import numpy as np
import pytest

pytest.importorskip("numba", reason="needs numba")
import trueno
from seeds import fresh_seed
from trueno.discovery import registry
from trueno.ops import TABLE
from trueno.testing import assert_op
from trueno.testing.case import keywords
from trueno.testing.cases import grid

from .node import compiled

CALLS = [(op.name, given) for op in TABLE.values() if not op.structured for given in keywords(op)]
DRAWN = 12
"""Calls that a run of the test draws: a kernel takes LLVM half a second, and their code is the host's, tested there."""
LENGTH = 67  # whole vectors, and three elements more


def operands_of(name: str, seed: int) -> tuple[np.ndarray, ...]:
    return grid(TABLE[name], np.dtype(np.float32), np.random.default_rng([seed, crc32(name.encode())]), LENGTH)


def test_row_ops() -> None:
    seed = fresh_seed()
    print("seed", seed)
    drawn = np.random.default_rng(seed).permutation(len(CALLS))[:DRAWN]
    inputs, outputs, values, made = {}, {}, {}, []
    with trueno.Batch("simd") as batch:
        for number in drawn:
            name, given = CALLS[number]
            operands: tuple[Any, ...] = operands_of(name, seed)
            handles = [batch.upload(np.zeros_like(x)) for x in operands]
            results = getattr(batch, name)(*handles, **given)
            results = results if isinstance(results, tuple) else (results,)
            for kind, arrays, known in (("x", handles, inputs), ("y", results, outputs)):
                known |= {f"{kind}{number}_{i}": handle for i, handle in enumerate(arrays)}
            values |= {f"x{number}_{i}": x for i, x in enumerate(operands)}
            made.append((number, name, given, operands, len(results)))
        code = compiled(batch, inputs, outputs)
    (got,) = code.run(values)
    assert got["status"] == 0
    accuracy = registry.load("simd").accuracy
    for number, name, given, operands, count in made:
        results = tuple(got[f"y{number}_{k}"] for k in range(count))
        assert_op(name, operands, results if count > 1 else results[0], accuracy, **given)
