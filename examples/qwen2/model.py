"""The forward pass of Qwen2 and Llama on any backend.

Activations are [tokens, numbers], or [numbers] for a single token; only attention tells sequences apart.  `ops` is
`trueno`, which computes prompts at once, or a `trueno.Batch`, which records the step from one token to the next.
Where several GPUs share the weights (`examples.qwen2.parallel`), each computes a part: generators here yield it with
what becomes of the parts, "sum" or "rows", and get the whole back.
"""

from collections import Counter, namedtuple
from collections.abc import Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import trueno

from examples.qwen2.checkpoint import Checkpoint, EngineError

Sampling = namedtuple("Sampling", "temperature top_k top_p min_p", defaults=(0.0, 0, 1.0, 0.0))
"""temperature: 0 takes the most likely token.  top_k, top_p, min_p: which others may be taken; 0, 1, 0 for all."""


RECORDED = 2
"""Prompts that stay recorded, each with its own buffers."""


def padded(count: int) -> int:
    """The length of the recorded prompt that so many tokens are computed in: at most an eighth of them more."""
    unit = max(1 << (count - 1).bit_length() >> 4, 1)
    return -(-count // unit) * unit


def sample(logits: Any, how: Sampling, number: float) -> int:
    """A token, drawn by a number in [0, 1)."""
    if not np.isfinite(logits.max()):
        raise EngineError("the logits are not finite, so the weights are damaged; --guard says where")
    with trueno.use():  # the logits are on the host
        return int(trueno.sample(logits, np.float32(number), **how._asdict()))


def alone(parts: Any) -> Any:
    """What a generator returns where this model is the only one, so that its part is the whole."""
    try:
        _, whole = next(parts)
        while True:
            _, whole = parts.send(whole)
    except StopIteration as end:
        return end.value


def operand(ops: Any, x: Any) -> Any:
    """A weight as ops take it: the array itself, or its handle in a batch."""
    return x if ops is trueno else ops.upload(x)


def normed(ops: Any, y: Any, x: Any, weight: Any, eps: float) -> tuple[Any, Any]:
    """x + y, and that normalized.  A batch gets two ops: each may become part of the product beside it."""
    if ops is trueno:
        return ops.residual_rms_norm(y, x, weight, eps=eps)  # type: ignore[no-any-return]
    x = ops.add(y, x)
    return x, ops.rms_norm(x, weight, eps=eps)


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
        if isinstance(matrix, trueno.QuantizedMatrix):
            op, operands = (ops.quant_matvec, (w, x)) if one else (ops.quant_matmul, (x, w))
            y = op(*operands, activations=self.model.activations if one or x.shape[0] <= 64 else self.model.prompts)
        elif one:
            y = ops.matvec(w, x)
        elif isinstance(w, np.ndarray):
            y = ops.matmul(x, w.T)
        else:  # in a batch and on a device, what is transposed is copied: the smaller matrices
            y = ops.transpose(ops.matmul(w, ops.transpose(x)))
        return y if bias is None else ops.bias_activation(y, operand(ops, bias), activation="none")


class Cache:
    """A sequence on the pages of a cache; those of one batch are forks of one another, and share the pages.

    products: those of attention among a prompt's tokens.
    """

    def __init__(self, pages: trueno.KVCache, number: int, products: str = "f32") -> None:
        self.pages, self.number, self.products = pages, number, products

    @property
    def length(self) -> int:
        """Tokens in every layer; a smaller number forgets the last ones."""
        return self.pages.length(self.number)

    @length.setter
    def length(self, tokens: int) -> None:
        self.pages.truncate(self.number, tokens)

    def attend(self, layer: int, q: Any, k: Any, v: Any) -> Any:
        """Attention of new tokens over the whole sequence, which gets their keys and values."""
        self.pages.append(layer, k, v, self.number)
        if self.pages.device != "host" and 8 < q.shape[0] == self.pages.lengths([self.number], layer)[0]:
            return trueno.attention(q, k, v, causal=True, products=self.products)
        return self.pages.attend(layer, q, self.number)

    def fork(self) -> "Cache":
        """Another sequence that begins with the same tokens, which are neither computed nor stored again."""
        return Cache(self.pages, self.pages.fork(self.number), self.products)

    def release(self) -> None:
        self.pages.release(self.number)


class Model:
    """A model that is loaded.  backend: a name, or None to let Trueno choose.  place: the part that is computed."""

    def __init__(self, checkpoint: Checkpoint, backend: Any = None, activations: str = "q8", track: Any = iter,
                 cache: str = "") -> None:  # fmt: skip
        limits, need = trueno.device(backend).limits if backend else {}, checkpoint.nbytes
        if need > (free := limits.get("free_bytes", need)):
            raise EngineError(f"{checkpoint.path}: its weights take {need} bytes, and {free} are free on {backend}")
        self.checkpoint, self.config, self.activations = checkpoint, checkpoint.config, activations
        self.prompts = "bf16" if activations == "q8" and str(backend).startswith("cuda") else activations
        self.products = "bf16" if self.prompts == "bf16" else "f32"
        self.backend, self.put = backend, lambda x: x if x is None or not backend else trueno.to(x, backend)
        self.load = lambda name: self.put(checkpoint.load(name))  # None where the file has no such tensor
        self.on_host = isinstance(self.put(np.zeros(1, np.float32)), np.ndarray)
        self.dtype = cache or ("float32" if self.on_host else "float16")  # a device reads half, and the host in place
        self.layers = [self._loaded(f"blk.{i}") for i in track(range(self.config.layers))]
        self.norms = [*(layer.norm for layer in self.layers[1:]), self.load("output_norm.weight")]
        tied = "output.weight" not in checkpoint.tensors
        self.output = Projection(self, "token_embd" if tied else "output")
        self.embedding = self.output.parts[0][0] if tied else self.load("token_embd.weight")
        self.step: Step | None = None
        self.prompts_recorded: dict[Any, Any] = {}
        self.lengths: Counter[int] = Counter()

    def _loaded(self, name: str) -> SimpleNamespace:
        part = partial(Projection, self)
        return SimpleNamespace(  # the weights of one layer
            norm=self.load(f"{name}.attn_norm.weight"), qkv=part(*(f"{name}.attn_{x}" for x in "qkv")),
            out=part(f"{name}.attn_output"), feed_norm=self.load(f"{name}.ffn_norm.weight"),
            gate_up=part(f"{name}.ffn_gate", f"{name}.ffn_up"), down=part(f"{name}.ffn_down"))  # fmt: skip

    def cache(self, tokens: int = 0, sequences: int = 1) -> Cache:
        """An empty sequence, in memory for some sequences of so many tokens; 0: the whole context."""
        c = self.config
        pages = trueno.KVCache(c.layers, c.kv_heads, c.head, dtype=self.dtype, sequences=sequences, page=256,
                               capacity=min(tokens or c.context, c.context), device=self.backend or "")  # fmt: skip
        return Cache(pages, pages.new(), self.products)

    def states(self, ops: Any, tokens: Any, positions: Any, attend: Any) -> Any:
        """A generator of the states after the last layer.  attend(layer, q, k, v): attention of a sequence's tokens."""
        c, count, weight, self.place = self.config, tokens.shape[0], partial(operand, ops), "token_embd"
        lookup = (
            ops.quant_embedding_lookup if isinstance(self.embedding, trueno.QuantizedMatrix) else ops.embedding_lookup
        )
        x = lookup(weight(self.embedding), tokens).reshape((count, c.width)[count == 1 :])
        y = ops.rms_norm(x, weight(self.layers[0].norm), eps=c.eps)
        for i, (layer, next_norm) in enumerate(zip(self.layers, self.norms, strict=True)):
            self.place = f"layer {i}"  # x is the sum of all layers so far, y is x normalized for this layer
            q, k, v = (part.reshape((count, part.shape[-1] // c.head, c.head)) for part in layer.qkv(ops, y))
            q, k = (ops.rope(part, positions, **c.rope) for part in (q, k))
            (y,) = layer.out(ops, attend(i, q, k, v).reshape((*x.shape[:-1], c.heads * c.head)))
            y = yield "sum", y
            x, y = normed(ops, y, x, weight(layer.feed_norm), c.eps)
            gate, up = layer.gate_up(ops, y)
            (y,) = layer.down(ops, ops.swiglu(gate, up))
            y = yield "sum", y
            x, y = normed(ops, y, x, weight(next_norm), c.eps)
        self.place = "output"
        return y

    def known(self, tokens: Sequence[int]) -> Any:
        """Tokens as an array; EngineError for one that the model does not have."""
        if unknown := [int(token) for token in tokens if not 0 <= token < self.config.vocabulary]:
            raise EngineError(f"token {unknown[0]} is unknown; the model has tokens 0 to {self.config.vocabulary - 1}")
        return np.array(tokens, np.int64)

    def forward(self, tokens: Sequence[int], cache: Any, first: int = 0) -> Any:
        """Logits [tokens, vocabulary], on the host, after new tokens of a sequence; first: of those from there on."""
        if prompt := self._prompt(tokens, cache, first, lambda size: Prompt(self, cache.pages, size)):
            prompt.run(self.known(tokens), cache.number)
            return prompt.batch.read(prompt.logits).reshape((1, -1))
        return alone(self.logits(tokens, cache, first))

    def _prompt(self, tokens: Sequence[int], cache: Any, first: int, record: Any) -> Any:
        """The recorded prompt for these tokens; None for few tokens, and for a length that is seen for the first time.

        A device then computes it without Python between its kernels, and products share and finish what is beside them.
        """
        size, pages = padded(len(tokens)), cache.pages
        if self.checkpoint.guarded or pages.device == "host" or cache.length or not 64 < len(tokens) == first + 1:
            return None
        self.lengths[size] += 1
        if self.lengths[size] == 1:
            return None
        key = size, id(pages)
        prompt = self.prompts_recorded.pop(key, None) or record(size)
        self.prompts_recorded[key] = prompt  # the latest ones are the last ones
        if len(self.prompts_recorded) > RECORDED:
            del self.prompts_recorded[next(iter(self.prompts_recorded))]
        return prompt

    def logits(self, tokens: Sequence[int], cache: Cache, first: int) -> Any:
        """The same, of the tokens that this model's output matrix has rows for."""
        cache.length = start = cache.length  # an error may have left tokens in some layers
        given = map(self.put, (self.known(tokens), start + np.arange(len(tokens))))
        y = yield from self.states(trueno, *given, cache.attend)
        y = trueno.embedding_lookup(y, self.put(np.arange(first, len(tokens)))) if first else y
        (y,) = self.output(trueno, y.reshape((self.config.width,)) if y.shape[0] == 1 else y)
        return trueno.numpy(y).reshape((-1, y.shape[-1]))

    def prefill(self, tokens: Sequence[int], cache: Any, every: bool = False, chunk: int = 0) -> Any:
        """Logits [1, vocabulary] after the last of some tokens, or after every one; `chunk` are computed at a time."""
        chunk = chunk or (512 if self.on_host else 4096)
        if not len(tokens):
            raise EngineError("there are no tokens to start from; give --prompt or --tokens")
        if (length := cache.length) + (more := len(tokens)) > (room := self.config.context):
            raise EngineError(f"the context is full: {length} tokens and {more} more do not fit into {room}")
        parts = [tokens[start : start + chunk] for start in range(0, len(tokens), chunk)]
        rows = [self.forward(part, cache, 0 if every else len(part) - 1) for part in parts]
        return np.concatenate(rows) if every else rows[-1]

    def _step(self, tokens: Sequence[int], caches: Sequence[Cache], how: Sampling) -> "Step | None":
        """The recorded step, which begins with these tokens; None where tokens are computed one by one."""
        pages, what = next(filter(None, caches)).pages, (len(caches), how)
        if self.checkpoint.guarded or (pages.device == "host" and not self.on_host):  # a guard names what runs alone
            return None
        if self.step is None or self.step.pages is not pages or self.step.what != what:
            self.step = Step(self, pages, *what)
        self.step.batch.update(self.step.tokens, self.known(tokens))
        return self.step

    def decode(self, tokens: Sequence[int], caches: Sequence[Cache]) -> Any:
        """Logits [sequences, vocabulary] after one more token of each of some sequences, forks of one another."""
        if (step := self._step(tokens, caches, Sampling())) is None:
            return np.concatenate([self.forward([token], cache) for token, cache in zip(tokens, caches, strict=True)])
        step.places.run([cache.number for cache in caches])
        return step.batch.read(step.logits)

    def draws(self, tokens: Sequence[int], caches: Sequence[Cache], how: Sampling, numbers: Any) -> Any:
        """The next tokens of some sequences, drawn by each row of numbers [times, sequences] in [0, 1).

        caches: None for a row that computes nothing of use, so that sequences join and leave one recorded step.
        """
        if step := self._step(tokens, caches, how):
            sequences, x, numbers = [cache and cache.number for cache in caches], step.numbers, np.float32(numbers)
            yield from step.places.runs(sequences, len(numbers), step.drawn, before=lambda i: np.copyto(x, numbers[i]))
            return
        busy = [i for i, cache in enumerate(caches) if cache]  # a row without a cache is of no use to anyone
        for row in numbers:
            given, tokens = [tokens[i] for i in busy], np.zeros(len(caches), np.int64)
            logits = self.decode(given, [caches[i] for i in busy])
            tokens[busy] = [sample(y, how, row[i]) for y, i in zip(logits, busy, strict=True)]
            yield tokens


class Step:
    """One token of each of `count` sequences, recorded in a batch, and how the next ones are drawn from its logits.

    finish: runs the generator that records it.
    """

    def __init__(self, model: Model, pages: trueno.KVCache, count: int, how: Sampling, finish: Any = alone) -> None:
        self.batch, self.pages, self.what = trueno.Batch(model.backend), pages, (count, how)
        self.numbers, upload = np.zeros(count, np.float32), self.batch.upload
        self.places, self.tokens = pages.record(self.batch, count), upload(np.zeros(count, np.int64))
        self.model, self.live = model, upload(self.numbers, live=True)
        self.parts = finish(self.record())

    def record(self) -> Any:
        """Record everything from the tokens to the next ones."""
        count, how = self.what
        y = yield from self.model.states(self.batch, self.tokens, self.places.positions, self.places.attend)
        (logits,) = self.model.output(self.batch, y)
        logits = yield "rows", logits
        self.logits = self.batch.keep(logits.reshape((count, self.model.config.vocabulary)))
        self.drawn = self.batch.sample(self.logits, self.live, **how._asdict())
        self.batch.feed(self.tokens, self.drawn)  # one token leads to the next without the host


class Prompt:
    """The first `size` tokens of a sequence, recorded in a batch; fewer ones are padded by some that none of them sees.

    finish: as of `Step`.
    """

    def __init__(self, model: Model, pages: trueno.KVCache, size: int, finish: Any = alone) -> None:
        self.model, self.pages, self.size, self.batch = model, pages, size, trueno.Batch(model.backend)
        self.slots, self.last = np.full(size, -1, np.int64), np.zeros(1, np.int64)
        self.tokens = self.batch.upload(np.zeros(size, np.int64))
        self.live = [self.batch.upload(x, live=True) for x in (self.slots, self.last)]
        self.parts = finish(self.record())

    def record(self) -> Any:
        """Record everything from the tokens to the logits after the last one."""
        positions = self.batch.upload(np.arange(self.size))
        y = yield from self.model.states(self.batch, self.tokens, positions, self.attend)
        y = self.batch.embedding_lookup(y, self.live[1])
        (logits,) = self.model.output(self.batch, y.reshape((self.model.config.width,)))
        self.logits = self.batch.keep(logits)

    def attend(self, layer: int, q: Any, k: Any, v: Any) -> Any:
        """Attention among these tokens, whose keys and values the cache gets."""
        for pages, x in zip(self.pages.pages(layer), (k, v), strict=True):
            self.batch.kv_cache_scatter(self.batch.upload(pages), x, self.live[0])
        return self.batch.attention(q, k, v, causal=True, products=self.model.products)

    def run(self, tokens: Any, number: int) -> None:
        """Begin to compute tokens of a sequence that has none yet."""
        self.slots[:], self.last[0] = -1, len(tokens) - 1
        self.pages.truncate(number, 0)
        self.slots[: len(tokens)] = self.pages.reserve([number], len(tokens))
        self.batch.update(self.tokens, np.pad(tokens, (0, self.size - len(tokens))))
        self.batch.execute(wait=False)
        self.slots[:] = -1
        self.pages.commit([number], len(tokens))
