"""Writing: a file appears whole or not at all; what cannot be written is refused by name."""

import errno
import os
import stat
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import trueno
from trueno.gguf import keys, package, writing
from unit.gguf.files import ARCH, blocks, key, raw_file, text

X = np.arange(64, dtype=np.float32).reshape(2, 32)


def inside(path):
    return sorted(p.name for p in Path(path).iterdir())


def test_python_values_get_the_types_that_hold_them(tmp_path):
    values = {
        "small": (7, 4), "negative": (-7, 5), "large": (2**40, 10), "very negative": (-(2**40), 11), "half": (0.5, 6),
        "huge": (1e300, 12), "inf": (-np.inf, 6), "yes": (True, 7), "word": ("é", 8), "none": ([], (9, 8)),
        "words": (["a", ""], (9, 8)), "bools": ([True, False], (9, 7)), "floats": ([1.0, np.inf, 0.25], (9, 6)),
        "wide floats": ([1.0, 1e300], (9, 12)), "counts": ([1, 2], (9, 4)), "signed": ([1, -2], (9, 5)),
        "wide": ([1, -(2**40)], (9, 11)), "long": ([1, 2**63], (9, 10)), "mixed": ([-1, 2**31], (9, 11)),
        "u8": (np.uint8(3), 0), "i8": (np.int8(-3), 1), "u16": (np.uint16(3), 2), "i16": (np.int16(-3), 3),
        "f4": (np.float32(0.1), 6), "f8": (np.float64(0.1), 12), "bool_": (np.bool_(True), 7),
        "str_": (np.str_("s"), 8),
        "array": (np.array([1, 2], np.int8), (9, 1)), "f8s": (np.array([0.1]), (9, 12)), "tuple": ((1, 2), (9, 4)),
        "big endian": (np.array([1, 2], ">u2"), (9, 2)), "bool array": (np.array([True]), (9, 7)),
        "no numbers": (np.array([], np.float32), (9, 6)), "numpy items": ([np.int64(1), 2], (9, 4)),
    }  # fmt: skip
    trueno.gguf.write(tmp_path / "x", {}, ARCH | {name: value for name, (value, _) in values.items()})
    with trueno.gguf.open(tmp_path / "x") as file:
        for name, (value, types) in values.items():
            assert file.metadata.types(name) == (types if isinstance(types, tuple) else (types, None)), name
            wanted = value.tolist() if isinstance(value, (np.ndarray, np.generic)) else value
            assert file.metadata[name] == (list(wanted) if isinstance(wanted, tuple) else wanted), name


def test_a_file_of_arrays_needs_no_metadata(tmp_path):
    path = tmp_path / "a.gguf"
    trueno.gguf.write(path, {"w": np.arange(3.0, dtype=np.float32)})
    with trueno.gguf.open(path) as file:
        assert file.metadata["general.architecture"] == "unknown" and file["w"].tolist() == [0, 1, 2]
    for wrong, said in (
        ((path, np.ones(3)), "tensors is ndarray; give a dict by name"),
        (({"w": np.ones(3)}, path), "path is dict; the order is write"),
        ((path, {}, "llama"), "metadata is str"),
    ):
        with pytest.raises(trueno.ParameterError, match=said):
            trueno.gguf.write(*wrong)


def test_functions_as_others_call_them():
    for module, name, ours in (
        (trueno.gguf, "load", "open"), (trueno.gguf, "save", "write"), (trueno.lz4, "loads", "decompress"),
    ):  # fmt: skip
        with pytest.raises(AttributeError, match=f"has no attribute '{name}'; its name here is {ours}$"):
            getattr(module, name)


@pytest.mark.parametrize(
    "value, said",
    [
        (None, "has NoneType"), ({}, "has dict"), (b"x", "has bytes"), (1j, "has complex"), ([[1]], "has list"),
        ([1, "a"], "has int, str"), ([1, 2.5], "has float, int"), ([True, 1], "has bool, int"),
        ([None], "has NoneType"),
        (2**64, "no 64-bit type can hold"), (-(2**63) - 1, "no 64-bit type can hold"),
        ([-1, 2**63], "no 64-bit type can hold"),
        ("\ud800", "a lone surrogate"), (["a", "\udfff"], "a lone surrogate"),
        (np.zeros((2, 2), np.int8), "int8 of shape (2, 2)"), (np.float16(1), "float16 of shape ()"),
        (np.array(["a"]), "<U1 of shape (1,)"), (np.array([None]), "object of shape (1,)"),
    ],
    ids=repr,
)  # fmt: skip
def test_other_values_are_refused_by_name(tmp_path, value, said):
    with pytest.raises(trueno.ParameterError) as error:
        trueno.gguf.write(tmp_path / "x", {}, ARCH | {"the.key": value})
    assert "'the.key'" in str(error.value) and said in str(error.value) and not inside(tmp_path)


