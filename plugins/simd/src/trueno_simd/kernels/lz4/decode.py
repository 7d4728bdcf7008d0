"""One LZ4 block to bytes.

A sequence with a match leaves 8 bytes of the block and 12 of the page behind its literals, and 5 of the page behind its
match; the offset is neither 0 nor beyond what has been decoded; bytes that add to a length leave room for what has to
follow.  A sequence without a match ends the block, within the page.  All that LZ4_decompress_safe refuses breaks one of
these rules; it also accepts some blocks that break one, as it skips checks far from both ends.

The fast path takes sequences that cannot break a rule about the ends: up to 14 literals with 22 bytes of the block
behind the token, and 37 bytes of the page, of which the literals take 14 and the match 18.  So its copies, 16 and 18
bytes at a time, stay within both.
"""

from trueno_simd.kernels.lz4.places import (
    copy2,
    copy8,
    copy16,
    copy_exactly,
    copy_match,
    copy_wildly,
    load1,
    load2,
)
from trueno_simd.llvm.jit import outer

LONG = 15  # what a token's half says where bytes behind it add to a length
LEAST = 4  # bytes of the shortest match


@outer
def decode(source, size, target, page):
    """Decode `size` ≥ 1 bytes into at most `page` ≥ 1: how many, or −1 − the position of the sequence that is wrong.

    Both are addresses.  Bytes behind the result, up to `page`, are overwritten.
    """
    end, limit = source + size, target + page
    read, at = source, target
    while True:
        sequence = read
        token = load1(read)
        read += 1
        literals, length = token >> 4, token & 15
        if literals != LONG and read <= end - 22 and at <= limit - 37:
            copy16(at, read)
            at += literals
            read += literals
            offset = load2(read)
            read += 2
            if length != LONG and offset >= 8 and offset <= at - target:
                match = at - offset
                copy8(at, match)
                copy8(at + 8, match + 8)
                copy2(at + 16, match + 16)
                at += length + LEAST
                continue
        else:
            if literals == LONG:
                more = 255
                while more == 255:
                    if read > end - 16:  # its own byte, and the 15 literals or more that follow
                        return source - sequence - 1
                    more = load1(read)
                    read += 1
                    literals += more
            if at + literals > limit - 12 or read + literals > end - 8:
                if read + literals != end or at + literals > limit:
                    return source - sequence - 1
                copy_exactly(at, read, literals)
                return at + literals - target
            copy_wildly(at, limit, read, end, literals)
            at += literals
            read += literals
            offset = load2(read)
            read += 2
        if length == LONG:
            more = 255
            while more == 255:
                if read > end - 5:  # its own byte, and a token with 3 literals or more
                    return source - sequence - 1
                more = load1(read)
                read += 1
                length += more
        stop = at + length + LEAST
        if offset == 0 or offset > at - target or stop > limit - 5:
            return source - sequence - 1
        copy_match(at, offset, stop, limit)
        at = stop
