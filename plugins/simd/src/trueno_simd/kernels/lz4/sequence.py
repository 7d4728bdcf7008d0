"""What both compressors share: the size of the table, the format's limits, and how a sequence is written.

A block that would not be smaller than its page is not wanted (the page is stored as it is), so a writer gives up as
soon as that is certain, and no block is ever longer than the page's own room.
"""

from trueno_simd.kernels.lz4.decode import LEAST, LONG
from trueno_simd.kernels.lz4.places import copy16, copy_exactly, copy_wildly, store1, store2
from trueno_simd.llvm.jit import inner

HASH_BITS = 12
TABLE = 2 << HASH_BITS  # bytes: a position of 16 bits for each hash
SHORTEST = 13  # bytes of the shortest page with a match
LAST_START, LAST_END = 12, 5  # bytes at the end in which no match begins, and none ends


@inner
def _extra(count):
    """Bytes behind the token for a length."""
    return 0 if count < LONG else (count - LONG) // 255 + 1


@inner
def _put_length(out, count):
    """Write what a length of 15 or more has behind the token, and return what follows it."""
    rest = count - LONG
    while rest >= 255:
        store1(out, 255)
        out += 1
        rest -= 255
    store1(out, rest)
    return out + 1


@inner
def put_sequence(out, limit, literals, count, offset, length, end):
    """Write `count` literals from the address `literals`, and a match; return what follows, or 0: better store it raw.

    limit: where the block's room ends.  end: where the page ends.  Up to 32 bytes behind the sequence are overwritten.
    """
    more = length - LEAST
    if out + 3 + count + _extra(count) + _extra(more) + LAST_END + 1 >= limit:
        return 0
    store1(out, (min(count, LONG) << 4) | min(more, LONG))
    out += 1
    if count < LONG and out + 16 <= limit and literals + 16 <= end:
        copy16(out, literals)
    else:
        if count >= LONG:
            out = _put_length(out, count)
        copy_wildly(out, limit, literals, end, count)
    out += count
    store2(out, offset)
    out += 2
    if more >= LONG:
        out = _put_length(out, more)
    return out


@inner
def put_last(target, out, page, literals, end):
    """Write the rest of the page as literals; the size of the block, 0 if it is not below that of the page."""
    count = end - literals
    size = out - target + 1 + _extra(count) + count
    if size >= page:
        return 0
    store1(out, min(count, LONG) << 4)
    out += 1
    if count >= LONG:
        out = _put_length(out, count)
    copy_exactly(out, literals, count)
    return size
