"""One page to an LZ4 block, level 1: greedy, one candidate for each position, from a table of hashes of 5 bytes.

The table is cleared for each page, so that the bytes depend on the page alone.  An empty place says position 0, which
is a candidate like others: 4 bytes are compared in any case.  After each 64 positions without a match the step grows by
one, so a page without any is gone through in some 700 steps.

Source: Y. Collet, LZ4's fast compressor, for the table and the growing step.
"""

from trueno_simd.kernels.lz4.decode import LEAST
from trueno_simd.kernels.lz4.places import agreeing, load1, load2, load4, load8, store2
from trueno_simd.kernels.lz4.sequence import (
    HASH_BITS,
    LAST_END,
    LAST_START,
    SHORTEST,
    TABLE,
    put_last,
    put_sequence,
)
from trueno_simd.kernels.tile import clear
from trueno_simd.llvm.jit import inner, outer

PATIENCE = 6  # 2^6 misses make the step longer by one
ROOM = TABLE
PRIME = 889523592379  # of 40 bits, as what is hashed has; the one of LZ4


@inner
def hashed(word):
    """A table's index for the first 5 of 8 bytes: where 4 are equal it is mostly chance, and not worth a sequence."""
    return (((word << 24) * PRIME) >> (64 - HASH_BITS)) & ((1 << HASH_BITS) - 1)


@outer
def encode(source, page, target, table):
    """Write a block of `page` bytes at `source` to `target`: its size, or 0 where it is not smaller than the page.

    All are addresses; `page` is at most 65 536, `target` has room for as many bytes, `table` for ROOM.
    """
    if page < SHORTEST:
        return 0
    clear(table, TABLE)
    end, limit = source + page, target + page
    last = end - LAST_START
    literals, at, out, misses = source, source + 1, target, 1 << PATIENCE
    while at <= last:
        place = table + 2 * hashed(load8(at))
        match = source + load2(place)
        store2(place, at - source)
        if load4(match) != load4(at):
            at += misses >> PATIENCE
            misses += 1
            continue
        stop = at + LEAST + agreeing(at + LEAST, match + LEAST, end - LAST_END)
        offset = at - match
        while at > literals and match > source and load1(at - 1) == load1(match - 1):
            at -= 1
            match -= 1
        out = put_sequence(out, limit, literals, at - literals, offset, stop - at, end)
        if out == 0:
            return 0
        at = literals = stop
        if at <= last:
            store2(table + 2 * hashed(load8(at - 2)), at - 2 - source)
        misses = 1 << PATIENCE
    return put_last(target, out, page, literals, end)
