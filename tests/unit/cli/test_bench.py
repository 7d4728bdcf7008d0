"""`trueno bench`: rates, spread, comparisons and files; bytes and flops against counts by hand."""

import csv
import io
import json
import statistics
import xml.etree.ElementTree as ET
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("typer", reason="the command line is not installed: pip install 'trueno[cli]'")

from seeds import fresh_seed
from trueno.cli import bench, chart, peers, rates, timing
from trueno.cli.app import app
from trueno.cli.samples import sample
from trueno.ops import TABLE
from typer.testing import CliRunner

ODD = """{
"rows": [{"op": [], "dtype": "", "size": 1, "backend": "", "set": {}, "seconds": 1, "low": 1, "high": 1, "rounds": 1}]}
"""
SHORT = ("--sizes", "300,2000", "--time", "0.01", "--backend", "reference,scalar")


@pytest.fixture(autouse=True)
def no_torch(monkeypatch):
    """Importing PyTorch takes seconds."""
    monkeypatch.setattr(peers, "has_torch", lambda: False)


def run(*arguments, code=0, width=80):
    result = CliRunner().invoke(app, ["bench", *arguments], prog_name="trueno", env={"COLUMNS": str(width)})
    assert result.exit_code == code, result.output
    return result


def test_forms_hold_the_same_rows():
    report = json.loads(run("add", *SHORT, "-o", "json").stdout)
    assert len(report["rows"]) == 6 and all(list(row) == list(rates.FIELDS) for row in report["rows"])
    for row in report["rows"]:
        assert row["best"] <= row["low"] <= row["seconds"] <= row["high"] and row["rounds"] >= 1
        assert row["bytes"] == 3 * 4 * row["size"] and row["flops"] == row["size"]
        assert row["gb_per_s"] == pytest.approx(row["bytes"] / row["seconds"] / 1e9)
        assert row["gflop_per_s"] == pytest.approx(row["flops"] / row["seconds"] / 1e9)
    lines = run("add", *SHORT, "-o", "jsonl").stdout.splitlines()
    assert [list(json.loads(line)) for line in lines] == [list(rates.FIELDS)] * 6
    table = list(csv.DictReader(io.StringIO(run("add", *SHORT, "-o", "csv").stdout)))
    assert len(table) == 6 and table[0]["shapes"] == "300 300" and float(table[0]["seconds"]) > 0
    page = run("add", *SHORT, "-o", "md").stdout.splitlines()
    assert len(page) == 8 and len({line.count("|") for line in page}) == 1 and set(page[1]) <= set("| -")
    run("add", *SHORT, "-o", "xls", code=2)


def test_bytes_and_flops_by_hand():
    shapes = [(30, 40), (40, 50)]
    assert rates.flops(TABLE["matmul"], shapes, {}) == 2 * 30 * 40 * 50
    a, b, y = np.ones(shapes[0], "f4"), np.ones(shapes[1], "f4"), np.ones((30, 50), "f4")
    assert rates.moved(TABLE["matmul"], (a, b), (y,)) == 4 * (30 * 40 + 40 * 50 + 30 * 50)
    assert rates.flops(TABLE["sum"], [(7, 100)], {}) == 700
    table, indices = np.ones((1000, 8), "f4"), np.zeros(3, np.int64)
    looked_up = rates.moved(TABLE["embedding_lookup"], (table, indices), (np.ones((3, 8), "f4"),))
    assert looked_up == 2 * 3 * 8 * 4 + 3 * 8  # not the whole table


@pytest.mark.parametrize("name", TABLE)
def test_every_op_has_a_count_or_none(name):
    op = TABLE[name]
    drawn = sample(op, "float32", 200)
    count = rates.flops(op, drawn.shapes, drawn.kwargs)
    assert count is None or (count >= 0 and np.isfinite(count))


def test_spread():
    seed = fresh_seed()
    print("seed", seed)
    rng = np.random.default_rng(seed)
    times = list(rng.random(21) + 0.1)
    found = rates.spread(times)
    assert found["seconds"] == pytest.approx(statistics.median(times)) and found["best"] == min(times)
    assert (found["low"], found["high"]) == pytest.approx(tuple(np.quantile(times, [0.25, 0.75])))
    assert rates.spread([2.0]) == {"seconds": 2.0, "low": 2.0, "high": 2.0, "best": 2.0, "rounds": 1}
    found = timing.rounds({"a": lambda: None, "b": lambda: None}, 0.001)
    assert len(found["a"]) == len(found["b"]) >= 3


def row(seconds, low, high, rounds=9, **more):
    what = {"op": "add", "dtype": "float32", "size": 10, "backend": "x", "set": {}, "rounds": rounds}
    return what | {"seconds": seconds, "low": low, "high": high} | more