@pytest.mark.parametrize("name", ["", 3, None, "\ud800"], ids=repr)
def test_keys_are_texts(tmp_path, name):
    with pytest.raises(trueno.ParameterError, match=r"gguf: the .*key"):
        trueno.gguf.write(tmp_path / "x", {}, ARCH | {name: 1})


@pytest.mark.parametrize("metadata", [{}, {"general.architecture": 3}, {"general.architecture": ["llama"]}], ids=repr)
def test_the_architecture_must_be_there(tmp_path, metadata):
    with pytest.raises(trueno.ParameterError, match=r"metadata\['general\.architecture'\] must say"):
        trueno.gguf.write(tmp_path / "x", {}, metadata)
    assert not inside(tmp_path)


@pytest.mark.parametrize("value", [0, 3, -32, 32.0, "32", True, [32], 2**32, np.uint8(32)], ids=repr)
def test_an_alignment_is_a_power_of_two(tmp_path, value):
    with pytest.raises(
        trueno.ParameterError, match=r"metadata\['general\.alignment'\] is .*; it must be a power of two"
    ):
        trueno.gguf.write(tmp_path / "x", {}, ARCH | {"general.alignment": value})
    assert not inside(tmp_path)


@pytest.mark.parametrize("name", ["", "n" * 64, "é" * 32, 3, "\ud800"], ids=repr)
def test_names_are_what_ggml_reads(tmp_path, name):
    with pytest.raises(trueno.ParameterError, match=r"gguf: (a tensor is called|the name of a tensor)"):
        trueno.gguf.write(tmp_path / "x", {name: X}, ARCH)
    trueno.gguf.write(tmp_path / "x", {"n" * 63: X}, ARCH)


@pytest.mark.parametrize(
    "x, error, said",
    [
        (np.ones(3, np.complex64), trueno.DtypeError, "tensor 'w' is complex64"),
        (np.ones(3, np.uint8), trueno.DtypeError, "tensor 'w' is uint8"),
        (np.array(["a"]), trueno.DtypeError, "tensor 'w' is <U1"),
        (np.float32(1), trueno.ParameterError, "tensor 'w' has 0 dimensions"),
        (np.ones((1, 1, 1, 1, 1), np.float32), trueno.ParameterError, "tensor 'w' has 5 dimensions"),
        (None, trueno.DtypeError, "tensor 'w' is object"),
    ],
    ids=lambda v: "",
)
def test_other_tensors_are_refused_by_name(tmp_path, x, error, said):
    with pytest.raises(error, match=said):
        trueno.gguf.write(tmp_path / "x", {"w": x}, ARCH)
    assert not inside(tmp_path)


def test_a_transposed_view_is_refused_with_the_way_out(tmp_path):
    with pytest.raises(
        trueno.ParameterError, match=r"tensor 'w' is a transposed view; write q, or requantize\(q\.T, format\)"
    ):
        trueno.gguf.write(tmp_path / "x", {"w": blocks("q8_0").T}, ARCH)


def test_vectors_matrices_and_lists_are_tensors_too(tmp_path):
    tensors = {"v": trueno.Vector([1.0, 2.0]), "m": trueno.Matrix(X), "l": [1.0, 2.0]}
    trueno.gguf.write(tmp_path / "x", tensors, ARCH)
    with trueno.gguf.open(tmp_path / "x") as file:
        assert np.array_equal(file["m"], X) and file["v"].tolist() == file["l"].tolist() == [1, 2]


class Broken(Exception):
    """Not of ours: anything may happen in the middle."""


