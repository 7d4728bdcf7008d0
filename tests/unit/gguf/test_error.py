"""`trueno gguf error`: sums against NumPy on the gguf package's own decoding, and what it says of files that differ."""

import json

import numpy as np
import pytest
import trueno

pytest.importorskip("typer", reason="the command line is not installed: pip install 'trueno[cli]'")

from gguf import GGMLQuantizationType, quants
from trueno.cli.app import app
from trueno.gguf import error
from typer.testing import CliRunner
from unit.gguf.files import ARCH


def run(*args, code=0):
    result = CliRunner().invoke(app, ["gguf", "error", *map(str, args)], prog_name="trueno")
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == code, result.output
    return result


@pytest.fixture
def files(tmp_path, rng, monkeypatch):
    """A file of numbers, one with some of them quantized, and both as the gguf package reads them."""
    monkeypatch.setenv("COLUMNS", "160")
    monkeypatch.setattr(error, "PART", 700)  # tensors of several parts, the last of them short
    x = {
        "blk.0.w": rng.standard_normal((7, 512), "float32"),
        "v": rng.standard_normal(96, "float32"),
        "stack": rng.standard_normal((2, 3, 32), "float32"),
        "zero": np.zeros((2, 32), np.float32),
    }
    y = x | {
        "blk.0.w": trueno.quantize(x["blk.0.w"], "q4_k"),
        "stack": x["stack"].astype(np.float16),
        "zero": trueno.quantize(x["zero"], "q8_0"),
    }
    trueno.gguf.write(tmp_path / "a", x, ARCH)
    trueno.gguf.write(tmp_path / "b", y, ARCH)
    read = {name: np.asarray(v.bytes if hasattr(v, "bytes") else v) for name, v in y.items()}
    read["blk.0.w"] = quants.dequantize(read["blk.0.w"], GGMLQuantizationType.Q4_K)
    read["zero"] = quants.dequantize(read["zero"], GGMLQuantizationType.Q8_0)
    return (
        tmp_path / "a",
        tmp_path / "b",
        x,
        {n: np.asarray(v, np.float64).reshape(x[n].shape) for n, v in read.items()},
    )


def measures(a, b):
    a, b = (np.asarray(v, np.longdouble).ravel() for v in (a, b))
    squares, lengths = np.sum((a - b) ** 2), np.sqrt(np.sum(a * a) * np.sum(b * b))
    return {"rmse": np.sqrt(squares / a.size), "nmse": squares / np.sum(a * a) if a.any() else 0.0,
            "max": np.abs(a - b).max(), "cosine": np.sum(a * b) / lengths if lengths else 1.0}  # fmt: skip


def test_every_tensor_and_the_whole(files):
    path_a, path_b, x, y = files
    report = json.loads(run(path_a, path_b, "--json").stdout)
    assert sorted(t["name"] for t in report["tensors"]) == sorted(x)
    for t in report["tensors"]:
        wanted = measures(x[t["name"]], y[t["name"]])
        assert {k: t[k] for k in wanted} == pytest.approx({k: float(v) for k, v in wanted.items()}, rel=1e-9), t["name"]
    found = {t["name"]: t for t in report["tensors"]}
    assert found["v"]["rmse"] == found["v"]["max"] == 0 and found["blk.0.w"]["nmse"] > found["stack"]["nmse"] > 0
    assert (found["blk.0.w"]["from"], found["blk.0.w"]["to"]) == ("f32", "q4_k")
    assert found["blk.0.w"]["bytes_after"] == 7 * 2 * 144 and found["stack"]["shape"] == [2, 3, 32]
    wanted = measures(*(np.concatenate([v[n].ravel() for n in x]) for v in (x, y)))
    assert report["all"] == pytest.approx({k: float(v) for k, v in wanted.items()}, rel=1e-9)


def test_the_table(files):
    path_a, path_b, x, y = files
    lines = [line.split() for line in run(path_a, path_b, "--worst").stdout.splitlines()]
    assert lines[0] == ["tensor", "types", "RMSE", "NMSE", "max", "cosine"]
    names = [words[0] for words in lines[2:6]]
    assert names[:2] == ["blk.0.w", "stack"] and sorted(names) == sorted(x)
    wanted = measures(x["blk.0.w"], y["blk.0.w"])
    assert lines[2][1:5] == ["f32", "→", "q4_k", f"{wanted['rmse']:.3g}"]
    assert " ".join(lines[-1]).startswith("4 tensors of 3 936 elements")


def test_numbers_that_are_not_finite(tmp_path):
    x = {"w": np.array([1.0, np.nan, 2.0], np.float32), "i": np.array([np.inf, 1], np.float32)}
    trueno.gguf.write(tmp_path / "a", x, ARCH)
    report = json.loads(run(tmp_path / "a", tmp_path / "a", "--json").stdout)
    assert [t["rmse"] for t in report["tensors"]] == [None, None]


def test_files_that_do_not_fit(tmp_path, files):
    path_a, path_b, x, _ = files
    trueno.gguf.write(tmp_path / "c", {k: v for k, v in x.items() if k != "v"}, ARCH)
    for pair in ((path_a, tmp_path / "c"), (tmp_path / "c", path_a)):
        message = run(*pair, code=2).stderr
        assert message.startswith(f"trueno: {tmp_path / 'c'}: tensors of {path_a} are missing: 'v'")
    trueno.gguf.write(tmp_path / "d", x | {"stack": x["stack"].reshape(3, 2, 32)}, ARCH)
    assert "'stack' differs in shape: 2×3×32 and 3×2×32" in run(path_a, tmp_path / "d", code=2).stderr
    (tmp_path / "e").write_bytes(b"not GGUF at all")
    message = run(path_a, tmp_path / "e", code=2).stderr
    assert message.startswith(f"trueno: {tmp_path / 'e'}: ") and message.count("\n") == 1
    assert "No such file" in run(tmp_path / "gone", path_b, code=2).stderr
