"""What is written is read back, and what the `gguf` package says of a file is what is read: tensors and keys."""

import os
import struct
import subprocess
import sys

import gguf
import numpy as np
import pytest
import trueno
from trueno.formats import FORMATS
from trueno.gguf.header import FIXED
from trueno.remedies import install
from unit.gguf.files import ARCH, SEED, blocks, info, key, raw_file, text

PLAIN = {
    "f32": np.float32, "f16": np.float16, "f64": np.float64,
    "i8": np.int8, "i16": np.int16, "i32": np.int32, "i64": np.int64,
}  # fmt: skip
SHAPES = [(5,), (3, 4), (2, 3, 4), (2, 1, 3, 4), (0,), (3, 0), (0, 4), (2, 0, 4)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("kind", PLAIN)
def test_arrays_come_back(tmp_path, kind, shape):
    x = (np.random.default_rng(SEED).standard_normal(shape) * 50).astype(PLAIN[kind])
    trueno.gguf.write(tmp_path / "x.gguf", {"before": x, "x": x[..., ::-1], "after": x}, ARCH)
    with trueno.gguf.open(tmp_path / "x.gguf") as file:
        t = file.tensors["x"]
        assert (t.name, t.type, t.shape, t.nbytes) == ("x", kind, shape, x.nbytes)
        assert file["x"].dtype == x.dtype and np.array_equal(file["x"], x[..., ::-1])
        assert np.array_equal(file["before"], x) and np.array_equal(file["after"], x)


@pytest.mark.parametrize("kind", [">f4", ">f8", ">i2", ">i8"])
def test_big_endian_arrays_are_written_little(tmp_path, kind):
    x = np.arange(6, dtype=kind)
    trueno.gguf.write(tmp_path / "x.gguf", {"x": x}, ARCH)
    assert np.array_equal(trueno.gguf.open(tmp_path / "x.gguf")["x"], x)


@pytest.mark.parametrize("shape", [(3, 2), (0, 2), (3, 0)], ids=str)
@pytest.mark.parametrize("name", FORMATS)
def test_quantized_matrices_come_back(tmp_path, name, shape):
    q = blocks(name, *shape)
    trueno.gguf.write(tmp_path / "q.gguf", {"q": q}, ARCH)
    with trueno.gguf.open(tmp_path / "q.gguf") as file:
        assert file["q"] == q and file.tensors["q"].shape == q.shape
        again = dict(file.tensors)
        trueno.gguf.write(tmp_path / "again.gguf", again, file.metadata)
    assert (tmp_path / "again.gguf").read_bytes() == (tmp_path / "q.gguf").read_bytes()


@pytest.mark.parametrize("shape", [(64,), (4, 64), (2, 3, 64), (2, 1, 3, 64), (0, 64), (2, 3, 0)], ids=str)
def test_stacks_of_blocks_are_matrices_of_all_their_rows(store, shape):
    count = int(np.prod(shape)) // 32 * 34
    data = np.random.default_rng(SEED).integers(0, 256, count, np.uint8).tobytes()
    path = store(raw_file([], [info("q", shape[::-1], 8, 0)], data))
    with trueno.gguf.open(path) as file:
        q = file["q"]
        assert file.tensors["q"].shape == shape
        assert q.shape == (int(np.prod(shape[:-1])), shape[-1]) and q.bytes.tobytes() == data


def test_every_bfloat16_is_read_exactly(store):
    every = np.arange(1 << 16, dtype="<u2")
    with trueno.gguf.open(store(raw_file([], [info("x", (256, 256), 30, 0)], every.tobytes()))) as file:
        assert file["x"].dtype == np.float32 and file["x"].shape == (256, 256)
        assert np.array_equal(file["x"].view(np.uint32).ravel(), every.astype(np.uint32) << 16)


@pytest.mark.parametrize(
    "kind", [k for k in gguf.GGMLQuantizationType if k.name.lower() not in {*FORMATS, *PLAIN, "bf16"}]
)
def test_types_without_a_decoder_are_bytes(store, kind):
    elements, nbytes = gguf.GGML_QUANT_SIZES[kind]
    data = np.random.default_rng(SEED).integers(0, 256, 2 * nbytes, np.uint8).tobytes()
    name = kind.name.lower()
    path = store(raw_file([key("general.architecture", 8, text("x"))], [info("x", (elements, 2), kind, 0)], data))
    with trueno.gguf.open(path) as file:
        assert "x" in file and file.tensors["x"].type == name and file.tensors["x"].raw.tobytes() == data
        with pytest.raises(trueno.DtypeError, match=rf"tensor 'x' is in {name}, which cannot be read here.*\.raw"):
            file["x"]
        trueno.gguf.write(path.with_name("y"), file.tensors, file.metadata)
    assert path.with_name("y").read_bytes()[: path.stat().st_size] == path.read_bytes()


def test_a_tensor_without_dimensions_is_one_number(store):
    with trueno.gguf.open(store(raw_file([], [info("x", (), 0, 0)], struct.pack("<f", 2.5)))) as file:
        assert file["x"].tolist() == [2.5]


@pytest.mark.parametrize("alignment", [1, 2, 8, 64, 4096])
def test_other_alignments_are_kept(tmp_path, alignment):
    x, path = np.arange(3, dtype=np.float32), tmp_path / "x.gguf"
    odd = np.arange(5, dtype=np.int8)
    trueno.gguf.write(path, {"odd": odd, "x": x}, ARCH | {"general.alignment": alignment})
    with trueno.gguf.open(path) as file:
        assert file.alignment == alignment and np.array_equal(file["odd"], odd)
        assert np.array_equal(file["x"], x) and file["x"].flags.aligned
        assert [t.data_offset % alignment for t in gguf.GGUFReader(path).tensors] == [0, 0]


VALUES = {
    0: [0, 255], 1: [-128, 127], 2: [0, 65535], 3: [-32768, 32767], 4: [0, 2**32 - 1], 5: [-(2**31), 2**31 - 1],
    6: [0.5, -np.inf, float(np.finfo("f4").max), 1e-45], 7: [True, False], 10: [0, 2**64 - 1],
    11: [-(2**63), 2**63 - 1], 12: [0.1, -1e300, 5e-324], 8: ["", "word", "Straße\n漢字 🙂", "\0"],
}  # fmt: skip


def packed(kind, value):
    return text(value) if kind == 8 else np.array(value, FIXED[kind]).tobytes()


def every_key():
    """A key of every type, and arrays of them, none, one and more."""
    found = [key("general.name", 8, text("first")), key("general.architecture", 8, text("x"))]
    for kind, values in VALUES.items():
        found += [key(f"one.{kind}.{i}", kind, packed(kind, v)) for i, v in enumerate(values)]
        for some in ([], values[:1], values):
            items = b"".join(packed(kind, v) for v in some)
            found.append(key(f"many.{kind}.{len(some)}", 9, struct.pack("<IQ", kind, len(some)) + items))
    return found


def test_keys_of_every_type_are_read_as_they_are_and_copied_byte_for_byte(store, tmp_path):
    path = store(raw_file(every_key(), [info("x", (2,), 0, 0)], bytes(32)))
    with trueno.gguf.open(path) as file:
        for kind, values in VALUES.items():
            for i, v in enumerate(values):
                got = file.metadata[f"one.{kind}.{i}"]
                assert got == packed_and_back(kind, v) and type(got) is type(v)
                assert file.metadata.types(f"one.{kind}.{i}") == (kind, None)
            assert file.metadata[f"many.{kind}.0"] == []
            assert file.metadata[f"many.{kind}.{len(values)}"] == [packed_and_back(kind, v) for v in values]
            assert file.metadata.types(f"many.{kind}.0") == (9, kind)
        trueno.gguf.write(tmp_path / "y", file.tensors, file.metadata)
    assert (tmp_path / "y").read_bytes() == path.read_bytes()


def packed_and_back(kind, value):
    return value if kind == 8 else np.array(value, FIXED[kind]).item()


def test_nan_keeps_its_bits(store, tmp_path):
    raw = struct.pack("<I", 0x7FC12345)
    many = struct.pack("<IQ", 6, 1) + raw
    path = store(raw_file([key("general.architecture", 8, text("x")), key("n", 6, raw), key("m", 9, many)]))
    with trueno.gguf.open(path) as file:
        trueno.gguf.write(tmp_path / "y", {}, file.metadata)
    assert (tmp_path / "y").read_bytes() == path.read_bytes()


def test_the_package_reads_the_same(store):
    path = store(raw_file(every_key(), [info("x", (4, 3), 0, 0), info("q", (32, 2), 2, 64)], bytes(range(128))))
    reader = gguf.GGUFReader(path)
    with trueno.gguf.open(path) as file:
        fields = {name: f for name, f in reader.fields.items() if not name.startswith("GGUF.")}
        assert list(file.metadata) == list(fields)
        assert dict(file.metadata) == {name: f.contents() for name, f in fields.items()}
        for name, f in fields.items():
            assert [int(t) for t in f.types] == [t for t in file.metadata.types(name)[: len(f.types)] if t is not None]
        assert list(file) == [t.name for t in reader.tensors]
        for t in reader.tensors:
            assert file.tensors[t.name].raw.tobytes() == t.data.tobytes()
            assert file.tensors[t.name].shape == tuple(int(n) for n in t.shape[::-1])


def test_the_package_wrote_it(tmp_path):
    writer = gguf.GGUFWriter(tmp_path / "x.gguf", "qwen2")
    writer.add_uint32("qwen2.block_count", 2)
    writer.add_array("tokens", ["a", "b c"])
    x = np.arange(64, dtype=np.float32).reshape(2, 32)
    writer.add_tensor("x", x)
    writer.add_tensor(
        "q", gguf.quants.quantize(x, gguf.GGMLQuantizationType.Q8_0), raw_dtype=gguf.GGMLQuantizationType.Q8_0
    )
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with trueno.gguf.open(tmp_path / "x.gguf") as file:
        assert dict(file.metadata) == {"general.architecture": "qwen2", "qwen2.block_count": 2, "tokens": ["a", "b c"]}
        assert np.array_equal(file["x"], x) and file["q"].shape == (2, 32)
        trueno.gguf.write(tmp_path / "y.gguf", file.tensors, file.metadata)
    assert (tmp_path / "y.gguf").read_bytes() == (tmp_path / "x.gguf").read_bytes()


def test_tensors_are_mapped_and_read_only(tmp_path):
    path = tmp_path / "x.gguf"
    trueno.gguf.write(path, {"x": np.ones((4, 32), np.float32), "q": blocks("q4_k")}, ARCH)
    with trueno.gguf.open(path) as file:
        assert np.shares_memory(file["x"], file.tensors["x"].raw)
        assert np.shares_memory(file["q"].bytes, file.tensors["q"].raw)
        assert np.shares_memory(file["q"][1:].bytes, file["q"].bytes)
        for array in (file["x"], file["q"].bytes, file.tensors["x"].raw):
            with pytest.raises(ValueError, match="read-only"):
                array[0] = 0


@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="needs /proc to see what is resident")
def test_opening_reads_the_header_alone(tmp_path):
    """200 MB of a file are not 200 MB of memory."""
    path = tmp_path / "big.gguf"
    path.write_bytes(raw_file([], [info("x", (50_000_000,), 0, 0)], bytes(32)))
    os.truncate(path, path.stat().st_size + 200_000_000)
    code = (
        "import sys, trueno.gguf as g\n"
        "def resident(): return int(open('/proc/self/statm').read().split()[1]) * 4096\n"
        "g.open(sys.argv[2]).close()\n"
        "before = resident(); f = g.open(sys.argv[1]); x = f['x']; y = x[::1000000].sum()\n"
        "print(x.nbytes, resident() - before)"
    )
    small = tmp_path / "small.gguf"
    small.write_bytes(raw_file())
    done = subprocess.run(
        [sys.executable, "-c", code, str(path), str(small)], capture_output=True, text=True, check=True
    )
    size, grown = map(int, done.stdout.split())
    assert size == 200_000_000 and grown < 50_000_000


