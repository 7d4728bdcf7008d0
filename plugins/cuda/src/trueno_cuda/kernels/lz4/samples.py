"""Pages and blocks for the catalogue's trials, with a decoder in Python that the kernels do not share."""

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def pages(rng: np.random.Generator, n: int, p: int) -> Array:
    """[n, p]: random bytes, one number, and rows whose pieces come from before, at any distance."""
    x = rng.integers(0, 256, (n, p), np.uint8)
    for row in x[1:]:
        at = int(rng.integers(1, 40))
        while at < p:
            count, distance = int(rng.integers(4, 60)), int(rng.integers(1, at + 1))
            for i in range(at, min(at + count, p)):
                row[i] = row[i - distance]
            at += count + int(rng.integers(0, 20))
    return x


def decoded(block: Array) -> Array:
    """The page of a block that is right."""
    data, at = bytes(block), 0
    page = bytearray()
    while True:
        token = data[at]
        literals, at = _length(data, token >> 4, at + 1)
        page += data[at : at + literals]
        at += literals
        if at == len(data):
            return np.frombuffer(bytes(page), np.uint8)
        offset = data[at] | data[at + 1] << 8
        length, at = _length(data, token & 15, at + 2)
        for _ in range(length + 4):
            page.append(page[-offset])


def _length(data: bytes, number: int, at: int) -> tuple[int, int]:
    while number >= 15:
        number, at = number + data[at], at + 1
        if data[at - 1] != 255:
            break
    return number, at


def block(rng: np.random.Generator, p: int) -> tuple[bytes, bytes]:
    """A block of p bytes, and them: matches of any offset and length, and long and short literals."""
    page, made = bytearray(), bytearray()
    while p - len(page) > 20:
        room = p - len(page) - 17
        literals = rng.bytes(min(int(rng.choice([1, 3, 15, 20, 300])), room))
        page += literals
        offset = int(rng.integers(1, min(len(page), int(rng.choice([5, 40, 5000]))) + 1))
        length = min(4 + int(rng.choice([0, 1, 9, 15, 40, 300])), p - len(page) - 5)
        made += _sequence(literals, length - 4, offset)
        for _ in range(length):
            page.append(page[-offset])
    literals = rng.bytes(p - len(page))
    return bytes(made + _sequence(literals)), bytes(page + literals)


def _sequence(literals: bytes, length: int = 0, offset: int = 0) -> bytes:
    token = min(len(literals), 15) << 4 | min(length, 15)
    match = offset.to_bytes(2, "little") + _more(length) if offset else b""
    return bytes([token]) + _more(len(literals)) + literals + match


def _more(number: int) -> bytes:
    return b"" if number < 15 else b"\xff" * ((number - 15) // 255) + bytes([(number - 15) % 255])


def last(data: bytes) -> int:
    """Where the last sequence of a block begins whose end is cut off."""
    at = 0
    while True:
        start = at
        literals, at = _length(data, data[at] >> 4, at + 1)
        at += literals
        if at + 8 > len(data):
            return start
        _, at = _length(data, data[start] & 15, at + 2)
