"""Calls to the backend as the core makes them, without the core."""

from typing import Any

import numpy as np
import pytest
from trueno.discovery.protocol import Call
from trueno.ops import TABLE
from trueno_scalar.backend import ScalarBackend

KINDS = {"T": None, "bool": np.dtype(bool), "index": np.dtype(np.int64)}


class Launch:
    """One op with one layout, ready to be called with arrays: `launch(*operands) -> results`."""

    backend = ScalarBackend()

    def __init__(self, op: str, dtype: Any, rank: int, layout: str = "", guarded: bool = False, **static: Any) -> None:
        self.op = TABLE[op]
        self.dtype = np.dtype(dtype)
        self.layout = layout or self.op.layout
        self.rank = rank
        self.program = self.op.program(self.layout, **static)
        given = {"min": -0.5, "max": 0.75, "t": 0.3, "factor": 1.7}
        self.params = [given.get(p.name, p.default) for p in self.op.params if p.symbolic]
        keys = tuple(static.items())
        self.kernel = self.backend.kernel(
            Call(self.op, self.dtype, self.layout, rank, (1,) * rank, keys, "host", guarded)
        )

    def operands(self, rng: np.random.Generator, shape: tuple[int, ...]) -> list[np.ndarray]:
        """Random operands in the op's domain, of the shapes that the layout wants for elements of `shape`."""
        low, high = self.op.domain or (-np.inf, np.inf)
        shapes = {"e": shape, "w": shape[-1:], "r": shape[:-1], "u": ()}

        def draw(s: tuple[int, ...]) -> np.ndarray:
            x = 2 * rng.standard_normal(s)
            if np.isfinite(low):
                x = low + np.abs(x) if np.isinf(high) else rng.uniform(low, high, s)
            return np.asarray(x, self.dtype)

        return [draw(shapes[kind]) for kind in self.layout]

    def results(self, shape: tuple[int, ...]) -> list[np.ndarray]:
        """Results filled with a sentinel."""
        nodes = self.program.nodes
        return [
            np.full(shape if nodes[o].space == "e" else shape[:-1], 77, KINDS[nodes[o].type] or self.dtype)
            for o in self.program.outputs
        ]

    def __call__(self, operands: list[np.ndarray], shape: tuple[int, ...]) -> list[np.ndarray]:
        outs = self.results(shape)
        assert self.kernel(*operands, *self.params, *outs) == 0
        return outs


@pytest.fixture
def rng(request: pytest.FixtureRequest) -> np.random.Generator:
    return np.random.default_rng(sum(map(ord, request.node.name)))


@pytest.fixture
def launch() -> type[Launch]:
    return Launch
