"""Blocks against the library: what it refuses is refused, and what is accepted has its bytes."""

import re

import lz4.block
import numpy as np
import pytest
import trueno
from trueno.errors import DtypeError, ParameterError, ShapeError
from trueno.formats.lz4 import encoded, fault
from trueno.formats.lz4_samples import PAGES, damaged, laid, page, pages, written
from trueno.judge.structured import judge_structured
from trueno.ops import TABLE
from trueno.remedies import install

BACKENDS = ("reference", "scalar")


def library(block, room):
    """The library's bytes of a block; None if it refuses."""
    try:
        return lz4.block.decompress(block, uncompressed_size=room)
    except lz4.block.LZ4BlockError:
        return None


def offsets_of_zero(block):
    """Whether a match of a block has the offset 0, which the library takes and the format forbids."""
    at = 0
    while at < len(block):
        token, at = block[at], at + 1
        counts = []
        for half in (token >> 4, token & 15):
            while half >= 15 and at < len(block):
                half, at = half + block[at], at + 1
                if block[at - 1] < 255:
                    break
            counts.append(half)
            if len(counts) == 1:
                at += half
                if at + 1 < len(block) and block[at : at + 2] == b"\0\0":
                    return True
                at += 2
    return False


def test_the_rules_are_the_librarys(rng):
    """It refuses nothing that keeps them; of damaged blocks it accepts few that break one, by its shortcuts."""
    right = wrong = more = 0
    for _ in range(150):
        p = int(rng.choice([13, 20, 64, 300, 2000]))
        block = written(p, rng) if rng.random() < 0.5 else encoded(page(str(rng.choice(PAGES)), p, rng).tobytes())
        room = p + int(rng.choice([0, 0, 1, 5, 12, 100]))
        assert fault(block, room) == -1
        for changed in (block, *damaged(block, rng)):
            said, theirs = fault(changed, room), library(changed, room)
            assert -1 <= said < max(len(changed), 1)
            if theirs is None:
                assert said >= 0, (changed, room)
                wrong += 1
            else:
                right += said < 0
                more += said >= 0 and not offsets_of_zero(changed)
    assert right > 150 and wrong > 300 and more < 30


@pytest.mark.parametrize("backend", BACKENDS)
def test_decoders_agree_with_the_library(backend, rng):
    p = int(rng.choice([13, 100, 700]))
    blocks = [written(p, rng) for _ in range(20)]
    blocks += [b for block in blocks[:5] for b in damaged(block, rng) if b]
    with trueno.use(backend):
        y, lengths = trueno.lz4_decompress(*laid([(b, len(b)) for b in blocks], rng), page=p)
    for block, row, length in zip(blocks, y, lengths, strict=True):
        want = library(block, p)
        if length >= 0:
            assert want is not None and row[:length].tobytes() == want and not row[length:].any()
        else:
            assert not row.any() and -1 - length == fault(block, p)
    assert (lengths[:20] == p).all() and (lengths[20:] < 0).any()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("level", [1, 2])
def test_encoders_come_near_the_library(backend, level, rng):
    x = pages(24, 4096, rng)
    with trueno.use(backend):
        blocks, sizes = trueno.lz4_compress(x, level=level)
    theirs = [min(len(lz4.block.compress(row.tobytes(), store_size=False)), 4096) for row in x]
    assert np.abs(sizes).sum() < 1.3 * sum(theirs) / level**0.1
    assert not judge_structured(TABLE["lz4_compress"], [x], {"level": level}, np.float32, [blocks[::-1], sizes])


def judged(x, blocks, sizes):
    return str(judge_structured(TABLE["lz4_compress"], [x], {"level": 1}, np.float32, [blocks, np.array(sizes)]))


