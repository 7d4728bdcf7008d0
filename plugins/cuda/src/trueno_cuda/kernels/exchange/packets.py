"""Small sums, without flags: packets of 16 bytes arrive as a whole, and have the number of the launch in each half."""

from typing import Any

import numpy as np

from trueno_cuda.kernels.exchange.cells import pair, stored, unpaired
from trueno_cuda.kernels.exchange.inboxes import BLOCKS, SMALL, THREADS, WORDS
from trueno_cuda.ptx import Builder, Pointer, Value, f32, u32

NOT_THERE, NOT_THERE_NARROW = 0x7FC00000, 0x7FC07FC0
"""NaN, as the data of a packet that does not come."""


def carried(narrow: bool) -> int:
    """Numbers of a packet."""
    return 4 if narrow else 2


def packed(count: int, narrow: bool = False) -> int:
    """Words of the packets of so many numbers."""
    return -(-count // carried(narrow)) * WORDS


def packets(x: np.ndarray[Any, Any], epoch: int, narrow: bool = False) -> np.ndarray[Any, Any]:
    """The words of numbers on their way in launch `epoch`."""
    words = np.full(packed(x.size, narrow), epoch, np.uint32)
    numbers = np.pad(x.ravel(), (0, -x.size % carried(narrow)))
    words[::2] = stored(numbers, narrow).view(np.uint32)
    return words


def small(
    k: Builder, x: Pointer, out: Pointer, packets: Pointer, epochs: Pointer, count: Value, polls: Value,
    *, N: int, RANK: int, NARROW: bool = False, **peers: Pointer,
) -> None:  # fmt: skip
    """out[i] = the sum of all GPUs' x[i], for `count` numbers, in packets."""
    first, step, P = k.ctaid * THREADS + k.tid, k.nctaid * THREADS, carried(NARROW)
    epoch = epochs.load(k.ctaid) + 1
    side = k.multiple_of((epoch & 1) * (N * SMALL * 2), WORDS)
    others = {i: peers[f"packets_{i}"] + (side + RANK * SMALL * 2) for i in range(N) if i != RANK}

    def numbers(words: list[Value]) -> list[Value]:
        return [value for word in words for value in (unpaired(word) if NARROW else (word.bits(f32),))]

    for i in k.range(first, (count + (P - 1)) // P, step):
        at = i * P
        inside = [None, *(at + j < count for j in range(1, P))]
        mine = [x.load(at + j if j else at, where=where) for j, where in enumerate(inside)]
        data = [pair(k, *mine[j : j + 2]) for j in (0, 2)] if NARROW else [value.bits(u32) for value in mine]
        for pointer in others.values():
            pointer.store(i * WORDS, [data[0], epoch, data[1], epoch], order="relaxed", scope="system")
        terms = []
        for rank in range(N):
            if rank == RANK:
                terms.append(numbers(data) if NARROW else mine)
                continue
            inbox, turns = packets + (side + rank * SMALL * 2), k.var(u32, 0)
            arrived = [k.var(u32, NOT_THERE_NARROW if NARROW else NOT_THERE) for _ in data]
            with k.loop() as loop:
                one, seen, two, too = inbox.load(i * WORDS, vec=WORDS, order="relaxed", scope="system")
                there = (seen == epoch) & (too == epoch)
                with k.when(there):
                    arrived[0].set(one)
                    arrived[1].set(two)
                turns += 1
                loop.leave_if(there | (turns > polls))
            terms.append(numbers(arrived))
        total = terms[0]
        for more in terms[1:]:
            total = [a + b for a, b in zip(total, more, strict=True)]
        for j, (value, where) in enumerate(zip(total, inside, strict=True)):
            out.store(at + j if j else at, value, where=where)
    k.sync()
    with k.when(k.tid == 0):
        for block in k.range(k.ctaid, BLOCKS, k.nctaid):
            epochs.store(block, epoch)
