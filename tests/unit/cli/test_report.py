"""`trueno report` and `trueno ops --matrix`: what is measured, what the page shows of it, and the page in a browser."""

import json
import re
import sys
from collections import Counter
from html.parser import HTMLParser

import numpy as np
import pytest

pytest.importorskip("typer", reason="the command line is not installed: pip install 'trueno[cli]'")
pytest.importorskip("matplotlib", reason="matplotlib is not installed: pip install 'trueno[plot]'")

import trueno
from anomaly.conftest import rng
from trueno.cli import report_measure, report_page
from trueno.cli.app import app
from trueno.cli.samples import sample
from trueno.discovery import registry
from trueno.errors import BackendUnavailable
from trueno.ops import TABLE
from trueno.report import pictures
from trueno.report.facts import Judged, Point, Report, Roof
from trueno.report.page import page
from typer.testing import CliRunner

__all__ = ["rng"]
EVIL = '<img src=x onerror="throw 1">'


def run(*args, code=0):
    result = CliRunner().invoke(app, list(map(str, args)), prog_name="trueno")
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == code, result.output
    return result


def invented(rng, ops=("add", "exp", "matmul", "sum", "neg")):
    """A report with random numbers, and a backend and reasons of markup."""
    names = ["simd", "scalar", EVIL]
    points = []
    for op in ops:
        for elements in (1000, 100_000):
            seconds = {name: float(rng.uniform(1e-7, 1e-4)) * elements / 1000 for name in names}
            predicted = {name: t * float(rng.uniform(0.5, 2)) for name, t in seconds.items()}
            flops, numpy = float(op != "neg") * elements * 2, float(rng.uniform(1e-6, 1e-4))
            facts = op, TABLE[op].family, "float32", elements, [(elements,)], flops, elements * 8.0, seconds
            points.append(Point(*facts, "simd", "fastest", predicted, numpy))
    judged = [Judged(op, "simd", "float32", op != "sum", 0.5, 0.4, 0.8, EVIL) for op in ops]
    takes = {op: {n: {"float32": "yes", "float16": "widened", "float64": EVIL} for n in names} for op in ops}
    roofs = [Roof("memory", "bytes", 5e10, "copy"), Roof("cache", "bytes", 2e11, EVIL), Roof("f32", "flops", 1e11, "m")]
    speeds = [{"backend": "simd", "class": EVIL, "dtype": "float32", "band": "small", "launch": 1e-6, "flops": 1e9,
               "bytes": 1e9, "spread": 0.1, "measured": "2026-01-01T00:00:00Z"}]  # fmt: skip
    says = [{"name": n, "says": EVIL} for n in names]
    return Report(f"a {EVIL}", {"processor": EVIL}, says, roofs, points, ["add", "exp"], judged, takes, "`x` here",
                  speeds, [EVIL])  # fmt: skip


