# mypy: disable-error-code="valid-type"
"""Sums and rows with one meeting: every GPU sends its whole part to every other one.

Floor: a crossing, and the bytes of all others' parts over the link.
"""

from collections.abc import Iterator
from itertools import accumulate

from trueno_cuda.kernels.exchange.cells import Cells
from trueno_cuda.kernels.exchange.inboxes import BLOCKS, THREADS, half
from trueno_cuda.ptx import Builder, Pointer, Value, u32

UNROLL = 4
"""Vectors of 16 bytes of a thread that are on their way at once."""


class Parts:
    """What these kernels do: send, say so, wait, and end."""

    def __init__(self, k: Builder, N: int, RANK: int, CAPACITY: int, V: int, inbox: Pointer, flags: Pointer,
                 epochs: Pointer, peers: dict[str, Pointer]) -> None:  # fmt: skip
        self.k, self.N, self.RANK, self.CAPACITY = k, N, RANK, CAPACITY
        self.inbox, self.flags, self.epochs = inbox, flags, epochs
        self.others = [i for i in range(N) if i != RANK]
        self.inboxes, self.signals = ({i: peers[f"{what}_{i}"] for i in self.others} for what in ("inbox", "flags"))
        self.late = k.shared(u32, 1)
        self.first, self.step = k.ctaid * THREADS + k.tid, k.nctaid * THREADS
        self.unroll = max(UNROLL * 4 // max(V, 4), 1)
        self.epoch = epochs.load(k.ctaid) + 1
        self.side = k.multiple_of((self.epoch & 1) * (N * CAPACITY), 4)
        with k.when(k.tid == 0):
            self.late.store(0, 0)

    def turns(self, count: Value, unroll: int = 0) -> Iterator[list[tuple[Value, Value]]]:
        """Places of some of `count` vectors, and whether they are below it: the same for whom sends and who reads."""
        k, unroll = self.k, unroll or self.unroll
        for base in k.range(self.first, count, self.step * unroll):
            places = [base + self.step * n for n in range(unroll)]
            yield [(at, at < count) for at in places]

    def send(self, cells: Cells, x: Pointer, count: Value) -> None:
        """`count` vectors, each to all others."""
        to = [self.there(i) for i in self.others]
        for places in self.turns(count):
            loaded = [(at, where, cells.words(cells.read(x, at, where))) for at, where in places]
            for at, where, words in loaded:
                for slot in to:
                    cells.send(slot, at, words, where)

    def meet(self, polls: Value, meeting: int = 0) -> Value:
        """Say that this block's share is sent, and wait for the same block of the others; whether one did not come."""
        k, flags = self.k, (self.k.ctaid + meeting * BLOCKS) * self.N if meeting else self.k.ctaid * self.N
        k.sync()
        with k.when(k.tid == 0):
            k.fence("system")
            for signal in self.signals.values():
                signal.store(flags + self.RANK, self.epoch, order="release", scope="system")
        with k.when((k.tid < self.N) & (k.tid != self.RANK)):
            turns = k.var(u32, 0)
            with k.loop() as loop:
                seen = self.flags.load(flags + k.tid, order="acquire", scope="system")
                loop.leave_if(seen - self.epoch < 1 << 31)  # the count goes round
                turns += 1
                loop.leave_if(turns > polls)
            with k.when(turns > polls):
                self.late.atomic("or", 0, 1)
        k.sync()
        return self.late.load(0) != 0

    def there(self, rank: int, finished: bool = False) -> Pointer:
        """Where a GPU finds what this one sends."""
        return self.inboxes[rank] + (self.side + self._slot(self.RANK, finished))

    def sent(self, rank: int, finished: bool = False) -> Pointer:
        """What a GPU has sent here; finished: of its own share."""
        return self.inbox + (self.side + self._slot(rank, finished))

    def _slot(self, rank: int, finished: bool) -> int:
        return rank * self.CAPACITY + (half(self.CAPACITY) if finished else 0)

    def end(self) -> None:
        """Count the launch, for all blocks that a later one may have."""
        k = self.k
        with k.when(k.tid == 0):
            for block in k.range(k.ctaid, BLOCKS, k.nctaid):
                self.epochs.store(block, self.epoch)


def added(terms: list[list[Value]]) -> list[Value]:
    """Their sum, in their order."""
    first, *rest = terms
    for more in rest:
        first = [a + b for a, b in zip(first, more, strict=True)]
    return first


def whole(
    k: Builder, x: Pointer, out: Pointer, inbox: Pointer, flags: Pointer, epochs: Pointer, count: Value, polls: Value,
    *, N: int, RANK: int, CAPACITY: int, V: int, NARROW: bool = False, **peers: Pointer,
) -> None:  # fmt: skip
    """out[i] = the sum of all GPUs' x[i], for `count` vectors."""
    parts, cells = Parts(k, N, RANK, CAPACITY, V, inbox, flags, epochs, peers), Cells(k, V, NARROW)
    parts.send(cells, x, count)
    late = parts.meet(polls)
    slots = {rank: parts.sent(rank) for rank in parts.others}
    for places in parts.turns(count):
        loaded = []
        for at, where in places:
            own = cells.read(x, at, where)  # rounded as those of the others, so that all have the same bits
            words = [cells.words(own) if r == RANK else cells.arrived(slots[r], at, where) for r in range(N)]
            loaded.append(words)
        for (at, where), words in zip(places, loaded, strict=True):
            total = added([cells.numbers(word) for word in words])
            cells.write(out, at, [k.select(late, float("nan"), value) for value in total], where)
    parts.end()


def rows(
    k: Builder, x: Pointer, out: Pointer, inbox: Pointer, flags: Pointer, epochs: Pointer, rows: Value, polls: Value,
    *, N: int, RANK: int, CAPACITY: int, V: int, WIDTHS: tuple[int, ...], **peers: Pointer,
) -> None:  # fmt: skip
    """out[row] = all GPUs' x[row] beside each other, WIDTHS numbers of each."""
    parts = Parts(k, N, RANK, CAPACITY, V, inbox, flags, epochs, peers)
    parts.send(Cells(k, V, False), x, rows * (WIDTHS[RANK] // V))
    late = parts.meet(polls)
    starts = [0, *accumulate(WIDTHS)]
    for rank in range(N):
        arrived, width = (x if rank == RANK else parts.sent(rank)), WIDTHS[rank] // V
        for i in k.range(parts.first, rows * width, parts.step):
            values = arrived.load(i * V, vec=V)
            at = (i // width * starts[-1] + starts[rank]) if rank else i // width * starts[-1]
            place = k.multiple_of(at + i % width * V, V)
            out.store(place, [k.select(late, float("nan"), value) for value in values])
    parts.end()
