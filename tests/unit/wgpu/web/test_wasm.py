"""Pages without a GPU: the same module runs kernels of WebAssembly, with the same numbers, in a real browser."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("wgpu")
pytest.importorskip("numba")
import trueno
from browser import Browser, Page, chromium
from trueno.errors import KernelError

from .server import serving

pytestmark = pytest.mark.usefixtures("chosen")
OPEN = """(async () => {
  const { load } = await import("/%(name)s/module.js");
  window.progress = [];
  window.m = await load("/%(name)s/", {use: %(use)s, progress: (done, total) => progress.push([done, total])});
  return m.engine;
})()"""
PROBLEM = "%s.then(() => 'no error', error => `${error.name}: ${error.message}`)"
NO_GPU = "No available adapters."  # Chromium's own words where a page looks for a GPU, and there is none
WEBGPU = "--enable-unsafe-webgpu", "--use-webgpu-adapter=swiftshader"


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Iterator[tuple[Path, str]]:
    folder = tmp_path_factory.mktemp("site")
    (folder / "index.html").write_text("<!doctype html><title>a page</title><link rel=icon href='data:,'>")
    with serving(folder) as (address, _):
        yield folder, address


@pytest.fixture(scope="module")
def browser(tmp_path_factory) -> Iterator[Browser]:
    """Without WebGPU, as most browsers of virtual machines are."""
    with Browser(chromium(), tmp_path_factory.mktemp("chromium")) as running:
        yield running


@pytest.fixture
def page(browser, site) -> Page:
    return browser.open(f"{site[1]}index.html")


@pytest.fixture(scope="module")
def exported() -> dict[str, Any]:
    """What this module's folders were made of, by name: each is compiled once."""
    return {}


@pytest.fixture
def rows(site, exported, rng) -> tuple[np.ndarray, np.ndarray]:
    """The folder `rows` of the site, a product, a chain, and a state; its constants."""
    if "rows" in exported:
        return exported["rows"]
    w, bias = (rng.standard_normal(shape).astype(np.float32) for shape in ((64, 33), 33))
    with trueno.Batch("wgpu") as batch:
        x, total = batch.upload(np.zeros((7, 64), np.float32)), batch.upload(np.zeros((7, 33), np.float32))
        y = batch.softmax(batch.gelu(batch.add(batch.matmul(x, batch.upload(w)), batch.upload(bias))))
        more = batch.add(total, y)
        batch.feed(total, more)
        trueno.web.export(batch, site[0] / "rows", inputs={"x": x, "total": total},
                          outputs={"y": y, "best": batch.argmax(y), "more": more}, wasm=True)  # fmt: skip
    exported["rows"] = w, bias
    return w, bias


def exact(x: np.ndarray, w: np.ndarray, bias: np.ndarray) -> np.ndarray:
    z = x.astype(np.float64) @ w + bias
    gelu = 0.5 * z * (1 + np.tanh(np.sqrt(2 / np.pi) * (z + 0.044715 * z**3)))
    y = np.exp(gelu - gelu.max(1, keepdims=True))
    return y / y.sum(1, keepdims=True)


def run(page: Page, values: dict[str, Any]) -> dict[str, list]:
    given = json.dumps({name: np.ravel(x).tolist() for name, x in values.items()})
    return page.evaluate(
        f"""m.run({given}).then(results => Object.fromEntries(
        Object.entries(results).map(([name, x]) => [name, Array.from(x, Number)])))"""
    )


def right(page: Page, rows: tuple[np.ndarray, np.ndarray], rng: np.random.Generator) -> None:
    """Runs on new numbers give what float64 gives, and each adds to the state of the one before."""
    total = np.zeros((7, 33))
    for time in range(3):
        x = rng.standard_normal((7, 64)).astype(np.float32)
        got, y = run(page, {"x": x} if time else {"x": x, "total": total}), exact(x, *rows)
        total += y
        assert np.abs(np.reshape(got["y"], y.shape) - y).max() < 2e-5 * y.max()
        assert np.abs(np.reshape(got["more"], y.shape) - total).max() < 2e-5 * total.max()
        assert got["best"] == np.reshape(got["y"], y.shape).argmax(1).tolist()
    assert [error for error in page.errors if error != NO_GPU] == []


def test_without_webgpu(page, site, rows, rng):
    assert page.evaluate(OPEN % {"name": "rows", "use": "undefined"}) == "wasm"
    assert page.evaluate("m.device === undefined")
    steps = json.loads((site[0] / "rows/plan.json").read_text("utf-8"))["wasm"]["steps"]
    assert len(steps) < 6 and "matmul" in steps, "chains of row ops are one kernel"
    done, total = page.evaluate("progress")[-1]
    assert done == total >= rows[0].nbytes
    right(page, rows, rng)


def test_with_webgpu_a_page_chooses(site, rows, rng, tmp_path):
    with Browser(chromium(), tmp_path, *WEBGPU) as running:
        page = running.open(f"{site[1]}index.html")
        assert page.evaluate(OPEN % {"name": "rows", "use": "undefined"}) == "webgpu"
        right(page, rows, rng)
        assert page.evaluate(OPEN % {"name": "rows", "use": "'wasm'"}) == "wasm"
        right(page, rows, rng)


