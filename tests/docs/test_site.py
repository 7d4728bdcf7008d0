"""The built site: it loads nothing from other sites, its contents are whole, and its search works in a folder."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from docs.writing import external

ROOT = Path(__file__).parents[2]
PAGES = ("index.html", "tutorial.html", "reference/ops/normalization.html")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("material", reason="the theme of the site: pip install --group docs")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    done = subprocess.run(
        command, cwd=ROOT, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.mark.slow
def test_the_site_opens_in_a_browser_without_a_network(site, browser):
    for name in PAGES:
        page = browser.open(site / name)
        assert page.errors == []
        assert [url for url in page.requests if not url.startswith(f"{site.as_uri()}/")] == []
        assert page.visible(".md-header .md-ellipsis")[0].split()[0] == "Trueno"
        assert page.evaluate("document.querySelectorAll('button[data-md-type=copy], .md-clipboard').length") > 0
    page.evaluate(
        """new Promise(done => {
        document.querySelector("[for=__search]").click();
        const field = document.querySelector(".md-search__input");
        field.value = "log_softmax";
        const look = () => { field.dispatchEvent(new Event("keyup"));
            document.querySelector(".md-search-result__link") ? done() : setTimeout(look, 100); };
        look(); })"""
    )
    assert "log_softmax" in " ".join(page.visible(".md-search-result__link"))
    assert [url for url in page.requests if not url.startswith(f"{site.as_uri()}/")] == []


@pytest.mark.slow
def test_every_op_has_a_heading_and_every_section_a_place_in_the_sidebar(site):
    from trueno.ops import TABLE

    pages = "".join(path.read_text("utf-8") for path in (site / "reference").rglob("*.html"))
    assert [name for name in TABLE if f'id="{name}"' not in pages] == []
    landing = (site / "index.html").read_text("utf-8")
    sections = ("Start", "Use", "Devices", "Look inside", "Models", "Extend", "Reference", "Decisions")
    places = [re.search(rf"class=\"md-ellipsis\">\s*{title}\s*<", landing).start() for title in sections]
    assert places == sorted(places)


@pytest.mark.parametrize(
    "page",
    [
        '<script src="https://example.org/a.js"></script>',
        '<link rel="stylesheet" href="//fonts.example.org/css">',
        '<img src="a.png" srcset="a.png 1x, https://example.org/b.png 2x">',
        "<style>body { background: url( 'http://example.org/a.png' ) }</style>",
        '<p style="background: url(//example.org/a.png)">',
        '<pre class="mermaid">',
        '<svg><image xlink:href="https://example.org/a.png"/></svg>',
    ],
)
def test_a_planted_load_is_found(page, tmp_path):
    (tmp_path / "index.html").write_text(page, "utf-8")
    assert len(external.loads(tmp_path)) == 1


def test_so_is_one_of_a_style_sheet(tmp_path):
    (tmp_path / "a.css").write_text(
        '@import "https://example.org/b.css"; p { src: url(//example.org/c.woff) }', "utf-8"
    )
    assert external.loads(tmp_path) == ["a.css: //example.org/c.woff", "a.css: https://example.org/b.css"]


def test_a_link_is_not_a_load(tmp_path):
    text = '<a href="https://example.org">there</a> <link rel="canonical" href="https://example.org"> <img src="a.png">'
    (tmp_path / "index.html").write_text(text, "utf-8")
    assert external.loads(tmp_path) == []
