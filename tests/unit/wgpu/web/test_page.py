"""Exported batches in a real browser: the same numbers, one submission a run, and errors that say what is wrong."""

import gzip
import json
import os
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("wgpu")
import trueno
from browser import Browser, Page, chromium

from .server import serving

pytestmark = pytest.mark.usefixtures("chosen")
WEBGPU = "--enable-unsafe-webgpu", "--use-webgpu-adapter=swiftshader"
OPEN = """(async () => {
  const { load } = await import("/%(name)s/module.js");
  window.device = undefined;
  window.progress = [];
  window.m = await load("/%(name)s/", {progress: (done, total) => progress.push([done, total])});
  window.submits = 0;
  const submit = m.device.queue.submit.bind(m.device.queue);
  m.device.queue.submit = list => { submits += 1; return submit(list); };
})()"""
PROBLEM = "%s.then(() => 'no error', error => `${error.name}: ${error.message}`)"


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Iterator[tuple[Path, str, list[str]]]:
    """A folder that is served, its address, and what is requested from it."""
    folder = tmp_path_factory.mktemp("site")
    (folder / "index.html").write_text("<!doctype html><title>a page</title><link rel=icon href='data:,'>")
    with serving(folder) as (address, asked):
        yield folder, address, asked


@pytest.fixture(scope="module")
def browser(tmp_path_factory) -> Iterator[Browser]:
    with Browser(chromium(), tmp_path_factory.mktemp("chromium"), *WEBGPU) as running:
        yield running


@pytest.fixture
def page(browser, site) -> Page:
    return browser.open(f"{site[1]}index.html")


def run(page: Page, values: dict[str, np.ndarray], read: str = "") -> dict[str, list]:
    """The outputs of one run, as lists."""
    given = json.dumps({name: x.ravel().tolist() for name, x in values.items()})
    return page.evaluate(
        f"""m.run({given}{read and f", {{read: {json.dumps(read.split())}}}"}).then(results => Object.fromEntries(
        Object.entries(results).map(([name, x]) => [name, Array.from(x, Number)])))"""
    )


def test_rows_and_products(page, site, rng):
    """A chain of row ops, a product and a reduction, on new numbers each run."""
    w, bias = (rng.standard_normal(shape).astype(np.float32) for shape in ((64, 33), 33))
    with trueno.Batch("wgpu") as batch:
        x = batch.upload(np.zeros((7, 64), np.float32))
        y = batch.softmax(batch.gelu(batch.add(batch.matmul(x, batch.upload(w)), batch.upload(bias))))
        trueno.web.export(batch, site[0] / "rows", inputs={"x": x}, outputs={"y": y, "best": batch.argmax(y)})
    page.evaluate(OPEN % {"name": "rows"})
    for _ in range(3):
        given = rng.standard_normal((7, 64)).astype(np.float32)
        got = run(page, {"x": given})
        z = given.astype(np.float64) @ w + bias
        gelu = 0.5 * z * (1 + np.tanh(np.sqrt(2 / np.pi) * (z + 0.044715 * z**3)))
        exact = np.exp(gelu - gelu.max(1, keepdims=True))
        exact /= exact.sum(1, keepdims=True)
        got_y = np.array(got["y"]).reshape(7, 33)
        assert np.abs(got_y - exact).max() < 2e-5 * exact.max()
        assert got["best"] == got_y.argmax(1).tolist()
    assert page.evaluate("submits") == 3
    assert run(page, {}, "best") == {"best": got["best"]}, "an input that is left out is as it was"
    done, total = page.evaluate("progress")[-1]
    assert done == total >= w.nbytes and page.errors == []


