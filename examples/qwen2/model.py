"""The forward pass of Qwen2 and Llama on any backend.

Activations are [tokens, numbers], or [numbers] for a single token: tokens of all sequences are rows of one matrix, and
only attention tells them apart.  `ops` is `trueno`, which computes at once, or a `trueno.Batch`, which records: prompts
are computed, and the step from one token to the next is recorded once and run for every token.
"""

from collections.abc import Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import trueno
from trueno import QuantizedMatrix

from examples.qwen2.cache import Cache
from examples.qwen2.checkpoint import Checkpoint, EngineError


def operand(ops: Any, x: Any) -> Any:
    """A weight as ops take it: the array itself, or its handle in a batch."""
    return x if ops is trueno else ops.upload(x)


class Projection:
    """Products of one input with matrices, each with its bias or None; a batch runs them together if it can."""

    def __init__(self, model: "Model", *names: str) -> None:
        self.model, load = model, model.load
        self.parts = [(load(f"{name}.weight"), load(f"{name}.bias")) for name in names]

    def __call__(self, ops: Any, x: Any) -> list[Any]:
        """x [k] or [tokens, k] times each matrix: a list of [n] or [tokens, n]."""
        return [self._product(ops, x, w, bias) for w, bias in self.parts]

    def _product(self, ops: Any, x: Any, matrix: Any, bias: Any) -> Any:
        one, w = len(x.shape) == 1, operand(ops, matrix)
        if isinstance(matrix, QuantizedMatrix):
            op, operands = (ops.quant_matvec, (w, x)) if one else (ops.quant_matmul, (x, w))
            y = op(*operands, activations=self.model.activations)
        elif one:
            y = ops.matvec(w, x)
        elif isinstance(w, np.ndarray):
            y = ops.matmul(x, w.T)
        else:  # in a batch and on a device, what is transposed is copied: the smaller matrices
            y = ops.transpose(ops.matmul(w, ops.transpose(x)))
        return y if bias is None else ops.bias_activation(y, operand(ops, bias), activation="none")


