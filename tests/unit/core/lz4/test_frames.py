"""Frames of trueno.lz4 against the package lz4 and the lz4 command: each reads what the others write."""

import shutil
import subprocess

import lz4.block
import lz4.frame
import numpy as np
import pytest
import trueno
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st
from trueno.errors import DtypeError, ParameterError, UnknownBackend
from trueno.formats.lz4_samples import PAGES, page, pages
from trueno.lz4 import reading

BACKENDS = ("reference", "scalar")


def contents(rng):
    """Data of every kind, with lengths at the boundaries of pages and of the format."""
    yield b""
    yield b"x"
    for n in (12, 13, 64, 4095, 4096, 4097, 8192):
        yield page(str(rng.choice(PAGES)), n, rng).tobytes()
    yield pages(9, 4096, rng).tobytes() + b"tail"


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("checksum", [False, True])
def test_the_library_reads_what_we_write(backend, checksum, rng):
    for k, data in enumerate(contents(rng)):
        size = int(rng.choice([4096, 65536, 1000, 13, 7])) if len(data) < 10_000 else 4096
        frame = trueno.lz4.compress(data, page=size, checksum=checksum, level=k % 2 + 1, backend=backend)
        assert isinstance(frame, bytes) and lz4.frame.decompress(frame) == data
        info = lz4.frame.get_frame_info(frame)
        assert not info["block_linked"] and info["content_size"] == len(data) and info["block_size"] == 1 << 16
        assert info["content_checksum"] == info["block_checksum"] == checksum
        assert len(frame) <= len(data) + -(-len(data) // size) * (8 if checksum else 4) + 23
        assert trueno.lz4.decompress(frame, backend=backend) == data


OPTIONS = [
    {"block_size": size, "block_linked": linked, "content_checksum": summed, "block_checksum": summed}
    for size in (lz4.frame.BLOCKSIZE_MAX64KB, lz4.frame.BLOCKSIZE_MAX256KB, lz4.frame.BLOCKSIZE_MAX4MB)
    for linked in (False, True)
    for summed in (False, True)
]


@pytest.mark.parametrize("options", OPTIONS, ids=lambda o: "-".join(str(int(v)) for v in o.values()))
def test_we_read_what_the_library_writes(options, rng):
    for data in (*contents(rng), pages(60, 4096, rng).tobytes()):
        frame = lz4.frame.compress(
            data, store_size=bool(rng.integers(2)), compression_level=int(rng.integers(6)), **options
        )
        assert trueno.lz4.decompress(frame, backend="reference") == data


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=600), st.integers(1, 700), st.booleans(), st.sampled_from([1, 2]))
def test_any_bytes_come_back(data, size, checksum, level):
    frame = trueno.lz4.compress(data, page=size, checksum=checksum, level=level, backend="scalar")
    assert lz4.frame.decompress(frame) == data == trueno.lz4.decompress(frame, backend="scalar")


def test_pages_of_different_lengths_are_decoded_by_one_call(rng):
    """The first page says how much room the others get; those that are longer are decoded once more."""
    lengths = [10, 4096, 1, 65536, 300, 0, 65536]
    parts = [page("text", n, rng).tobytes() for n in lengths]
    frame = bytearray(lz4.frame.LZ4FrameCompressor(block_linked=False).begin())
    for k, part in enumerate(parts):
        block = lz4.block.compress(part, store_size=False)
        raw = len(part) > 0 and (k % 3 == 2 or len(block) > len(part))
        stored = part if raw else block
        frame += (len(stored) | raw << 31).to_bytes(4, "little") + stored
    frame += bytes(4)
    assert lz4.frame.decompress(bytes(frame)) == b"".join(parts) == trueno.lz4.decompress(frame)


def legacy(*blocks):
    """A legacy frame: a magic number, and blocks behind their sizes."""
    return b"\x02\x21\x4c\x18" + b"".join(len(block).to_bytes(4, "little") + block for block in blocks)


def test_legacy_frames_end_where_another_begins(tmp_path, rng):
    texts = [page("text", n, rng).tobytes() for n in (9 << 20, 300)]
    first = [lz4.block.compress(part, store_size=False) for part in (texts[0][: 8 << 20], texts[0][8 << 20 :])]
    skipped = (0x184D2A50).to_bytes(4, "little") + (2).to_bytes(4, "little") + b"ab"
    stream = legacy(*first) + skipped + legacy() + legacy(lz4.block.compress(texts[1], store_size=False))
    assert trueno.lz4.decompress(stream + trueno.lz4.compress(b"end")) == texts[0] + texts[1] + b"end"
    path = tmp_path / "old.lz4"
    path.write_bytes(stream)
    with trueno.lz4.open(path) as file:
        assert file.pages == 3 and file.read(2) == texts[1] and file[-301:] == texts[0][-1:] + texts[1]
    with pytest.raises(trueno.LZ4Error, match="300 are allowed"):
        trueno.lz4.decompress(stream, limit=300)


