"""What a page waits for: exported batches in a headless Chromium, on WebAssembly, and on WebGPU by SwiftShader.

    python -m benchmarks.in_page            # the products of 512, and the first result of a page
    python -m benchmarks.in_page --size 256 --rounds 3

`matmul`: the exported product on one thread, beside loops over typed arrays in plain JavaScript, in the same page.
They take turns, and each keeps its best.  Loops in the order i, k, j, as a careful author writes them, and i, j, k, as
in a textbook.  Each result is compared with float64 first.  `first result`: from the beginning of the navigation to the
first result of a page, whose files the browser has in its cache.  Needs Chromium, the wgpu backend, and Numba.
"""

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import trueno

from tests.browser import Browser, Page, chromium
from tests.unit.wgpu.web.server import serving

WEBGPU = "--enable-unsafe-webgpu", "--use-webgpu-adapter=swiftshader"
BEGIN = """<!doctype html><title>first result</title><link rel=icon href="data:,"><script type="module">
import { load } from "./matmul/module.js";
const m = await load("./matmul/", {use: new URLSearchParams(location.search).get("use")});
const n = m.inputs.x.shape[0];
await m.run({x: new Float32Array(n * n), w: new Float32Array(n * n)});
window.first = performance.now();
</script>"""
RACE = """(async () => {
  const n = %(n)d, m = (await import("/matmul/module.js")), module = await m.load("/matmul/", {use: "wasm"});
  const [x, w] = [0, 1].map(() => Float32Array.from({length: n * n}, () => Math.random() - 0.5));
  const y = new Float32Array(n * n);
  const ikj = () => {
    y.fill(0);
    for (let i = 0; i < n; i++) for (let k = 0; k < n; k++) {
      const a = x[i * n + k];
      for (let j = 0; j < n; j++) y[i * n + j] += a * w[k * n + j];
    }
    return y;
  };
  const ijk = () => {
    for (let i = 0; i < n; i++) for (let j = 0; j < n; j++) {
      let sum = 0;
      for (let k = 0; k < n; k++) sum += x[i * n + k] * w[k * n + j];
      y[i * n + j] = sum;
    }
    return y;
  };
  await module.run({x, w});
  const ours = async () => (await module.run({})).y;
  const contestants = {WebAssembly: ours, "JavaScript i, k, j": ikj, "JavaScript i, j, k": ijk}, best = {}, wrong = {};
  const some = Array.from({length: 200}, () => [Math.floor(Math.random() * n), Math.floor(Math.random() * n)]);
  for (let round = 0; round < %(rounds)d; round++) for (const [name, run] of Object.entries(contestants)) {
    const start = performance.now(), result = await run(), took = performance.now() - start;
    best[name] = Math.min(best[name] ?? Infinity, took);
    for (const [i, j] of round ? [] : some) {
      let exact = 0;
      for (let k = 0; k < n; k++) exact += x[i * n + k] * w[k * n + j];
      wrong[name] = Math.max(wrong[name] ?? 0, Math.abs(result[i * n + j] - exact));
    }
  }
  return {best, wrong};
})()"""


def export(folder: Path, n: int) -> None:
    with trueno.Batch("wgpu") as batch:
        x, w = (batch.upload(np.zeros((n, n), np.float32)) for _ in range(2))
        y = batch.matmul(x, w)
        trueno.web.export(batch, folder / "matmul", inputs={"x": x, "w": w}, outputs={"y": y}, wasm=True)


def race(page: Page, n: int, rounds: int) -> dict[str, Any]:
    """Milliseconds of each contestant; AssertionError for a wrong result."""
    got = page.evaluate(RACE % {"n": n, "rounds": rounds})
    for name, error in got["wrong"].items():
        assert error < n * 2.0**-22, f"{name} is wrong by {error}"
    return got["best"]


def first_result(browser: Browser, address: str, use: str) -> float:
    """Milliseconds from the beginning of a navigation to the page's first result, at the second visit."""
    for _ in range(2):
        page = browser.open(f"{address}first.html?use={use}")
        page.evaluate(
            "new Promise(done => { const look = () => window.first ? done() : setTimeout(look, 5); look(); })"
        )
    return page.evaluate("window.first")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--size", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        site, profile = Path(place) / "site", Path(place) / "profile"
        site.mkdir()
        profile.mkdir()
        export(site, options.size)
        (site / "index.html").write_text("<!doctype html><title>benchmark</title><link rel=icon href='data:,'>")
        (site / "first.html").write_text(BEGIN)
        with serving(site) as (address, _), Browser(chromium(), profile, *WEBGPU) as browser:
            best = race(browser.open(f"{address}index.html"), options.size, options.rounds)
            flops = 2 * options.size**3
            for name, ms in best.items():
                ratio = ms / best["WebAssembly"]
                print(f"matmul {options.size}  {name:20} {ms:8.2f} ms {flops / ms / 1e6:7.2f} GFLOP/s  {ratio:6.2f}")
            for use in ("wasm", "webgpu"):
                print(f"first result  {use:13} {first_result(browser, address, use):8.0f} ms")
        print(json.dumps({"best_ms": best}))


if __name__ == "__main__":
    main()
