"""`trueno gguf info` and `trueno gguf quantize`: reports, JSON, exit codes, and what they say to bad input."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import trueno
from unit.gguf.files import ARCH, SEED, blocks

pytest.importorskip("typer", reason="the command line is not installed: pip install 'trueno[cli]'")

from trueno.cli.app import app
from typer.testing import CliRunner

GGML = np.load(Path(__file__).parents[2] / "golden/ggml/quant.npz", allow_pickle=False)
NAME = "blk.0.ffn_up.weight"


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch):
    for name in ("COLUMNS", "FORCE_COLOR", "CLICOLOR_FORCE"):
        monkeypatch.delenv(name, raising=False)


def run(*args, code=0):
    result = CliRunner().invoke(app, ["gguf", *map(str, args)], prog_name="trueno")
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == code, result.output
    return result


@pytest.fixture
def small(tmp_path):
    """A file with a key of each kind, numbers and blocks."""
    x = np.random.default_rng(SEED).standard_normal((4, 512)).astype(np.float32)
    tensors = {NAME: x, "blk.0.attn_norm.weight": x[0], "old": blocks("q8_0", 2, 4)}
    metadata = ARCH | {
        "llama.block_count": 1, "words": [f"w{i}" for i in range(5000)], "template": "line\n" * 50, "nothing": [],
        "nan": float("nan"), "evil": "\x1b[2J\x9b1m", "[bold]": "[red]not markup[/red]", "few": [1, 2],
        "long": ["x" * 90],
    }  # fmt: skip
    path = tmp_path / "in.gguf"
    trueno.gguf.write(path, tensors, metadata)
    return path


def test_info_shows_keys_and_tensors(small):
    out = run("info", small).stdout
    lines = {line.split()[0]: line for line in out.splitlines() if line.strip()}
    assert lines["general.architecture"].split() == ["general.architecture", "llama"]
    assert "['w0', 'w1', 'w2', 'w3', 'w4', 'w5', 'w6', 'w7', …] (5\u202f000 items)" in lines["words"]
    assert (
        "[1, 2] (2 items)" in lines["few"] and "[] (0 items)" in lines["nothing"] and lines["nan"].split()[1] == "nan"
    )
    assert "line\\nline\\n" in lines["template"] and "… (300 characters)" in lines["template"]
    assert f"['{'x' * 59}… (92 characters)] (1 items)" in lines["long"]
    assert lines["[bold]"].split(None, 1)[1].strip() == "[red]not markup[/red]"
    assert "\\x1b[2J\\x9b1m" in lines["evil"] and "\x1b" not in out and "\x9b" not in out
    assert lines[NAME].split() == [NAME, "f32", "4x512", "8", "192"]
    assert lines["old"].split() == ["old", "q8_0", "2x128", "272"]
    size = f"{small.stat().st_size:,}".replace(",", "\u202f")
    bits = 8 * (8192 + 2048 + 272) / (2048 + 512 + 256)
    assert (
        f"{size} bytes: 3 tensors of 2\u202f816 elements, {bits:.2f} bits an element (bytes: f32 10\u202f240, q8_0 272)"
        in out
    )


def test_info_without_tensors(small):
    out = run("info", small, "--no-tensors").stdout
    assert NAME not in out and "general.architecture" in out and "3 tensors" in out


def test_info_as_json_has_everything(small):
    report = json.loads(run("info", small, "--json").stdout)
    assert report["bytes"] == small.stat().st_size and report["path"] == str(small)
    assert len(report["metadata"]["words"]) == 5000 and report["metadata"]["template"] == "line\n" * 50
    assert report["metadata"]["nan"] is None and report["metadata"]["nothing"] == []
    assert report["tensors"][0] == {"name": NAME, "type": "f32", "shape": [4, 512], "bytes": 8192}


def test_info_of_a_file_without_tensors(tmp_path):
    trueno.gguf.write(tmp_path / "x", {}, ARCH)
    assert "0 tensors of 0 elements (bytes: )" in run("info", tmp_path / "x").stdout


@pytest.mark.parametrize("make", [None, b"", b"GGUF", b"text"], ids=repr)
@pytest.mark.parametrize("command", ["info", "quantize", "imatrix"])
def test_bad_files_are_one_sentence_and_exit_2(tmp_path, small, make, command):
    path, out = tmp_path / "bad", tmp_path / "out"
    if make is not None:
        path.write_bytes(make)
    args = {
        "info": ["info", path],
        "quantize": ["quantize", path, out],
        "imatrix": ["quantize", small, out, "--imatrix", path],
    }
    result = run(*args[command], code=2)
    assert result.stdout == "" and result.stderr.startswith(f"trueno: {path}: ") and result.stderr.count("\n") == 1
    assert not out.exists()


def test_quantize_writes_the_golden_bytes(tmp_path):
    trueno.gguf.write(tmp_path / "in", {NAME: GGML["x"]}, ARCH)
    result = run("quantize", tmp_path / "in", tmp_path / "out", "--type", "Q4_K_S")
    assert np.array_equal(trueno.gguf.open(tmp_path / "out")[NAME].bytes, GGML["q_Q4_K"])
    assert result.stderr == ""  # no bar where nobody looks
    rows = [line.split() for line in result.stdout.splitlines()]
    assert ["1", "f32", "q4_k"] in rows
    assert (
        "92\u202f160 bytes of tensors became 12\u202f960 (14%)" in result.stdout
        and str(tmp_path / "out") in result.stdout
    )


def test_the_usual_mixture_is_q4_k_m(tmp_path, small):
    run("quantize", small, tmp_path / "out")
    with trueno.gguf.open(tmp_path / "out") as file:
        assert file.metadata["general.file_type"] == 15 and file.tensors[NAME].type == "q4_k"
        assert file.tensors["old"].type == "q8_0" and file.metadata["words"][-1] == "w4999"


def test_an_imatrix_file_decides(tmp_path):
    counts = np.full((1, 1), 4, np.float32)
    trueno.gguf.write(tmp_path / "in", {NAME: GGML["x"]}, ARCH)
    sums = {f"{NAME}.in_sum2": GGML["imatrix"][None] * 4, f"{NAME}.counts": counts}
    trueno.gguf.write(tmp_path / "imatrix", sums, {"general.architecture": "imatrix"})
    run("quantize", tmp_path / "in", tmp_path / "out", "--type", "q3_k_s", "--imatrix", tmp_path / "imatrix")
    assert np.array_equal(trueno.gguf.open(tmp_path / "out")[NAME].bytes, GGML["qim_Q3_K"])


def test_dry_run_writes_nothing(tmp_path, small):
    result = run("quantize", small, tmp_path / "out", "--type", "q6_k", "--dry-run")
    assert "would become" in result.stdout and not (tmp_path / "out").exists()
    dry = json.loads(run("quantize", small, tmp_path / "out", "--type", "q6_k", "--dry-run", "--json").stdout)
    assert dry["written"] is False and not (tmp_path / "out").exists()
    wet = json.loads(run("quantize", small, tmp_path / "out", "--type", "q6_k", "--json").stdout)
    assert (
        wet["written"] is True
        and wet["seconds"] > 0
        and wet["type"] == "q6_k"
        and wet["target"] == str(tmp_path / "out")
    )
    assert wet["tensors"] == dry["tensors"]
    found = {t["name"]: t for t in wet["tensors"]}
    assert found[NAME] == {
        "name": NAME, "from": "f32", "to": "q6_k", "bytes_before": 8192, "bytes_after": 1680, "columns": 512,
        "instead_of": None,
    }  # fmt: skip
    assert {n: t["to"] for n, t in found.items()} == {
        n: t.type for n, t in trueno.gguf.open(tmp_path / "out").tensors.items()
    }


def test_odd_widths_are_listed_as_they_fall(tmp_path):
    odd = {NAME: np.ones((2, 288), np.float32), "a.weight": np.ones((2, 7), np.float32)}
    odd |= {f"blk.{i}.attn_q.weight": np.ones((2, 288), np.float32) for i in range(2)}
    trueno.gguf.write(tmp_path / "in", odd | {"output.weight": np.ones((2, 288), np.float32)}, ARCH)
    out = run("quantize", tmp_path / "in", tmp_path / "out").stdout
    rows = [line.split() for line in out.splitlines()]
    assert ["3", "f32", "q5_0"] in rows and ["1", "f32", "f16"] in rows and ["1", "f32", "q8_0"] in rows
    assert "5 tensors have rows that are not a whole number of blocks: 3 in q5_0 instead of q4_k, " in out
    assert "1 in f16 instead of q4_k" in out and "1 in q8_0 instead of q6_k" in out
    assert "--verbose says which" in out and "a.weight" not in out
    report = json.loads(run("quantize", tmp_path / "in", tmp_path / "out", "--dry-run", "--json").stdout)
    assert {t["name"]: t["instead_of"] for t in report["tensors"]} == {
        n: "q6_k" if n == "output.weight" else "q4_k" for n in (*odd, "output.weight")
    }


def test_verbose_lists_every_tensor_and_why(tmp_path):
    tensors = {NAME: np.ones((2, 288), np.float32), "blk.0.attn_q.weight": np.ones((2, 512), np.float32)}
    trueno.gguf.write(tmp_path / "in", tensors | {"blk.0.attn_norm.weight": np.ones(288, np.float32)}, ARCH)
    out = run("quantize", tmp_path / "in", tmp_path / "out", "--verbose").stdout
    rows = {line.split()[0]: line.split() for line in out.splitlines()}
    assert rows[NAME][1:7] == ["288", "f32", "q5_0", "instead", "of", "q4_k,"]
    assert rows["blk.0.attn_q.weight"][1:] == ["512", "f32", "q4_k"]
    assert rows["blk.0.attn_norm.weight"][1:] == ["288", "f32", "as", "it", "is"]
    assert "1 tensor has rows that are not a whole number of blocks: 1 in q5_0 instead of q4_k." in out


def test_where_nothing_changes_it_says_so(tmp_path, small):
    first = run("quantize", small, tmp_path / "out", "--type", "q8_0").stdout
    again = run("quantize", tmp_path / "out", tmp_path / "again", "--type", "q8_0").stdout
    said = "Nothing to quantize: every tensor is in q8_0's format already, and stays unchanged."
    assert said in again and said not in first
    assert (tmp_path / "again").read_bytes() == (tmp_path / "out").read_bytes()


def test_a_file_that_exists_is_replaced_on_demand_alone(tmp_path, small):
    out = tmp_path / "out"
    out.write_bytes(b"precious")
    result = run("quantize", small, out, code=2)
    assert "exists already; replace it with --force, or write another file" in result.stderr and result.stdout == ""
    assert "'q9'" in run("quantize", small, out, "--type", "q9", code=2).stderr  # the type comes before the file
    assert out.read_bytes() == b"precious"
    run("quantize", small, out, "--dry-run")
    assert out.read_bytes() == b"precious"
    run("quantize", small, out, "--force")
    assert trueno.gguf.open(out).tensors[NAME].type == "q4_k"


@pytest.mark.parametrize("link", ["same", "symbolic", "hard"])
@pytest.mark.parametrize("options", [(), ("--force",), ("--dry-run",)], ids=str)
def test_the_file_that_is_read_is_never_replaced(tmp_path, small, link, options):
    before, out = small.read_bytes(), small
    if link != "same":
        out = tmp_path / "link"
        try:
            out.symlink_to(small) if link == "symbolic" else out.hardlink_to(small)
        except OSError:
            pytest.skip("this file system has no such links")
    assert "is the input file; write another" in run("quantize", small, out, *options, code=2).stderr
    assert small.read_bytes() == before and out.read_bytes() == before


def test_what_cannot_be_done_is_one_sentence_and_exit_2(tmp_path, small):
    trueno.gguf.write(tmp_path / "blocks", {NAME: blocks("q8_0", 2, 8)}, ARCH)
    for args, said in (
        (("quantize", small, tmp_path / "out", "--type", "q4km"), 'did you mean "q4_k_m"?'),
        (("quantize", small, tmp_path / "out", "--type", "f16"), "'f16' is not a mixture"),
        (("quantize", small, small), "is the input file; write another"),
        (("quantize", small, tmp_path / "no" / "out"), "No such file or directory"),
        (("quantize", small, tmp_path), "it is not a regular file"),
        (("quantize", tmp_path / "blocks", tmp_path / "out"), "--allow-requantize"),
    ):
        result = run(*args, code=2)
        assert said in result.stderr and result.stderr.count("\n") == 1 and result.stdout == ""
    assert sorted(p.name for p in tmp_path.iterdir()) == ["blocks", "in.gguf"]
    run("quantize", tmp_path / "blocks", tmp_path / "out", "--allow-requantize")
    assert trueno.gguf.open(tmp_path / "out").tensors[NAME].type == "q4_k"


def test_without_arguments_there_is_help():
    assert {"info", "quantize"} <= set(run(code=2).output.split())
    assert "q4_k_m" in run("quantize", "--help").stdout


def test_a_bar_is_for_terminals_alone(tmp_path, small):
    if not hasattr(os, "openpty"):
        pytest.skip("no terminals to pretend here")
    ours, theirs = os.openpty()
    command = [sys.executable, "-m", "trueno.cli", "gguf", "quantize", str(small), str(tmp_path / "out")]
    environment = os.environ | {"TERM": "xterm", "COLUMNS": "100"}
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=theirs, text=True, env=environment, check=True)
    os.close(theirs)
    drawn = os.read(ours, 1 << 20).decode()
    os.close(ours)
    assert "quantizing" in drawn or NAME[-24:] in drawn
    assert "\x1b" not in done.stdout and "became" in done.stdout


def test_a_reader_that_goes_away_is_no_traceback(small):
    command = f"{sys.executable} -m trueno.cli gguf info {small} | head -1"
    done = subprocess.run(command, shell=True, capture_output=True, text=True)
    assert done.stderr == "" and done.stdout.startswith("key")
