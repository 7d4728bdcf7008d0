"""The other compiler of WGSL: Chromium's Tint takes every hand-written text.

It is stricter than naga about barriers: what decides whether one is reached must be the same for a whole workgroup, and
a private variable is not known to be.
"""

import json
import shutil
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

pytest.importorskip("wgpu")
from trueno_wgpu.kernels import convolve2d, dispatches, embedding, gemv, outer, rope, transpose
from trueno_wgpu.kernels.attention import few, join, tile
from trueno_wgpu.kernels.attention.text import Form as Attended
from trueno_wgpu.kernels.caches import decode, scatter
from trueno_wgpu.kernels.caches.cells import Rows
from trueno_wgpu.kernels.epilogue import spliced
from trueno_wgpu.kernels.matmul import LARGE, MIDDLE, SMALL
from trueno_wgpu.kernels.quant import experts, turns
from trueno_wgpu.kernels.sampling import draw
from trueno_wgpu.kernels.store import PARTIAL, PLAIN, Store
from trueno_wgpu.kernels.tile import Form, Tile, naive, tiled
from unit.wgpu.test_epilogue import op_of

PAGE = """<script>(async () => {
  const found = {refused: {}};
  try {
    const device = await (await navigator.gpu.requestAdapter()).requestDevice();
    for (const [name, code] of Object.entries(await (await fetch("texts")).json())) {
      const told = (await device.createShaderModule({code}).getCompilationInfo()).messages;
      if (told.length) found.refused[name] = told.map(m => `${m.type}, line ${m.lineNum}: ${m.message}`);
      found.count = (found.count || 0) + 1;
    }
  } catch (error) { found.error = String(error); }
  await fetch("done", {method: "POST", body: JSON.stringify(found)});
})()</script>"""
TILES = (
    SMALL,
    MIDDLE,
    LARGE,
    Tile(128, 128, 8, 8, 8, unroll=8, slices=2),
    Tile(64, 64, 16, 4, 4, ahead=False),
    Tile(128, 64, 16, 8, 8, unroll=8),
)


def texts() -> dict[str, str]:
    found = {
        f"{tile}, {reads}{', turned' * turned}": tiled(tile, Form(reads, turned))
        for tile in TILES
        for reads in ("whole", "fours", "ones")
        for turned in (False, True)
    }
    guarded = Store(True)
    epilogue = Store(True, epilogue=spliced(op_of("matmul", "ewr", "gelu")))
    for what, store in {"plain": PLAIN, "partial": PARTIAL, "guarded": guarded, "epilogue": epilogue}.items():
        found[f"tile, batched, {what}"] = tiled(MIDDLE, Form("fours", batched=True, store=store))
        found[f"naive, {what}"] = naive(Form("ones", batched=True, store=store))
        for width in (1, 4):
            for vectors in (1, 3):
                name = f"{width} wide, {vectors} vectors, {what}"
                found[f"rows, {name}"] = gemv.rows_text(gemv.ROWS, width, vectors, vectors == 1, store)
                found[f"columns, {name}"] = gemv.columns_text(gemv.COLUMNS, width, vectors, store)
            found[f"add splits, {width} wide, {what}"] = dispatches.adding(width, store).source
    for store in (PLAIN, guarded):
        found[f"outer, {store.guarded}"] = outer.shader(4, store).source
        found[f"convolve2d, {store.guarded}"] = convolve2d.shader(4, 4, store).source
        found[f"transpose, {store.guarded}"] = transpose._shader(store.guarded).source
        found[f"embedding_lookup, {store.guarded}"] = embedding.shader(4, store.guarded).source
        found[f"rope, {store.guarded}"] = rope.shader(store.guarded, store.guarded).source
        found[f"attention, join, {store.guarded}"] = join.shader(4, store.guarded).source
    for form in (Attended(4, 4), Attended(1, 1, True, guarded), Attended(4, 1, store=PARTIAL)):
        for rows in (1, 8, 16, 64):
            lanes = few.lanes_for(rows, 80, 80, form)
            text = few.text(lanes, form) if lanes else tile.text(tile.tile_for(rows, 80, 200), form)
            found[f"attention of {rows}, {form.keys} and {form.values} wide, {form.capped}"] = text
    found["sample"] = draw.shader().source
    found["turns of experts"] = turns.TEXT
    for form in ("q4_0", "q4_k", "q6_k", "mxfp4"):
        for activations in ("q8", "f32"):
            for columns in (1, 8):
                text = experts.shader(form, activations, columns).source
                found[f"experts, {form}, {activations}, {columns}"] = text
    for form in ("f32", "f16", "bf16", "q8_0"):
        found[f"scatter, {form}"] = scatter.shader(form, False).source
        for d, e, store in ((64, 96, guarded), (128, 32, PARTIAL)):
            attended = decode.Form(Rows(form, d), Rows(form, e), 4, store.guarded, store)
            found[f"decode, {form}, {d}"] = decode.text(attended)
    for form in ("f32", "f16", "bf16"):
        found[f"scatter, {form}, shared"] = scatter.shader(form, True).source
        found[f"decode, {form}, narrow"] = decode.text(decode.Form(Rows(form, 33), Rows(form, 5), 1))
    return found


@pytest.mark.slow
def test_tint_takes_every_text(tmp_path):
    browser = shutil.which("chromium")
    if browser is None:
        pytest.skip("no chromium, whose Tint is asked")
    asked, answer, done = texts(), {}, threading.Event()

    class Server(BaseHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            pass

        def reply(self, body: str) -> None:
            self.send_response(200)
            self.send_header("content-type", "text/html")
            self.end_headers()
            self.wfile.write(body.encode())

        def do_GET(self) -> None:
            self.reply(json.dumps(asked) if self.path == "/texts" else PAGE)

        def do_POST(self) -> None:
            answer.update(json.loads(self.rfile.read(int(self.headers["content-length"]))))
            self.reply("")
            done.set()

    with ThreadingHTTPServer(("127.0.0.1", 0), Server) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        options = ["--headless=new", "--no-sandbox", "--enable-unsafe-webgpu", "--use-webgpu-adapter=swiftshader"]
        page = f"http://127.0.0.1:{server.server_port}/"
        started = subprocess.Popen(
            [browser, *options, f"--user-data-dir={tmp_path}", page],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            assert done.wait(180), "the browser did not answer"
        finally:
            started.terminate()
            started.wait(30)
            server.shutdown()
    assert answer == {"count": len(asked), "refused": {}}