class Tags(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.names, self.ids, self.links = Counter(), Counter(), []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        facts = dict(attrs)
        self.names[tag] += 1
        self.ids.update([facts["id"]] if "id" in facts else [])
        self.links += [v for k, v in attrs if k in ("src", "href", "xlink:href")]
        assert not any(k.startswith("on") for k in facts)


def test_what_a_point_says(rng):
    seconds = dict(zip("abc", rng.uniform(1, 2, 3).tolist(), strict=True))
    p = Point("add", "arithmetic", "float32", 10, [(10,)], 6.0, 40.0, seconds, "b")
    assert seconds[p.best] == min(seconds.values()) and p.time == seconds["b"]
    assert p.regret == pytest.approx(seconds["b"] / min(seconds.values()) - 1)
    report = Report(
        "", {}, [], [Roof("", "bytes", 10.0, ""), Roof("", "bytes", 5.0, ""), Roof("", "flops", 3.0, "")], [p]
    )
    assert report.roof(p) == max(40 / 10, 6 / 3)


def test_the_page_has_no_markup_from_outside_and_no_link(rng):
    tags = Tags(page(invented(rng)))
    assert tags.names["img"] == 0 and tags.names["script"] == 1 and tags.names["table"] == 5
    assert all(link.startswith(("#", "data:")) for link in tags.links)
    assert max(tags.ids.values()) == 1, "an id stands twice"
    anchors = {link[1:] for link in tags.links if link.startswith("#")}
    assert anchors <= set(tags.ids)


def test_pictures_take_the_colours_of_the_page(rng):
    report = invented(rng)
    for text in (pictures.roofline(report), pictures.crossover(report), pictures.predictions(report)):
        assert text.startswith("<svg") and "currentColor" in text and "var(--soft)" in text
        assert not re.search("#0[1-6]0[2-6]0[3-6]|#fff|fill: *white", text, re.I)
    assert pictures.roofline(report).count('class="point"') == 4  # neg has no flops
    assert pictures.crossover(Report("", {}, [])) == "" == pictures.predictions(Report("", {}, []))


def test_amounts_of_work(rng):
    """Flops and bytes of calls whose numbers are known."""
    for name, elements, flops, moved in (
        ("add", 6000, 6000, 3 * 6000 * 4),
        ("sum", 6000, 6000, 6000 * 4 + 6 * 4),
        ("matmul", 100 * 100, 2 * 100**3, 3 * 100 * 100 * 4),
    ):
        inputs = sample(TABLE[name], "float32", elements)
        result = np.asarray(getattr(trueno, name)(*inputs.operands, **inputs.kwargs))
        call = trueno.explain(name, *inputs.operands, **inputs.kwargs).call
        got = report_measure.amounts(TABLE[name], inputs, [result], call)
        assert got == (pytest.approx(flops, rel=0.01), moved), name


def test_errors_are_those_of_a_wider_type():
    """A result that is one last place off somewhere is found there."""
    bound = report_measure.expected(TABLE["add"], [np.ones(5), np.ones(5)], {}, "float32")[0]
    got = np.full(5, 2, np.float32)
    got[3] = np.nextafter(got[3], np.float32(3))
    error, allowed = report_measure._units(got, bound, np.dtype(np.float32))
    assert error == 1 and allowed is not None and allowed < 1


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """The page of three ops, measured here."""
    path = tmp_path_factory.mktemp("report") / "a<b>.html"
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(report_page.SECONDS, True, (1e3, 1e3))  # a busy machine measures all of it, too
        result = run("report", "--quick", "--ops", "add,sum,matmul", "--out", path)
    return path, result.stdout


def test_three_ops_measured_here(measured):
    path, said = measured
    assert re.match(r".*a<b>\.html: 3 ops on \d+ backends, 9 times and \d+ results judged in ", said), said
    text = path.read_text("utf-8")
    rows = re.findall(r"<tr><td>(\w+)</td>", text.partition('id="ops"')[2].partition("</table>")[0])
    assert sorted(rows) == ["add", "matmul", "sum"] and "wrong" not in text.partition('id="accuracy"')[2][:5000]
    assert [p.name for p in path.parent.iterdir()] == [path.name]  # nothing else, and nothing half-written
    Tags(text)


def test_the_page_in_a_browser(measured, browser, rng, tmp_path):
    made = tmp_path / "made.html"
    made.write_text(page(invented(rng)), "utf-8")
    for path, ops in ((measured[0], 3), (made, 5)):
        opened = browser.open(path)
        rows = "#ops tbody tr"
        assert len(opened.visible(rows)) == ops
        opened.type("input[data-table=ops]", "ad")
        assert [row[:3] for row in opened.visible(rows)] == ["add"]
        assert opened.evaluate("document.querySelectorAll('#roofline-picture .point.on').length") == 1
        opened.type("input[data-table=ops]", "")
        assert len(opened.visible(rows)) == ops
        for turn in (-1, 1):
            opened.click("#ops th:nth-child(5) button")
            keys = opened.evaluate("[...document.querySelectorAll('#ops tbody tr')].map(r => +r.cells[4].dataset.key)")
            assert keys == sorted(keys, reverse=turn < 0) and len(set(keys)) > 1
        opened.click("#ops th:first-child button")
        names = opened.evaluate("[...document.querySelectorAll('#ops tbody tr')].map(r => r.cells[0].textContent)")
        assert names == sorted(names)
        assert opened.evaluate("document.documentElement.scrollWidth") <= 1280
        assert opened.errors == [] and opened.requests == []


def test_what_is_refused(tmp_path, monkeypatch):
    message = run("report", "--out", tmp_path / "no" / "x.html", code=2).stderr
    assert "its folder does not exist" in message and message.count("\n") == 1
    assert "is a folder" in run("report", "--out", tmp_path, code=2).stderr
    assert 'no op is called "ad"' in run("report", "--ops", "ad", "--out", tmp_path / "x.html", code=2).stderr
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(BackendUnavailable, match=r"pip install 'trueno\[plot\]'"):
        pictures.matplotlib()
    assert not list(tmp_path.iterdir())


def test_a_failing_backend_is_a_note(monkeypatch):
    def broken(*_):
        raise RuntimeError("boom")

    monkeypatch.setattr(report_measure, "sample", broken)
    measuring = report_measure.Measuring(["reference"], True, lambda name: None)
    assert measuring.points([(TABLE["add"], (1000,))], float("inf")) == []
    assert measuring.notes == ["add at 1000 elements: RuntimeError: boom"]
    late = report_measure.Measuring(["reference"], True, lambda name: None)
    assert late.points([(TABLE["add"], (1000,)), (TABLE["exp"], (1000,))], 0.0) == []
    assert late.notes == ["no time was left for the times of add, exp"]
    assert report_page._drawn([TABLE["exp"], TABLE["tan"]], True) == ["exp", "tan"]


def test_the_matrix_is_what_runs(rng):
    """What the matrix promises of an op is computed; what it denies is refused."""
    name = str(rng.choice(["add", "softmax", "matmul", "sum_kahan"]))
    facts = json.loads(run("ops", name, "--matrix", "--json").stdout)
    assert list(facts) == [name] and {"reference", "simd"} <= set(facts[name]) == {
        n for n, e in registry.entries().items() if e.available
    }
    for backend in ("reference", "simd", "scalar"):
        for dtype in ("float32", "float64", "float16"):
            inputs = sample(TABLE[name], dtype, 100)
            with trueno.use(backend):
                if facts[name][backend][dtype] in ("yes", "widened"):
                    assert np.asarray(getattr(trueno, name)(*inputs.operands)).dtype == dtype
                else:
                    with pytest.raises(trueno.TruenoError):
                        getattr(trueno, name)(*inputs.operands)
    lines = run("ops", name, "--matrix").stdout.splitlines()
    assert lines[0].split()[0] == "op" and lines[2].split()[:2] == [name, "●"] and "f32 f64" in lines[-1]
