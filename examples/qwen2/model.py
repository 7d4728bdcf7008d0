"""The forward pass of Qwen2 and Llama on any backend.

Activations are [tokens, numbers]: tokens of all sequences are rows of one matrix, and only attention tells them apart.
"""

from collections.abc import Sequence
from itertools import groupby
from types import SimpleNamespace
from typing import Any

import numpy as np
import trueno
from trueno import QuantizedMatrix

from examples.qwen2.cache import Cache, attend
from examples.qwen2.checkpoint import Checkpoint, EngineError


class Projection:
    """Products of one input with matrices; on the host, neighbours of one format are one product for a single token."""

    def __init__(self, model: "Model", *names: str) -> None:
        self.model, load = model, model.checkpoint.load
        loaded = [(load(f"{name}.weight"), load(f"{name}.bias")) for name in names]
        self.groups = []  # a joined matrix, its bias, and the rows of each part
        for _, group in groupby(loaded, lambda p: (getattr(p[0], "format", ""), p[1] is None, model.on_host or id(p))):
            weights, biases = zip(*group, strict=True)
            whole, bias = weights[0], None if biases[0] is None else np.concatenate(biases)
            if len(weights) > 1:
                rows, kind = np.concatenate([getattr(w, "bytes", w) for w in weights]), getattr(whole, "format", "")
                whole = QuantizedMatrix(rows, (len(rows), whole.shape[1]), kind) if kind else rows
            ends = np.cumsum([w.shape[0] for w in weights]).tolist()
            spans = [slice(start, end) for start, end in zip([0, *ends], ends, strict=False)]
            self.groups.append((model.put(whole), None if bias is None else model.put(bias), spans))

    def __call__(self, x: Any) -> list[Any]:
        """x [tokens, k] times each matrix: a list of [tokens, n]."""
        results = []
        for whole, bias, spans in self.groups:
            if len(spans) == 1:
                results.append(self._product(x, whole, bias))
            elif x.shape[0] == 1:
                y = self._product(x, whole, bias)
                results += [y[:, s] for s in spans]
            else:
                results += [self._product(x, whole[s], None if bias is None else bias[s]) for s in spans]
        return results

    def _product(self, x: Any, w: Any, bias: Any) -> Any:
        tokens, k = x.shape
        x = x if tokens > 1 else x.reshape((k,))
        if isinstance(w, QuantizedMatrix):
            op, operands = (trueno.quant_matmul, (x, w)) if tokens > 1 else (trueno.quant_matvec, (w, x))
            y = op(*operands, activations=self.model.activations)
        elif tokens > 1:
            y = trueno.matmul(x, w.T if self.model.on_host else trueno.transpose(w))
        else:
            y = trueno.matvec(w, x)
        y = y.reshape((tokens, w.shape[0]))
        return y if bias is None else trueno.bias_activation(y, bias, activation="none")


class Model:
    """A model that is loaded.  backend: a name, or None to let Trueno choose.  place: the part that is computed."""

    def __init__(self, checkpoint: Checkpoint, backend: Any = None, activations: str = "q8", track: Any = iter) -> None:
        self.checkpoint, self.config, self.activations = checkpoint, checkpoint.config, activations
        self.put = (lambda x: trueno.to(x, backend)) if backend else lambda x: x
        self.on_host = isinstance(self.put(np.zeros(1, np.float32)), np.ndarray)
        self.embedding = checkpoint.load("token_embd.weight")
        self.layers = [self._loaded(f"blk.{i}") for i in track(range(self.config.layers))]
        self.norms = [*(layer.norm for layer in self.layers[1:]), self.put(checkpoint.load("output_norm.weight"))]
        self.output = Projection(self, "output" if "output.weight" in checkpoint.tensors else "token_embd")

    def _loaded(self, name: str) -> SimpleNamespace:
        """The weights of one layer."""
        norm, feed_norm = (self.checkpoint.load(f"{name}.{part}_norm.weight") for part in ("attn", "ffn"))
        return SimpleNamespace(
            norm=self.put(norm), qkv=Projection(self, *(f"{name}.attn_{part}" for part in "qkv")),
            out=Projection(self, f"{name}.attn_output"), feed_norm=self.put(feed_norm),
            gate_up=Projection(self, f"{name}.ffn_gate", f"{name}.ffn_up"), down=Projection(self, f"{name}.ffn_down"),
        )  # fmt: skip

    def forward(self, batch: Sequence[tuple[Any, Cache]]) -> Any:
        """The states [tokens, width] of new tokens of some sequences, whose caches get their keys and values."""
        for tokens, cache in batch:
            cache.reserve(len(tokens))
        ends = np.cumsum([len(tokens) for tokens, _ in batch]).tolist()
        spans = [(cache, slice(end - len(tokens), end)) for (tokens, cache), end in zip(batch, ends, strict=True)]
        positions = self.put(np.concatenate([cache.length + np.arange(len(tokens)) for tokens, cache in batch]))
        self.place = "token_embd"
        wanted = [int(token) for tokens, _ in batch for token in tokens]
        if unknown := [token for token in wanted if not 0 <= token < self.config.vocabulary]:
            raise EngineError(f"token {unknown[0]} is unknown; the model has tokens 0 to {self.config.vocabulary - 1}")
        rows = self.embedding[wanted]
        x = self.put(trueno.dequantize(rows) if isinstance(rows, QuantizedMatrix) else rows)
        y = trueno.rms_norm(x, self.layers[0].norm, eps=self.config.eps)
        for i, (layer, next_norm) in enumerate(zip(self.layers, self.norms, strict=True)):
            self.place = f"layer {i}"
            x, y = self._layer(i, layer, next_norm, x, y, positions, spans)
        for tokens, cache in batch:
            cache.length += len(tokens)
        return y

    def _layer(self, i: int, layer: Any, next_norm: Any, x: Any, y: Any, positions: Any, spans: Any) -> Any:
        """x, the sum of all layers so far, and y, x normalized for this layer, become those of the next one."""
        c, tokens = self.config, x.shape[0]
        q, k, v = (part.reshape((tokens, part.shape[1] // c.head, c.head)) for part in layer.qkv(y))
        q, k = (trueno.rope(part, positions, **c.rope) for part in (q, k))
        (y,) = layer.out(attend(i, q, k, v, spans, self.put).reshape((tokens, c.heads * c.head)))
        x, y = trueno.residual_rms_norm(y, x, layer.feed_norm, eps=c.eps)
        gate, up = layer.gate_up(y)
        (y,) = layer.down(trueno.swiglu(gate, up))
        return trueno.residual_rms_norm(y, x, next_norm, eps=c.eps)

    def logits(self, states: Any, rows: slice | None = None) -> Any:
        """Logits [tokens, vocabulary], on the host, of all or some rows of what `forward` returned."""
        if rows is not None:
            states = states[rows] if self.on_host else self.put(trueno.numpy(states)[rows])
        self.place = "output"
        return trueno.numpy(self.output(states)[0])

    def prefill(self, tokens: Any, cache: Cache, every: bool = False, chunk: int = 512) -> Any:
        """Logits [1, vocabulary] after the last of some tokens, or after every one; `chunk` are computed at a time."""
        if not len(tokens):
            raise EngineError("there are no tokens to start from; pass a prompt")
        cache.reserve(len(tokens))
        kept = []
        for start in range(0, len(tokens), chunk):
            states = self.forward([(tokens[start : start + chunk], cache)])
            kept += [self.logits(states)] if every else []
        return np.concatenate(kept) if every else self.logits(states, slice(states.shape[0] - 1, None))
