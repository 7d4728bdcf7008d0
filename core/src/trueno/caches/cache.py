"""`KVCache`: the keys and values of every layer, for several sequences, in one memory of pages."""

from collections.abc import Sequence
from math import prod
from operator import index
from typing import Any

import numpy as np
import numpy.typing as npt

from trueno.caches.book import Book
from trueno.caches.home import Home
from trueno.caches.pages import DTYPES, Pages
from trueno.caches.step import CacheStep
from trueno.dispatch.function import function
from trueno.dispatch.transfer import host
from trueno.errors import DtypeError, OutOfMemory, ParameterError, ShapeError
from trueno.formats import decode, format_of
from trueno.formats.table import CACHES
from trueno.text import counted

Array = npt.NDArray[Any]
FEW = 8
"""Queries of a sequence up to which `attention_decode` is faster: it reads the cache as it is."""


class KVCache:
    """The keys and values of `layers` layers: heads of `head_dim` numbers, and values of `value_dim` (0: the same).

    dtype: "float32", "float16", "bfloat16" (or NumPy's dtype of that name) or "q8_0".  capacity: the most tokens of a
    sequence.  sequences: how many of that length there is memory for.  page: tokens of a page; 0 keeps each sequence in
    one piece.  With small pages any number of shorter sequences share the memory.  All are allocated here.  device:
    where they are, by a backend's name; without it, and for backends that compute on NumPy's arrays, the host.  Keys,
    values and queries are there too, and so is what `attend` gives.  A device without kernels for these ops has its
    cache on the host, and each call moves its arrays; `device` and `repr` say so.

    `new()` is a sequence, an int.  `append(layer, k, v, sequence)` adds tokens to one layer of it, and
    `attend(layer, q, sequence)` is attention over what it holds.  A fork shares pages with its origin: a page is copied
    before either writes to it.  An error changes nothing.  It is for one thread at a time.
    """

    def __init__(
        self,
        layers: int,
        kv_heads: int,
        head_dim: int,
        *,
        value_dim: int = 0,
        dtype: npt.DTypeLike = "float16",
        capacity: int,
        sequences: int = 1,
        page: int = 0,
        device: str = "",
    ) -> None:
        sizes = {"layers": layers, "kv_heads": kv_heads, "head_dim": head_dim, "value_dim": value_dim,
                 "capacity": capacity, "sequences": sequences, "page": page}  # fmt: skip
        for name, size in sizes.items():
            least = 0 if name in ("value_dim", "page") else 1
            if not isinstance(size, (int, np.integer)) or isinstance(size, bool) or size < least:
                raise ParameterError(f"KVCache: {name} is {size!r}; give a whole number, {least} or more")
        name = dtype if isinstance(dtype, str) else str(getattr(dtype, "name", getattr(dtype, "__name__", "")))
        name = DTYPES.get(name, name.lower())
        if name not in CACHES:
            raise ParameterError(f"KVCache: dtype is {dtype!r}; it must be {', '.join(DTYPES)} or q8_0")
        self.format, self.capacity, self.layers = name, index(capacity), index(layers)
        page = min(index(page) or self.capacity, self.capacity)
        count = -(-self.capacity // page) * index(sequences)
        self._home = Home(device, name)
        f = format_of(name, cache=True)
        dims = (index(head_dim), index(value_dim) or index(head_dim))
        for what, d in zip(("head_dim", "value_dim"), dims, strict=True):
            if d % f.elements:
                blocks = f"{name} stores blocks of {f.elements} numbers"
                raise ShapeError(f"KVCache: {what} is {d}, but {blocks}; give a multiple, or another dtype")
        lead = (count, page, index(kv_heads))
        try:
            rows = [(*lead, f.row_bytes(d)) for d in dims]
            self._pages = [tuple(Pages(self._home.zeros(r), name) for r in rows) for _ in range(self.layers)]
            self._book = Book(count, page, self.capacity)
        except (MemoryError, OutOfMemory, ValueError) as error:
            need = self.layers * prod(lead) * sum(f.row_bytes(d) for d in dims)
            raise OutOfMemory(
                f"KVCache: there is no room for {need} bytes ({error}); give a smaller capacity"
            ) from None
        self._dims = dims
        self._lengths: dict[int, list[int]] = {}

    # ---- what there is

    @property
    def page(self) -> int:
        """Tokens of a page."""
        return self._book.page

    @property
    def device(self) -> str:
        """The device on which the pages are, or "host"."""
        return self._home.name

    @property
    def nbytes(self) -> int:
        """Bytes of all pages of all layers."""
        return sum(p.nbytes for pair in self._pages for p in pair)

    @property
    def used(self) -> int:
        """Bytes of the pages that hold tokens; a page that sequences share counts once."""
        return self.nbytes // len(self._book.users) * self._book.used

    @property
    def sequences(self) -> tuple[int, ...]:
        """The sequences that there are."""
        return tuple(self._book.tables)

    def length(self, sequence: int) -> int:
        """Tokens of a sequence that every layer has."""
        self._book.table(sequence)
        return min(self._lengths[sequence])

    def pages(self, layer: int) -> tuple[Pages, Pages]:
        """The keys and the values of one layer, as ops and batches take them; the memory itself."""
        if not isinstance(layer, (int, np.integer)) or not 0 <= layer < self.layers:
            raise ParameterError(f"KVCache: layer is {layer!r}; there are layers 0 to {self.layers - 1}")
        return self._pages[layer]  # type: ignore[return-value]

    def table(self, sequences: Sequence[int]) -> Array:
        """The page tables of these sequences, [sequences, most pages of one]; 0 where a sequence has no page."""
        many = self._listed(sequences)
        table = np.zeros((len(many), -(-self.capacity // self.page)), np.int64)
        for row, sequence in zip(table, many, strict=True):
            pages = self._book.table(sequence)
            row[: len(pages)] = pages
        return table

    def lengths(self, sequences: Sequence[int], layer: int = 0) -> Array:
        """The tokens of these sequences in one layer."""
        self.pages(layer)
        return np.array([self._lengths[s][layer] for s in self._listed(sequences)], np.int64)

    def read(self, layer: int, sequence: int) -> tuple[Array, Array]:
        """Copies of the keys and the values of a sequence in one layer, float32 [tokens, heads, numbers of a head]."""
        place, f = self._place(layer, sequence), format_of(self.format, cache=True)
        keys, values = (decode(f, host("KVCache", p.bytes)[place]) for p in self.pages(layer))
        return keys, values

    def _place(self, layer: int, sequence: int) -> tuple[Array, Array]:
        pages = np.array(self._book.table(sequence), np.int64)
        tokens = np.arange(self._lengths[sequence][layer])
        return pages[tokens // self.page], tokens % self.page

    # ---- sequences

    def new(self) -> int:
        """The number of a new sequence without tokens."""
        sequence = self._book.new()
        self._lengths[sequence] = [0] * self.layers
        return sequence

    def fork(self, sequence: int) -> int:
        """A new sequence with the same tokens, on the same pages."""
        copy = self._book.fork(sequence)
        self._lengths[copy] = list(self._lengths[sequence])
        return copy

    def truncate(self, sequence: int, length: int) -> None:
        """Forget the tokens of a sequence from `length` on, in every layer; one with fewer stays as it is."""
        self._book.table(sequence)
        if not isinstance(length, (int, np.integer)) or length < 0:
            raise ParameterError(f"KVCache: length is {length!r}; give a whole number, 0 or more")
        self._lengths[sequence] = [min(n, index(length)) for n in self._lengths[sequence]]
        self._book.cut(sequence, max(self._lengths[sequence]))

    def release(self, sequence: int) -> None:
        """Forget a sequence; its pages are free, but for those that others share."""
        self._book.release(sequence)
        del self._lengths[sequence]

    def defragment(self) -> None:
        """Move the used pages to the beginning, those of a sequence side by side: page tables change.

        On a device no op is faster for it, and nothing moves.
        """
        if self._home.entry is not None:
            return
        arrays = [pages.bytes for pair in self._pages for pages in pair]
        spare = np.empty_like(max((x[:1] for x in arrays), key=lambda x: x.nbytes)).reshape(-1)  # before anything moves
        place = list(range(len(self._book.users)))  # of each page as it was numbered
        holds = list(place)
        for new, old in enumerate(self._book.order()):
            here = place[old]
            if here == new:
                continue
            for x in arrays:
                one = spare[: x[0].size].reshape(x[0].shape)
                one[...], x[new] = x[new], x[here]
                x[here] = one
            holds[here] = holds[new]
            place[holds[here]], holds[new], place[old] = here, old, new
        self._book.compact()

    # ---- tokens

    def reserve(self, sequences: Sequence[int], tokens: int, layer: int = 0) -> Array:
        """The slots [sequences · tokens] of the next tokens of one layer, with pages for them.

        For a recorded batch: `kv_cache_scatter` writes rows there, and `commit` counts them.
        """
        sequences = self._check(sequences, tokens, layer)
        starts = [self._lengths[s][layer] for s in sequences]
        copies = self._book.reserve([(s, n, n + tokens) for s, n in zip(sequences, starts, strict=True)])
        try:
            if copies:
                self._home.copy([pages for pair in self._pages for pages in pair], copies)
        except BaseException:
            self._book.undo(copies)
            for s in sequences:
                self._book.cut(s, max(self._lengths[s]))
            raise
        slots = np.empty((len(sequences), tokens), np.int64)
        for row, s, start in zip(slots, sequences, starts, strict=True):
            at = np.arange(start, start + tokens)
            row[:] = np.array(self._book.tables[s], np.int64)[at // self.page] * self.page + at % self.page
        return slots.reshape(-1)

    def _check(self, sequences: Any, tokens: Any, layer: int) -> list[int]:
        """Sequences as a list; ParameterError for a layer, sequences or tokens that cannot be reserved or counted."""
        self.pages(layer)
        many = self._listed(sequences)
        if len(set(many)) != len(many):
            raise ParameterError(f"KVCache: sequences are {many}; each may be there once")
        if not isinstance(tokens, (int, np.integer)) or isinstance(tokens, bool) or tokens < 0:
            raise ParameterError(f"KVCache: tokens is {tokens!r}; give a whole number, 0 or more")
        return many

    def _listed(self, sequences: Any) -> list[int]:
        """Sequences as a list of their numbers; ParameterError for anything else, and for one that is not there."""
        try:
            many = list(sequences)
        except TypeError:
            many = None
        if many is None or isinstance(sequences, str):
            raise ParameterError(f"KVCache: sequences is {sequences!r}; give a list of what new() returned")
        for s in many:
            self._book.table(s)
        return list(map(index, many))

    def commit(self, sequences: Sequence[int], tokens: int, layer: int | None = None) -> None:
        """Count tokens that were written to reserved slots; layer: only in this one."""
        sequences = self._check(sequences, tokens, layer or 0)
        layers = range(self.layers) if layer is None else (layer,)
        for s in sequences:
            room = min(len(self._book.tables[s]) * self.page, self.capacity)
            for i in layers:
                if (here := self._lengths[s][i]) + tokens > room:
                    raise ParameterError(
                        f"KVCache: {tokens} more tokens of sequence {s} were not reserved: it has {here}, and room for "
                        f"{room}; call reserve first"
                    )
        for s in sequences:
            for i in layers:
                self._lengths[s][i] += tokens

    def append(self, layer: int, k: Any, v: Any, sequences: int | Sequence[int]) -> None:
        """Add tokens to one layer: k[t,hk,d] and v[t,hk,e] to a sequence, or [b,t,hk,…] to b sequences, float32."""
        many, (k, v) = self._many("append", sequences, k=k, v=v)
        heads = self.pages(layer)[0].shape[2]
        for name, x, d in (("k", k, self._dims[0]), ("v", v, self._dims[1])):
            if tuple(x.shape) != (len(many), k.shape[1], heads, d):
                want = f"[{len(many)}, {k.shape[1]}, {heads}, {d}]"
                raise ShapeError(f"KVCache.append: {name} has shape {list(x.shape)}, but {want} is needed")
            if x.dtype != np.float32:
                remedy = "convert it with .astype(numpy.float32), a tensor with .float()"
                raise DtypeError(f"KVCache.append: {name} is {x.dtype}; rows are float32: {remedy}")
        slots = self.reserve(many, k.shape[1], layer)
        if not slots.size:
            return
        scatter = function("kv_cache_scatter")
        try:
            with self._home.asking():
                for pages, x in zip(self._pages[layer], (k, v), strict=True):
                    rows, places = x.reshape((len(slots), *x.shape[2:])), self._home.sent("slots", slots)
                    scatter(pages.bytes, rows, places, format=self.format, out=pages.bytes)
        except BaseException:  # give back the pages that were reserved
            for s in many:
                self._book.cut(s, max(self._lengths[s]))
            raise
        self.commit(many, k.shape[1], layer)

    def attend(
        self,
        layer: int,
        q: Any,
        sequences: int | Sequence[int],
        *,
        scale: float = 0.0,
        window: int = 0,
        softcap: float = 0.0,
    ) -> Any:
        """Causal attention of the last t tokens: q[t,hq,d] of one sequence, or q[b,t,hq,d] of b; y[…,t,hq,e].

        A few tokens go to `attention_decode`, many to `attention`, which reads float32 pages side by side in place; a
        device takes the first for all.
        """
        home, one, own = self._home, isinstance(sequences, (int, np.integer)), q
        many, (q,) = self._many("attend", sequences, q=q)
        keys, values = self.pages(layer)
        lengths = self.lengths(many, layer)
        for sequence, length in zip(many, lengths, strict=True):
            if length < q.shape[1]:
                held, asked = counted(int(length), "token"), "one query" if q.shape[1] == 1 else f"{q.shape[1]} queries"
                raise ShapeError(
                    f"KVCache.attend: sequence {sequence} has {held} in layer {layer}, which is too few for {asked}; "
                    "append the keys and values of these tokens first"
                )
        given: dict[str, Any] = {"scale": scale, "window": window, "softcap": softcap}
        with home.asking():
            if q.shape[1] <= FEW or home.entry is not None:
                places = home.sent("table", self.table(many)), home.sent("lengths", lengths)
                y = function("attention_decode")(q, keys.bytes, values.bytes, *places, format=self.format, **given)
                y = y.reshape(tuple(y.shape[one:]))
            else:
                attention, parts = function("attention"), zip(q, many, strict=True)
                ys = [attention(x, *self._held(layer, s), causal=True, **given) for x, s in parts]
                y = ys[0] if one else np.stack(ys)
        return home.result(y, own)

    def record(self, batch: Any, sequences: int) -> CacheStep:
        """One new token of each of so many sequences, in a batch: its `run` serves every token, and any of them.

        DeviceError if the batch runs elsewhere.
        """
        return CacheStep(self, batch, sequences)

    def _held(self, layer: int, sequence: int) -> tuple[Array, Array]:
        """The keys and values of a sequence: views of float32 on neighbouring pages, otherwise copies."""
        table = self._book.table(sequence)
        if self.format != "f32" or table != list(range(table[0], table[0] + len(table)) if table else ()):
            return self.read(layer, sequence)
        first = table[0] * self.page if table else 0
        tokens = slice(first, first + self._lengths[sequence][layer])
        keys, values = (p.bytes.view(np.float32).reshape(-1, *p.shape[2:])[tokens] for p in self.pages(layer))
        return keys, values

    def _many(self, what: str, sequences: int | Sequence[int], **arrays: Any) -> tuple[list[int], list[Any]]:
        """Sequences as a list, and arrays [sequences, tokens, heads, numbers]."""
        one = isinstance(sequences, (int, np.integer))
        many = self._listed([sequences] if one else sequences)
        if not many:
            raise ParameterError(f"KVCache.{what}: sequences is {sequences!r}; give one of them, or a list of some")
        held = {name: self._home.operand(what, name, x) for name, x in arrays.items()}
        for name, x in held.items():
            if len(x.shape) != 4 - one or (not one and x.shape[0] != len(many)):
                want = "[tokens, heads, numbers of a head]"
                want = want if one else f"[{len(many)}, tokens, heads, numbers of a head]"
                raise ShapeError(f"KVCache.{what}: {name} has shape {list(x.shape)}, but {want} is needed")
        return many, [x.reshape((1, *x.shape)) if one else x for x in held.values()]

    def __repr__(self) -> str:
        book = self._book
        pages = f"{book.used} of {counted(len(book.users), 'page')} of {counted(book.page, 'token')} used"
        counts = f"{counted(self.layers, 'layer')}, {self.format}, {counted(len(book.tables), 'sequence')}"
        where = f", on {self.device}" if self.device != "host" else ""
        where += f", on the host because {self._home.reason}" if self._home.reason else ""
        return f"<KVCache {counts}, {pages}, {self.nbytes} bytes{where}>"
