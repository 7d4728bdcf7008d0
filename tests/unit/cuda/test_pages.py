"""The pages of `trueno ptx`, `ptx-flow` and `ptx-map` with `--html` in Chromium: they open without a complaint, ask the
network for nothing, and their filters and links do what they say.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("typer", reason="the command line is not installed: pip install 'trueno[cli]'")

from browser import Browser, Page
from trueno.cli.app import app
from trueno_cuda.ptx.analyze.rules import RULES, example
from typer.testing import CliRunner

FOUND = ("missing-barrier", "uncoalesced-access", "redundant-move")
CODE = """import subprocess
def head():
    return '.version 8.0'
def one():
    return head()
def two():
    return one()
def load(text):
    driver.cuModuleLoadData(text)
"""


def written(*words: object) -> None:
    result = CliRunner().invoke(app, list(map(str, words)))
    assert result.exit_code in (0, 1), result.output


@pytest.fixture(scope="module")
def analysis(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page about three kernels with a bug each, of three severities, one in a file with a name of markup."""
    folder = tmp_path_factory.mktemp("ptx")
    files = [folder / f"<b>&{name}.ptx" for name in FOUND]
    for name, file in zip(FOUND, files, strict=True):
        file.write_text(example(RULES[name].bad))
    written("ptx", *files, "--html", folder / "page.html", "--strict", "--block", "256", "--no-ptxas")
    return folder / "page.html"


