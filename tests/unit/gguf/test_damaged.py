"""Files that lie: whatever the bytes, opening one is right or a FileError, and takes memory as the file has bytes."""

import os
import struct
import tracemalloc
from math import prod

import numpy as np
import pytest
import trueno
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from trueno.gguf.file import READ
from unit.gguf.files import ARCH, SEED, blocks, info, key, raw_file, text

LIES = (0, 1, 31, 2**16, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**59, 2**60, 2**61, 2**62, 2**63 - 1, 2**63, 2**64 - 1)
ROOM = 200_000
"""Bytes that Python takes whatever the file is: names of types, error messages."""
EACH = 100
"""Bytes of Python objects for a byte of the file: a key of 14 bytes is a text, a tuple and a place in a table."""


def everything(path):
    """The open file, each of its keys and tensors read once."""
    file = trueno.gguf.open(path)
    assert all(file.metadata[name] is not None for name in file.metadata)
    for name, t in file.tensors.items():
        assert t.nbytes <= path.stat().st_size
        if t.type in READ:
            assert prod(file[name].shape) == prod(t.shape)
        else:
            with pytest.raises(trueno.DtypeError, match="which cannot be read here"):
                file[name]
    return file


@pytest.fixture
def opened(tmp_path):
    """Writes bytes, opens them and reads all that is there: the open file, or None where it is refused."""
    path = tmp_path / "x.gguf"
    trueno.gguf.write(path, {"q": blocks("q4_k")}, ARCH)
    trueno.gguf.open(path)["q"]  # what is loaded once is loaded

    def read(raw):
        path.write_bytes(raw)
        file, said = None, str(path)
        tracemalloc.start()
        try:
            file = everything(path)
        except trueno.FileError as error:
            said = str(error)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert str(path) in said
        assert peak < ROOM + EACH * len(raw), f"{peak} bytes for a file of {len(raw)}: {raw!r}"
        return file

    return read


def honest():
    """A small file with a bit of everything."""
    words = struct.pack("<IQ", 8, 3) + text("a") + text("Straße") + text("")
    keys = [
        key("general.architecture", 8, text("llama")), key("n", 4, struct.pack("<I", 7)), key("yes", 7, b"\1"),
        key("words", 9, words), key("many", 9, struct.pack("<IQ3h", 3, 3, -1, 2, 3)),
        key("d", 12, struct.pack("<d", 0.1)),
    ]  # fmt: skip
    tensors = [info("blk.0.w", (256, 2), 12, 0), info("x", (2, 3, 4), 0, 288), info("h", (5,), 1, 384)]
    return raw_file(keys, tensors, np.random.default_rng(SEED).integers(0, 256, 394, np.uint8).tobytes())


def test_the_honest_file_is_read(opened):
    file = opened(honest())
    assert file.metadata["words"] == ["a", "Straße", ""] and file["blk.0.w"].shape == (2, 256)
    assert [t.shape for t in file.tensors.values()] == [(2, 256), (4, 3, 2), (5,)]


def test_cut_anywhere(opened):
    raw = honest()
    for size in range(len(raw)):
        assert opened(raw[:size]) is None, size


@pytest.mark.parametrize("flip", [1, 2, 4, 8, 16, 32, 64, 128, 255])
def test_any_byte_of_the_header_changed(opened, flip):
    raw = honest()
    head = raw.index(b"h", raw.index(b"blk.0.w") + 60) + 40
    for at in range(head):
        opened(raw[:at] + bytes([raw[at] ^ flip]) + raw[at + 1 :])


def test_many_bytes_changed(opened):
    raw = np.frombuffer(honest(), np.uint8)
    for seed in range(SEED, SEED + 400):
        rng, lying = np.random.default_rng(seed), raw.copy()
        at = rng.integers(0, 330, rng.integers(1, 12))
        lying[at] = rng.choice([0, 1, 8, 9, 127, 128, 255, *rng.integers(0, 256, 3)], len(at))
        print("seed", seed)
        opened(lying.tobytes())


