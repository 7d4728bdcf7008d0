"""The built site: it loads nothing from other sites, its contents are whole, and its search works in a folder."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from browser import Browser, chromium
from seeds import fresh_seed
from unit.wgpu.web.server import serving

from docs.writing import external

ROOT = Path(__file__).parents[2]
WEBGPU = "--enable-unsafe-webgpu", "--use-webgpu-adapter=swiftshader"
PAGES = ("index.html", "tutorial.html", "reference/ops/normalization.html")

COMPILED = """async names => {
  const device = await (await navigator.gpu.requestAdapter()).requestDevice(), refused = [];
  for (const name of names)
    for (const code of (await (await fetch(`kernels/${name}.json`)).json()).wgsl)
      if ((await device.createShaderModule({code}).getCompilationInfo()).messages.length) refused.push(name);
  return refused;
}"""
PICKED = "(choice, name) => { choice.value = name; choice.dispatchEvent(new Event('change')); }"


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
def test_the_live_pages_run(site, tmp_path):
    """Three functions against double precision, a model's tokens against the engine's, and every op's two texts."""
    why = json.loads((site / "live/built.json").read_text("utf-8"))["built"]
    if why and not os.environ.get("REQUIRE_WGPU"):
        pytest.skip(f"the site was built without an adapter for WebGPU: {why}")
    assert not why
    with serving(site) as (address, asked), Browser(chromium(), tmp_path, *WEBGPU) as browser:

        def opened(name: str):
            page = browser.open(f"{address}live/{name}.html", 1280, 1100)
            wait(page, f"document.getElementById({name!r}).dataset.state")
            assert page.visible(".live-problem") == [] and page.errors == []
            return page

        page = opened("functions")
        rows = page.evaluate(
            "[...document.querySelectorAll('#functions tbody tr')].map(r => [r.cells[0].textContent, +r.dataset.error])"
        )
        assert [name for name, _ in rows] == ["softmax", "gelu", "matmul"] and all(e < 1e-5 for _, e in rows), rows
        assert page.evaluate("document.querySelector('#functions table').dataset.engines") == "wasm webgpu"
        page.click("#functions button")
        wait(page, "document.querySelectorAll('#functions tbody tr').length === 3")
        page = opened("model")
        place = "document.getElementById('model').dataset"
        assert page.evaluate(f"[{place}.same, {place}.submits === {place}.steps]") == ["true", True]
        first = page.evaluate(f"{place}.tokens")
        rng = np.random.default_rng(seed := fresh_seed())
        prompt = rng.integers(0, 1024, 5).tolist()
        print(f"seed {seed}, prompt {prompt}")
        page.type("#model input", " ".join(map(str, prompt)))
        page.click("#model button")
        wait(page, f"{place}.tokens !== {first!r}")
        tokens = [int(t) for t in page.evaluate(f"{place}.tokens").split()]
        assert len(tokens) == 24 and max(behind(tmp_path, prompt, tokens)) < 0.1, (
            tokens,
            behind(tmp_path, prompt, tokens),
        )
        page.type("#model input", "1 x2")
        page.click("#model button")
        wait(page, "document.querySelector('#model p:last-child').textContent.endsWith('and holds x2.')")
        assert page.visible("#model .live-tokens") in ([], [""])
        page = opened("kernels")
        texts = {path.stem: json.loads(path.read_text("utf-8")) for path in (site / "live/kernels").glob("*.json")}
        index = texts.pop("index")
        assert len(texts) > 90 and sorted(texts) == sorted(name for names in index.values() for name in names)
        refused = page.evaluate(f"({COMPILED})({sorted(texts)})")
        assert refused == []
        for name in rng.choice(sorted(texts), 3, replace=False).tolist():
            page.evaluate(f"({PICKED})(document.querySelector('#kernels select'), {name!r})")
            wait(page, f"document.getElementById('kernels').dataset.op === {name!r}")
            wgsl, ptx = page.visible("#kernels code")
            assert wgsl == "\n\n".join(texts[name]["wgsl"]) and "@compute" in wgsl and "fn main" in wgsl
            assert ptx == texts[name]["ptx"] and ".visible .entry" in ptx
            assert page.evaluate("document.getElementById('kernels').dataset.compiled") == "true"
        assert page.errors == []
    assert not [path for path in asked if "//" in path[1:]]


@pytest.mark.slow
def test_live_pages_say_why_they_cannot_run(site, browser, tmp_path):
    """Opened as a file, and in a browser without WebGPU."""
    for name in ("functions", "model", "kernels"):
        page = browser.open(site / "live" / f"{name}.html")
        assert "trueno web serve" in page.visible(".live-problem")[0] and page.errors == []
    with serving(site) as (address, _), Browser(chromium(), tmp_path) as plain:
        page = plain.open(f"{address}live/functions.html")
        wait(page, "document.getElementById('functions').dataset.state")
        told = page.visible("#functions")[0]
        assert "No column of a GPU" in told and "WebAssembly" in told and "this GPU" not in told, told
        assert len(page.evaluate("[...document.querySelectorAll('#functions tbody tr')].map(r => r.cells.length)")) == 3
        page = plain.open(f"{address}live/model.html")
        wait(page, "document.getElementById('model').dataset.state")
        assert "by WebAssembly (WebGPU finds no GPU here)" in page.visible("#model")[0]
        assert page.evaluate("document.getElementById('model').dataset.same") == "true"
        page = plain.open(f"{address}live/kernels.html")
        wait(page, "document.getElementById('kernels').dataset.state")
        assert "only shows the texts" in page.visible("#kernels p")[0]
        assert all("No available adapters" in line for line in page.errors), "the browser itself warns of this"


def wait(page, condition: str) -> None:
    """Until it holds."""
    page.evaluate(
        f"new Promise(done => {{ const look = () => ({condition}) ? done() : setTimeout(look, 20); look(); }})"
    )


def behind(folder: Path, prompt: list[int], tokens: list[int]) -> list[float]:
    """How far each token is behind the best one of the example engine on the CPU, in standard deviations of its logits.

    Two tokens of a random model can be this close: the engine's products with 8-bit activations differ from the page's
    by up to √3e-4 = 0.017 of the logits (NMSE).  A random token is about 3 behind.
    """
    from examples.qwen2.checkpoint import Checkpoint
    from examples.qwen2.model import Model
    from examples.qwen2.synthesize import synthesize

    synthesize(folder / "tiny.gguf", "tiny")
    host = Model(Checkpoint(folder / "tiny.gguf"))
    cache = host.cache(64)
    logits = host.prefill(prompt, cache)[0]
    result = []
    for token in tokens:
        result.append(float((logits.max() - logits[token]) / logits.std()))
        logits = host.decode([token], [cache])[0]
    return result


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