def test_quantized_products(page, site, rng):
    """Weights stay in their blocks: the products are those of the decoded weights."""
    weights = rng.standard_normal((48, 256)).astype(np.float32)
    for name in ("q4_k", "q8_0"):
        blocks = trueno.quantize(weights, name)
        with trueno.Batch("wgpu") as batch:
            x = batch.upload(np.zeros(256, np.float32))
            y = batch.quant_matvec(batch.upload(blocks), x, activations="f32")
            folder = trueno.web.export(batch, site[0] / name, inputs={"x": x}, outputs={"y": y})
        assert sum(p.stat().st_size for p in folder.glob("data/*")) < blocks.nbytes + 4096
        page.evaluate(OPEN % {"name": name})
        given = rng.standard_normal(256).astype(np.float32)
        exact = trueno.dequantize(blocks).astype(np.float64) @ given
        assert np.abs(np.array(run(page, {"x": given})["y"]) - exact).max() < 1e-5 * np.abs(exact).max()
    assert page.errors == []


def test_steps_that_feed_themselves(page, site):
    """State stays on the device from run to run; runs that are started together come one after the other."""
    with trueno.Batch("wgpu") as batch:
        total = batch.upload(np.arange(4, dtype=np.float32))
        more = batch.add(total, batch.upload(np.ones(4, np.float32)))
        batch.feed(total, more)
        trueno.web.export(batch, site[0] / "sum", inputs={"total": total}, outputs={"more": more})
    page.evaluate(OPEN % {"name": "sum"})
    assert "the first run needs total" in page.evaluate(PROBLEM % "m.run()")
    assert run(page, {"total": np.zeros(4)})["more"] == [1.0] * 4
    assert page.evaluate("Promise.all([m.run(), m.run(), m.run()]).then(a => a.map(r => r.more[0]))") == [2.0, 3.0, 4.0]
    assert run(page, {"total": np.full(4, 7)})["more"] == [8.0] * 4
    assert page.errors == []


def test_a_language_model(page, site):
    """The example engine's recorded step gives the engine's own tokens, with one submission a token."""
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
    trueno.web.export(step.batch, site[0] / "tiny", inputs=inputs, outputs={"next": step.drawn})
    page.evaluate(OPEN % {"name": "tiny"})
    got = page.evaluate(
        f"""(async () => {{ const prompt = {prompt}, tokens = [];
        for (let t = 0; tokens.length < {new}; t++) {{
          const values = {{slots: t, positions: t, lengths: t + 1, table: [0]}};
          if (t < prompt.length) values.token = prompt[t];  // later ones are fed on the device
          const {{ next }} = await m.run(values);
          if (t >= prompt.length - 1) tokens.push(Number(next[0]));
        }}
        return tokens; }})()"""
    )
    assert got == wanted
    assert page.evaluate("submits") == len(prompt) + new - 1 and page.errors == []


def test_wrong_uses(page, site):
    with trueno.Batch("wgpu") as batch:
        x, i = batch.upload(np.ones((2, 3), np.float32)), batch.upload(np.zeros(2, np.int64))
        y = batch.embedding_lookup(x, i)
        trueno.web.export(batch, site[0] / "wrong", inputs={"x": x, "i": i}, outputs={"y": y})
    page.evaluate(OPEN % {"name": "wrong"})
    for call, problem in {
        "m.run({x: [1]})": "x has 1 numbers, and [2,3] has 6",
        "m.run({z: 1})": "there is no input z; there are x, i",
        "m.run({valueOf: 1})": "there is no input valueOf",
        "m.run({x: 'a'})": "x is string; give an array of 6 numbers",
        "m.run({x: null})": "x is null",
        "m.run({x: new Float64Array(6)})": "x is a Float64Array; give a Float32Array",
        "m.run({i: [0.5, 1]})": "i holds what is no whole number",
        "m.run({x: [1, 2, 3, 4, 5, 6]})": "the first run needs i, too",
        "m.run({}, {read: ['q']})": "there is no output q; there are y",
    }.items():
        assert problem in page.evaluate(PROBLEM % call), call
    assert run(page, {"x": np.arange(6.0), "i": np.array([1, 0])})["y"] == [3, 4, 5, 0, 1, 2], "it goes on"
    page.evaluate("m.destroy()")
    assert "the module was destroyed" in page.evaluate(PROBLEM % "m.run()")
    page.evaluate(OPEN % {"name": "wrong"})
    page.evaluate("m.device.destroy()")
    page.evaluate("m.device.lost")
    assert "the GPU was lost" in page.evaluate(PROBLEM % "m.run({x: [1, 2, 3, 4, 5, 6], i: [0, 0]})")
    assert page.errors == []