@pytest.mark.parametrize("size", [0, 1, 3, 4, 8, 24, 25, 100, 5000])
def test_noise(opened, size):
    for seed in range(SEED, SEED + 20):
        noise = np.random.default_rng(seed).integers(0, 256, size, np.uint8).tobytes()
        print("seed", seed)
        assert opened(noise) is None
        opened(b"GGUF" + struct.pack("<IQQ", 3, 1, 1) + noise)


@pytest.mark.parametrize("count", LIES[2:], ids=hex)
def test_counts_and_lengths_that_lie(opened, count):
    long = struct.pack("<Q", count)
    assert opened(raw_file(counts=(count, 0))) is None
    assert opened(raw_file(counts=(0, count))) is None
    assert opened(raw_file([long + b"name"], counts=(0, 1))) is None
    assert opened(raw_file([key("s", 8, long + b"text")])) is None
    for kind in range(15):
        assert opened(raw_file([key("a", 9, struct.pack("<I", kind) + long)]) + bytes(20)) is None
    assert opened(raw_file([key("a", 9, struct.pack("<IQ", 8, 2) + text("x") + long + b"y")])) is None
    assert opened(raw_file([], [long + b"name" + bytes(40)])) is None


@pytest.mark.parametrize("n", LIES[3:], ids=hex)
def test_dimensions_and_offsets_that_lie(opened, n):
    data = bytes(256)
    for kind in (0, 1, 2, 12, 24, 28, 30):
        for shape in ((n,), (256, n), (n, 256), (n, n), (n, n, n, n), (256, 2**63, 2), (2**32, 2**32), (2**62, 4)):
            assert opened(raw_file([], [info("x", shape, kind, 0)], data)) is None, (shape, kind)
    assert opened(raw_file([], [info("x", (4,), 0, n)], data)) is None
    for shape in ((n, 0), (0, n), (0, n, n), (256, n, 0, n)):  # empty, and yet not every number will do
        file = opened(raw_file([], [info("x", shape, 0, 0)], data))
        assert (file is None) == (prod(max(i, 1) for i in shape) > 2**59)


@pytest.mark.parametrize("ndim", [5, 6, 255, 2**31, 2**32 - 1])
def test_too_many_dimensions(opened, ndim):
    assert opened(raw_file([], [text("x") + struct.pack("<I", ndim) + bytes(100)])) is None


def refused(store, raw, said):
    with pytest.raises(trueno.FileError) as error:
        trueno.gguf.open(store(raw))
    assert said in str(error.value) and ", at byte " in str(error.value)


X = (info("x", (4,), 0, 0), info("y", (4,), 0, 32))


