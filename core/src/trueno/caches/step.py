"""`CacheStep`: the next token of some sequences, recorded in a batch; one recording serves every token."""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from trueno.errors import DeviceError, ParameterError, ShapeError

Array = npt.NDArray[Any]
AHEAD = 2
"""Steps that a device has begun when the host waits for the result of an earlier one."""
NOWHERE = -1
"""The slot of a row that `kv_cache_scatter` leaves out."""


class Recorder(Protocol):
    """What this needs of a batch."""

    _uploads: Any

    def upload(self, x: Any, *, live: bool = False) -> Any: ...
    def update(self, h: Any, x: Any) -> None: ...
    def execute(self, *, wait: bool = True) -> None: ...
    def fetch(self, h: Any) -> Callable[[], Any]: ...
    def kv_cache_scatter(self, cache: Any, x: Any, slots: Any) -> Any: ...
    def attention_decode(self, q: Any, *cache: Any, **given: Any) -> Any: ...


class Cache(Protocol):
    """What this needs of a `KVCache`."""

    _book: Any
    _home: Any
    _lengths: dict[int, list[int]]
    layers: int

    @property
    def page(self) -> int: ...
    def length(self, sequence: int) -> int: ...
    def truncate(self, sequence: int, length: int) -> None: ...
    def pages(self, layer: int) -> Any: ...
    def table(self, sequences: Sequence[int]) -> Array: ...
    def lengths(self, sequences: Sequence[int]) -> Array: ...
    def reserve(self, sequences: Sequence[int], tokens: int) -> Array: ...
    def commit(self, sequences: Sequence[int], tokens: int) -> None: ...
    def _listed(self, sequences: Any) -> list[int]: ...


