"""simd's LZ4 kernels against the lz4 package: both read each other's blocks, and refuse the same broken ones."""

import sys
from functools import cache

import numpy as np
import pytest

pytest.importorskip("numba", reason="needs numba")
pytest.importorskip("lz4.block", reason="needs the package lz4")

import lz4.block
from hostile.lz4_blocks import KINDS, data, encoded, expected, library, mutated, sequences
from seeds import fresh_seed
from unit.simd.structured import structured_kernel

SIZES = (1, 2, 4, 5, 11, 12, 13, 14, 16, 31, 63, 100, 255, 1000, 4095, 4096, 4097, 10_007, 65_535, 65_536)
GUARD, FILL = 64, 0xA5


@pytest.fixture(scope="module")
def compressors():
    return {level: structured_kernel("lz4_compress", level=level) for level in (1, 2)}


@pytest.fixture(scope="module")
def decompress():
    """Kernels of pages of any size, made when first called."""
    made = cache(lambda page: structured_kernel("lz4_decompress", page=page))
    return lambda packed, offsets, sizes, y, lengths: made(y.shape[1])(packed, offsets, sizes, y, lengths)


@pytest.fixture(scope="module")
def pack():
    return structured_kernel("lz4_pack")


@pytest.fixture
def rng():
    seed = fresh_seed()
    print(f"seed {seed}")
    return np.random.default_rng(seed)


def guarded(count, page):
    """Rows between guard bytes."""
    whole = np.full(count * page + 2 * GUARD, FILL, np.uint8)
    return whole, whole[GUARD : GUARD + count * page].reshape(count, page)


def untouched(whole):
    return (whole[:GUARD] == FILL).all() and (whole[-GUARD:] == FILL).all()


def compressed(kernel, x):
    whole, blocks = guarded(*x.shape)
    sizes = np.full(len(x), -77, np.int64)
    assert kernel(x, blocks, sizes) == 0
    assert untouched(whole)
    return blocks, sizes


def joined(blocks, gap=b""):
    """The blocks one after another, between bytes that belong to none; offsets and sizes."""
    sizes = np.array([len(block) for block in blocks], np.int64)
    offsets = len(gap) + np.cumsum(sizes + len(gap)) - sizes - len(gap)
    return np.frombuffer(gap + b"".join(block + gap for block in blocks), np.uint8), offsets, sizes


def decompressed(kernel, packed, offsets, sizes, page):
    whole, y = guarded(len(offsets), page)
    lengths = np.full(len(offsets), -77, np.int64)
    assert kernel(packed, offsets, sizes, y, lengths) == 0
    assert untouched(whole)
    return y, lengths


def pages(rng, page, count=1):
    kinds = [kind for kind in KINDS for _ in range(count)]
    return np.stack([np.frombuffer(data(rng, kind, page), np.uint8) for kind in kinds])


# ---- compressing


@pytest.mark.parametrize("level", [1, 2])
@pytest.mark.parametrize("page", SIZES)
def test_the_library_reads_every_block(rng, compressors, level, page):
    x = pages(rng, page)
    blocks, sizes = compressed(compressors[level], x)
    for row, block, size in zip(x, blocks, sizes, strict=True):
        assert 0 < size < page or size == -page
        used = block[: abs(size)].tobytes()
        assert not block[abs(size) :].any()
        if size < 0:
            assert used == row.tobytes()
            continue
        assert library(used, page) == row.tobytes()
        *matches, (literals, _, _) = sequences(used)
        assert literals >= 5
        assert sum(sum(s[::2]) for s in matches) + literals == page
        assert page - literals - matches[-1][2] <= page - 12  # where the last match begins


@pytest.mark.parametrize("level", [1, 2])
def test_pages_are_small_where_they_can_be(rng, compressors, level):
    x = pages(rng, 4096, 8)
    _, sizes = compressed(compressors[level], x)
    zeros, random, *_ = np.abs(sizes).reshape(len(KINDS), 8)
    assert zeros.max() <= 4096 // 255 + 12 and random.min() == 4096
    theirs = [min(len(lz4.block.compress(row.tobytes(), store_size=False)), 4096) for row in x]
    assert np.abs(sizes).sum() <= (1.08 if level == 1 else 1.0) * sum(theirs)


@pytest.mark.parametrize("level", [1, 2])
def test_a_block_depends_on_its_page_alone(rng, compressors, level):
    x = pages(rng, 1500, 30)
    blocks, sizes = compressed(compressors[level], x)
    order = rng.permutation(len(x))
    again, sizes_again = compressed(compressors[level], np.ascontiguousarray(x[order]))
    assert np.array_equal(again, blocks[order]) and np.array_equal(sizes_again, sizes[order])
    alone, size = compressed(compressors[level], x[-1:].copy())
    assert np.array_equal(alone[0], blocks[-1]) and size[0] == sizes[-1]