def test_in_a_worker(page, site, rows, rng):
    """Where a run may take long: the page goes on meanwhile."""
    x = rng.standard_normal((7, 64)).astype(np.float32)
    (site[0] / "worker.js").write_text(
        """import { load } from "/rows/module.js";
        const ready = load("/rows/");
        onmessage = async ({ data }) => postMessage(await (await ready).run(data));"""
    )
    got = page.evaluate(
        f"""new Promise((done, failed) => {{
        const worker = new Worker("/worker.js", {{type: "module"}});
        worker.onmessage = ({{ data }}) => done(Array.from(data.y));
        worker.onerror = (error) => failed(error.message);
        worker.postMessage({{x: {x.ravel().tolist()}, total: new Float32Array(7 * 33)}}); }})"""
    )
    y = exact(x, *rows)
    assert np.abs(np.reshape(got, y.shape) - y).max() < 2e-5 * y.max()


def test_what_goes_wrong(page, site, rows, rng):
    load = PROBLEM % 'import("/rows/module.js").then(m => m.load("/rows/", {use: "%s"}))'
    assert 'use is cuda; give "webgpu" or "wasm"' in page.evaluate(load % "cuda")
    assert "WebGPU finds no GPU here" in page.evaluate(load % "webgpu")
    page.evaluate(OPEN % {"name": "rows", "use": "undefined"})
    assert "the first run needs x, total, too" in page.evaluate(PROBLEM % "m.run()")
    assert "x has 3 numbers, and [7,64] has 448" in page.evaluate(PROBLEM % "m.run({x: [1, 2, 3]})")
    right(page, rows, rng)
    page.evaluate("m.destroy()")
    assert "the module was destroyed; load it again" in page.evaluate(PROBLEM % "m.run()")
    code = site[0] / "rows/kernels/module.wasm"
    whole = code.read_bytes()
    try:
        code.write_bytes(whole[:100])
        assert "the kernels do not run here, which need WebAssembly with SIMD" in page.evaluate(load % "wasm")
        code.unlink()
        assert "kernels/module.wasm cannot be fetched: 404" in page.evaluate(load % "wasm")
    finally:
        code.write_bytes(whole)


def test_an_op_without_a_kernel(site, tmp_path, monkeypatch):
    """No part of a folder is left; without `wasm` the page says what it needs (`test_page`)."""

    def refuse(*_: object) -> None:
        raise KernelError("quant_experts: no kernel of simd takes this call without Python")

    monkeypatch.setattr(trueno.web.exporting, "module", refuse)
    with trueno.Batch("wgpu") as batch:
        x = batch.upload(np.ones(8, np.float32))
        y = batch.exp(x)
        with pytest.raises(KernelError, match="quant_experts"):
            trueno.web.export(batch, tmp_path / "m", inputs={"x": x}, outputs={"y": y}, wasm=True)
        assert not any(tmp_path.iterdir())
        folder = trueno.web.export(batch, tmp_path / "m", inputs={"x": x}, outputs={"y": y})
    assert not (folder / "kernels/module.wasm").exists()


@pytest.mark.slow
def test_a_language_model(page, site):
    """The recorded step without a GPU gives the tokens of the engine on the CPU."""
    pytest.importorskip("gguf")
    from examples.qwen2.checkpoint import Checkpoint
    from examples.qwen2.model import Model, Sampling, Step
    from examples.qwen2.synthesize import synthesize

    prompt, new, path = [300, 5, 77], 6, site[0] / "tiny.gguf"
    synthesize(path, "tiny")
    host = Model(Checkpoint(path))
    cache = host.cache(64)
    wanted = [int(host.prefill(prompt, cache)[0].argmax())]
    while len(wanted) < new:
        wanted.append(int(host.decode(wanted[-1:], [cache])[0].argmax()))
    model = Model(Checkpoint(path), "wgpu")
    step = Step(model, model.cache(64).pages, 1, Sampling())
    slots, positions, lengths, table = step.places.handles
    inputs = {"token": step.tokens, "slots": slots, "positions": positions, "lengths": lengths, "table": table}
    trueno.web.export(step.batch, site[0] / "tiny", inputs=inputs, outputs={"next": step.drawn}, wasm=True)
    assert page.evaluate(OPEN % {"name": "tiny", "use": "undefined"}) == "wasm"
    got = page.evaluate(
        f"""(async () => {{ const prompt = {prompt}, tokens = [];
        for (let t = 0; tokens.length < {new}; t++) {{
          const values = {{slots: t, positions: t, lengths: t + 1, table: [0]}};
          if (t < prompt.length) values.token = prompt[t];
          const {{ next }} = await m.run(values);
          if (t >= prompt.length - 1) tokens.push(Number(next[0]));
        }}
        return tokens; }})()"""
    )
    assert got == wanted
    problem = page.evaluate(PROBLEM % f"m.run({{slots: {10**6}, positions: 9, lengths: 10}})")
    assert problem == "TruenoError: kv_cache_scatter refused the run: an index or a length is out of range"