def test_a_difference_counts_beyond_the_quartiles():
    def verdict(new, old):
        (answer,) = rates.compare([new], [old])
        return answer["verdict"], answer["ratio"]

    assert verdict(row(2.0, 1.9, 2.1), row(1.0, 0.9, 1.1)) == ("slower", 2.0)
    assert verdict(row(1.0, 0.9, 1.1), row(2.0, 1.9, 2.1)) == ("faster", 0.5)
    assert verdict(row(1.2, 1.0, 1.3), row(1.0, 0.9, 1.1)) == ("same", pytest.approx(1.2))
    assert verdict(row(2.0, 2.0, 2.0, rounds=1), row(1.0, 1.0, 1.0)) == ("unsure", 2.0)
    (other,) = rates.compare([row(1.0, 1.0, 1.0, size=11)], [row(1.0, 1.0, 1.0)])
    assert other["verdict"] is None and other["ratio"] is None
    (answer,) = rates.compare([row(2.0, 1.8, 2.2)], [row(1.0, 0.9, 1.1)])
    assert (answer["ratio_low"], answer["ratio_high"]) == pytest.approx((1.8 / 1.1, 2.2 / 0.9))


@pytest.mark.parametrize("form", ["json", "jsonl"])
def test_compare_with_a_file(tmp_path, form):
    file = tmp_path / "before"
    file.write_text(run("add", *SHORT, "-o", form).stdout, "utf-8")
    shown = run("add", *SHORT, "--compare", str(file)).stdout
    assert max(map(len, shown.splitlines())) <= 80 and "ratio" in shown
    rows = json.loads(run("add", *SHORT, "--compare", str(file), "--json").stdout)["rows"]
    assert all(row["ratio"] > 0 and row["before"] > 0 for row in rows)
    other = json.loads(run("mul", *SHORT, "--compare", str(file), "--json").stdout)["rows"]
    assert all(row["verdict"] is None for row in other)
    shown = run("mul", *SHORT, "--compare", str(file)).stdout
    assert "–" in shown and "has none of these calls" in " ".join(shown.split())


@pytest.mark.parametrize("rounds", [1, 9])
def test_a_comparison_fits_into_80_letters(monkeypatch, rounds):
    rows = [row(1.05e-3, 1e-3, 2e-3, rounds, backend="cuda_emulated", size=1_000_000, times_numpy=1.0)]
    old = [row(11.4e-3, 9e-3, 90e-3, rounds, backend="cuda_emulated", size=1_000_000)]
    monkeypatch.setenv("COLUMNS", "80")
    console = bench.screen()
    with console.capture() as capture:
        drawn = [bench.Run(1_000_000, "float32", [(1_000_000,)])]
        bench._show(TABLE["softmax"], drawn, rates.compare(rows, old), {}, console)
    lines = capture.get().splitlines()
    (line,) = (line for line in lines if "cuda_emulated" in line)
    assert line.split()[-1] == ("unsure" if rounds == 1 else "faster") and max(map(len, lines)) <= 80
    assert any(line.startswith("unsure: fewer than 5 rounds") for line in lines) == (rounds == 1)


def test_a_float_that_it_does_not_time_is_no_slip():
    assert run("add", *SHORT, "--dtype", "float16", code=2).stderr.endswith("it must be float32 or float64\n")
    assert 'did you mean "float64"?' in run("add", *SHORT, "--dtype", "flot64", code=2).stderr


@pytest.mark.parametrize(
    "text", ["", "{", "[1]", '{\n"rows": 3}', '{\n"rows": [{"seconds": "x"}]}', "\udcff", ODD, None]
)
def test_a_file_without_rows_is_a_sentence(tmp_path, text):
    file = tmp_path / "before.json"
    if text is not None:
        file.write_bytes(text.encode("utf-8", "surrogateescape"))
    done = run("add", *SHORT, "--compare", str(file), code=0 if text == "" else 2)
    if text:
        assert done.stderr.startswith("trueno: --compare") and done.stderr.count("\n") == 1 and not done.stdout


@pytest.mark.skipif(find_spec("matplotlib") is None, reason="matplotlib draws the plots: pip install 'trueno[plot]'")
def test_a_chart_has_a_line_for_each_backend(tmp_path):
    rows = json.loads(run("add", *SHORT, "--json", "--plot", str(tmp_path / "x.svg")).stdout)["rows"]
    drawn = ET.parse(tmp_path / "x.svg").getroot()
    assert drawn.tag.endswith("svg")
    chart.draw(rows, "again", tmp_path / "y.PNG")
    assert (tmp_path / "y.PNG").read_bytes().startswith(b"\x89PNG")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["x.svg", "y.PNG"]


def test_a_chart_that_cannot_be_drawn_is_a_sentence(tmp_path, monkeypatch):
    assert "must end with .svg or .png" in run("add", *SHORT, "--plot", "x.pdf", code=2).stderr
    assert "there is no folder" in run("add", *SHORT, "--plot", str(tmp_path / "no" / "x.svg"), code=2).stderr
    monkeypatch.setitem(__import__("sys").modules, "matplotlib", None)
    said = run("add", *SHORT, "--plot", str(tmp_path / "x.svg"), code=2).stderr
    assert "matplotlib is not installed" in said and "plot" in said and not list(Path(tmp_path).iterdir())


def test_cells_as_text():
    assert bench.flattened([[3, 4], []]) == "3x4 scalar" and bench.flattened({"eps": 0.5}) == "eps=0.5"
    assert bench.flattened(None) == "" and bench.flattened(1.0) == "1" and bench.flattened("a") == "a"