@pytest.mark.parametrize(
    "stream, words",
    [
        (legacy(b"")[:-2], "the size of page 0 at byte 4 has 4 bytes, and 2 are left"),
        (legacy(b""), "page 0 at byte 8 of a legacy frame has 0 bytes"),
        (legacy()[:4] + b"\xff\xff\xff\x00", "page 0 at byte 8 of a legacy frame has 16777215 bytes"),
        (legacy(b"\x10a")[:-1], "page 0 at byte 8 has 2 bytes, and 1 are left"),
        (legacy(b"\x10a", b"\x10a\x07\x00\x50abcde"), "page 1 at byte 14: the block is malformed"),
    ],
)
def test_a_damaged_legacy_frame_is_named(stream, words):
    with pytest.raises(trueno.LZ4Error, match=rf"frame 0 at byte 0.*{words}"):
        trueno.lz4.decompress(stream)


@pytest.mark.parametrize("options", [{}, {"block_linked": True}, {"block_linked": False}])
def test_parts_say_how_far_a_stream_has_been_read(options, rng):
    data = pages(40, 4096, rng).tobytes()
    frame = lz4.frame.compress(data, **options) if options else trueno.lz4.compress(data)
    read = [0]
    places = [read[0] for _ in reading.contents(np.frombuffer(2 * frame, np.uint8), None, None, read)]
    assert places == sorted(places) and 2 * len(frame) - 9 < places[-1] < 2 * len(frame)


def test_small_linked_blocks_refer_to_all_that_they_may(rng):
    """Hundreds of blocks of 90 bytes, most of which are a match with bytes nearly 64 KiB before."""
    data = bytearray(rng.bytes(65_530))
    blocks = [(len(data) | 1 << 31).to_bytes(4, "little") + data]
    for _ in range(1500):
        distance = int(rng.integers(65_400, 65_530))
        end = rng.bytes(6)
        block = b"\x0f" + distance.to_bytes(2, "little") + bytes([84 - 19]) + b"\x60" + end
        data += data[-distance:][:84] + end
        blocks.append(len(block).to_bytes(4, "little") + block)
    frame = bytes(lz4.frame.LZ4FrameCompressor(block_linked=True).begin()) + b"".join(blocks) + bytes(4)
    assert trueno.lz4.decompress(frame) == data == lz4.frame.decompress(frame)


def test_several_frames_and_skippable_ones_are_one_stream(rng):
    texts = [page("text", int(n), rng).tobytes() for n in rng.integers(0, 9000, 3)]
    skipped = (0x184D2A53).to_bytes(4, "little") + (5).to_bytes(4, "little") + b"notes"
    frames = [
        trueno.lz4.compress(texts[0]),
        skipped,
        lz4.frame.compress(texts[1]),
        trueno.lz4.compress(texts[2]),
        skipped,
    ]
    assert trueno.lz4.decompress(b"".join(frames)) == b"".join(texts)
    assert trueno.lz4.decompress(skipped) == b""


@pytest.mark.skipif(shutil.which("lz4") is None, reason="the command lz4 is not installed (apt-get install lz4)")
def test_the_command_and_we_read_each_other(tmp_path, rng):
    data = pages(40, 4096, rng).tobytes() + b"end"
    ours, theirs = tmp_path / "ours.lz4", tmp_path / "theirs.lz4"
    ours.write_bytes(trueno.lz4.compress(data, checksum=True))
    assert subprocess.run(["lz4", "-dc", ours], capture_output=True, check=True).stdout == data
    assert subprocess.run(["lz4", "-t", ours], capture_output=True, check=False).returncode == 0
    for options in (["-1"], ["-9", "-BD"], ["-B4", "-BX"], ["-B7", "--content-size"], ["--no-frame-crc", "-BI"]):
        theirs.write_bytes(subprocess.run(["lz4", "-c", *options], input=data, capture_output=True, check=True).stdout)
        assert trueno.lz4.decompress(theirs.read_bytes()) == data, options
    legacy = subprocess.run(["lz4", "-lc"], input=data, capture_output=True, check=True).stdout
    stream = legacy + theirs.read_bytes() + legacy + legacy
    assert subprocess.run(["lz4", "-dc"], input=stream, capture_output=True, check=True).stdout == 4 * data
    assert trueno.lz4.decompress(stream) == 4 * data