@pytest.mark.parametrize(
    "raw, said",
    [
        (raw_file(magic=b"GGML"), "it begins with b'GGML', not b'GGUF'"),
        (raw_file(magic=b"FUGG"), "it begins with b'FUGG'"),
        (b"GG", "it begins with b'GG'"),
        (b"GGUF", "the version needs 4 bytes, but 0 are left"),
        (raw_file(version=1), "version 1: versions 2 and 3 can be read"),
        (raw_file(version=4), "version 4"),
        (raw_file(version=0), "version 0"),
        (raw_file(version=3 << 24), "big-endian files cannot be read"),
        (raw_file(version=2 << 24), "big-endian files cannot be read"),
        (raw_file([key("a", 4, bytes(4))] * 2), "the key 'a' appears twice"),
        (raw_file([key("", 4, bytes(4))]), "a key has no name"),
        (raw_file([key(b"\xff", 4, bytes(4))]), "a key is not UTF-8"),
        (raw_file([key("a", 8, text(b"ab\xc3"))]), "'a' has a text that is not UTF-8"),
        (raw_file([key("a", 9, struct.pack("<IQ", 8, 2) + text("é") + text(b"\x80"))]),
         "'a' has a text that is not UTF-8"),
        (raw_file([key("a", 13, bytes(9))]), "'a' has the unknown type 13"),
        (raw_file([key("a", 9, struct.pack("<IQ", 13, 0))]), "'a' has the unknown type 13"),
        (raw_file([key("a", 9, struct.pack("<IQ", 9, 0))]), "'a' is an array of arrays"),
        (raw_file([key("a", 9, struct.pack("<IQ", 9, 1) * 1000)]), "'a' is an array of arrays"),
        (raw_file([key("general.alignment", 4, struct.pack("<I", 24))]), "general.alignment is 24"),
        (raw_file([key("general.alignment", 4, bytes(4))]), "general.alignment is 0"),
        (raw_file([key("general.alignment", 10, struct.pack("<Q", 32))]), "general.alignment has the type 10"),
        (raw_file([], [info("x", (4,), 0, 0)] * 2, bytes(32)), "the tensor 'x' appears twice"),
        (raw_file([], [info(b"\xfe", (4,), 0, 0)], bytes(32)), "a tensor's name is not UTF-8"),
        (raw_file([], [info("x", (4,), 4, 0)], bytes(32)), "tensor 'x' has the type 4, one that ggml has removed"),
        (raw_file([], [info("x", (4,), 99, 0)], bytes(32)), "tensor 'x' has the type 99, an unknown one"),
        (raw_file([], [info("x", (255,), 12, 0)], bytes(144)),
         "tensor 'x' has rows of 255 elements, but blocks of 256"),
        (raw_file([], [info("x", (4,), 0, 4)], bytes(64)), "tensor 'x' is at offset 4, which is not a multiple of 32"),
        (raw_file([], [info("x", (9,), 0, 0), X[1]], bytes(64)), "tensors 'x' and 'y' share bytes"),
        (raw_file([], [info("x", (4,), 0, 32), X[1]], bytes(64)), "tensors 'x' and 'y' share bytes"),
        (raw_file([], X, bytes(47)), "tensor 'y' ends at byte "),
        (raw_file([], X, bytes(32)), "tensor 'y' ends at byte "),
    ],
    ids=lambda v: v[:40] if isinstance(v, str) else "",
)  # fmt: skip
def test_says_what_is_wrong_and_where(store, raw, said):
    refused(store, raw, said)


def test_what_is_unusual_but_true_is_read(opened):
    far = [info("y", (4,), 0, 4096), info("x", (4,), 0, 0), info("empty", (0,), 0, 2**40), info("none", (32, 0), 2, 0)]
    file = opened(raw_file([], far, bytes(4096 + 16)))
    assert list(file) == ["y", "x", "empty", "none"] and file["empty"].shape == (0,) and file["none"].shape == (0, 32)
    assert opened(raw_file([key("GGUF.version", 4, bytes(4))])).metadata["GGUF.version"] == 0
    assert opened(raw_file(version=2)) is not None
    assert opened(raw_file() + b"more") is not None
    assert opened(raw_file([key("yes", 7, b"\2")])).metadata["yes"] is True
    assert list(opened(raw_file([], [info("", (4,), 0, 0)], bytes(16)))) == [""]


number = st.one_of(st.sampled_from(LIES), st.integers(0, 300))
small = st.integers(0, 3)
value = st.one_of(
    st.tuples(st.integers(0, 14), st.binary(max_size=20)),
    st.builds(
        lambda kind, n, raw: (9, struct.pack("<IQ", kind, n) + raw), st.integers(0, 13), number, st.binary(max_size=40)
    ),
    st.builds(
        lambda words: (9, struct.pack("<IQ", 8, len(words)) + b"".join(map(text, words))),
        st.lists(st.binary(max_size=5)),
    ),
)
some_key = st.builds(lambda name, v: key(name, *v), st.one_of(st.text(max_size=4), st.just("general.alignment")), value)
shape = st.lists(st.one_of(number, st.sampled_from([32, 256, 512])), max_size=5)
offset = st.one_of(number, st.integers(0, 20).map(lambda n: 32 * n))
some_info = st.builds(info, st.text(max_size=3), shape, st.integers(0, 45), offset)


