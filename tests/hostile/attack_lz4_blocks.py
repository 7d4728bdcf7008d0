"""Broken LZ4 blocks between fences of memory: right bytes, or where the fault is; the lz4 package is the judge."""

import numpy as np
import trueno

from .attack import Tally
from .lz4_blocks import KINDS, Fenced, data, encoded, expected, library, mutated, packed

BACKENDS = ("simd",)
LIMIT = 300.0  # the first case compiles
SIZES = (1, 2, 5, 12, 13, 14, 17, 31, 36, 37, 38, 48, 64, 100, 255, 256, 300, 700, 1000, 4095, 4096, 4097)
LARGE = (16_384, 65_535, 65_536)
ROOM, MOST = 1 << 17, 500
"""Bytes of pages in a case, and pages."""


def case(rng: np.random.Generator, backend: str, tally: Tally) -> None:
    page = int(rng.choice(LARGE if rng.random() < 0.02 else SIZES))
    count = min(max(ROOM // page, 4), MOST)
    sources = [data(rng, str(rng.choice(KINDS)), max(1, page + int(rng.choice(NEAR)))) for _ in range(count // 8 + 1)]
    right = [encoded(rng, source) for source in sources]
    blocks = [mutated(rng, right[int(rng.integers(len(right)))], right) for _ in range(count)]
    tally.states += count
    with trueno.use(backend):
        _decompressed(rng, blocks, page)
        tally.calls += 1
        _there_and_back(rng, page, int(rng.integers(1, 3)))
        tally.calls += 3


NEAR = (0, 0, 0, 0, -40, -12, -5, -1, 1, 5, 12)
"""By how much a block's page is longer than the room for it."""


def _decompressed(rng: np.random.Generator, blocks: list[bytes], page: int) -> None:
    source, offsets, sizes = packed(rng, blocks)
    where = Fenced(len(blocks) * page, at_end=bool(rng.random() < 0.5))
    y, lengths = where.array.reshape(len(blocks), page), np.full(len(blocks), -77, np.int64)
    before = source.copy()
    trueno.lz4_decompress(source, offsets, sizes, page=page, out=(y, lengths))
    assert np.array_equal(source, before), "an operand was changed"
    assert where.untouched(), "bytes beside the result were changed"
    for i, block in enumerate(blocks):
        want = expected(block, page)
        length = want if isinstance(want, int) else len(want)
        assert lengths[i] == length, f"page {page}: length {lengths[i]} in place of {length} for {block.hex()}"
        text = b"" if isinstance(want, int) else want
        assert y[i].tobytes() == text.ljust(page, b"\0"), f"page {page}: other bytes for {block.hex()}"


def _there_and_back(rng: np.random.Generator, page: int, level: int) -> None:
    """Compress pages, pack the blocks, read them with the library, and with our own decoder."""
    count = min(max(ROOM // 4 // page, 2), 40)
    x = Fenced(count * page, at_end=bool(rng.random() < 0.5)).array.reshape(count, page)
    for row in x:
        row[:] = np.frombuffer(data(rng, str(rng.choice(KINDS)), page), np.uint8)
    where = Fenced(count * page, at_end=bool(rng.random() < 0.5))
    blocks, sizes = where.array.reshape(count, page), np.empty(count, np.int64)
    trueno.lz4_compress(x, level=level, out=(blocks, sizes))
    assert where.untouched(), "bytes beside the blocks were changed"
    for row, block, size in zip(x, blocks, sizes, strict=True):
        assert 0 < size < page or size == -page, f"a size of {size} for a page of {page}"
        used = block[: abs(size)].tobytes()
        assert (used if size < 0 else library(used, page)) == row.tobytes(), f"level {level}: other bytes"
        assert not block[abs(size) :].any(), "bytes behind a block are not 0"
    together, offsets = trueno.lz4_pack(blocks, sizes)
    y, lengths = trueno.lz4_decompress(together, offsets, sizes, page=page)
    assert (lengths == page).all() and np.array_equal(y, x), f"level {level}: our own blocks decode to other bytes"