class CacheStep:
    """One new token of each of `count` sequences, from `KVCache.record`.  positions: theirs, a handle for `rope`.

    Record `attend` for every layer, and then `run` as often as there are tokens: it gives the tokens their places,
    executes the batch, and counts them.  The batch may also be executed without it: caches stay as they are then.
    """

    def __init__(self, cache: Cache, batch: Recorder, count: int) -> None:
        home = cache._home
        if not hasattr(batch, "_uploads"):
            raise ParameterError(f"KVCache.record: batch is {batch!r}; give a trueno.Batch()")
        if home.entry is not None and not batch._uploads._fixed:  # a batch without a name runs where its first array is
            batch.upload(cache.pages(0)[0])
        device = batch._uploads.device
        if home.entry is not device:
            why = f" because {home.reason}" if home.reason else ""
            where, name = (device.name, device.name) if device else ("the host", "")
            remedy = "call append and attend instead" if why else f"make the cache with device={name!r}"
            raise DeviceError(f"KVCache.record: the cache is on {home.place}{why}, and the batch on {where}; {remedy}")
        if not isinstance(count, (int, np.integer)) or isinstance(count, bool) or count < 1:
            raise ParameterError(f"KVCache.record: sequences is {count!r}; give how many they are, 1 or more")
        self._cache, self._batch, self._count = cache, batch, int(count)
        self._slots = np.full(count, NOWHERE, np.int64)
        self._starts, self._lengths = (np.zeros(count, np.int64) for _ in range(2))
        self._table = np.zeros((count, cache.table([]).shape[1]), np.int64)
        self._listed: list[list[int]] = [[] for _ in range(count)]
        self._recorded: set[int] = set()
        moving = (batch.upload(x, live=True) for x in (self._slots, self._starts, self._lengths))
        self._handles = (*moving, batch.upload(self._table))
        self._borrowed = device is None
        self.positions = self._handles[1]

    @property
    def handles(self) -> tuple[Any, Any, Any, Any]:
        """What `run` sets: each token's slot, its position, its sequence's length with it, and the page tables."""
        return self._handles

    def attend(self, layer: int, q: Any, k: Any, v: Any, **given: Any) -> Any:
        """Record that k[b,hk,d] and v[b,hk,e] join a layer, and attention of q[b,hq,d]: a handle of y[b,hq,e].

        given: scale, window, softcap, as of `KVCache.attend`.
        """
        pages = self._cache.pages(layer)
        if layer in self._recorded:
            raise ParameterError(f"KVCache.record: layer {layer} is recorded already; each takes its tokens once")
        self._check(pages, q, k, v)
        slots, _, lengths, table = self._handles
        kept = [
            self._batch.kv_cache_scatter(self._batch.upload(p), x, slots) for p, x in zip(pages, (k, v), strict=True)
        ]
        y = self._batch.attention_decode(q.reshape((q.shape[0], 1, *q.shape[1:])), *kept, table, lengths, **given)
        self._recorded.add(layer)
        return y.reshape((y.shape[0], *y.shape[2:]))

    def _check(self, pages: Any, q: Any, k: Any, v: Any) -> None:
        """Raise an error for handles of another shape, before anything is recorded."""
        (*_, heads, d), (*_, e) = pages[0].shape, pages[1].shape
        for name, x, numbers in (("k", k, d), ("v", v, e), ("q", q, d)):
            shape = getattr(x, "shape", None)
            if shape is None:
                raise ParameterError(f"KVCache.record: {name} is {x!r}; give a handle of the batch")
            several = shape[1] if name == "q" and len(shape) == 3 and heads and shape[1] % heads == 0 else heads
            if shape != (self._count, several, numbers):
                want = f"[{self._count}, {'a multiple of ' * (name == 'q')}{heads}, {numbers}]"
                raise ShapeError(f"KVCache.record: {name} has shape {list(shape)}, but {want} is needed")

    def run(self, sequences: Sequence[int | None], *, wait: bool = True) -> None:
        """Execute the batch for the next token of each of these sequences; an error leaves them as they are.

        sequences: None for a row that computes nothing of use, so that sequences may join and leave between two runs.
        wait: as of `Batch.execute`.
        """
        cache, lengths = self._cache, self._cache._lengths
        rows, sequences = self._listed_rows(sequences)
        if len(self._recorded) < cache.layers:
            missing = ", ".join(str(i) for i in range(cache.layers) if i not in self._recorded)
            raise ParameterError(f"KVCache.record: attend is not recorded for layers {missing}; each gets the token")
        alike = False
        try:
            self._leave()  # rows of no sequence write nothing, and attend to nothing
            self._starts[:] = self._lengths[:] = 0
            alike = self._placed(rows, sequences)
            if not alike:
                self._slots[rows] = cache.reserve(sequences, 1)
                if uneven := [s for s in sequences if len(set(lengths[s])) > 1]:
                    counts = f"{min(lengths[uneven[0]])} to {max(lengths[uneven[0]])} tokens in its layers"
                    raise ParameterError(f"KVCache.record: sequence {uneven[0]} has {counts}; truncate it")
                self._starts[rows] = cache.lengths(sequences)
                self._lengths[rows] = self._starts[rows] + 1
            tables: list[list[int]] = [[] for _ in range(self._count)]
            for row, s in zip(rows, sequences, strict=True):
                tables[row] = cache._book.tables[s]
            if moved := tables != self._listed:
                self._table[:] = 0
                self._table[rows] = cache.table(sequences)
                self._listed = list(map(list, tables))
            if moved and not self._borrowed:  # a batch of the host reads the array itself
                self._batch.update(self._handles[3], self._table)
            self._batch.execute(wait=wait)
        except BaseException:
            self._listed = []  # the table may not have arrived
            for s in sequences:
                if s in lengths:
                    cache._book.cut(s, max(lengths[s]))
            self._leave()
            raise
        self._leave()
        if not alike:
            return cache.commit(sequences, 1)
        for s in sequences:
            lengths[s][:] = [lengths[s][0] + 1] * len(lengths[s])
        return None

    def _listed_rows(self, sequences: Any) -> tuple[Sequence[int], list[int]]:
        """The rows that have a sequence, and their sequences."""
        plain = type(sequences) is list and all(type(s) is int for s in sequences)
        given = sequences if plain or isinstance(sequences, (list, tuple)) else self._cache._listed(sequences)
        if len(given) != self._count:
            raise ParameterError(f"KVCache.record: it is for {self._count} sequences, and {len(given)} are given")
        if plain:
            return range(self._count), given
        rows = [i for i, s in enumerate(given) if s is not None]
        return rows, self._cache._listed([given[i] for i in rows])

    def runs(
        self, sequences: Sequence[int | None], times: int, result: Any, *, before: Callable[[int], None] | None = None,
        ahead: int = AHEAD,
    ) -> Iterator[Any]:  # fmt: skip
        """`run` so many times, and give what a handle of the batch holds after each.

        A device begins up to `ahead` further steps before the host waits for a result, so it never waits for the host;
        `Batch.feed` leads from one step to the next.  before(i) is called before step i begins, to write to live
        uploads.  In the end, or where the caller stops, the sequences have the tokens of the results given.
        """
        busy = [s for s in sequences if s is not None]
        lengths, behind = [self._cache.length(s) for s in busy], deque[Callable[[], Any]]()
        ahead, begun, done, failed = 0 if self._borrowed else ahead, 0, 0, None
        try:
            while behind or begun < times:
                if begun < times:
                    try:
                        if before is not None:
                            before(begun)
                        self.run(sequences, wait=False)
                        behind.append(self._batch.fetch(result))
                    except Exception as error:  # what was begun before is given first
                        failed, times = error, begun
                    else:
                        begun += 1
                        if len(behind) <= ahead and begun < times:
                            continue
                if behind:
                    value = behind.popleft()()
                    done += 1
                    yield value
            if failed is not None:
                raise failed
        finally:
            for sequence, length in zip(busy, lengths, strict=True):
                if sequence in self._cache._lengths:
                    self._cache.truncate(sequence, length + done)

    def _leave(self) -> None:
        """Let the batch write nothing to the cache until the next `run`: pages may have other users then."""
        self._slots[:] = NOWHERE

    def _placed(self, rows: Sequence[int], sequences: Sequence[int]) -> bool:
        """Find the place of each new token; False if a page is missing, or shared, or something is wrong."""
        book, page = self._cache._book, self._cache.page
        for n, (i, s) in enumerate(zip(rows, sequences, strict=True)):
            table = book.tables.get(s)
            if table is None or sequences.index(s) != n:
                return False
            held = self._cache._lengths[s]
            start = held[0]
            block, at = divmod(start, page)
            if (
                held.count(start) < len(held)
                or start >= book.capacity
                or block >= len(table)
                or book.users[table[block]] > 1
            ):
                return False
            self._slots[i] = table[block] * page + at
            self._starts[i] = start
            self._lengths[i] = start + 1
        return True