def test_files_that_are_wrong(page, site):
    with trueno.Batch("wgpu") as batch:
        x = batch.upload(np.ones(3, np.float32))
        y = batch.add(x, batch.upload(np.full(3, os.getpid(), np.float32)))
        folder = trueno.web.export(batch, site[0] / "files", inputs={"x": x}, outputs={"y": y})
    plan, data = json.loads((folder / "plan.json").read_text()), sorted(folder.glob("data/*"))
    load = PROBLEM % 'import("/files/module.js").then(({load}) => load("/files/"))'
    (folder / "plan.json").write_text(json.dumps(plan | {"version": 9}))
    assert "has format trueno-web 9; this runtime reads trueno-web 1" in page.evaluate(load)
    needs = {"features": [], "limits": plan["needs"]["limits"] | {"maxBufferSize": 2**53}}
    (folder / "plan.json").write_text(json.dumps(plan | {"needs": needs}))
    assert "the module needs maxBufferSize 9007199254740992, and the GPU has" in page.evaluate(load)
    (folder / "plan.json").write_text(json.dumps(plan))
    whole = data[0].read_bytes()
    data[0].write_bytes(whole[:-4])
    assert "export the module again" in page.evaluate(load)
    data[0].unlink()
    assert "cannot be fetched: 404" in page.evaluate(load)
    data[0].write_bytes(whole)
    page.evaluate(OPEN % {"name": "files"})
    assert run(page, {"x": np.zeros(3)})["y"] == [os.getpid()] * 3
    kernel = next(folder.glob("kernels/*"))
    kernel.write_text("this is not WGSL")
    assert "does not compile here" in page.evaluate(load)


def test_data_are_kept_by_the_browser(page, site, rng):
    with trueno.Batch("wgpu") as batch:
        x = batch.upload(np.ones(300, np.float32))
        y = batch.mul(x, batch.upload(rng.standard_normal(300).astype(np.float32)))
        trueno.web.export(batch, site[0] / "kept", inputs={"x": x}, outputs={"y": y})
    page.evaluate(OPEN % {"name": "kept"})
    asked = site[2]
    first = sum(path.startswith("/kept/data/") for path in asked)
    page.evaluate(OPEN % {"name": "kept"})
    assert first >= 1 and sum(path.startswith("/kept/data/") for path in asked) == first


def test_without_webgpu(tmp_path, site):
    """A browser without a GPU says so, and a page can ask beforehand."""
    with trueno.Batch("wgpu") as batch:
        x = batch.upload(np.ones(3, np.float32))
        trueno.web.export(batch, site[0] / "none", inputs={"x": x}, outputs={"y": batch.exp(x)})
    with Browser(chromium(), tmp_path) as plain:
        page = plain.open(f"{site[1]}index.html")
        assert page.evaluate('import("/none/module.js").then(m => m.missing())') == "WebGPU finds no GPU here"
        problem = page.evaluate(PROBLEM % 'import("/none/module.js").then(m => m.load("/none/"))')
        needs = "a browser with WebGPU and a GPU runs this module, and any browser one that was exported with wasm=True"
        assert problem == f"TruenoError: WebGPU finds no GPU here; {needs}"


def test_the_runtime_is_small():
    runtime = files("trueno_wgpu.web").joinpath("module.js").read_bytes()
    assert len(gzip.compress(runtime, 9)) <= 12 * 1024
    types = files("trueno_wgpu.web").joinpath("module.d.ts").read_text("utf-8")
    exported = {
        line.split()[2].split("(")[0] for line in runtime.decode().splitlines() if line.startswith("export class")
    }
    functions = {line.split("function ")[1].split("(")[0] for line in runtime.decode().splitlines()
                 if line.startswith(("export async function", "export function"))}  # fmt: skip
    assert exported | functions == {"TruenoError", "load", "missing"}
    assert all(name in types for name in exported | functions)