class Model:
    """A model that is loaded.  backend: a name, or None to let Trueno choose.  place: the part that is computed."""

    def __init__(self, checkpoint: Checkpoint, backend: Any = None, activations: str = "q8", track: Any = iter) -> None:
        self.checkpoint, self.config, self.activations = checkpoint, checkpoint.config, activations
        self.backend, self.put = backend, lambda x: x if x is None or not backend else trueno.to(x, backend)
        self.on_host = isinstance(self.put(np.zeros(1, np.float32)), np.ndarray)
        self.layers = [self._loaded(f"blk.{i}") for i in track(range(self.config.layers))]
        self.norms = [*(layer.norm for layer in self.layers[1:]), self.load("output_norm.weight")]
        tied = "output.weight" not in checkpoint.tensors
        self.output = Projection(self, "token_embd" if tied else "output")
        self.embedding = self.output.parts[0][0] if tied else self.load("token_embd.weight")
        self.step: Step | None = None

    def load(self, name: str) -> Any:
        """A tensor of the file where the model computes, or None where the file has none."""
        return self.put(self.checkpoint.load(name))

    def _loaded(self, name: str) -> SimpleNamespace:
        """The weights of one layer."""
        part = partial(Projection, self)
        return SimpleNamespace(
            norm=self.load(f"{name}.attn_norm.weight"), qkv=part(*(f"{name}.attn_{x}" for x in "qkv")),
            out=part(f"{name}.attn_output"), feed_norm=self.load(f"{name}.ffn_norm.weight"),
            gate_up=part(f"{name}.ffn_gate", f"{name}.ffn_up"), down=part(f"{name}.ffn_down"),
        )  # fmt: skip

    def cache(self, tokens: int = 0, sequences: int = 1) -> Cache:
        """An empty sequence, in memory for some sequences of so many tokens; 0: the whole context."""
        c = self.config
        pages = trueno.KVCache(c.layers, c.kv_heads, c.head, dtype="float32", sequences=sequences, page=256,
                               capacity=min(tokens or c.context, c.context), device=self.backend or "")  # fmt: skip
        return Cache(pages, pages.new(), c.context)

    def states(self, ops: Any, tokens: Any, positions: Any, attend: Any) -> Any:
        """The states after the last layer.  attend(layer, q, k, v): attention over all tokens of each sequence."""
        c, count, weight, self.place = self.config, tokens.shape[0], partial(operand, ops), "token_embd"
        lookup = ops.quant_embedding_lookup if isinstance(self.embedding, QuantizedMatrix) else ops.embedding_lookup
        x = lookup(weight(self.embedding), tokens).reshape((count, c.width)[count == 1 :])
        y = ops.rms_norm(x, weight(self.layers[0].norm), eps=c.eps)
        for i, (layer, next_norm) in enumerate(zip(self.layers, self.norms, strict=True)):
            self.place = f"layer {i}"  # x is the sum of all layers so far, y is x normalized for this layer
            q, k, v = (part.reshape((count, part.shape[-1] // c.head, c.head)) for part in layer.qkv(ops, y))
            q, k = (ops.rope(part, positions, **c.rope) for part in (q, k))
            (y,) = layer.out(ops, attend(i, q, k, v).reshape((*x.shape[:-1], c.heads * c.head)))
            x, y = ops.residual_rms_norm(y, x, weight(layer.feed_norm), eps=c.eps)
            gate, up = layer.gate_up(ops, y)
            (y,) = layer.down(ops, ops.swiglu(gate, up))
            x, y = ops.residual_rms_norm(y, x, weight(next_norm), eps=c.eps)
        self.place = "output"
        return y

    def check(self, tokens: Sequence[int]) -> None:
        """EngineError for a token that the model does not have."""
        if unknown := [int(token) for token in tokens if not 0 <= token < self.config.vocabulary]:
            raise EngineError(f"token {unknown[0]} is unknown; the model has tokens 0 to {self.config.vocabulary - 1}")

    def forward(self, tokens: Sequence[int], cache: Cache, first: int = 0) -> Any:
        """Logits [tokens, vocabulary], on the host, after new tokens of a sequence; first: of those from there on."""
        cache.length = start = cache.length  # an error may have left tokens in some layers
        self.check(tokens)
        y = self.states(trueno, *map(self.put, (np.array(tokens), start + np.arange(len(tokens)))), cache.attend)
        if first:
            y = y[first:] if self.on_host else self.put(trueno.numpy(y)[first:])
        (y,) = self.output(trueno, y.reshape((self.config.width,)) if y.shape[0] == 1 else y)
        return trueno.numpy(y).reshape((-1, self.config.vocabulary))

    def prefill(self, tokens: Sequence[int], cache: Cache, every: bool = False, chunk: int = 512) -> Any:
        """Logits [1, vocabulary] after the last of some tokens, or after every one; `chunk` are computed at a time."""
        if not len(tokens):
            raise EngineError("there are no tokens to start from; give --prompt or --tokens")
        cache.check(len(tokens))
        parts = [tokens[start : start + chunk] for start in range(0, len(tokens), chunk)]
        rows = [self.forward(part, cache, 0 if every else len(part) - 1) for part in parts]
        return np.concatenate(rows) if every else rows[-1]

    def decode(self, tokens: Sequence[int], caches: Sequence[Cache]) -> Any:
        """Logits [sequences, vocabulary] after one more token of each of some sequences, forks of one another."""
        pages, count = caches[0].pages, len(caches)
        if self.checkpoint.guarded or (pages.device == "host" and not self.on_host):  # a guard names what runs alone
            return np.concatenate([self.forward([token], cache) for token, cache in zip(tokens, caches, strict=True)])
        self.check(tokens)
        if self.step is None or self.step.pages is not pages or len(self.step.tokens) != count:
            self.step = Step(self, pages, count)
        return self.step(tokens, [cache.number for cache in caches])


class Step:
    """One token of each of `count` sequences, recorded in a batch; a call computes the next ones."""

    def __init__(self, model: Model, pages: trueno.KVCache, count: int) -> None:
        self.batch, self.pages, self.tokens = trueno.Batch(model.backend), pages, np.zeros(count, np.int64)
        self.places, self.handle = pages.record(self.batch, count), self.batch.upload(self.tokens)
        y = model.states(self.batch, self.handle, self.places.positions, self.places.attend)
        (self.logits,) = model.output(self.batch, y)

    def __call__(self, tokens: Sequence[int], sequences: Sequence[int]) -> Any:
        self.tokens[:] = tokens
        self.batch.update(self.handle, self.tokens)  # the same array with other contents: the recording stays
        self.places.run(sequences)
        return self.batch.read(self.logits).reshape((len(tokens), -1))
