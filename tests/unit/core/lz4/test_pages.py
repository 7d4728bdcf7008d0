"""Pages that stay on a device, batches of the ops on bytes, and files of which any page is read."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import lz4.frame
import numpy as np
import pytest
import trueno
import trueno.lz4.file as lz4_file
from trueno.errors import DtypeError, FileError, LZ4Error, ParameterError, ShapeError
from trueno.formats.lz4_samples import page, pages


def test_pages_of_the_host(rng):
    x = pages(20, 1000, rng)
    p = trueno.lz4.compress_pages(x, level=2)
    assert (len(p), p.page, p.length) == (20, 1000, 20_000)
    assert p.nbytes == len(p.packed) == np.abs(p.sizes).sum() and p.ratio == p.length / p.nbytes > 1
    assert np.array_equal(trueno.lz4.decompress_pages(p), x) and "20 pages of 1000 bytes" in repr(p)
    floats = np.cumsum(rng.standard_normal((6, 64)), 1).astype(np.float32)
    back = trueno.lz4.decompress_pages(trueno.lz4.compress_pages(floats))
    assert np.array_equal(back.view(np.float32), floats)
    assert np.array_equal(
        trueno.lz4.decompress_pages(trueno.lz4.compress_pages(floats.T[::2])).view("f"), floats.T[::2]
    )
    empty = trueno.lz4.compress_pages(x[:0])
    assert (
        len(empty) == empty.nbytes == 0 and empty.ratio == 1 and trueno.lz4.decompress_pages(empty).shape == (0, 1000)
    )


def test_pages_of_a_device_stay_there(fake, rng):
    x = pages(9, 300, rng)
    there = trueno.to(x, "fake")
    fake.LEDGER.reset()
    p = trueno.lz4.compress_pages(there)
    kind = type(there)
    assert all(type(a) is kind for a in (p.packed, p.offsets, p.sizes))
    assert (fake.LEDGER.uploads, fake.LEDGER.downloads) == (0, 0)
    y = trueno.lz4.decompress_pages(p)
    assert type(y) is kind and fake.LEDGER.downloads == 1, "only the lengths are copied to the host"
    assert np.array_equal(trueno.numpy(y), x)
    assert p.nbytes == np.abs(trueno.numpy(p.sizes)).sum() < p.length
    sizes = trueno.numpy(p.sizes).copy()
    sizes[4] = 0
    with pytest.raises(LZ4Error, match="page 4 has 0 bytes, and pages have 300"):
        trueno.lz4.decompress_pages(trueno.lz4.Pages(p.packed, p.offsets, trueno.to(sizes, "fake"), 300))


@pytest.mark.parametrize("n", [0, 1, 9, 40])
def test_compact_pages_take_the_memory_of_their_blocks(fake, rng, n):
    x = pages(n, 1000, rng)
    p = trueno.lz4.compress_pages(trueno.to(x, "fake"))
    small = p.compact()
    assert p.packed.shape == (x.size,) and small.nbytes == p.nbytes
    assert type(small.packed) is type(p.packed) and small.packed.shape[0] <= min(p.nbytes + 4095, x.size)
    assert np.array_equal(trueno.numpy(trueno.lz4.decompress_pages(small)), x) and small.compact() is small
    host = trueno.lz4.compress_pages(x)
    assert host.compact() is host and len(host.packed) == host.nbytes


@pytest.mark.parametrize(
    "x, error, words",
    [
        (np.zeros(9, np.uint8), ShapeError, r"x has shape \(9,\); give pages \[n, page\]"),
        (np.zeros((2, 0), np.uint8), ShapeError, "p is 0"),
        ([[1, 2]], DtypeError, "x is list; give a NumPy array"),
        (np.array([[None]]), DtypeError, "x is object"),
    ],
)
def test_what_is_not_pages_is_named(x, error, words):
    with pytest.raises(error, match=words):
        trueno.lz4.compress_pages(x)


@pytest.mark.parametrize("backend", ["reference", "scalar"])
def test_a_batch_and_aio_compress(backend, rng):
    x = pages(7, 500, rng)
    with trueno.Batch(backend) as b:
        h = b.upload(x)
        blocks, sizes = b.lz4_compress(h, level=2)
        packed, offsets = b.lz4_pack(blocks, sizes)
        y, lengths = b.lz4_decompress(packed, offsets, sizes, page=500)
        for data in (x, pages(7, 500, rng)):
            b.update(h, data)
            b.execute()
            assert np.array_equal(b.read(y), data) and (b.read(lengths) == 500).all()
        with pytest.raises(DtypeError, match="x is float32; bytes are uint8 in a batch"):
            b.lz4_compress(b.upload(np.zeros((2, 3), np.float32)))

    async def both():
        with trueno.use(backend):
            return await trueno.aio.lz4_compress(x)

    blocks, sizes = asyncio.run(both())
    assert np.array_equal(trueno.lz4_decompress(*trueno.lz4_pack(blocks, sizes), sizes, page=500)[0], x)
    assert "lz4_compress in float32, x 7×500" in str(trueno.explain("lz4_compress", x))


@pytest.fixture
def stream(tmp_path, rng):
    """A file of several frames, and its content."""
    parts = [pages(11, 512, rng).tobytes() + b"rest", b"", page("text", 700, rng).tobytes(), bytes(300_000)]
    frames = [
        trueno.lz4.compress(parts[0], page=512, checksum=True),
        trueno.lz4.compress(parts[1]),
        lz4.frame.compress(parts[2], block_linked=False, store_size=False),
        lz4.frame.compress(parts[3], block_linked=False, block_size=lz4.frame.BLOCKSIZE_MAX256KB),
    ]
    path = tmp_path / "x.lz4"
    path.write_bytes(b"".join(frames))
    return path, b"".join(parts)


def test_any_page_and_any_range_of_a_file_is_read(stream, rng):
    path, data = stream
    with trueno.lz4.open(path) as file:
        assert file.pages == 12 + 0 + 1 + 2 and len(file) == len(data) and file.nbytes == path.stat().st_size
        assert file.read(3) == data[3 * 512 : 4 * 512] and file.read(11) == b"rest" and file.read(-4) == b"rest"
        assert b"".join(file.read(i) for i in range(file.pages)) == data
        for _ in range(30):
            start, stop = sorted(int(n) for n in rng.integers(-10, len(data) + 10, 2))
            assert file[start:stop] == data[start:stop]
        assert file[:] == data and file[5:3] == b"" and file[0] == data[0] and file[-1] == data[-1]
        for bad, words in (
            (lambda: file.read(15), "page is 15, and .* has 15"),
            (lambda: file.read(-16), "page is -16"),
            (lambda: file[::2], "the step is 2"),
            (lambda: file[len(data)], "is not one of"),
            (lambda: file["a":], r"slice\('a', None, None\) is not a range of bytes; its ends are whole numbers"),
            (lambda: file[:1.5], "is not a range of bytes"),
            (lambda: file[::0], "its step is 1: file"),
        ):
            with pytest.raises(ParameterError, match=words):
                bad()
    with pytest.raises(FileError, match="is closed"):
        file.read(0)
    file.close()
    assert "closed" in repr(file)


def test_the_bytes_of_a_file_are_iterated_like_those_of_bytes(stream):
    path, data = stream
    with trueno.lz4.open(path) as file:
        assert bytes(file) == data and list(file) == list(data) and all(type(byte) is int for byte in file)
        with pytest.raises(TypeError, match="not a container"):
            b"ab" in file  # noqa: B015 - of numbers this would be False
    with pytest.raises(FileError, match="is closed"):
        iter(file)


def raw(texts, content):
    """A frame of raw pages that says how many bytes it holds."""
    described = b"\x68\x40" + content.to_bytes(8, "little")
    frame = b"\x04\x22\x4d\x18" + described + bytes([trueno.lz4.header.checksum(described) >> 8 & 255])
    return frame + b"".join((len(t) | 1 << 31).to_bytes(4, "little") + t for t in texts) + bytes(4)


@pytest.mark.parametrize("lengths", [(100, 50, 120), (100, 50, 100, 150), (0, 7, 0, 0, 300, 1)])
def test_pages_of_any_lengths_are_ranges(tmp_path, rng, lengths):
    """In some of these a page is where it would be if all were as long as the first, and others are not."""
    texts = [page("random", n, rng).tobytes() for n in lengths]
    data = b"".join(texts)
    path = tmp_path / "x.lz4"
    theirs = lz4.frame.compress(data, block_linked=False)
    path.write_bytes(trueno.lz4.compress(data, page=33) + theirs + raw([t for t in texts if t], len(data)))
    for _ in range(20):
        with trueno.lz4.open(path) as file:
            assert len(file) == 3 * len(data)
            for _ in range(3):
                start, stop = sorted(int(n) for n in rng.integers(0, 3 * len(data) + 1, 2))
                assert file[start:stop] == (3 * data)[start:stop]
            assert file[-1] == data[-1] and file[:] == 3 * data


def test_a_range_does_not_need_pages_behind_it(tmp_path):
    path = tmp_path / "x.lz4"
    texts = [b"%04d page " % i * 9 for i in range(8)]
    whole = raw(texts, 730)[:-4]
    path.write_bytes(whole + (3).to_bytes(4, "little") + b"\x10a\x05" + bytes(4))
    with trueno.lz4.open(path) as file:
        assert file[150:480] == b"".join(texts)[150:480]
        with pytest.raises(LZ4Error, match=r"page 8 at byte [0-9]+: the block is malformed"):
            file[:]
    path.write_bytes(raw([b"12345", b"678"], 7))
    with trueno.lz4.open(path) as file:
        assert file.read(1) == b"678"
        with pytest.raises(LZ4Error, match="its content has 8 bytes, and its header says 7"):
            file[5:6]


def test_threads_share_a_file(stream, rng):
    path, data = stream
    places = [sorted(int(n) for n in rng.integers(0, len(data), 2)) for _ in range(64)]
    with trueno.lz4.open(path) as file, ThreadPoolExecutor(8) as pool:
        for found, (start, stop) in zip(pool.map(lambda p: file[p[0] : p[1]], places), places, strict=True):
            assert found == data[start:stop]


@pytest.mark.parametrize(
    ("behind", "call"),
    [
        ("whole", lambda file: file.read(3)),
        ("pages", lambda file: file[100:20_000]),
        ("pages", lambda file: file[:]),
        ("pages", lambda file: bytes([file[-1]])),
        ("pages", lambda file: bytes(len(file))),
        ("block", lambda file: file[-200_000:]),
    ],
)
def test_a_call_that_has_begun_reads_a_file_that_another_thread_closes(stream, monkeypatch, behind, call):
    path, _ = stream
    with trueno.lz4.open(path) as file:
        expected = call(file)
    file = trueno.lz4.open(path)
    step = getattr(lz4_file, behind)

    def closing(*args):
        file.close()
        return step(*args)

    monkeypatch.setattr(lz4_file, behind, closing)
    assert call(file) == expected
    with pytest.raises(FileError, match="is closed"):
        call(file)


def test_threads_read_while_one_closes(stream):
    path, data = stream

    def reads():
        with suppress(FileError):  # of the reads behind it
            while True:
                assert file[5:9000] == data[5:9000] and file.read(0) == data[:512]

    for _ in range(20):
        file = trueno.lz4.open(path)
        with ThreadPoolExecutor(4) as pool:
            readers = [pool.submit(reads) for _ in range(3)]
            pool.submit(file.close).result()
            for reader in readers:
                reader.result()


def test_what_is_not_such_a_file_is_named(tmp_path, rng):
    linked, empty, text = (tmp_path / name for name in ("linked", "empty", "text"))
    linked.write_bytes(lz4.frame.compress(pages(40, 4096, rng).tobytes(), block_linked=True))
    empty.write_bytes(b"")
    text.write_text("not a frame at all")
    for path, error, words in (
        (linked, LZ4Error, "its blocks refer to those before them; read it with trueno.lz4.decompress"),
        (empty, LZ4Error, "there are no bytes"),
        (text, LZ4Error, "it begins with 0x"),
        (tmp_path / "nothing", FileNotFoundError, "nothing cannot be read: No such file"),
        (tmp_path, FileError, r"cannot be read: (Is a directory|Permission denied)$"),
        (5, DtypeError, "path is int"),
    ):
        with pytest.raises(error, match=words):
            trueno.lz4.open(path)