def test_the_judge_finds_each_fault(rng):
    x = np.concatenate([np.zeros((1, 64), np.uint8), rng.integers(0, 256, (1, 64), np.uint8)])
    blocks, sizes = trueno.lz4_compress(x)
    size = int(sizes[0])
    assert judged(x, blocks, sizes).startswith("right")
    assert "neither -64 (raw) nor a block" in judged(x, blocks, [0, -64])
    assert "neither -64 (raw) nor a block" in judged(x, blocks, [size, -63])
    assert "page 0 of 64 bytes is raw, and the library's block has" in judged(x, x, [-64, -64])
    for at, words in ((size + 1, "is behind its block"), (3, "breaks a rule")):
        changed = blocks.copy()
        changed[0, at] = 9
        assert words in judged(x, changed, sizes) or "does not decode" in judged(x, changed, sizes)
    other = blocks.copy()
    other[1, 5] ^= 1
    assert "its bytes are not those of x" in judged(x, other, sizes)
    ends = np.zeros((1, 64), np.uint8)
    ends[0, :6] = np.frombuffer(b"\x1f\x00\x01\x00\x2c\x00", np.uint8)  # a match up to the last byte
    assert "breaks a rule of the format" in judged(x[:1], ends, [6])


@pytest.mark.parametrize(
    "call, error, words",
    [
        (lambda x: trueno.lz4_compress(x.astype(np.float32)), DtypeError, "x is float32; give a uint8 array"),
        (lambda x: trueno.lz4_compress(x[0]), ShapeError, r"x\[n,p\] needs 2 dimensions, got shape \(20,\)"),
        (lambda x: trueno.lz4_compress(x[:, :0]), ShapeError, "p is 0, but 1 <= p <= 65536 must hold"),
        (lambda x: trueno.lz4_compress(np.zeros((1, 65537), np.uint8)), ShapeError, "p is 65537"),
        (lambda x: trueno.lz4_compress(x, level=3), ParameterError, "level is 3; it must be 1 or 2"),
        (lambda x: trueno.lz4_decompress(x[0], [0], [4], page=0), ParameterError, "page is 0, but 1 <= page <= 65536"),
        (lambda x: trueno.lz4_decompress(x[0], [0], [4], page=1 << 17), ParameterError, "page is 131072"),
        (lambda x: trueno.lz4_decompress(x[0], [0, 1], [4]), ShapeError, r"sizes\[n\] is 1, but offsets\[n\] is 2"),
        (lambda x: trueno.lz4_decompress(bytes(9), [0], [4]), DtypeError, "packed is bytes; give a uint8 array"),
        (lambda x: trueno.lz4_pack(x, np.array([1])), ShapeError, r"give blocks\[n,p\] and sizes\[n\]"),
        (lambda x: trueno.lz4_pack(x, np.array([1, 2, 21])), ParameterError, r"sizes\[2\] is 21; .* give -20 to 20"),
        (lambda x: trueno.lz4_pack(x, np.array([1, -(1 << 63), 2])), ParameterError, r"sizes\[1\] is -9223372036"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("backend", BACKENDS)
def test_bad_operands_are_named(backend, call, error, words):
    with trueno.use(backend), pytest.raises(error, match=words):
        call(np.zeros((3, 20), np.uint8))


def test_without_the_package_there_is_a_remedy(monkeypatch):
    from trueno.formats import lz4 as own
    from trueno.lz4 import header

    remedy = re.escape(install("lz4"))
    for functions in (own.library, header.hashing):
        functions.cache_clear()
    monkeypatch.setitem(__import__("sys").modules, "lz4.block", None)
    monkeypatch.setitem(__import__("sys").modules, "xxhash", None)
    try:
        with pytest.raises(trueno.BackendUnavailable, match=rf"not installed .* Install: {remedy}"):
            own.library()
        with pytest.raises(trueno.BackendUnavailable, match=rf"xxhash is not installed .* {remedy}"):
            trueno.lz4.compress(b"x")
        with trueno.use("reference"), pytest.raises(trueno.KernelError, match=remedy):
            trueno.lz4_compress(np.zeros((2, 30), np.uint8))
        with trueno.use("scalar"):
            blocks, sizes = trueno.lz4_compress(np.zeros((2, 30), np.uint8))
            assert np.array_equal(trueno.lz4_decompress(*trueno.lz4_pack(blocks, sizes), sizes, page=30)[1], [30, 30])
    finally:
        for functions in (own.library, header.hashing):
            functions.cache_clear()
