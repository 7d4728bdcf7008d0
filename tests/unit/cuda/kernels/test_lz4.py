"""The LZ4 kernels of the CUDA backend, on the emulator: the `lz4` package reads and writes the same blocks."""

from pathlib import Path

import lz4.block
import numpy as np
import pytest
from trueno.formats.lz4 import fault
from trueno.formats.lz4_samples import PAGES, damaged, laid, page, pages, written
from trueno.ops import TABLE
from trueno_cuda.device.emulated import Emulator
from trueno_cuda.kernels.lz4 import compress, decompress, pack, samples
from trueno_cuda.kernels.lz4.pages import MOST, room
from unit.cuda.kernels.moves import call, part, random, shifted

SIZES = [1, 7, 12, 13, 100, 1027, 4096, 5000]


@pytest.fixture(scope="module")
def device():
    return Emulator("sm_90")


def compressed(device, x, level=1, shift=0):
    kernel = compress.lz4_compress(device, call("lz4_compress", "f4", x, level=level))
    blocks, sizes = shifted(device, np.full_like(x, 7), shift), device.to_device(np.zeros(len(x), np.int64))
    assert kernel(shifted(device, x, shift), blocks, sizes) == 0
    return blocks.elements.copy(), sizes.elements.copy()


def decompressed(device, packed, offsets, sizes, p, shift=0):
    kernel = decompress.lz4_decompress(device, call("lz4_decompress", "f4", packed, page=p))
    y = shifted(device, np.full((len(sizes), p), 7, np.uint8), shift)
    lengths = device.to_device(np.full(len(sizes), -99, np.int64))
    operands = shifted(device, packed, shift), device.to_device(offsets), device.to_device(sizes)
    assert kernel(*operands, y, lengths) == 0
    return y.elements.copy(), lengths.elements.copy()


def packed_up(device, blocks, sizes, shift=0):
    kernel = pack.lz4_pack(device, call("lz4_pack", "f4", blocks, sizes))
    packed = shifted(device, np.full(blocks.size, 7, np.uint8), shift)
    offsets = device.to_device(np.full(len(sizes), -99, np.int64))
    assert kernel(shifted(device, blocks, shift), device.to_device(sizes), packed, offsets) == 0
    return packed.elements.copy(), offsets.elements.copy()


def library(block, p):
    """What the package makes of a block; None where it refuses it."""
    try:
        return lz4.block.decompress(block, uncompressed_size=p)
    except lz4.block.LZ4BlockError:
        return None


def assert_right(x, blocks, sizes):
    p = x.shape[1]
    for row, block, size in zip(x, blocks, sizes.tolist(), strict=True):
        used = block[: abs(size)].tobytes()
        assert 0 < size < p or size == -p
        assert (used if size < 0 else library(used, p)) == row.tobytes()
        assert size < 0 or fault(used, p) < 0, "the end of a block breaks a rule"
        assert not block[abs(size) :].any(), "bytes behind a block are not 0"


@pytest.mark.parametrize("p, level", [*((p, 1) for p in SIZES), (7, 2), (100, 2), (1027, 2), (4096, 2)])
def test_the_library_reads_what_is_written(device, p, level):
    rng = random()
    quick = str(rng.choice(["zeros", "random", "runs", "repeats"]))  # on the emulator; 4 KiB of text take seconds
    x = pages(6, p, rng) if p < 200 else page(quick, p, rng)[None]
    blocks, sizes = compressed(device, x, level, int(rng.integers(2)))
    assert_right(x, blocks, sizes)
    if len(x) > 1:
        again, same = compressed(device, x[::-1], level)
        assert (same[::-1] == sizes).all() and (again[::-1] == blocks).all(), "a block depends on its neighbours"


@pytest.mark.parametrize("p", SIZES)
def test_what_the_library_writes_is_read(device, p):
    rng = random()
    x = np.array([page(kind, p, rng) for kind in PAGES])
    modes = {"default": {}, "fast": {"acceleration": 9}, "high_compression": {"compression": 9}}
    parts = []
    for row in x:
        mode = str(rng.choice(list(modes)))
        block = lz4.block.compress(row.tobytes(), mode=mode, store_size=False, **modes[mode])
        parts.append((block, len(block)))
    parts += [(row.tobytes(), -p) for row in x[:2]]
    y, lengths = decompressed(device, *laid(parts, rng), p, int(rng.integers(2)))
    assert (lengths == p).all()
    assert (y[: len(x)] == x).all() and (y[len(x) :] == x[:2]).all()


