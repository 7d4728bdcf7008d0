"""LZ4 by Python and NumPy, sequence by sequence: its meaning is in the ops of the family "compression".

A decoder takes a microsecond or two per sequence, an encoder about as much per byte without a match.
"""

import numpy as np
from trueno.backend import Call, Kernel, Rates
from trueno.errors import ShapeError

from trueno_scalar.kernels.table import KERNELS, Array, Shapes, checked

LEAST, LITERALS, MARGIN = 4, 5, 12
"""The shortest match; the bytes at a page's end that no match covers, and those in which none starts."""
SKIP = 6
"""Every 2**SKIP bytes without a match, the encoder moves on by one byte more."""


def _of_bytes(call: Call, run: object, ranks: tuple[int, ...]) -> Kernel:
    def shapes(*operands: Array, **static: int) -> Shapes:
        try:
            return call.op.result_shapes(tuple(x.shape for x in operands), static)
        except ShapeError:
            return None

    return checked(call, run, shapes, ranks)  # type: ignore[arg-type]


def _match(page: bytes, at: int, seen: dict[bytes, int]) -> tuple[int, int]:
    """Where an earlier match of the bytes at `at` begins, and its length; 0 if none is known."""
    key = page[at : at + LEAST]
    place, seen[key] = seen.get(key, at), at
    if place == at:
        return at, 0
    end, length = len(page) - LITERALS - at, LEAST
    while length < end and page[place + length] == page[at + length]:
        length += 1
    return place, length


def _length(number: int) -> bytes:
    """The bytes of a length behind its half of the token."""
    return b"" if number < 15 else b"\xff" * ((number - 15) // 255) + bytes([(number - 15) % 255])


def _encode(page: bytes, level: int) -> bytes:
    """The block of a page; level 2 takes the match at the next byte if that is longer."""
    block, seen, anchor, at = bytearray(), dict[bytes, int](), 0, 0
    last = len(page) - MARGIN
    while at <= last:
        place, length = _match(page, at, seen)
        if not length:
            at += 1 + (at - anchor >> SKIP)
            continue
        while level > 1 and at < last:
            other, longer = _match(page, at + 1, seen)
            if longer <= length:
                break
            place, length, at = other, longer, at + 1
        literals, more = page[anchor:at], length - LEAST
        block.append(min(len(literals), 15) << 4 | min(more, 15))
        block += _length(len(literals)) + literals + (at - place).to_bytes(2, "little") + _length(more)
        at += length
        anchor = at
    literals = page[anchor:]
    block.append(min(len(literals), 15) << 4)
    return bytes(block + _length(len(literals)) + literals)


def _compress(x: Array, blocks: Array, sizes: Array, *, level: int) -> None:
    blocks[...] = 0
    for i, row in enumerate(x):
        page = row.tobytes()
        block = _encode(page, level)
        sizes[i] = len(block) if len(block) < len(page) else -len(page)
        part = block if len(block) < len(page) else page
        blocks[i, : len(part)] = np.frombuffer(part, np.uint8)


@KERNELS.add("lz4_compress", rates=Rates(2e-5, 1e9, 1e6))
def lz4_compress(device: None, call: Call) -> Kernel:
    return _of_bytes(call, _compress, (2,))


def _more(block: bytes, number: int, at: int, end: int) -> tuple[int, int]:
    """A length whose half of the token is `number`, and where its bytes end, all before `end`; −1 if they do not."""
    while number >= 15:
        if at >= end:
            return 0, -1
        byte = block[at]
        number, at = number + byte, at + 1
        if byte < 255:
            break
    return number, at


def _decode(block: bytes, page: int) -> bytes | int:
    """The bytes of a block; the index of the first wrong sequence for a block that has one."""
    out, at, end = bytearray(), 0, len(block)
    while at < end:
        token = at
        literals, at = _more(block, block[token] >> 4, at + 1, end)
        if at < 0:
            return token
        out += block[at : at + literals]
        at += literals
        if at > end - 8 or len(out) > page - MARGIN:
            return bytes(out) if at == end and len(out) <= page else token
        offset = block[at] | block[at + 1] << 8
        match, at = _more(block, block[token] & 15, at + 2, end - 4)
        match += LEAST
        if at < 0 or not 0 < offset <= len(out) or len(out) + match > page - LITERALS:
            return token
        source = out[-offset:]
        out += source[:match] if match <= offset else (source * (match // offset + 1))[:match]
    return at


def _decompress(packed: Array, offsets: Array, sizes: Array, y: Array, lengths: Array, *, page: int) -> None:
    y[...] = 0
    for i, (start, size) in enumerate(zip(offsets.tolist(), sizes.tolist(), strict=True)):
        count = abs(size)
        if count and (start < 0 or start + count > len(packed) or (size < 0 and count > page)):
            lengths[i] = -1
            continue
        part = packed[start : start + count].tobytes() if count else b""
        found = _decode(part, page) if size > 0 else part
        lengths[i] = -1 - found if isinstance(found, int) else len(found)
        if not isinstance(found, int):
            y[i, : len(found)] = np.frombuffer(found, np.uint8)


@KERNELS.add("lz4_decompress", rates=Rates(2e-5, 1e9, 1e7))
def lz4_decompress(device: None, call: Call) -> Kernel:
    return _of_bytes(call, _decompress, (1, 1, 1))


def _pack(blocks: Array, sizes: Array, packed: Array, offsets: Array) -> int | None:
    p = blocks.shape[1]
    if ((sizes < -p) | (sizes > p)).any():
        return -1  # the core names the first
    used = np.abs(sizes)
    ends = np.cumsum(used)
    offsets[...] = ends - used
    total = int(ends[-1]) if len(ends) else 0
    packed[:total] = blocks[np.arange(p) < used[:, None]]
    packed[total:] = 0
    return None


@KERNELS.add("lz4_pack", rates=Rates(1e-5, 1e9, 1e9))
def lz4_pack(device: None, call: Call) -> Kernel:
    return _of_bytes(call, _pack, (2, 1))
