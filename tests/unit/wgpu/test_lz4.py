"""LZ4 on wgpu: the lz4 library reads what it writes; it reads what the library writes, and refuses what is malformed.

Calls have tens of pages at once: on software the time of a call is mostly that of its launches.
"""

from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("wgpu")
pytest.importorskip("lz4")
import lz4.block
import trueno
from seeds import fresh_seed
from trueno.formats.lz4 import fault
from trueno.formats.lz4_samples import written
from trueno_wgpu.device.array import Array
from unit.wgpu.products import kernel

pytestmark = pytest.mark.usefixtures("chosen")

PAGES = (1, 7, 100, 4096, 5000)
"""Of one byte, of odd sizes, of the largest that fits into workgroup memory, and of one that does not."""
BEYOND = 40
"""Bytes behind an array, which no kernel may touch."""


@pytest.fixture
def rng():
    seed = fresh_seed()
    print(f"seed {seed}")
    return np.random.default_rng(seed)


def run(gpu, op, operands, shapes, **static):
    """Results of an op's kernel: (shape, dtype) each, written over bytes that are not 0; operands stay as they are."""
    there = [Array.of(gpu, x) for x in operands]
    memory = [Array.of(gpu, np.full(int(np.prod(s)) * np.dtype(t).itemsize + BEYOND, 77, np.uint8)) for s, t in shapes]
    results = [Array(s, t, x.buffer) for (s, t), x in zip(shapes, memory, strict=True)]
    assert kernel(gpu, op, *operands, **static)(*there, *results) == 0
    for x, array in zip(operands, there, strict=True):
        assert array.numpy().tobytes() == x.tobytes(), "an operand was changed"
    for result, whole in zip(results, memory, strict=True):
        used = result.nbytes if op != "lz4_pack" else -(-result.nbytes // 4) * 4
        assert (whole.numpy()[used:] == 77).all(), "bytes behind a result were changed"
    return [result.numpy() for result in results]


def compress(gpu, x, level=1):
    return run(gpu, "lz4_compress", [x], [(x.shape, np.uint8), (x.shape[:1], np.int64)], level=level)


def decompress(gpu, packed, offsets, sizes, page):
    n = len(offsets)
    return run(gpu, "lz4_decompress", [packed, offsets, sizes], [((n, page), np.uint8), ((n,), np.int64)], page=page)


def pack(gpu, blocks, sizes):
    return run(gpu, "lz4_pack", [blocks, sizes], [((blocks.size,), np.uint8), (sizes.shape, np.int64)])


def pages(rng, page, repeats=1):
    """Pages of many kinds, so that windows, runs, overlaps and long lengths begin anywhere."""
    rows = []
    for _ in range(repeats):
        words = [bytes(rng.integers(97, 123, rng.integers(2, 9), np.uint8)) for _ in range(60)]
        text = np.frombuffer(b" ".join(words[i] for i in rng.integers(0, 60, page // 2 + 2)), np.uint8)
        rows += [text[:page], np.zeros(page, np.uint8), rng.integers(0, 256, page, np.uint8)]
        rows += [np.resize(rng.integers(0, 256, int(rng.integers(1, 40)), np.uint8), page) for _ in range(3)]
        rows.append(np.resize(np.round(rng.normal(size=page // 4 + 1), 3).astype(np.float32).view(np.uint8), page))
        rows.append(rng.integers(0, 2, page, np.uint8))
        mixed = rng.integers(0, 256, page, np.uint8)
        begin, end = sorted(rng.integers(0, page + 1, 2))
        mixed[begin:end] = rng.integers(0, 256)
        rows += [mixed, np.where(rng.random(page) < 0.02, mixed, rows[-3])]
    return np.stack(rows)


def assert_block(block, x):
    """The library's answer is x, and the rules for the end of a block hold."""
    assert lz4.block.decompress(block, uncompressed_size=len(x)) == x.tobytes()
    assert fault(block, len(x)) == -1


def assert_compressed(x, blocks, sizes):
    p = x.shape[1]
    for row, block, size in zip(x, blocks, sizes, strict=True):
        assert not block[abs(size) :].any()
        if size < 0:
            assert size == -p
            np.testing.assert_array_equal(block, row)
        else:
            assert 0 < size < p
            assert_block(block[:size].tobytes(), row)


def joined(blocks, sizes):
    """What lz4_pack is to give."""
    used = np.abs(sizes)
    packed = np.zeros(blocks.size, np.uint8)
    packed[: used.sum()] = np.concatenate([b[:u] for b, u in zip(blocks, used, strict=True)])
    return packed, np.cumsum(used) - used


def laid_out(rng, blocks):
    """The blocks in random order, with gaps of random bytes: packed, offsets, sizes."""
    offsets, parts, at = np.zeros(len(blocks), np.int64), [], 0
    for i in rng.permutation(len(blocks)):
        gap = rng.integers(0, 256, rng.integers(0, 6), np.uint8).tobytes()
        offsets[i] = at + len(gap)
        parts += [gap, blocks[i]]
        at += len(gap) + len(blocks[i])
    return np.frombuffer(b"".join(parts), np.uint8), offsets, np.array([len(b) for b in blocks], np.int64)


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize("level", [1, 2])
def test_there_and_back(gpu, rng, page, level):
    x = pages(rng, page)
    blocks, sizes = compress(gpu, x, level)
    assert_compressed(x, blocks, sizes)
    if page > 12:
        assert (sizes > 0).sum() >= 5
    packed, offsets = pack(gpu, blocks, sizes)
    for got, want in zip((packed, offsets), joined(blocks, sizes), strict=True):
        np.testing.assert_array_equal(got, want)
    y, lengths = decompress(gpu, packed, offsets, sizes, page)
    assert (lengths == page).all()
    np.testing.assert_array_equal(y, x)


def test_one_block_every_time(gpu, rng):
    x = pages(rng, 1000)
    first = compress(gpu, x)
    for got, want in zip(compress(gpu, x[::-1].copy()), first, strict=True):
        np.testing.assert_array_equal(got[::-1], want)


def test_sizes_are_those_of_the_library(gpu, rng):
    """Of text and of numbers, against the library's first level and its first lazy one."""
    x = pages(rng, 4096, 2)
    for level, more in ((1, {}), (2, {"mode": "high_compression", "compression": 3})):
        _, sizes = compress(gpu, x, level)
        theirs = sum(min(len(lz4.block.compress(row.tobytes(), store_size=False, **more)), 4096) for row in x)
        assert np.abs(sizes).sum() <= 1.08 * theirs


@pytest.mark.parametrize("page", PAGES)
def test_blocks_of_the_library(gpu, rng, page):
    """Of whole pages and of parts of one, anywhere in packed."""
    x = pages(rng, page)
    used = np.where(rng.random(len(x)) < 0.5, page, rng.integers(0, page + 1, len(x)))
    modes = [{}, {"mode": "high_compression", "compression": 9}, {"mode": "fast", "acceleration": 8}]
    blocks = [
        lz4.block.compress(row[:k].tobytes(), store_size=False, **modes[i % 3])
        for i, (row, k) in enumerate(zip(x, used, strict=True))
    ]
    y, lengths = decompress(gpu, *laid_out(rng, blocks), page)
    np.testing.assert_array_equal(lengths, used)
    np.testing.assert_array_equal(y, np.where(np.arange(page) < used[:, None], x, 0))


@pytest.mark.parametrize("page", [13, 50, 1001, 4096, 4099])
def test_blocks_that_no_encoder_writes(gpu, rng, page):
    """Matches at any distance, into literals of their own sequence and over themselves, of any length and alignment."""
    used = [page, *(int(n) for n in rng.integers(13, page + 1, 60))]
    blocks = [written(n, rng) for n in used]
    y, lengths = decompress(gpu, *laid_out(rng, blocks), page)
    np.testing.assert_array_equal(lengths, used)
    for block, row in zip(blocks, y, strict=True):
        want = lz4.block.decompress(block, uncompressed_size=page)
        assert row.tobytes() == want + bytes(page - len(want)), block.hex()


def sequence(literals, offset, length):
    """A sequence of a block; without a match if its length is 0."""

    def more(count):
        return b"" if count < 15 else b"\xff" * ((count - 15) // 255) + bytes([(count - 15) % 255])

    half = max(length - 4, 0)
    match = offset.to_bytes(2, "little") + more(half) if length else b""
    return bytes([min(len(literals), 15) << 4 | min(half, 15)]) + more(len(literals)) + literals + match


def test_distances_and_lengths_around_those_of_a_turn(gpu, rng):
    """A turn copies up to 128 bytes, from an aligned word on."""
    blocks, texts = [], []
    for _ in range(400):
        head = rng.bytes(int(rng.choice([1, 2, 3, 4, 5, 124, 125, 127, 128, 129, 131, 300])))
        block, text = b"", b""
        for _ in range(2):
            near = int(rng.choice([1, 2, 3, 4, 5, 31, 63, 64, 65, 127, 128, 129, 200]))
            offset = min(near, len(text) + len(head))
            length = int(rng.choice([4, 5, 18, 19, 120, 127, 128, 129, 255, 256, 257, 500]))
            block += sequence(head, offset, length)
            text += head
            text += (text[-offset:] * length)[:length]
            head = rng.bytes(int(rng.choice([0, 1, 3, 9, 130])))
        tail = rng.bytes(int(rng.integers(12, 20)))
        blocks.append(block + sequence(tail, 0, 0))
        texts.append(text + tail)
    page = max(map(len, texts))
    y, lengths = decompress(gpu, *laid_out(rng, blocks), page)
    np.testing.assert_array_equal(lengths, [len(text) for text in texts])
    for text, row in zip(texts, y, strict=True):
        assert row.tobytes() == text.ljust(page, b"\0")


def mutated(rng, block):
    """A block with a byte changed, removed or inserted, cut off, or with more behind."""
    b = bytearray(block)
    for _ in range(int(rng.integers(1, 4))):
        at = int(rng.integers(0, len(b) + 1))
        match int(rng.integers(0, 6)):
            case 0 if at < len(b):
                b[at] ^= 1 << int(rng.integers(0, 8))
            case 1 if at < len(b):
                b[at] = int(rng.choice([0, 15, 16, 240, 255, int(rng.integers(0, 256))]))
            case 2:
                del b[at : at + int(rng.integers(1, 4))]
            case 3:
                b[at:at] = bytes(rng.integers(0, 256, int(rng.integers(1, 4)), np.uint8))
            case 4:
                del b[at:]
            case 5:
                b += bytes(rng.integers(0, 256, int(rng.integers(1, 9)), np.uint8))
    return bytes(b)


@pytest.mark.parametrize("page", [7, 100, 4096, 5000])
def test_malformed_blocks(gpu, rng, page):
    """Neighbours share words of y, and are not changed; the library refuses nothing that is accepted here."""
    short = pages(rng, min(page, 300))
    blocks = [lz4.block.compress(row.tobytes(), store_size=False) for row in short]
    count = 300 if page > 1000 else 1200
    blocks = [mutated(rng, b) if rng.random() < 0.9 else b for b in (blocks * (count // len(blocks)))]
    blocks += [bytes(rng.integers(0, 256, int(rng.integers(0, 40)), np.uint8)) for _ in range(50)]
    blocks += [b"\x00", b"\x10", b"\xf0", b"\xf0" + b"\xff" * 600, b"\x1f\x41\x01\x00" + b"\xff" * 600]
    packed, offsets, sizes = laid_out(rng, blocks)
    y, lengths = decompress(gpu, packed, offsets, sizes, page)
    right = 0
    for block, row, length in zip(blocks, y, lengths, strict=True):
        wrong = fault(block, page) if block else -1
        if wrong >= 0:
            assert length == -1 - wrong and not row.any(), block.hex()
            continue
        want = lz4.block.decompress(block, uncompressed_size=page) if block else b""
        assert length == len(want) and row.tobytes() == want + bytes(page - len(want)), block.hex()
        right += 1
    assert 0 < right < len(blocks)


def test_hostile_slices(gpu, rng):
    """Whatever a slice says, nothing outside of packed is read, and the other pages are right."""
    x = rng.integers(0, 256, 50, np.uint8)
    numbers = [0, 1, -1, 49, 50, 51, -50, -51, 2**31, 2**32, 2**32 + 3, -(2**32), -(2**32) + 3, 2**63 - 1, -(2**63)]
    offsets, sizes = (a.ravel() for a in np.meshgrid(np.array(numbers), np.array(numbers)))
    page = 49
    y, lengths = decompress(gpu, x, offsets, sizes, page)
    for row, length, start, size in zip(y, lengths, offsets.tolist(), sizes.tolist(), strict=True):
        part = x[start : start + abs(size)] if start >= 0 and start + abs(size) <= 50 else None
        if size == 0:
            assert length == 0 and not row.any()
        elif part is None or -size > page:
            assert length == -1 and not row.any()
        elif size < 0:
            assert length == -size and row.tobytes() == part.tobytes() + bytes(page + size)
        elif (wrong := fault(part.tobytes(), page)) >= 0:
            assert length == -1 - wrong and not row.any()


def test_hostile_sizes_of_pack(gpu, rng):
    """A size that is not of a page is clamped: the host checks sizes where it can."""
    blocks = rng.integers(0, 256, (40, 9), np.uint8)
    numbers = [0, 5, -5, 9, -9, 10, -10, 2**31, 2**32, 2**32 + 3, -(2**32), -(2**32) + 3, 2**63 - 1, -(2**63)]
    sizes = np.array(rng.choice(numbers, 40), np.int64)
    got = pack(gpu, blocks, sizes)
    clamped = np.array([min(abs(int(s)), 9) for s in sizes])
    for result, want in zip(got, joined(blocks, clamped), strict=True):
        np.testing.assert_array_equal(result, want)


@pytest.mark.parametrize(("n", "page"), [(1, 1), (5, 1), (2049, 3), (5000, 7), (700_000, 1), (9, 5000)])
def test_pack(gpu, rng, n, page):
    """One and several workgroups of sizes; many empty pages in a row; words of more than two pages."""
    blocks = rng.integers(1, 256, (n, page), np.uint8)
    sizes = rng.integers(-page, page + 1, n) * (rng.random(n) < rng.choice([0.01, 0.5, 1.0]))
    for got, want in zip(pack(gpu, blocks, sizes), joined_fast(blocks, sizes), strict=True):
        np.testing.assert_array_equal(got, want)


def joined_fast(blocks, sizes):
    used = np.abs(sizes)
    packed = np.zeros(blocks.size, np.uint8)
    packed[: used.sum()] = blocks[np.arange(blocks.shape[1]) < used[:, None]]
    return packed, np.cumsum(used) - used


@pytest.mark.parametrize("page", [100, 77])
def test_bands(gpu, rng, page, monkeypatch):
    """More pages than one binding holds."""
    x = pages(rng, page, 60)
    monkeypatch.setattr(gpu, "limits", replace(gpu.limits, binding=32 << 10))
    blocks, sizes = compress(gpu, x)
    assert gpu.counts.kernels > 1
    monkeypatch.undo()
    for got, want in zip((blocks, sizes), compress(gpu, x), strict=True):
        np.testing.assert_array_equal(got, want)
    packed, offsets = pack(gpu, blocks, sizes)
    packed = packed[: 30 << 10]
    whole = offsets + np.abs(sizes) <= len(packed)
    monkeypatch.setattr(gpu, "limits", replace(gpu.limits, binding=32 << 10))
    gpu.counts.reset()
    y, lengths = decompress(gpu, packed, offsets, sizes, page)
    assert gpu.counts.kernels > 1
    np.testing.assert_array_equal(lengths, np.where(whole, page, -1))
    np.testing.assert_array_equal(y, np.where(whole[:, None], x, 0))


def test_refusals_and_limits(gpu, rng, monkeypatch):
    x, sizes = Array.of(gpu, pages(rng, 50)), Array.empty(gpu, (10,), np.int64)
    out = Array.empty(gpu, (10, 50), np.uint8)
    squeeze = kernel(gpu, "lz4_compress", np.empty((10, 50)), level=1)
    assert squeeze(x, x, sizes) == squeeze(x, Array.empty(gpu, (10, 51), np.uint8), sizes) == -1
    assert squeeze(x, out, Array.empty(gpu, (9,), np.int64)) == -1
    join = kernel(gpu, "lz4_pack", np.empty((10, 50)), np.empty(10))
    assert join(x, sizes, Array.empty(gpu, (499,), np.uint8), Array.empty(gpu, (10,), np.int64)) == -1
    assert join(x, sizes, Array.empty(gpu, (500,), np.uint8), sizes) == -1
    expand = kernel(gpu, "lz4_decompress", np.empty(500), np.empty(10), np.empty(10), page=50)
    packed, lengths = Array.empty(gpu, (500,), np.uint8), Array.empty(gpu, (10,), np.int64)
    assert expand(packed, sizes, sizes, out, sizes) == expand(packed, sizes, lengths, packed, lengths) == -1
    assert expand(packed, sizes, sizes, Array.empty(gpu, (10, 51), np.uint8), lengths) == -1
    monkeypatch.setattr(gpu, "limits", replace(gpu.limits, binding=256))
    join = kernel(gpu, "lz4_pack", np.empty((10, 50)), np.empty(10))
    with pytest.raises(trueno.errors.KernelError, match="blocks has 500 bytes, and this adapter binds 256"):
        join(x, sizes, Array.empty(gpu, (500,), np.uint8), Array.empty(gpu, (10,), np.int64))


@pytest.mark.parametrize("level", [1, 2])
def test_arrays_of_the_device(rng, level):
    """Pages go to blocks, to packed bytes and back without the host; no page at all is allowed."""
    for x in (pages(rng, 333), np.empty((0, 333), np.uint8)):
        blocks, sizes = trueno.lz4_compress(trueno.to(x, "wgpu"), level=level)
        packed, offsets = trueno.lz4_pack(blocks, sizes)
        y, lengths = trueno.lz4_decompress(packed, offsets, sizes, page=333)
        np.testing.assert_array_equal(trueno.numpy(y), x)
        assert (trueno.numpy(lengths) == 333).all()
        assert trueno.numpy(packed).shape == (x.size,)


def test_compact_pages(rng):
    x = pages(rng, 4096)
    small = trueno.lz4.compress_pages(trueno.to(x, "wgpu")).compact()
    assert small.nbytes <= small.packed.nbytes < small.nbytes + 4096 < x.nbytes
    np.testing.assert_array_equal(trueno.numpy(trueno.lz4.decompress_pages(small)), x)


@pytest.mark.slow
def test_the_largest_pages(gpu, rng):
    """65 536 bytes, also with as many sequences as there can be: software ends loops after 65 535 trips."""
    page = 1 << 16
    words = rng.integers(0, 256, (300, 4), np.uint8)
    fours = words[rng.integers(0, 300, page // 4)].ravel()
    fives = np.column_stack([words[rng.integers(0, 300, page // 5 + 1)], rng.integers(0, 256, page // 5 + 1)])
    x = np.concatenate([pages(rng, page), fours[None], fives.astype(np.uint8).ravel()[None, :page]])
    for level in (1, 2):
        blocks, sizes = compress(gpu, x, level)
        assert_compressed(x, blocks, sizes)
    blocks = [lz4.block.compress(row.tobytes(), store_size=False) for row in x]
    blocks.append(b"\x10\x41\x01\x00" + b"\x00\x01\x00" * 16380 + b"\xb0" + b"A" * 11)
    assert len(lz4.block.decompress(blocks[-1], uncompressed_size=page)) == page
    y, lengths = decompress(gpu, *laid_out(rng, blocks), page)
    assert (lengths == page).all()
    np.testing.assert_array_equal(y[:-1], x)
    assert (y[-1] == 65).all()
