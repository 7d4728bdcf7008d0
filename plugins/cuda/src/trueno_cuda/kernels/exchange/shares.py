"""Sums with two meetings: each GPU owns a share of the numbers, adds it up, and sends it to all others.

A GPU sends 2 (N - 1) / N times its part, and not N - 1 times, for a crossing of the link more.
"""

from trueno_cuda.kernels.exchange.cells import Cells
from trueno_cuda.kernels.exchange.messages import Parts, added
from trueno_cuda.ptx import Builder, Pointer, Value

MEETING = 1 << 20
"""Bytes that a GPU must send less for a second meeting: what a link of 263 GB/s carries in the 4 us that a fence, a
crossing, and a look at the flag take.  Counted, not yet measured."""


def spares(ranks: int, nbytes: int) -> bool:
    """Whether a second meeting pays for sums of so many bytes."""
    return ranks > 2 and (ranks - 1) * (ranks - 2) * nbytes >= MEETING * ranks


def owned(count: int, ranks: int) -> list[slice]:
    """Which of `count` vectors each GPU adds up."""
    share = -(-count // ranks)
    return [slice(min(count, i * share), min(count, (i + 1) * share)) for i in range(ranks)]


def shared(
    k: Builder, x: Pointer, out: Pointer, inbox: Pointer, flags: Pointer, epochs: Pointer, count: Value, polls: Value,
    *, N: int, RANK: int, CAPACITY: int, V: int, NARROW: bool = False, **peers: Pointer,
) -> None:  # fmt: skip
    """out[i] = the sum of all GPUs' x[i], for `count` vectors; with NARROW each finished sum is rounded, too."""
    parts, cells = Parts(k, N, RANK, CAPACITY, V, inbox, flags, epochs, peers), Cells(k, V, NARROW)
    share, unroll = (count + (N - 1)) // N, max(2 * parts.unroll // N, 1)
    firsts = [0, *(k.min(share * i, count) for i in range(1, N))]
    lengths = [share, *(k.min(count - first, share) for first in firsts[1:])]
    given, wanted = ([pointer + first * V for first in firsts] for pointer in (x, out))
    order = sorted(parts.others, key=lambda i: (i - RANK) % N)  # so that not all send to the same GPU at once

    for places in parts.turns(share, unroll):
        pieces = [(i, at, at < lengths[i]) for at, _ in places for i in order]
        words = [cells.words(cells.read(given[i], at, where)) for i, at, where in pieces]
        for (i, at, where), one in zip(pieces, words, strict=True):
            cells.send(parts.there(i), at, one, where)
    late = parts.meet(polls)
    slots, to = {i: parts.sent(i) for i in order}, {i: parts.there(i, True) for i in order}
    for places in parts.turns(lengths[RANK], max(parts.unroll // 2, 1)):
        loaded = []
        for at, where in places:
            own = cells.words(cells.read(given[RANK], at, where))
            loaded.append([own if i == RANK else cells.arrived(slots[i], at, where) for i in range(N)])
        for (at, where), terms in zip(places, loaded, strict=True):
            total = added([cells.numbers(one) for one in terms])
            sent = cells.words([k.select(late, float("nan"), value) for value in total])
            cells.write(wanted[RANK], at, cells.numbers(sent), where)
            for i in order:
                cells.send(to[i], at, sent, where)
    late = parts.meet(polls, 1)
    finished = {i: parts.sent(i, True) for i in order}
    for places in parts.turns(share, unroll):
        pieces = [(i, at, at < lengths[i]) for at, _ in places for i in order]
        words = [cells.arrived(finished[i], at, where) for i, at, where in pieces]
        for (i, at, where), one in zip(pieces, words, strict=True):
            values = [k.select(late, float("nan"), value) for value in cells.numbers(one)]
            cells.write(wanted[i], at, values, where)
    parts.end()