@pytest.mark.parametrize("p", [100, 1100, 4500])
def test_matches_at_every_offset(device, p):
    """Also where a match overlaps itself, and repeats what the lanes have written just now."""
    rng = random()
    parts, want = [], []
    for offset in [*range(1, 45), 63, 64, 65, 83]:
        literals = rng.bytes(offset if offset > 4 else 4)
        length = min(int(rng.choice([4, 5, 18, 19, 31, 32, 33, 64, 65, 200, 275])), p - len(literals) - 12)
        token = bytes([min(len(literals), 15) << 4 | min(length - 4, 15)])
        text = (literals[-offset:] * (length // offset + 1))[:length]
        end = rng.bytes(12)
        block = token + samples._more(len(literals)) + literals + offset.to_bytes(2, "little")
        block += samples._more(length - 4) + bytes([12 << 4]) + end
        parts.append((block, len(block)))
        want.append(literals + text + end)
        assert library(block, p) == want[-1]
    y, lengths = decompressed(device, *laid(parts), p)
    assert [row[:n].tobytes() for row, n in zip(y, lengths, strict=True)] == want
    assert not any(row[len(page) :].any() for row, page in zip(y, want, strict=True))


@pytest.mark.parametrize("p", [13, 300, 2000, 4300])
def test_damaged_blocks_are_refused_as_the_library_does(device, p):
    rng = random()
    blocks = [written(p, rng), *(lz4.block.compress(page(kind, p, rng).tobytes(), store_size=False) for kind in PAGES)]
    broken = [block for whole in blocks for block in damaged(whole, rng) if block]
    broken += [rng.bytes(int(rng.integers(1, 40))) for _ in range(20)]
    packed, offsets, sizes = laid([(block, len(block)) for block in broken], rng)
    y, lengths = decompressed(device, packed, offsets, sizes, p, int(rng.integers(2)))
    accepted = 0
    for block, row, length in zip(broken, y, lengths.tolist(), strict=True):
        theirs, wrong = library(block, p), fault(block, p)
        if length >= 0:
            accepted += 1
            assert wrong < 0 and row[:length].tobytes() == theirs and not row[length:].any()
        else:
            assert length == -1 - wrong and wrong >= 0 and not row.any()
    assert 0 < accepted < len(broken)


def test_slices_that_are_not_inside(device):
    rng = random()
    packed, far = rng.integers(0, 256, 50, np.uint8), 1 << 62
    slices = [
        (0, -50),
        (0, 51),
        (0, -51),
        (-1, 3),
        (50, 1),
        (50, 0),
        (-7, 0),
        (far, 0),
        (49, -1),
        (far, far),
        (-far, 4),
    ]
    slices += [(3, -far), (0, -(1 << 63)), (-(1 << 63), 1), ((1 << 63) - 1, (1 << 63) - 1), (1, -50), (0, 1 << 32)]
    offsets, sizes = (np.array(column) for column in zip(*slices, strict=True))
    for p in (64, 40, 5000):
        got = decompressed(device, packed, offsets, sizes, p)
        want = TABLE["lz4_decompress"].body(packed, offsets, sizes, page=p)
        assert (got[1] == want[1]).all() and (got[0] == want[0]).all()
    got = decompressed(device, packed[:0], np.zeros(3, np.int64), np.array([0, 1, -1]), 16)
    assert got[1].tolist() == [0, -1, -1] and not got[0].any()


@pytest.mark.parametrize("n, p", [(1, 1), (5, 7), (9, 100), (3, 4096), (pack.TILE + 3, 4), (2 * pack.TILE, 1)])
def test_packed(device, n, p):
    rng = random()
    blocks, sizes = rng.integers(1, 256, (n, p), np.uint8), rng.integers(-p, p + 1, n)
    got = packed_up(device, blocks, sizes, int(rng.integers(2)))
    used = np.abs(sizes)
    assert got[0].tobytes() == b"".join(row[:k].tobytes() for row, k in zip(blocks, used, strict=True)).ljust(
        n * p, b"\0"
    )
    assert (got[1] == np.cumsum(used) - used).all()


def test_sizes_that_no_row_has_count_as_a_whole_row(device):
    blocks = random().integers(1, 256, (5, 48), np.uint8)
    sizes = np.array([49, -(1 << 63), 3, (1 << 63) - 1, -49])
    packed, offsets = packed_up(device, blocks, sizes)
    assert offsets.tolist() == [0, 48, 96, 99, 147]
    assert (packed[:96] == blocks[:2].ravel()).all() and (packed[99:195] == blocks[3:].ravel()).all()


def test_bases_of_many_tiles(device):
    """More tiles than the block that sums them has threads."""
    sums = random().integers(0, 1 << 40, pack.SUMMED + 77)
    there = device.to_device(np.append(sums, 0).astype(np.uint64))
    device.prepare(pack.source("bases").build("sm_90"), (1, 1, 1), (len(sums),))([there.data.ptr])
    assert (there.elements == np.append(0, np.cumsum(sums)).astype(np.uint64)).all()


def test_pages_there_and_back(device):
    rng = random()
    p = int(rng.choice([257, 400]))
    x = pages(6, p, rng)
    blocks, sizes = compressed(device, x, int(rng.integers(1, 3)))
    packed, offsets = packed_up(device, blocks, sizes)
    y, lengths = decompressed(device, packed, offsets, sizes, p)
    assert (y == x).all() and (lengths == p).all()


def test_blocks_are_about_as_small_as_the_librarys(device):
    """Of this file, whose text has many short matches."""
    text = Path(__file__).read_bytes()[: 2 * 2048]
    x = np.frombuffer(text, np.uint8).reshape(2, 2048)
    theirs = sum(len(lz4.block.compress(row.tobytes(), store_size=False)) for row in x)
    one, two = (int(compressed(device, x, level)[1].sum()) for level in (1, 2))
    assert two < one <= 1.08 * theirs and two < theirs


@pytest.mark.slow
def test_the_largest_page(device):
    rng = random()
    x = np.array([np.concatenate([page(kind, MOST // 4, rng) for kind in ("runs", "zeros", "random", "repeats")])])
    assert_right(x, *compressed(device, x))
    block = lz4.block.compress(x.tobytes(), store_size=False)
    parts = [(block, len(block)), (x.tobytes(), -MOST)]
    y, lengths = decompressed(device, *laid(parts, rng), MOST)
    assert (lengths == MOST).all() and (y == x).all()


def test_a_block_has_at_most_48_kib_of_shared_memory():
    for p in (1, 1024, 4096, MOST):
        for kernel in (
            decompress.source().build("sm_90", **decompress.constants(p, True)),
            *(compress.source().build("sm_90", **compress.constants(p, level, True)) for level in (1, 2)),
        ):
            assert kernel.threads == (128, 1, 1) and kernel.dynamic_shared == 0 and kernel.static_shared <= 48 << 10
            assert (kernel.static_shared > 4 * p) or room(p) == 0


def test_what_is_refused(device):
    x, n = np.zeros((3, 20), np.uint8), np.zeros(3, np.int64)
    kernels = {
        name: factory(device, call(name, "f4", x, **static))
        for name, factory, static in (
            ("lz4_compress", compress.lz4_compress, {"level": 1}),
            ("lz4_decompress", decompress.lz4_decompress, {"page": 20}),
            ("lz4_pack", pack.lz4_pack, {}),
        )
    }
    wrong = [
        ("lz4_compress", [x], [x[:2], n]),
        ("lz4_compress", [x], [x, n[:2]]),
        ("lz4_decompress", [x[0], n, n], [x[:, :19], n]),
        ("lz4_decompress", [x[0], n, n[:2]], [x, n]),
        ("lz4_decompress", [x, n, n], [x, n]),
        ("lz4_pack", [x, n], [x[0], n]),
        ("lz4_pack", [x, n[:1]], [x.ravel(), n]),
    ]
    for name, inputs, outs in wrong:
        results = [device.to_device(np.full_like(a, 7)) for a in outs]
        assert kernels[name](*map(device.to_device, inputs), *results) == -1
        assert all((a.elements == 7).all() for a in results)
    both = device.to_device(np.zeros(119, np.uint8))
    sizes = device.to_device(n)
    assert kernels["lz4_compress"](part(both, (3, 20), 0), part(both, (3, 20), 59), sizes) == -1
    assert kernels["lz4_compress"](part(both, (3, 20), 59), part(both, (3, 20), 0), sizes) == -1
    empty = [device.to_device(a) for a in (x[:0], x[:0], n[:0])]
    assert kernels["lz4_compress"](*empty) == 0
    assert kernels["lz4_pack"](empty[0], empty[2], device.to_device(x[0, :0]), device.to_device(n[:0])) == 0