def test_a_closed_file_says_so_and_arrays_outlive_it(tmp_path):
    trueno.gguf.write(tmp_path / "x.gguf", {"x": np.arange(5, dtype=np.int32)}, ARCH)
    file = trueno.gguf.open(tmp_path / "x.gguf")
    x = file["x"]
    assert "1 tensors, 1 keys" in repr(file) and "1 keys" in repr(file.metadata)
    file.close()
    file.close()
    with pytest.raises(trueno.FileError, match=r"x\.gguf: the file is closed"):
        file["x"]
    assert len(file) == 0 and not file.metadata and "closed" in repr(file)
    assert x.tolist() == [0, 1, 2, 3, 4]


def test_unknown_names_come_with_a_suggestion(tmp_path):
    trueno.gguf.write(tmp_path / "x.gguf", {"blk.0.ffn_down.weight": np.ones(3, np.float32)}, ARCH)
    with trueno.gguf.open(tmp_path / "x.gguf") as file:
        with pytest.raises(KeyError) as caught:
            file["blk.0.fn_down.weight"]
        end = "x.gguf: no tensor 'blk.0.fn_down.weight'; did you mean \"blk.0.ffn_down.weight\"?"
        assert caught.value.args[0].endswith(end)
        with pytest.raises(KeyError) as caught:
            file.metadata["general.architektur"]
        assert caught.value.args[0] == "no key 'general.architektur'; did you mean \"general.architecture\"?"
        with pytest.raises(KeyError):
            file[3]
        assert "x" not in file and file.get("x") is None and file.metadata.get("y", 3) == 3
        assert next(iter(file)) == "blk.0.ffn_down.weight" and len(file) == 1


