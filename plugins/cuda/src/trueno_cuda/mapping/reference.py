"""The reference plan: each op of a layer alone, 12 steps per layer and 2 behind the last.

    norm  q  k  v  rope  attention  output  norm  gate  up  swiglu  down      then: norm  output

A norm adds what the steps before it computed, a product its bias.  Rotations of queries and keys, which lie side by
side, are one step.  Keys and values are arrays of float32.  The lookup of the embedding, which computes nothing, is
left out.  For one token each step is one launch; a product of many rows is several.

The kernels are those that the CUDA backend chooses for each op, with the sizes and formats of the file's tensors.
"""

from collections.abc import Callable, Iterator
from functools import cached_property
from importlib import import_module
from typing import Any

import numpy as np
from trueno.backend import FORMATS

from trueno_cuda.mapping.backend import PlannedBackend
from trueno_cuda.mapping.device import Launch
from trueno_cuda.mapping.model import ARCHITECTURES, Model
from trueno_cuda.mapping.steps import Step

FLOAT = np.dtype(np.float32)
STEPS = ("norm", "q", "k", "v", "rope", "attention", "output", "norm", "gate", "up", "swiglu", "down")
"""The steps of a layer, in order."""
Record = Callable[[Any], Any]
"""Records ops in a batch, and returns the handles of their results."""


class Reference:
    """The steps of one model.  tokens: computed at once with `prefill`, otherwise those before the new one."""

    def __init__(self, backend: PlannedBackend, model: Model, tokens: int, prefill: bool) -> None:
        self.backend, self.model, self.tokens, self.prefill = backend, model, tokens, prefill
        self.rows = tokens if prefill else 1
        self._launches: dict[Any, tuple[Launch, ...]] = {}

    @cached_property
    def _trueno(self) -> Any:
        return import_module("trueno")  # through the public API

    def steps(self) -> Iterator[Step]:
        m = self.model
        for i in range(m.layers):
            block = f"blk.{i}"
            yield self._norm(i, f"{block}.attn_norm", first=i == 0)
            yield from (self._product(i, part, f"{block}.attn_{part}") for part in "qkv")
            yield self._step(i, "rope", ("rope",), self._rope)
            yield self._step(i, "attention", ("attention",), self._attention)
            yield self._product(i, "output", f"{block}.attn_output")
            yield self._norm(i, f"{block}.ffn_norm")
            yield from (self._product(i, part, f"{block}.ffn_{part}") for part in ("gate", "up"))
            yield self._step(i, "swiglu", ("swiglu",), self._swiglu)
            yield self._product(i, "down", f"{block}.ffn_down")
        yield self._norm("output", "output_norm")
        yield self._product("output", "output", "token_embd" if m.tied else "output", rows=1)

    # ---- steps ----------------------------------------------------------------------------------------

    def _norm(self, layer: int | str, name: str, first: bool = False) -> Step:
        def record(b: Any) -> Any:
            w = b.upload(self._empty(self.model.width))
            if first:
                return b.rms_norm(b.upload(self._activations(self.model.width)), w)
            x, y = (b.upload(self._activations(self.model.width)) for _ in range(2))
            return b.residual_rms_norm(y, x, w)

        return self._step(layer, "norm", ("norm", first), record, f"{name}.weight")

    def _product(self, layer: int | str, step: str, name: str, rows: int = 0) -> Step:
        tensor, rows = self.model.file.tensors[f"{name}.weight"], rows or self.rows
        biased = self.model.has(f"{name}.bias")
        names = (f"{name}.weight", *([f"{name}.bias"] if biased else []))

        def record(b: Any) -> Any:
            y = self._times(b, tensor, rows)
            return b.bias_activation(y, b.upload(self._empty(tensor.shape[0])), activation="none") if biased else y

        return self._step(layer, step, ("product", tensor.type, tensor.shape, biased, rows), record, *names)

    def _times(self, b: Any, tensor: Any, rows: int) -> Any:
        n, k = tensor.shape
        x = b.upload(self._empty(k) if rows == 1 else self._empty(rows, k))
        if tensor.type not in FORMATS:
            if rows == 1:
                return b.matvec(b.upload(self._empty(n, k)), x)
            return b.matmul(x, b.upload(self._empty(k, n)))  # as if the matrix were stored as its transpose
        nbytes = FORMATS[tensor.type].row_bytes(k)
        blocks = self.backend.empty((n, nbytes), np.dtype(np.uint8))
        w = b.upload(self._trueno.QuantizedMatrix(blocks, (n, k), tensor.type))
        if rows == 1:
            return b.quant_matvec(w, x, activations="q8")
        return b.quant_matmul(x, w, activations="bf16")

    def _rope(self, b: Any) -> Any:
        m = self.model
        x = b.upload(self._empty(self.rows, m.heads + m.kv_heads, m.head))
        positions = b.upload(np.zeros(self.rows, np.int64))
        return b.rope(x, positions, theta=m.theta, style=ARCHITECTURES[m.architecture])

    def _attention(self, b: Any) -> Any:
        m, keys = self.model, self.tokens if self.prefill else self.tokens + 1
        q = b.upload(self._empty(self.rows, m.heads, m.head))
        k, v = (b.upload(self._empty(keys, m.kv_heads, m.head)) for _ in range(2))
        return b.attention(q, k, v, causal=True)

    def _swiglu(self, b: Any) -> Any:
        return b.swiglu(*(b.upload(self._activations(self.model.feed)) for _ in range(2)))

    # ---- recording ------------------------------------------------------------------------------------

    def _step(self, layer: int | str, name: str, key: Any, record: Record, *tensors: str) -> Step:
        """A step; those with one key are recorded once."""
        if key not in self._launches:
            planner = self.backend.planner
            planner.launches.clear()
            with self._trueno.Batch(self.backend.name) as b:
                results = record(b)
                b.execute()
                del results  # they were held until now, so that they were computed
            self._launches[key] = tuple(planner.launches)
        launches = self._launches[key]
        return Step(layer, name, (tensors,) * len(launches), launches)

    def _empty(self, *shape: int) -> Any:
        return self.backend.empty(shape, FLOAT)

    def _activations(self, n: int) -> Any:
        return self._empty(n) if self.rows == 1 else self._empty(self.rows, n)
