"""Pages as programs have them, their blocks, and blocks that are damaged: operands to try and to measure with."""

from collections.abc import Iterator

import numpy as np

from trueno.formats.lz4 import LEAST, LONG, Array, encoded

WORDS = b"the of a to in is on and page block byte array kernel which with its that for each one two value".split()
PAGES = ("text", "zeros", "random", "runs", "floats", "repeats")
"""Kinds of pages."""


def page(kind: str, p: int, rng: np.random.Generator) -> Array:
    """p bytes of one of the kinds `PAGES`."""
    if kind == "text":
        words = rng.integers(0, len(WORDS), p // 2 + 1)
        return np.frombuffer(b" ".join(WORDS[i] for i in words)[:p], np.uint8).copy()
    if kind == "zeros":
        return np.zeros(p, np.uint8)
    if kind == "random":
        return rng.integers(0, 256, p, np.uint8)
    if kind == "runs":
        return np.repeat(rng.integers(0, 256, p, np.uint8), rng.geometric(1 / 30, p))[:p]
    if kind == "floats":
        return np.cumsum(rng.integers(-1, 2, p // 4 + 1)).astype(np.float32).view(np.uint8)[:p].copy()
    period = rng.integers(0, 256, int(rng.integers(1, 24)), np.uint8)
    x = np.resize(period, p)
    x[rng.random(p) < 0.01] ^= 1
    return x


def pages(n: int, p: int, rng: np.random.Generator) -> Array:
    """[n, p]: pages of each kind in turn, from a random one on."""
    first = int(rng.integers(len(PAGES)))
    rows = [page(PAGES[(first + i) % len(PAGES)], p, rng) for i in range(n)]
    return np.array(rows, np.uint8).reshape(n, p)


def stored(x: Array) -> list[tuple[bytes, int]]:
    """For each page its block by the library, or its own bytes, and its size; all are raw without the package."""
    parts = []
    for row in x:
        raw = row.tobytes()
        block = encoded(raw)
        parts.append((block, len(block)) if len(block) < len(raw) else (raw, -len(raw)))
    return parts


def laid(parts: list[tuple[bytes, int]], rng: np.random.Generator | None = None) -> tuple[Array, Array, Array]:
    """packed, offsets and sizes of these parts: in order, or in a random one with gaps of random bytes."""
    offsets, place = np.zeros(len(parts), np.int64), 0
    pieces: list[bytes] = []
    for i in range(len(parts)) if rng is None else rng.permutation(len(parts)):
        gap = b"" if rng is None else rng.bytes(int(rng.integers(0, 9)))
        pieces += [gap, parts[i][0]]
        offsets[i] = place + len(gap)
        place += len(gap) + len(parts[i][0])
    return np.frombuffer(b"".join(pieces), np.uint8).copy(), offsets, np.array([size for _, size in parts], np.int64)


def rows(parts: list[tuple[bytes, int]], p: int) -> tuple[Array, Array]:
    """blocks and sizes of these parts, as `lz4_compress` gives them."""
    blocks = np.zeros((len(parts), p), np.uint8)
    for row, (block, _) in zip(blocks, parts, strict=True):
        row[: len(block)] = np.frombuffer(block, np.uint8)
    return blocks, np.array([size for _, size in parts], np.int64)


def shapes(op: str, size: int, page: int = 4096) -> tuple[tuple[int, ...], ...]:
    """The operands' shapes of a call of an op of the family "compression" on about `size` bytes of pages."""
    p = page if op == "lz4_decompress" else min(page, max(size, 1))
    n = max(size // p, 1)
    return {"lz4_compress": ((n, p),), "lz4_pack": ((n, p), (n,)), "lz4_decompress": ((n * p,), (n,), (n,))}[op]


def operands(op: str, shapes: tuple[tuple[int, ...], ...], rng: np.random.Generator) -> tuple[Array, ...]:
    """Operands of such a call: pages of each kind."""
    n, p = shapes[0] if op != "lz4_decompress" else (shapes[1][0], shapes[0][0] // shapes[1][0])
    x = pages(n, p, rng)
    if op == "lz4_compress":
        return (x,)
    if op == "lz4_pack":
        return rows(stored(x), p)
    packed, offsets, sizes = laid(stored(x))
    return np.pad(packed, (0, n * p - len(packed))), offsets, sizes


def written(p: int, rng: np.random.Generator) -> bytes:
    """A block that decodes to p bytes, 13 at least, with matches that no encoder would choose."""
    block, done = bytearray(), 0
    while True:
        left = p - done
        literals = int(rng.integers(0, min(left, 40) + 1)) if done else int(rng.integers(1, 20))
        if left - literals < 13 or rng.random() < 0.02:
            break
        match = min(int(rng.geometric(1 / 12)) + LEAST - 1, left - literals - 12 + int(rng.integers(0, 8)))
        match = min(max(match, LEAST), left - literals - 5)
        at = done + literals
        offset = int(rng.choice([1, min(2, at), min(3, at), min(7, at), at, int(rng.integers(1, at + 1))]))
        block += _sequence(rng.bytes(literals), min(offset, 0xFFFF), match)
        done += literals + match
    return bytes(block + _sequence(rng.bytes(p - done), 0, 0))


def _sequence(literals: bytes, offset: int, match: int) -> bytes:
    count, more = len(literals), max(match - LEAST, 0)
    token = min(count, LONG) << 4 | min(more, LONG)
    tail = offset.to_bytes(2, "little") + _bytes(more) if match else b""
    return bytes([token]) + _bytes(count) + literals + tail


def _bytes(number: int) -> bytes:
    """The bytes of a length that follow its half of the token."""
    return b"" if number < LONG else b"\xff" * ((number - LONG) // 255) + bytes([(number - LONG) % 255])


def damaged(block: bytes, rng: np.random.Generator) -> Iterator[bytes]:
    """What may become of a block: cut, longer, bits flipped, bytes replaced by those that lengths and offsets fear."""
    count = len(block)
    yield block[: int(rng.integers(0, count))]
    yield block + rng.bytes(int(rng.integers(1, 4)))
    for value in (0, 15, 240, 255, int(rng.integers(0, 256))):
        at = int(rng.integers(0, count))
        yield block[:at] + bytes([value]) + block[at + 1 :]
    at = int(rng.integers(0, count))
    yield block[:at] + b"\xff" * int(rng.integers(1, 600)) + block[at:]
    at = int(rng.integers(0, count))
    yield block[:at] + block[at + 1 :]
