"""Frames that are damaged, cut off, or lie about themselves: an LZ4Error that says where, and no memory for a lie."""

import struct
import tracemalloc

import lz4.block
import lz4.frame
import numpy as np
import pytest
import trueno
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st
from trueno.errors import LZ4Error
from trueno.formats.lz4_samples import pages


def framed(blocks, *, flags=0x60, limits=0x40, content=None, tail=bytes(4)):
    """A frame with these blocks, whose high bit of the size says raw."""
    described = bytes([flags | (8 if content is not None else 0), limits])
    described += struct.pack("<Q", content) if content is not None else b""
    check = bytes([xxhash.xxh32(described).intdigest() >> 8 & 255])
    parts = [struct.pack("<I", size) + block for size, block in blocks]
    return b"\x04\x22\x4d\x18" + described + check + b"".join(parts) + tail


def packed(data):
    block = lz4.block.compress(data, store_size=False)
    return len(block), block


GOOD = packed(b"abcd" * 50)


@pytest.mark.parametrize(
    "frame, words",
    [
        (b"", "there are no bytes"),
        (b"\x04\x22\x4d", "frame 0 at byte 0: the magic number at byte 0 has 4 bytes, and 3 are left; it is cut off"),
        (b"BZh91AY&SY", "it begins with 0x39685a42"),
        (b"\x02\x21\x4c\x18" + bytes(20), "page 0 at byte 8 of a legacy frame has 0 bytes"),
        (b"\x50\x2a\x4d\x18\x09\x00\x00\x00abc", "a skippable frame at byte 8 has 9 bytes, and 3 are left"),
        (framed([GOOD])[:6], "the header's checksum at byte 6"),
        (framed([GOOD])[:-1], "the size of page 1"),
        (framed([GOOD])[:20], "page 0 at byte 11 has"),
        (framed([GOOD], flags=0xA0), "its version is 2"),
        (framed([GOOD], flags=0x62), "which the format does not define"),
        (framed([GOOD], limits=0x41), "which the format does not define"),
        (framed([GOOD], limits=0x30), "which the format does not define"),
        (framed([GOOD], flags=0x61)[:7] + bytes(8), "it needs dictionary"),
        (framed([GOOD])[:6] + b"\x00" + framed([GOOD])[7:], "the header's checksum is 0x00"),
        (framed([(65537, bytes(65537))]), "page 0 at byte 11 has 65537 bytes, and 65536 is the most here"),
        (framed([(1 << 31, b"")]), "page 0 at byte 11 is raw and has no bytes"),
        (framed([GOOD, (5, b"\xf0abcd")]), f"page 1 at byte {15 + GOOD[0]}: the block is malformed"),
        (framed([GOOD, (3, b"\x10a\x05")]), "frame 0 at byte 0, page 1 at byte"),
        (framed([GOOD], content=201), "its content has 200 bytes, and its header says 201"),
        (framed([GOOD], content=199), "its content has 200 bytes, and its header says 199"),
        (framed([GOOD], content=1 << 60), "it says that it has 1152921504606846976 bytes of content"),
        (framed([GOOD], flags=0x64, tail=bytes(8)), "the checksum of its content is 0x"),
        (framed([(GOOD[0], GOOD[1] + b"1234")], flags=0x70), "the checksum of page 0 at byte 11 is 0x"),
        (framed([GOOD]) + framed([GOOD])[:-2], "frame 1 at byte"),
        (framed([GOOD]) + b"..", "frame 1 at byte"),
        (framed([(10, b"\x10a\x02\x00\x50abcde")], flags=0x40), "page 0 at byte 11: the block is malformed"),
    ],
)  # fmt: skip
def test_a_damaged_frame_is_named(frame, words):
    with pytest.raises(LZ4Error) as caught:
        trueno.lz4.decompress(frame, backend="reference")
    assert words in str(caught.value) and str(caught.value).startswith("lz4: ")
    assert isinstance(caught.value, ValueError)


def test_the_good_ones_among_these_are_good():
    for flags, tail in ((0x60, bytes(4)), (0x40, bytes(4))):
        assert trueno.lz4.decompress(framed([GOOD], flags=flags, tail=tail, content=200)) == b"abcd" * 50
    assert trueno.lz4.decompress(framed([])) == b""


def test_the_first_wrong_byte_of_a_block_is_named():
    """The second sequence of the second page refers to a byte before it."""
    block = b"\x41ABCD\x01\x00" + b"\x10x\xff\x00" + b"\x80abcdefgh"
    with pytest.raises(LZ4Error, match=rf"page 1 at byte {11 + GOOD[0] + 4 + 7}: the block is malformed"):
        trueno.lz4.decompress(framed([GOOD, (len(block), block)]), backend="scalar")


