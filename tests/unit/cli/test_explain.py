"""`trueno explain` and `trueno.explain`: sentences for every shape, and a table that shows what was asked."""

import json

import numpy as np
import pytest

pytest.importorskip("typer", reason="the command line is not installed: pip install 'trueno[cli]'")

import trueno
import typer
from trueno.cli import explain
from trueno.cli.app import Group
from trueno.errors import ParameterError
from trueno.select.reasons import REASONS
from typer.testing import CliRunner

app = typer.Typer(cls=Group, add_completion=False, pretty_exceptions_enable=False)
app.command("explain")(explain.command)


@app.callback()
def root():
    pass


def run(*args):
    result = CliRunner().invoke(app, ["explain", *args], prog_name="trueno")
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def test_empty_operands_are_a_sentence():
    assert "nothing is computed for empty operands" in run("softmax", "0").stdout
    assert "nothing is computed" in str(trueno.explain(trueno.softmax, np.ones(0, np.float32)))
    assert "nothing is computed" in str(trueno.explain(trueno.matmul, np.ones((2, 0)), np.ones((0, 3))))
    assert "an empty row is an error" in run("max", "3x0").stdout
    assert json.loads(run("add", "0", "0", "--json").stdout)["shapes"] == [[0], [0]]


@pytest.mark.parametrize("shape", ["1000000000000x1000000000000", "x".join(["2"] * 70), "x".join(["1"] * 70)])
def test_shapes_that_no_array_has_are_a_sentence(shape):
    result = run("relu", shape)
    assert result.exit_code == 2
    assert "NumPy has no array of shape" in result.stderr and "Traceback" not in result.output


@pytest.mark.parametrize("shape", ["9" * 5000, "2x" + "9" * 400, "1e3", "²"])
def test_what_is_no_shape_is_a_sentence(shape):
    result = run("relu", shape)
    assert result.exit_code == 2 and "is not a shape; write 1000" in result.stderr
    assert "Traceback" not in result.output and len(result.stderr) < 200


@pytest.mark.parametrize("parameter, op", [("factor", "scale"), ("axis", "sum")])
def test_a_whole_number_of_any_length_is_a_sentence(parameter, op):
    result = run(op, "3", "--set", f"{parameter}={'9' * 500}")
    assert result.exit_code == 2
    assert f"{parameter} is a whole number of 1661 bits" in result.stderr and "Traceback" not in result.output


def test_the_shapes_are_those_that_were_given():
    head = str(trueno.explain("lerp", np.ones((3000, 400)), np.ones((3000, 1)), 0.5)).partition(":")[0]
    assert head == "lerp in float64, x 3\u202f000×400, y 3\u202f000×1 (up to 1\u202f200\u202f000 elements)"
    assert "x 1\u202f000, y a number" in run("add", "1000", "scalar").stdout
    assert "a 512×256, b 256×8" in run("matmul", "512x256", "256x8").stdout


@pytest.mark.parametrize("name, nbytes", [("f16", 128), ("q8_0", 68)])
def test_shapes_of_caches_are_in_elements_and_name_the_format(name, nbytes):
    shapes = ["2x1x4x64", "8x16x2x64", "8x16x2x64", "2x4", "2"]
    words = f"k 8×16×2×64 in {name}, v 8×16×2×64 in {name}, table 2×4, lengths 2 (up to 16\u202f384 elements)"
    assert words in run("attention_decode", *shapes, "--set", f"format={name}").stdout.replace(" \n", " ").replace(
        "\n", " "
    )
    data = json.loads(run("attention_decode", *shapes, "--set", f"format={name}", "--json").stdout)
    assert data["shapes"][1] == [8, 16, 2, 64] and data["static"]["format"] == name
    q, pages = np.ones((2, 1, 4, 64), np.float32), np.zeros((8, 16, 2, nbytes), np.uint8)
    table, lengths = np.zeros((2, 4), int), np.ones(2, int)
    for k, keywords in ((pages, {"format": name}), (trueno.Pages(pages, name), {})):
        assert words in str(trueno.explain("attention_decode", q, k, k, table, lengths, **keywords))


def test_shapes_of_blocks_are_in_elements():
    assert "w 64×256 in q4_k, x 256 (up to 16\u202f384 elements)" in run("quant_matvec", "64x256", "256").stdout
    w = trueno.quantize(np.ones((4, 256), np.float32), "q6_k")
    for operands, keywords in (((w,), {}), ((w.bytes,), {"format": "q6_k"})):
        assert "w 4×256 in q6_k (up to" in str(trueno.explain("dequantize", *operands, **keywords))


def test_every_column_has_a_heading_and_something_in_it():
    lines = run("add", "1000", "1000").stdout.splitlines()
    assert lines[2].split() == ["backend", "reason", "predicted", "from", "meaning"]  # nothing moves on the host


def test_named_backends_have_predictions_and_their_origin():
    result = run("add", "1000", "1000", "--backend", "scalar,reference")
    assert "scalar, requested by name (--backend)" in result.stdout
    rows = {
        c["name"]: c for c in json.loads(run("add", "9", "9", "--backend", "scalar", "--json").stdout)["candidates"]
    }
    assert rows["scalar"]["seconds"] > 0 and rows["scalar"]["source"]
    assert rows["reference"]["seconds"] is None
    with trueno.use("scalar"):
        decision = trueno.explain("add", np.ones(3), np.ones(3))
    assert decision.origin == "trueno.use" and decision.candidates[0].seconds > 0


def test_what_was_decided_is_what_runs():
    x = np.ones(1000, np.float32)
    with trueno.trace("run") as t:
        trueno.add(x, x)
    assert trueno.explain("add", x, x).chosen == t.events[0].backend
    with pytest.raises(ParameterError, match="there is no op"):
        trueno.explain("ad", x, x)


@pytest.mark.parametrize("name", ["demo", "ops", "bench", "explain", "calibrate"])
def test_the_list_of_commands_shows_whole_sentences(name):
    from importlib import import_module

    first = import_module(f"trueno.cli.{name}").command.__doc__.partition("\n")[0]
    assert len(first) <= 60 and first.endswith(".")


def test_16_bit_floats_are_computed_in_float32():
    assert run("add", "100", "100", "--dtype", "float16").output.startswith("add in float32, x 100, y 100")


@pytest.mark.parametrize("width", [80, 100])
def test_a_terminal_gets_a_table_that_fits(monkeypatch, width):
    plain = run("softmax", "1000x1000").stdout
    monkeypatch.setenv("COLUMNS", str(width))
    shown = run("softmax", "1000x1000").stdout
    assert max(map(len, shown.splitlines())) <= width
    words = set(plain.split()) | {word for sentence in REASONS.values() for word in sentence.split()}
    names = {f"{name}:" for name in trueno.backends()}
    assert {word for word in shown.split() if set(word) != {"─"}} <= words | names  # none is cut
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\x1b[" in run("softmax", "1000x1000").stdout
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[3" not in run("softmax", "1000x1000").stdout  # bold may stay


def test_a_pipe_gets_one_line_per_candidate(monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    lines = run("softmax", "1000x1000").stdout.splitlines()
    starts = [line.split()[0] for line in lines[3:]]
    assert lines[1] == "" and sorted(starts) == sorted(trueno.backends())


def test_a_scope_is_named_though_a_batch_requested_the_same_backends_before():
    with trueno.Batch("scalar") as b:
        b.add(b.upload(np.ones(3)), b.upload(np.ones(3)))
    for _ in range(2):
        with trueno.use("scalar"):
            assert trueno.explain("add", np.ones(3), np.ones(3)).origin == "trueno.use"