@pytest.mark.parametrize("make", ["missing", "folder", "empty", "fifo"])
def test_what_is_no_file_is_a_file_error(tmp_path, make):
    path = tmp_path / "x.gguf"
    if make == "folder":
        path.mkdir()
    elif make == "empty":
        path.touch()
    elif make == "fifo":
        if not hasattr(os, "mkfifo"):
            pytest.skip("no named pipes here")
        os.mkfifo(path)
    with pytest.raises(trueno.FileError, match=r"x\.gguf: "):
        trueno.gguf.open(path)


def test_a_file_that_may_not_be_read(tmp_path):
    path = tmp_path / "x.gguf"
    path.write_bytes(raw_file())
    path.chmod(0)
    if os.access(path, os.R_OK):
        pytest.skip("this user may read everything")
    with pytest.raises(trueno.FileError, match=r"x\.gguf: Permission denied"):
        trueno.gguf.open(path)


def test_without_the_package_a_sentence_says_what_to_install(tmp_path):
    path = tmp_path / "x.gguf"
    path.write_bytes(raw_file())
    code = (
        "import sys\n"
        "class No:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'gguf': raise ModuleNotFoundError(\"No module named 'gguf'\", name=name)\n"
        "sys.meta_path.insert(0, No())\n"
        "import trueno, numpy as np\n"
        "for call in (lambda: trueno.gguf.open(sys.argv[1]),\n"
        "             lambda: trueno.gguf.write(sys.argv[1] + 'y', {}, {'general.architecture': 'x'}),\n"
        "             lambda: trueno.gguf.convert(sys.argv[1], sys.argv[1] + 'y', 'q8_0')):\n"
        "    try: call()\n"
        "    except trueno.BackendUnavailable as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True)
    said = "gguf: the package is not installed (No module named 'gguf'). Install: "
    assert done.stdout == 3 * f"{said}{install('gguf')}\n"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["x.gguf"]


@pytest.mark.parametrize("shape", [(32, 0), (256, 0), (256, 0, 3), (256, 3, 0)])
@pytest.mark.parametrize("kind", [0, 1, 12, 30])
def test_rows_of_a_tensor_without_rows(store, shape, kind):
    """Kinds: f32, f16, q4_k, bf16."""
    if kind == 12 and shape[0] == 32:
        return  # no whole block
    t = trueno.gguf.open(store(raw_file([], [info("x", shape, kind, 0)]))).tensors["x"]
    assert t.rows(0, 0).shape == t.rows(0, 5).shape == (0, shape[0])
    assert t.data.shape == ((0, shape[0]) if kind == 12 else shape[::-1])


def test_rows_of_a_type_without_a_decoder(store):
    with pytest.raises(trueno.DtypeError, match="which cannot be read here"):
        trueno.gguf.open(store(raw_file([], [info("x", (256,), 34, 0)], bytes(54)))).tensors["x"].rows(0, 1)


@pytest.mark.parametrize("path", ["a\0b", "\0", "a\udc00\0"])
def test_what_is_no_path_is_a_file_error(path):
    with pytest.raises(trueno.FileError, match="is not a path of a file"):
        trueno.gguf.open(path)