@pytest.mark.parametrize("level", [1, 2])
def test_matches_of_every_length_and_offset(rng, compressors, decompress, level):
    """A match of n bytes from d before, n at each border of the bytes that its length takes."""
    lengths, offsets = (4, 5, 18, 19, 20, 273, 274, 275, 529, 530), (1, 2, 3, 4, 7, 8, 9, 15, 16, 17, 31, 32, 33, 300)
    rows = []
    for n in lengths:
        for d in offsets:
            head = rng.bytes(d)
            rows.append((head + (head * (n // d + 1))[:n] + rng.bytes(2048))[:2048])
    x = np.stack([np.frombuffer(row, np.uint8) for row in rows])
    blocks, sizes = compressed(compressors[level], x)
    packed, at, used = joined([b[: abs(s)].tobytes() for b, s in zip(blocks, sizes, strict=True)])
    y, found = decompressed(decompress, packed, at, np.where(sizes < 0, -used, used), 2048)
    assert (found == 2048).all() and np.array_equal(y, x)
    for row, block, size in zip(x, blocks, sizes, strict=True):
        assert size < 0 or library(block[:size].tobytes(), 2048) == row.tobytes()


# ---- decompressing


@pytest.mark.parametrize("page", SIZES)
@pytest.mark.parametrize("index", [np.int64, np.int32])
def test_we_read_every_block_of_the_library(rng, decompress, page, index):
    x = pages(rng, page, 3)
    blocks = [encoded(rng, row.tobytes()) for row in x]
    packed, offsets, sizes = joined(blocks, gap=b"\xff\x00")
    order = rng.permutation(len(x))
    y, lengths = decompressed(decompress, packed, offsets[order].astype(index), sizes[order].astype(index), page)
    assert (lengths == page).all() and np.array_equal(y, x[order])


def test_pages_shorter_than_their_room_end_in_zeros(rng, decompress):
    texts = [data(rng, kind, n) for kind in KINDS for n in (1, 5, 13, 100, 999, 1000)]
    blocks = [encoded(rng, text) for text in texts] + texts  # the latter raw
    packed, offsets, sizes = joined(blocks)
    sizes[len(texts) :] *= -1
    y, lengths = decompressed(decompress, packed, offsets, sizes, 1000)
    for row, length, text in zip(y, lengths, 2 * texts, strict=True):
        assert length == len(text) and row.tobytes() == text.ljust(1000, b"\0")


@pytest.mark.parametrize("page", [1, 5, 13, 38, 100, 257, 1000, 4096])
def test_broken_blocks_are_refused_where_the_format_says_so(rng, decompress, page):
    right = [encoded(rng, data(rng, str(rng.choice(KINDS)), max(1, page + int(k)))) for k in rng.integers(-14, 14, 60)]
    blocks = [mutated(rng, right[int(rng.integers(len(right)))], right) for _ in range(100_000 // (page + 150))]
    packed, offsets, sizes = joined(blocks, gap=rng.bytes(3))
    y, lengths = decompressed(decompress, packed, offsets, sizes, page)
    refused = 0
    for i, block in enumerate(blocks):
        want = expected(block, page)
        text = b"" if isinstance(want, int) else want
        refused += isinstance(want, int)
        assert lengths[i] == (want if isinstance(want, int) else len(want)), block.hex()
        assert y[i].tobytes() == text.ljust(page, b"\0"), block.hex()
    assert refused > len(blocks) // 10


def test_slices_outside_of_the_bytes_are_refused(decompress):
    packed = np.frombuffer(b"\x50hello" * 3, np.uint8)
    low, high = -(1 << 63), (1 << 63) - 1
    outside = [(-1, 6), (18, 1), (17, 2), (13, 6), (0, 19), (0, -19), (low, 6), (high, 6), (low, low),
               (high, high), (0, low), (0, high), (12, high), (-6, low), (1, -18)]  # fmt: skip
    inside = [(12, 6), (0, 6), (low, 0), (13, -5), (0, -18), (6, 6)]
    offsets, sizes = np.array(outside + inside, np.int64).T.copy()
    y, lengths = decompressed(decompress, packed, offsets, sizes, 20)
    assert (lengths[: len(outside)] == -1).all() and not y[: len(outside)].any()
    assert lengths[len(outside) :].tolist() == [5, 5, 0, 5, 18, 5]
    short, found = decompressed(decompress, packed, offsets[-2:], sizes[-2:], 17)
    assert found.tolist() == [-1, 5] and not short[0].any()  # 18 raw bytes, and room for 17


def test_the_place_of_the_fault_is_that_of_its_sequence(decompress):
    block = b"\x10a\x01\x00" + b"\x00\x01\x00" * 3
    cases = {
        block + b"\x50abcde": 5 + 16 + 1,
        block + b"\x10b\x99\x00\x50abcde": -1 - len(block),  # an offset beyond what there is
        block + b"\x00\x00\x00\x50abcde": -1 - len(block),  # an offset of 0
        block + b"\x00\x01\x00\x40abcd": -1 - len(block),  # the next sequence is too close to the end
        block + b"\x60abcde": -1 - len(block),  # cut off
        block + b"\xf0" + b"\xff" * 9: -1 - len(block),
        b"\x00\x01\x00\x50abcde": -1,
    }
    packed, offsets, sizes = joined(list(cases))
    _, lengths = decompressed(decompress, packed, offsets, sizes, 100)
    assert lengths.tolist() == list(cases.values())


# ---- packing, and calls that do not fit


@pytest.mark.parametrize("index", [np.int64, np.int32])
@pytest.mark.parametrize("page", [1, 3, 1000, 65_536])
def test_used_bytes_are_joined(rng, pack, page, index):
    count = max(2, 300_000 // page)
    blocks = rng.integers(1, 256, (count, page), np.uint8)
    sizes = rng.integers(-page, page + 1, count).astype(index)
    sizes[:2] = page, -page
    whole, packed = guarded(1, count * page)
    offsets = np.full(count, -77, np.int64)
    assert pack(blocks, sizes, packed.reshape(-1), offsets) == 0
    want = b"".join(row[: abs(int(size))].tobytes() for row, size in zip(blocks, sizes, strict=True))
    assert packed.tobytes() == want.ljust(count * page, b"\0") and untouched(whole)
    assert offsets.tolist() == (np.cumsum(np.abs(sizes)) - np.abs(sizes)).tolist()


@pytest.mark.parametrize("size", [5, -5, (1 << 63) - 1, -(1 << 63)])
def test_a_size_beyond_its_row_is_refused_and_nothing_written(pack, size):
    blocks, sizes = np.ones((3, 4), np.uint8), np.array([4, size, 0], np.int64)
    packed, offsets = np.full(12, FILL, np.uint8), np.full(3, -77, np.int64)
    assert pack(blocks, sizes, packed, offsets) == -1
    assert (packed == FILL).all() and (offsets == -77).all()


def test_shapes_that_do_not_agree_and_shared_memory_are_refused(compressors, decompress, pack):
    x, numbers = np.zeros((4, 8), np.uint8), np.zeros(4, np.int64)
    assert compressors[1](x, np.zeros((4, 9), np.uint8), numbers) == -1
    assert compressors[1](x, np.zeros((4, 8), np.uint8), numbers[:3]) == -1
    assert compressors[1](x, x, numbers) == -1
    assert compressors[1](np.zeros((1, 65_537), np.uint8), np.zeros((1, 65_537), np.uint8), numbers[:1]) == -1
    assert decompress(x.reshape(-1), numbers, numbers[:3], x.copy(), numbers.copy()) == -1
    assert decompress(x.reshape(-1), numbers, numbers, x, numbers.copy()) == -1
    assert decompress(x.reshape(-1), numbers, numbers, x.copy(), numbers) == -1
    assert structured_kernel("lz4_decompress", page=9)(x.reshape(-1), numbers, numbers, x.copy(), numbers.copy()) == -1
    assert pack(x, numbers, np.zeros(31, np.uint8), numbers.copy()) == -1
    assert pack(x, numbers, x.reshape(-1), numbers.copy()) == -1


def test_no_pages(compressors, decompress, pack):
    none, numbers = np.zeros((0, 100), np.uint8), np.zeros(0, np.int64)
    assert compressors[1](none, none.copy(), numbers) == 0
    assert decompress(np.zeros(0, np.uint8), numbers, numbers, none, numbers.copy()) == 0
    assert pack(none, numbers, np.zeros(0, np.uint8), numbers.copy()) == 0


def test_results_do_not_depend_on_the_number_of_threads(rng, compressors, decompress):
    from trueno_simd.threads import pool

    x, before, results = pages(rng, 4096, 20), pool.count(), []
    try:
        for threads in (1, 2, 5):
            pool.set_count(threads)
            blocks, sizes = compressed(compressors[1], x)
            packed, offsets, used = joined([b[: abs(s)].tobytes() for b, s in zip(blocks, sizes, strict=True)])
            y, _ = decompressed(decompress, packed, offsets, np.where(sizes < 0, -used, used), 4096)
            results.append((blocks, sizes, y))
    finally:
        pool.set_count(before)
    for blocks, sizes, y in results:
        assert np.array_equal(blocks, results[0][0]) and np.array_equal(sizes, results[0][1]) and np.array_equal(y, x)


@pytest.mark.skipif(sys.platform != "linux", reason="fences of memory")
def test_nothing_is_read_or_written_beside_the_bytes(rng, decompress):
    """Operands and results end where a page of memory does, and the next one may not be touched."""
    from hostile.lz4_blocks import Fenced, packed

    for page in (1, 13, 37, 38, 100, 4096):
        right = [encoded(rng, data(rng, str(rng.choice(KINDS)), page)) for _ in range(20)]
        blocks = right + [mutated(rng, right[int(rng.integers(len(right)))], right) for _ in range(100)]
        source, offsets, sizes = packed(rng, blocks)
        for at_end in (True, False):
            where = Fenced(len(blocks) * page, at_end=at_end)
            y, lengths = where.array.reshape(len(blocks), page), np.empty(len(blocks), np.int64)
            assert decompress(source, offsets, sizes, y, lengths) == 0 and where.untouched()
            assert (lengths[:20] == page).all()