@pytest.mark.parametrize(
    "error, seen", [(Broken, Broken), (KeyboardInterrupt, KeyboardInterrupt), (MemoryError, MemoryError),
                    (OSError(errno.ENOSPC, "No space left on device"), trueno.FileError)], ids=repr
)  # fmt: skip
@pytest.mark.parametrize("before", [b"the old file", None])
def test_a_failure_in_the_middle_leaves_what_was_there(tmp_path, error, seen, before):
    path = tmp_path / "x.gguf"
    if before is not None:
        path.write_bytes(before)

    def fail():
        raise error

    entries = [writing.entry("x", X), writing.Entry("y", "f32", (4,), 16, fail)]
    with pytest.raises(seen):
        writing.put(path, entries, ARCH)
    assert inside(tmp_path) == ([] if before is None else ["x.gguf"])
    assert before is None or path.read_bytes() == before


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs a limit on the size of files")
def test_a_full_disk_is_a_file_error_and_leaves_no_litter(tmp_path):
    path = tmp_path / "x.gguf"
    path.write_bytes(b"the old file")
    code = (
        "import resource, sys, numpy as np, trueno\n"
        "trueno.gguf.write(sys.argv[1] + '.warm', {}, {'general.architecture': 'x'})\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), resource.RLIM_INFINITY))\n"
        "keys = {'general.architecture': 'x', 'words': ['w' * 100] * 1000}\n"
        "try: trueno.gguf.write(sys.argv[1], {'x': np.ones((1000, 1000), np.float32)}, keys)\n"
        "except trueno.FileError as error: print(error)\n"
    )
    for limit in (10, 50_000, 150_000, 3_000_000):  # in the keys, before the tensor, in it
        done = subprocess.run(
            [sys.executable, "-c", code, path, str(limit)], capture_output=True, text=True, check=True
        )
        assert done.stdout.startswith(f"{path}: ") and done.stdout.count("\n") == 1, done.stdout + done.stderr
        assert inside(tmp_path) == ["x.gguf", "x.gguf.warm"] and path.read_bytes() == b"the old file"


def test_targets_that_cannot_be(tmp_path):
    for path, said in (
        (tmp_path / "no" / "x", "No such file or directory"),
        (tmp_path, "it is not a regular file"),
        (tmp_path / ("n" * 300), "(?i)name too long"),
    ):
        with pytest.raises(trueno.FileError, match=said):
            trueno.gguf.write(path, {"x": X}, ARCH)
    assert not inside(tmp_path)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
def test_devices_and_pipes_are_not_replaced(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", "/dev/null"):
        with pytest.raises(trueno.FileError, match="it is not a regular file, so it is not replaced"):
            trueno.gguf.write(path, {"x": X}, ARCH)
    assert inside(tmp_path) == ["pipe"] and stat.S_ISCHR(os.stat("/dev/null").st_mode)


@pytest.mark.skipif(os.name == "nt", reason="POSIX permissions")
def test_permissions_are_those_of_a_new_file_or_of_the_replaced_one(tmp_path):
    old = os.umask(0o027)
    try:
        trueno.gguf.write(tmp_path / "new", {"x": X}, ARCH)
        assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o640
        (tmp_path / "new").chmod(0o604)
        trueno.gguf.write(tmp_path / "new", {"x": X}, ARCH)
        assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o604
        assert os.umask(0o027) == 0o027
    finally:
        os.umask(old)


@pytest.mark.skipif(os.name == "nt", reason="links need a privilege there")
def test_a_link_stays_and_what_it_leads_to_is_replaced(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "x").write_bytes(b"old")
    (tmp_path / "link").symlink_to(tmp_path / "real" / "x")
    (tmp_path / "new").symlink_to(tmp_path / "real" / "y")
    for name in ("link", "new"):
        trueno.gguf.write(tmp_path / name, {"x": X}, ARCH)
        assert (tmp_path / name).is_symlink() and trueno.gguf.open(tmp_path / name)["x"].shape == X.shape
    assert inside(tmp_path / "real") == ["x", "y"]


def test_a_file_may_be_written_over_itself(tmp_path):
    path = tmp_path / "x.gguf"
    trueno.gguf.write(path, {"x": X, "y": X}, ARCH)
    with trueno.gguf.open(path) as file:
        kept = file["x"]
        trueno.gguf.write(path, {"x": file.tensors["x"]}, file.metadata)
        assert np.array_equal(kept, X)  # the old file is there as long as it is mapped
    assert list(trueno.gguf.open(path)) == ["x"] and inside(tmp_path) == ["x.gguf"]


def test_relative_names(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    trueno.gguf.write("x.gguf", {"x": X}, ARCH)
    with trueno.gguf.open("x.gguf") as file:
        assert np.array_equal(file["x"], X) and repr(file) == "<File x.gguf: 1 tensors, 1 keys>"


def test_the_package_packs_the_same_arrays():
    """Ours packs arrays at once; the package item by item."""
    gguf = package.package()
    ours, its = package.writer()(None, "x"), gguf.GGUFWriter(None, "x")
    kinds = gguf.GGUFValueType
    for _, value, kind, item in keys.typed(
        ARCH | {"w": ["a", "é"], "n": [1, 2], "s": [-1], "f": [0.1], "b": [True, False]}
    ):
        sub = None if item is None else kinds(item)
        assert ours._pack_val(value, kinds(kind), True, sub) == its._pack_val(value, kinds(kind), True, sub)


def test_nothing_but_the_header_and_the_tensors_is_there(tmp_path):
    trueno.gguf.write(tmp_path / "x", {}, {"general.architecture": "x"})
    assert (tmp_path / "x").read_bytes() == raw_file([key("general.architecture", 8, text("x"))])
