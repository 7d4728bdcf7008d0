"""One page to an LZ4 block, level 2: the longest match of several, unless the next position has a longer one.

Positions with the same hash form a chain, the latest first: a table has the head, a second one for each position the
one before it.  All positions are entered, those inside of matches too.  The chain's table holds the last WINDOW
positions, and a chain ends where it would go farther back.

Source: the lazy evaluation and hash chains of RFC 1951, section 4.
"""

from trueno_simd.kernels.lz4.decode import LEAST
from trueno_simd.kernels.lz4.places import agreeing, load1, load2, load4, store2
from trueno_simd.kernels.lz4.sequence import (
    HASH_BITS,
    LAST_END,
    LAST_START,
    SHORTEST,
    put_last,
    put_sequence,
)
from trueno_simd.kernels.tile import clear
from trueno_simd.llvm.jit import inner, outer

WINDOW = 1 << 14  # positions in the chains' table
DEPTH = 16  # candidates that are looked at
PATIENCE = 8  # 2^8 misses make the step longer by one
SHORT = 4096  # bytes of the longest page with a table of 2^HASH_BITS hashes, as clearing a larger one takes time
LONG_BITS = 14  # of a longer page's, whose chains would be long otherwise
ROOM = (2 << LONG_BITS) + 2 * WINDOW
PRIME = 2654435761  # 2^32 over the golden ratio, for Knuth's multiplicative hash


@inner
def hashed(word, bits):
    """A table's index for 4 bytes."""
    return ((word * PRIME) & 0xFFFFFFFF) >> (32 - bits)


@inner
def _enter(source, at, table, chain, bits):
    """Put a position at the head of its chain; return the head that was."""
    position = at - source
    place = table + 2 * hashed(load4(at), bits)
    before = load2(place)
    store2(place, position)
    store2(chain + 2 * (position & (WINDOW - 1)), before)
    return before


@inner
def _longest(source, at, table, chain, bits, end):
    """Enter a position; the length of its longest match, and where that begins.  A length below 4 is no match."""
    word, longest, start = load4(at), LEAST - 1, source
    position = at - source
    later, candidate = position, _enter(source, at, table, chain, bits)
    for _ in range(DEPTH):
        if candidate >= later or position - candidate >= WINDOW:
            break
        match = source + candidate
        ahead = longest - 3  # the 4 bytes that end with the one by which a longer match is longer
        if load4(match + ahead) == load4(at + ahead) and load4(match) == word:
            length = LEAST + agreeing(at + LEAST, match + LEAST, end - LAST_END)
            if length > longest:
                longest, start = length, match
        later, candidate = candidate, load2(chain + 2 * (candidate & (WINDOW - 1)))
    return longest, start


@outer
def encode_lazily(source, page, target, table):
    """As `encode`."""
    if page < SHORTEST:
        return 0
    bits = HASH_BITS if page <= SHORT else LONG_BITS
    clear(table, 2 << bits)
    chain = table + (2 << bits)
    end, limit = source + page, target + page
    last = end - LAST_START
    _enter(source, source, table, chain, bits)
    literals, at, out, misses = source, source + 1, target, 1 << PATIENCE
    while at <= last:
        length, match = _longest(source, at, table, chain, bits, end)
        if length < LEAST:
            at += misses >> PATIENCE
            misses += 1
            continue
        entered = at + 1
        while entered <= last:
            next_length, next_match = _longest(source, entered, table, chain, bits, end)
            entered += 1
            if next_length <= length:
                break
            at, length, match = entered - 1, next_length, next_match
        stop, offset = at + length, at - match
        while at > literals and match > source and load1(at - 1) == load1(match - 1):
            at -= 1
            match -= 1
        out = put_sequence(out, limit, literals, at - literals, offset, stop - at, end)
        if out == 0:
            return 0
        at = literals = stop
        while entered < at and entered <= last:
            _enter(source, entered, table, chain, bits)
            entered += 1
        misses = 1 << PATIENCE
    return put_last(target, out, page, literals, end)