def test_every_kind_of_input_is_its_bytes(tmp_path, rng):
    x = rng.integers(-9, 9, (30, 40)).astype(np.float32)
    np.save(tmp_path / "x.npy", x)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    wanted = x.tobytes()
    inputs = [
        wanted,
        bytearray(wanted),
        memoryview(wanted),
        memoryview(x),
        x,
        x.view(np.int16),
        mapped,
        np.asfortranarray(x),
    ]
    for data in inputs:
        frame = trueno.lz4.compress(data, page=512)
        assert trueno.lz4.decompress(frame) == wanted
        for form in (bytearray(frame), memoryview(frame), np.frombuffer(frame, np.uint8)):
            assert trueno.lz4.decompress(form) == wanted
    assert trueno.lz4.decompress(trueno.lz4.compress(x[::-2, ::3])) == x[::-2, ::3].tobytes()
    assert trueno.lz4.decompress(trueno.lz4.compress(memoryview(wanted)[::2])) == wanted[::2]
    assert trueno.lz4.decompress(trueno.lz4.compress(np.array(3.5))) == np.array(3.5).tobytes()
    assert trueno.lz4.decompress(trueno.lz4.compress(x[:0])) == b""
    assert trueno.lz4.decompress(trueno.lz4.compress(trueno.Matrix(x))) == wanted


def test_arrays_of_devices_and_of_other_libraries_are_their_bytes(fake, rng):
    x = rng.standard_normal((30, 40)).astype(np.float32)

    class Foreign:  # as arrays of other libraries that are no buffers
        def __array__(self, dtype=None, copy=None):
            return x.T

    assert trueno.lz4.decompress(trueno.lz4.compress(trueno.to(x, "fake"))) == x.tobytes()
    frame = np.frombuffer(trueno.lz4.compress(Foreign()), np.uint8)
    assert trueno.lz4.decompress(trueno.to(frame, "fake")) == x.T.tobytes()


@pytest.mark.parametrize(
    "call, error, words",
    [
        (lambda: trueno.lz4.compress("text"), DtypeError, "lz4.compress: data is str; encode it first"),
        (lambda: trueno.lz4.compress(5), DtypeError, "data is int; give bytes, a buffer or an array"),
        (lambda: trueno.lz4.compress([1, 2]), DtypeError, "data is list; give bytes, a buffer or an array"),
        (lambda: trueno.lz4.compress(memoryview(np.array([None]))), DtypeError, "data is object"),
        (lambda: trueno.lz4.compress(np.array([None])), DtypeError, "data is object"),
        (lambda: trueno.lz4.compress(np.ma.array([1], mask=[1])), DtypeError, "whose mask would be lost"),
        (lambda: trueno.lz4.compress(b"", page=0), ParameterError, "page is 0; it must be a whole number, 1 to 65536"),
        (lambda: trueno.lz4.compress(b"x", page=65537), ParameterError, "page is 65537"),
        (lambda: trueno.lz4.compress(b"x", page=4.0), ParameterError, "page is 4.0"),
        (lambda: trueno.lz4.compress(b"", level=3), ParameterError, "level is 3; it must be a whole number, 1 to 2"),
        (lambda: trueno.lz4.compress(b"x", backend="nothing"), UnknownBackend, "nothing"),
        (lambda: trueno.lz4.decompress("text"), DtypeError, "lz4.decompress: frame is str"),
        (lambda: trueno.lz4.decompress(b"", limit=-1), ParameterError, "limit is -1; it must be a whole number"),
        (lambda: trueno.lz4.decompress_pages([1]), DtypeError, "pages is list; give the result of compress_pages"),
    ],
)  # fmt: skip
def test_bad_arguments_are_named(call, error, words):
    with pytest.raises(error, match=words.replace("(", r"\(")):
        call()


def test_checksums_are_those_of_the_format(rng):
    data = page("text", 5000, rng).tobytes()
    frame = trueno.lz4.compress(data, checksum=True)
    assert frame[:4] == b"\x04\x22\x4d\x18" and frame[14] == xxhash.xxh32(frame[4:14]).intdigest() >> 8 & 255
    assert int.from_bytes(frame[-4:], "little") == xxhash.xxh32(data).intdigest()
    count = int.from_bytes(frame[15:19], "little")
    assert int.from_bytes(frame[19 + count : 23 + count], "little") == xxhash.xxh32(frame[19 : 19 + count]).intdigest()
