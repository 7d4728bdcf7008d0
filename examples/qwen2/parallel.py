"""A model whose weights several GPUs share: each has some of the heads, of the feed-forward layer, of the vocabulary.

Matrices before a nonlinearity are cut by rows, those after it by columns (Megatron-LM's scheme, arXiv:1909.08053), so a
layer has two sums over all GPUs.  A prompt of a new length exchanges them by NCCL.  Decode steps, and prompts of known
lengths, are recorded in a batch of each GPU, which a thread replays; their sums are launches of our own.
"""

from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any

import numpy as np
import trueno
from trueno.backend import format_of

from examples.qwen2.checkpoint import Checkpoint, EngineError
from examples.qwen2.model import Cache, Model, Prompt, Sampling, Step
from examples.qwen2.shares import apart, around, cleared, even

OUTPUT = "output.weight"
PROMPT = 4096
"""Tokens whose sums fit into a message inside a batch."""


class Shard:
    """The part of a checkpoint that one of `count` GPUs has, as `Model` takes it."""

    def __init__(self, whole: Checkpoint, rank: int, count: int) -> None:
        c, self.whole, self.rank, self.count = whole.config, whole, rank, count
        self.path, self.guarded, self.metadata = whole.path, whole.guarded, whole.metadata
        self.tensors = {OUTPUT: None, **whole.tensors}
        if c.kv_heads < count:
            raise EngineError(f"{whole.path}: {c.kv_heads} heads of keys and values cannot be shared by {count} GPUs")
        each = c.heads // c.kv_heads * c.head
        kv, queries = self._cut(c.kv_heads, "attn_output", each, c.head)
        feed, _ = self._cut(c.feed, "ffn_down", 1)
        self._own = slice(kv.start * each - queries.start, kv.stop * each - queries.start)
        self.config = SimpleNamespace(**vars(c) | {
            "heads": (queries.stop - queries.start) // c.head, "kv_heads": kv.stop - kv.start,
            "feed": feed.stop - feed.start})  # fmt: skip
        keys, rows = slice(kv.start * c.head, kv.stop * c.head), even(c.vocabulary, count)[rank]
        self._rows = {"ffn_gate": feed, "ffn_up": feed, "output": rows}
        self._rows |= {"attn_q": queries, "attn_k": keys, "attn_v": keys}
        self._columns = {"attn_output": queries, "ffn_down": feed}
        embedding = sum(t.nbytes for name, t in whole.tensors.items() if name == "token_embd.weight")
        self.nbytes = (whole.nbytes - embedding) // count + embedding

    def _cut(self, total: int, name: str, each: int, head: int = 0) -> tuple[slice, slice]:
        """This GPU's part of the numbers that matrices `name` are cut at, `each` columns apart, and its columns.

        A block of a quantized row is never cut.  head: columns of a query head.  A GPU with one head of keys may have
        queries of its neighbours, too, until its blocks are whole: their columns of `name` are made zero, so it does
        not matter that they meet other keys.
        """
        tensors = [self.whole.file[f"blk.{i}.{name}.weight"] for i in range(self.whole.config.layers)]
        forms = {getattr(tensor, "format", "") for tensor in tensors}
        unit = max(format_of(form).elements if form else 1 for form in forms)

        def columns(part: slice) -> slice:
            return slice(part.start * each, part.stop * each)

        def fits(parts: list[slice]) -> bool:
            """Whether each GPU has something, in whole blocks, or in some that it may widen its part to."""
            for part in parts:
                own, wide = columns(part), around(columns(part), unit)
                split = any(not apart(f) or at % apart(f) for f in forms for at in (own.start, own.stop))
                alone = head and part.stop - part.start == 1 and not (wide.start % head or wide.stop % head or split)
                if part.start >= part.stop or (wide != own and not alone):
                    return False
            return True

        parts = next(filter(fits, (even(total, self.count, n) for n in (max(unit // each, 1), 1))), None)
        if parts is None:
            raise EngineError(
                f"{self.path}: {self.count} GPUs cannot share the {total * each} columns of {name}, whose blocks of "
                f"{unit} stay whole; give fewer GPUs"
            )
        return parts[self.rank], around(columns(parts[self.rank]), unit)

    def load(self, name: str) -> Any:
        """This GPU's part of a tensor; None where the model has none, and of biases that another GPU adds."""
        *_, part, kind = name.split(".")
        if name == OUTPUT and OUTPUT not in self.whole.tensors:
            name = "token_embd.weight"
        tensor = self.whole.load(name)
        if tensor is None or part not in self._rows | self._columns:
            return tensor
        if part in self._rows:
            return tensor[self._rows[part]]
        if kind == "bias":
            return tensor if self.rank == 0 else None
        columns = self._columns[part]
        rows, count = len(tensor), columns.stop - columns.start
        if isinstance(tensor, trueno.QuantizedMatrix):
            at = [n * tensor.bytes.shape[1] // tensor.shape[1] for n in (columns.start, columns.stop)]
            tensor = trueno.QuantizedMatrix(
                np.ascontiguousarray(tensor.bytes[:, at[0] : at[1]]), (rows, count), tensor.format
            )
        else:
            tensor = np.ascontiguousarray(tensor[:, columns])
        return tensor if part == "ffn_down" or self._own == slice(0, count) else cleared(tensor, self._own)


class Caches:
    """One sequence on the pages of every GPU, each with its own heads."""

    def __init__(self, parts: list[Cache]) -> None:
        self.parts = parts

    @property
    def pages(self) -> trueno.KVCache:
        """Those of the first GPU, which stand for all of them."""
        return self.parts[0].pages

    @property
    def length(self) -> int:
        """Tokens in every layer of every GPU; a smaller number forgets the last ones."""
        return min(part.length for part in self.parts)

    @length.setter
    def length(self, tokens: int) -> None:
        for part in self.parts:
            part.length = tokens

    def fork(self) -> "Caches":
        return Caches([part.fork() for part in self.parts])

    def release(self) -> None:
        for part in self.parts:
            part.release()


class Parallel(Model):
    """A model on several devices, such as "cuda:0" and "cuda:1"; used as a `Model`."""

    def __init__(self, checkpoint: Checkpoint, devices: Sequence[str], activations: str = "q8", track: Any = iter,
                 cache: str = "") -> None:  # fmt: skip
        from trueno_cuda.nccl import Communicator

        shards = [Shard(checkpoint, i, len(devices)) for i in range(len(devices))]
        emulated = devices[0].startswith("cuda_emulated")  # whose launches copy what they might send
        self.links = Communicator(*devices, side=None if emulated else PROMPT * checkpoint.config.width * 4)
        self.models = [Model(shard, d, activations, track, cache) for shard, d in zip(shards, devices, strict=True)]
        self.checkpoint, self.config, self.on_host = checkpoint, checkpoint.config, False
        self.steps: tuple[Any, list[Step]] = None, []
        self.prompts_recorded: dict[Any, Any] = {}
        self.lengths: Counter[int] = Counter()
        self.threads = ThreadPoolExecutor(len(devices), "gpu")

    @property
    def place(self) -> str:  # type: ignore[override]
        """The part that is computed."""
        return self.models[0].place

    def cache(self, tokens: int = 0, sequences: int = 1) -> Any:
        """An empty sequence, as of `Model.cache`."""
        return Caches([model.cache(tokens, sequences) for model in self.models])

    def _at_once(self, calls: list[Any]) -> None:
        """A call of each GPU, each in its thread: they wait for one another."""
        for run in [self.threads.submit(call) for call in calls]:
            run.result()

    def together(self, generators: list[Any], precision: str = "f32") -> list[Any]:
        """What the generators of all models return: their parts become whole by messages between the GPUs.

        precision: of sums that are recorded.
        """
        parts = [next(one) for one in generators]
        while True:
            what, given = parts[0][0], [part for _, part in parts]
            if what == "rows":
                whole = self.links.all_gather(given, -1)
            elif hasattr(given[0], "batch"):
                whole = self.links.all_reduce(given, precision=precision)
            else:  # arrays are of no other use, so the sum takes their place
                whole = self.links.all_reduce(given, out=given)
            parts, done = [], []
            for one, y in zip(generators, whole, strict=True):
                try:
                    parts.append(one.send(y))
                except StopIteration as end:
                    done.append(end.value)
            if done:
                return done

    def forward(self, tokens: Sequence[int], cache: Caches, first: int = 0) -> Any:
        """Logits [tokens, vocabulary], on the host, after new tokens of a sequence; first: of those from there on."""
        if prompts := self._prompt(tokens, cache, first, partial(self._record, cache)):
            known, parts = self.known(tokens), cache.parts
            self._at_once([partial(p.run, known, part.number) for p, part in zip(prompts, parts, strict=True)])
            return np.concatenate([p.batch.read(p.logits).reshape((1, -1)) for p in prompts], axis=1)
        generators = [m.logits(tokens, c, first) for m, c in zip(self.models, cache.parts, strict=True)]
        return np.concatenate(self.together(generators), axis=1)

    def _record(self, cache: Caches, size: int) -> list[Prompt]:
        """A prompt of `size` tokens, recorded on each GPU; its messages are as exact as its products."""
        if size * self.config.width * 4 > self.links.side:
            return []
        prompts = [Prompt(m, part.pages, size, iter) for m, part in zip(self.models, cache.parts, strict=True)]
        self.together([prompt.parts for prompt in prompts], self.models[0].products)
        return prompts

    def _started(self, tokens: Sequence[int], caches: Sequence[Caches], how: Sampling) -> list[Step]:
        """The recorded step of each GPU, which begins with these tokens."""
        pages = [part.pages for part in next(filter(None, caches)).parts]
        key = ([id(p) for p in pages], len(caches), how)
        if self.steps[0] != key:
            steps = [Step(m, p, len(caches), how, iter) for m, p in zip(self.models, pages, strict=True)]
            self.together([step.parts for step in steps])
            self.steps = key, steps
        for step in self.steps[1]:
            step.batch.update(step.tokens, self.known(tokens))
        return self.steps[1]

    def decode(self, tokens: Sequence[int], caches: Sequence[Caches]) -> Any:
        """Logits [sequences, vocabulary] after one more token of each of some sequences, forks of one another."""
        steps = self._started(tokens, caches, Sampling())
        numbers = [[c.parts[i].number for c in caches] for i in range(len(steps))]
        self._at_once([partial(s.places.run, n, wait=False) for s, n in zip(steps, numbers, strict=True)])
        return steps[0].batch.read(steps[0].logits)

    def draws(self, tokens: Sequence[int], caches: Sequence[Caches], how: Sampling, numbers: Any) -> Any:
        """The next tokens of some sequences, drawn by each row of numbers [times, sequences] in [0, 1).

        The first GPU leads: each step that it begins is begun by the others, and the tokens are the same on all.
        """
        first, *others = self._started(tokens, caches, how)
        sequences = [[c and c.parts[i].number for c in caches] for i in range(len(self.models))]
        numbers, queues = np.float32(numbers), [SimpleQueue[int]() for _ in others]

        def follow(step: Step, listed: list[int], queue: "SimpleQueue[int]") -> None:
            while (i := queue.get()) >= 0:
                np.copyto(step.numbers, numbers[i])
                step.places.run(listed, wait=False)

        def lead(i: int) -> None:
            np.copyto(first.numbers, numbers[i])
            for queue in queues:
                queue.put(i)

        following = [self.threads.submit(follow, *each) for each in zip(others, sequences[1:], queues, strict=True)]
        try:
            yield from first.places.runs(sequences[0], len(numbers), first.drawn, before=lead)
        finally:
            for queue in queues:
                queue.put(-1)
            for run in following:
                run.result()
            for cache in filter(None, caches):
                cache.length = cache.parts[0].length