@pytest.mark.parametrize("store_size", [False, True])
def test_a_limit_is_kept(store_size, rng):
    data = pages(30, 4096, rng).tobytes()
    for linked in (False, True):
        frame = lz4.frame.compress(data, store_size=store_size, block_linked=linked)
        assert trueno.lz4.decompress(frame, limit=len(data)) == data
        with pytest.raises(LZ4Error, match=r"and 122879 are allowed; pass a larger limit"):
            trueno.lz4.decompress(frame, limit=len(data) - 1)
    assert trueno.lz4.decompress(trueno.lz4.compress(b""), limit=0) == b""


def test_a_lie_takes_no_memory():
    """A thousand tiny blocks, each of which could fill a page of 64 KiB by its header alone."""
    tiny = packed(bytes(40))
    bombs = [
        framed([tiny], content=1 << 50),
        framed([tiny] * 1000),
        framed([tiny] * 1000, limits=0x70),
        framed([tiny] * 1000, limits=0x70, flags=0x40),
    ]
    trueno.lz4.decompress(bombs[1], backend="reference")
    for bomb in bombs:
        tracemalloc.start()
        try:
            with pytest.raises(LZ4Error):
                trueno.lz4.decompress(bomb, limit=30_000, backend="reference")
            assert tracemalloc.get_traced_memory()[1] < 8_000_000
        finally:
            tracemalloc.stop()


FRAMES = [
    trueno.lz4.compress(b"the page of the block of the page " * 20, page=128, checksum=True, backend="reference"),
    trueno.lz4.compress(b"the page of the block of the page " * 20, page=300, backend="reference"),
    lz4.frame.compress(b"the page of the block of the page " * 20, content_checksum=True),
    lz4.frame.compress(bytes(range(256)) + bytes(500), block_linked=False, block_checksum=True),
]


@settings(max_examples=250, deadline=None)
@given(st.sampled_from(FRAMES), st.data())
def test_any_change_is_an_error_or_what_the_library_reads(frame, data):
    """Bytes are replaced, removed or repeated; the library judges, but for the streams that it stops reading early."""
    raw = bytearray(frame)
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, max(len(raw) - 1, 0)))
        how = data.draw(st.sampled_from(["flip", "replace", "cut", "drop", "repeat"]))
        if how == "flip" and raw:
            raw[at] ^= 1 << data.draw(st.integers(0, 7))
        elif how == "replace" and raw:
            raw[at] = data.draw(st.sampled_from([0, 1, 15, 127, 128, 240, 255]))
        elif how == "cut":
            del raw[at:]
        elif how == "drop":
            del raw[at : at + data.draw(st.integers(1, 5))]
        else:
            raw[at:at] = raw[at : at + data.draw(st.integers(1, 9))]
    try:
        ours = trueno.lz4.decompress(raw, backend="reference")
    except LZ4Error:
        return
    assert ours == _read_whole(bytes(raw))


def _read_whole(raw):
    """What the library makes of a stream of frames, each of which must end."""
    whole = b""
    while raw:
        if 0x184D2A50 <= int.from_bytes(raw[:4], "little") <= 0x184D2A5F:
            raw = raw[8 + int.from_bytes(raw[4:8], "little") :]
            continue
        reader = lz4.frame.LZ4FrameDecompressor()
        whole += reader.decompress(raw)
        assert reader.eof
        raw = reader.unused_data or b""
    return whole


def test_every_truncation_is_an_error():
    for frame in FRAMES:
        for n in range(len(frame)):
            with pytest.raises(LZ4Error):
                trueno.lz4.decompress(frame[:n], backend="reference")


def test_every_flipped_bit_of_a_checked_frame_is_an_error():
    frame = FRAMES[0]
    wrong = []
    for bit in range(8 * len(frame)):
        raw = bytearray(frame)
        raw[bit // 8] ^= 1 << bit % 8
        try:
            trueno.lz4.decompress(raw, backend="reference")
            wrong.append(bit)
        except LZ4Error:
            pass
    assert not wrong


def test_pages_of_a_device_that_are_damaged_are_named(rng):
    x = pages(6, 256, rng)
    good = trueno.lz4.compress_pages(x)
    assert np.array_equal(trueno.lz4.decompress_pages(good), x)
    at = int(np.flatnonzero(good.sizes > 0)[1])
    broken = good.packed.copy()
    start = int(good.offsets[at])
    broken[start : start + int(good.sizes[at])] = 0
    with pytest.raises(
        LZ4Error, match=rf"page {at} (is malformed at byte \d+ of its block|has \d+ bytes), and pages have"
    ):
        trueno.lz4.decompress_pages(trueno.lz4.Pages(broken, good.offsets, good.sizes, 256))