@settings(max_examples=600, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_any_header(opened, data):
    keys, tensors = data.draw(st.lists(some_key, max_size=4)), data.draw(st.lists(some_info, max_size=4))
    counts = data.draw(st.one_of(st.none(), st.tuples(number, number)))
    opened(raw_file(keys, tensors, data.draw(st.binary(max_size=1200)), counts=counts))


@pytest.mark.parametrize("what", ["tensor", "raw", "rows", "blocks", "key"])
@pytest.mark.skipif(os.name == "nt", reason="Windows does not cut off a file that is mapped")
def test_a_file_that_is_cut_off_while_it_is_open(store, what):
    """The system would end the process at the first page that is gone."""
    many = struct.pack("<IQ", 4, 100_000) + bytes(400_000)
    tensors = [info("x", (64, 100_000), 0, 0), info("q", (256, 1000), 12, 25_600_000)]
    path = store(raw_file([key("many", 9, many)], tensors, bytes(25_600_000 + 144_000)))
    file = trueno.gguf.open(path)
    x = file.tensors["x"]
    assert file["x"].shape == (100_000, 64) and len(file.metadata["many"]) == 100_000
    os.truncate(path, 100)
    with pytest.raises(trueno.FileError, match=r"x\.gguf: .* but the file was cut to 100 bytes") as caught:
        {
            "tensor": lambda: file["x"].sum(),
            "raw": lambda: x.raw.sum(),
            "rows": lambda: x.rows(5, 9).sum(),
            "blocks": lambda: file["q"].bytes.sum(),
            "key": lambda: file.metadata["many"],
        }[what]()
    assert ("'many'" if what == "key" else "'q'" if what == "blocks" else "'x'") in str(caught.value)


@pytest.mark.parametrize(
    "keys, tensors, said", [(2**16 + 1, 0, "65537 keys; up to 65536"), (0, 2**17 + 1, "131073 tensors; up to 131072")]
)
def test_more_entries_than_any_model_has_are_refused_at_once(opened, store, keys, tensors, said):
    raw = raw_file(counts=(tensors, keys)) + bytes(24 * max(keys, tensors))
    refused(store, raw, said)
    assert opened(raw) is None


def test_what_a_key_takes_in_memory(store):
    """As many keys, and as many tensors, as there may be."""
    names = [f"{i:x}" for i in range(2**16)]
    path = store(raw_file([key(n, 7, b"\1") for n in names], [info(n, (), 0, 0) for n in names], bytes(4 * 2**16)))
    tracemalloc.start()
    with pytest.raises(trueno.FileError, match="share bytes"):
        trueno.gguf.open(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2**17 * 500


def test_long_names_are_refused(store):
    refused(store, raw_file([key("k" * 2**16, 7, b"\1")]), "a key has 65536 bytes; up to 65535")
    refused(store, raw_file([], [info("t" * 2**16, (), 0, 0)], bytes(4)), "a tensor's name has 65536 bytes")
    assert list(trueno.gguf.open(store(raw_file([key("k" * (2**16 - 1), 7, b"\1")]))).metadata) == ["k" * (2**16 - 1)]


def test_a_misspelt_name_is_compared_with_few(store, monkeypatch):
    import difflib

    compared = []
    near = difflib.get_close_matches
    monkeypatch.setattr(
        difflib, "get_close_matches", lambda w, known, **how: compared.append(len(known)) or near(w, known, **how)
    )
    names = [f"blk.{i}.some.key.of.a.layer" for i in range(2**16 - 1)]
    file = trueno.gguf.open(store(raw_file([key(n, 7, b"\1") for n in ["general.name", *names]])))
    with pytest.raises(KeyError, match=r'did you mean "general\.name"'):
        file.metadata["general.nam"]
    with pytest.raises(KeyError, match="no key"):
        file.metadata["n" * 10**6]
    assert compared == [4096]