@pytest.fixture(scope="module")
def flow(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("flow")
    (folder / "a.py").write_text(CODE)
    (folder / "b.py").write_text("from a import two\ndef user():\n    return two()\n")
    (folder / "c.py").write_text("def broken(:\n")
    written("ptx-flow", folder, "--html", folder / "page.html", "--steps", "9")
    return folder / "page.html"


@pytest.fixture(scope="module")
def mapped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page about a small model of random weights, in a file with a name of markup."""
    pytest.importorskip("gguf", reason="the gguf package is not installed: pip install 'trueno[gguf]'")
    from examples.qwen2.synthesize import synthesize

    folder = tmp_path_factory.mktemp("map")
    synthesize(str(folder / "<b>&model.gguf"), "tiny")
    written("ptx-map", folder / "<b>&model.gguf", "--html", folder / "page.html", "--no-ptxas")
    return folder / "page.html"


@pytest.fixture
def opened(request: pytest.FixtureRequest, browser: Browser) -> Iterator[Page]:
    """The page of the fixture that the test names; whatever the test does, the page has nothing to complain about."""
    page = browser.open(request.getfixturevalue(request.param))
    yield page
    assert page.errors == [] and page.requests == []


def number(page: Page) -> int:
    """How many rows the page says it shows."""
    return int(page.evaluate("document.getElementById('count').textContent").split()[0])


@pytest.mark.parametrize("opened", ["analysis"], indirect=True)
def test_findings_by_severity(opened):
    severities = opened.evaluate(
        "[...document.querySelectorAll('#filters [data-severity]')].map(x => x.dataset.severity)"
    )
    assert len(severities) >= 2 and len(opened.visible(".finding")) >= len(FOUND)
    for severity in severities:
        before = len(opened.visible(".finding"))
        assert opened.visible(f".finding.{severity}")
        opened.click(f"#filters [data-severity={severity}]")
        assert not opened.visible(f".finding.{severity}") and len(opened.visible(".finding")) < before
    assert not opened.visible(".finding")
    opened.click(f"#filters [data-severity={severities[0]}]")
    assert opened.visible(".finding") == opened.visible(f".finding.{severities[0]}") != []


@pytest.mark.parametrize("opened", ["analysis"], indirect=True)
def test_lines_by_findings_and_words(opened):
    rows = "table.listing tr"
    every = len(opened.visible(rows))
    assert number(opened) == every > 20
    opened.click("#quiet")
    found = opened.visible(rows)
    assert 0 < len(found) == number(opened) < every and all(any(f"[{name}]" in row for name in FOUND) for row in found)
    opened.click("#quiet")
    opened.type("#words", "MOV.")
    found = opened.visible(rows)
    assert 0 < len(found) == number(opened) < every and all("mov." in row.lower() for row in found)
    opened.type("#words", "")
    assert len(opened.visible(rows)) == number(opened) == every


@pytest.mark.parametrize("opened", ["analysis"], indirect=True)
def test_links_lead_to_what_is_shown(opened):
    assert not opened.visible(".lanes") and len(opened.visible("svg.flow")) == len(FOUND)
    opened.click("td.code a")
    assert len(opened.visible(".lanes")) == 1
    targets = opened.evaluate(
        """[...document.querySelectorAll("a[href^='#']")].map(a => a.getAttribute("href").slice(1))"""
    )
    assert targets and all(opened.evaluate(f"document.getElementById('{target}') !== null") for target in set(targets))
    opened.click("nav a:last-child")
    top = opened.evaluate("document.getElementById(location.hash.slice(1)).getBoundingClientRect().top")
    assert 0 <= top < 900


@pytest.mark.parametrize("opened", ["flow"], indirect=True)
def test_functions_by_role_words_and_module(opened):
    rows = "#rows tr"
    assert number(opened) == len(opened.visible(rows)) == 3  # head, one and load: two and user are further away
    opened.click("#roles input[value=load]")
    assert number(opened) == len(opened.visible(rows)) == 2 and not any(
        "cuModuleLoad" in row for row in opened.visible(rows)
    )
    opened.type("#steps", "9")
    assert number(opened) == len(opened.visible(rows)) == 4
    opened.type("#words", "calls one")
    assert [row[:3] for row in opened.visible(rows)] == ["two"]
    opened.click("#filters button[type=reset]")
    assert number(opened) == 3 and opened.evaluate("document.getElementById('words').value") == ""
    opened.click(".module[data-module$=b]")
    assert [row[:4] for row in opened.visible(rows)] == ["user"] and len(opened.visible(".module.on")) == 1
    assert opened.evaluate("document.querySelectorAll('.arrow.on').length") == 1
    opened.click(".module[data-module$=b]")
    opened.click("#rows tr td:last-child button")
    assert number(opened) == 1 and "c.py: it does not parse" in opened.visible("#notes")[0]


@pytest.mark.parametrize("opened", ["mapped"], indirect=True)
def test_launches_by_layer_kernel_and_words(opened):
    rows = "#launches tbody tr"
    every = opened.visible(rows)
    assert len(every) == number(opened) == 12 * 2 + 2 and "<b>&model.gguf" in opened.visible("h1")[0]
    opened.type("#words", "rope")
    assert opened.visible(rows) == [row for row in every if "rope" in row] != []
    opened.click("#filters button[type=reset]")
    assert number(opened) == len(every)
    launches = int(opened.visible("#kernels tbody button")[0])
    opened.click("#kernels tbody button")
    name = opened.evaluate("document.getElementById('kernel').value")
    shown = opened.visible(rows)
    assert len(shown) == number(opened) == launches and all(name in row for row in shown)
    opened.evaluate("document.getElementById('layer').selectedIndex = 1")
    opened.type("#words", "no such tensor")
    assert opened.visible(rows) == [] and number(opened) == 0


@pytest.mark.parametrize("opened", ["mapped"], indirect=True)
def test_a_kernel_leads_to_its_text(opened):
    assert not opened.visible("table.listing tr")
    opened.click("#kernels tbody a")
    assert len(opened.visible("table.listing tr")) > 20 and len(opened.visible("svg.flow")) == 1
    targets = opened.evaluate(
        """[...document.querySelectorAll("a[href^='#']")].map(a => a.getAttribute("href").slice(1))"""
    )
    assert targets and all(opened.evaluate(f"document.getElementById('{target}') !== null") for target in set(targets))


@pytest.mark.parametrize("opened", ["analysis", "flow", "mapped"], indirect=True)
def test_no_page_is_wider_than_the_window(opened):
    assert opened.evaluate("document.documentElement.scrollWidth") <= 1280


@pytest.mark.parametrize("name", ["analysis", "flow", "mapped"])
def test_pages_fit_a_phone(request, browser, name):
    page = browser.open(request.getfixturevalue(name), 420, 800)
    assert page.evaluate("document.documentElement.scrollWidth") <= 420


@pytest.mark.parametrize("name", ["analysis", "flow", "mapped"])
def test_pages_have_colours_for_the_dark(request, name):
    """Every colour is a variable, so that none is left as on white."""
    text = request.getfixturevalue(name).read_text("utf-8")
    style = text.split("<style>")[1].split("</style>")[0]
    assert "prefers-color-scheme: dark" in style and "--page: #14171a" in style
    assert re.findall(r"(?<!-)\b(?:color|background|fill|stroke|border): [^;]*#[0-9a-f]+", style) == []
