"""Mutated LZ4 frames and files: an LZ4Error, or what the package lz4 reads, in memory that the bytes justify."""

import struct
import tempfile
import tracemalloc
from pathlib import Path

import lz4.frame
import numpy as np
import trueno
import xxhash
from trueno.formats.lz4_samples import pages
from trueno.ops import TABLE
from trueno.testing.subject import rejected

from .attack import Tally

BACKENDS = ("simd", "scalar", "reference")
TRIES = 30
LIMIT = 60.0
ROOM, EACH = 3_000_000, 600
"""Bytes of memory for any stream, and for each of its bytes: one decodes to 255, which are held twice."""
WORDS = [0, 1, 255, 1 << 16, (1 << 16) + 1, (1 << 31) - 1, 1 << 31, (1 << 31) + 5, (1 << 32) - 1, 0x184D2204]


def case(rng: np.random.Generator, backend: str, tally: Tally) -> None:
    if rejected(TABLE["lz4_compress"], backend, np.float32) is not None:
        return
    data = pages(int(rng.integers(0, 6)), int(rng.integers(1, 900)), rng).tobytes()
    options = {"checksum": bool(rng.integers(2)), "level": int(rng.integers(1, 3)), "page": int(rng.integers(1, 1200))}
    sound = [trueno.lz4.compress(data, backend=backend, **options)]
    summed = bool(rng.integers(2))
    sound += [lz4.frame.compress(data, block_linked=linked, content_checksum=summed) for linked in (False, True)]
    assert all(trueno.lz4.decompress(frame, backend=backend) == data for frame in sound)
    assert lz4.frame.decompress(sound[0]) == data
    for k in range(TRIES):
        raw = bytearray(sound[int(rng.integers(3))])
        for _ in range(int(rng.integers(1, 4))):
            _mutate(rng, raw)
        tally.states += 1
        if k % 5 == 0:
            tracemalloc.start()
        try:
            _read(bytes(raw), backend)
            if k % 5 == 0:
                peak = tracemalloc.get_traced_memory()[1]
                assert peak < ROOM + EACH * len(raw), f"{peak} bytes for a stream of {len(raw)}"
        finally:
            tracemalloc.stop()
    described = bytes([int(rng.choice([0x60, 0x40])), 0x40])
    stream = struct.pack("<I2sB", 0x184D2204, described, xxhash.xxh32(described).intdigest() >> 8 & 255)
    for block in (rng.bytes(int(rng.integers(1, 30))) for _ in range(3)):
        stream += struct.pack("<I", len(block)) + block
    _read(stream + bytes(4), backend)


def _mutate(rng: np.random.Generator, raw: bytearray) -> None:
    at = int(rng.integers(0, len(raw) + 1))
    how = int(rng.integers(5))
    if how == 0 and at < len(raw):
        raw[at] ^= 1 << int(rng.integers(8))
    elif how == 1:
        raw[at : at + 4] = WORDS[int(rng.integers(len(WORDS)))].to_bytes(4, "little")
    elif how == 2:
        del raw[at : at + int(rng.integers(1, 9))]
    elif how == 3:
        raw[at:at] = rng.bytes(int(rng.integers(1, 9)))
    else:
        del raw[at:]


def _read(raw: bytes, backend: str) -> None:
    """Read a stream whole and, as a file, page by page; both succeed or neither does, if pages are independent."""
    ours, said = None, ""
    try:
        ours = trueno.lz4.decompress(raw, backend=backend)
    except trueno.LZ4Error as error:
        said = str(error)
    assert ours is not None or "frame " in said or "no bytes" in said, said
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.lz4"
        path.write_bytes(raw)
        try:
            with trueno.lz4.open(path, backend=backend) as file:
                found = b"".join(file.read(i) for i in range(file.pages))
                assert ours is None or (found == ours and file[:] == ours)
        except trueno.LZ4Error as error:
            said = said or str(error)
    assert ours is None or not said or "refer to those before them" in said, said
    if ours is not None:
        reader, theirs, rest = None, b"", raw
        while rest and int.from_bytes(rest[:4], "little") == 0x184D2204:
            reader = lz4.frame.LZ4FrameDecompressor()
            theirs += reader.decompress(rest)
            assert reader.eof
            rest = reader.unused_data or b""
        assert rest or theirs == ours
