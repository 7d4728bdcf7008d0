"""The other compiler of WGSL: Chromium's Tint takes every hand-written text.

It is stricter than naga about barriers: what decides whether one is reached must be the same for a whole workgroup, and
a private variable is not known to be.
"""

import json

import pytest

pytest.importorskip("wgpu")
from browser import Browser, chromium
from trueno_wgpu.kernels import concatenate, convolve2d, dispatches, embedding, gemv, outer, rope, topk, transpose
from trueno_wgpu.kernels.attention import few, join, tile
from trueno_wgpu.kernels.attention.text import Form as Attended
from trueno_wgpu.kernels.caches import decode, scatter
from trueno_wgpu.kernels.caches.cells import Rows
from trueno_wgpu.kernels.epilogue import spliced
from trueno_wgpu.kernels.lz4 import decompress, pack, sequences
from trueno_wgpu.kernels.matmul import LARGE, MIDDLE, SMALL
from trueno_wgpu.kernels.quant import activations as rounded
from trueno_wgpu.kernels.quant import columns as columnwise
from trueno_wgpu.kernels.quant import dequantize, experts, lookup, turns
from trueno_wgpu.kernels.quant import rows as by_rows
from trueno_wgpu.kernels.quant import tile as quantized_tile
from trueno_wgpu.kernels.sampling import draw
from trueno_wgpu.kernels.store import PARTIAL, PLAIN, Store
from trueno_wgpu.kernels.tile import Form, Tile, naive, tiled
from unit.wgpu.test_epilogue import op_of

ASK = """(async texts => {
  const device = await (await navigator.gpu.requestAdapter()).requestDevice(), refused = {};
  for (const [name, code] of Object.entries(texts)) {
    const messages = (await device.createShaderModule({code}).getCompilationInfo()).messages;
    if (messages.length) refused[name] = messages.map(m => `${m.type}, line ${m.lineNum}: ${m.message}`);
  }
  return {count: Object.keys(texts).length, refused};
})"""
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
        for sinks in (False, True):
            found[f"attention, join, {store.guarded}, {sinks}"] = join.shader(4, store.guarded, sinks).source
    for form in (Attended(4, 4), Attended(1, 1, True, guarded), Attended(4, 1, store=PARTIAL)):
        for rows in (1, 8, 16, 64):
            lanes = few.lanes_for(rows, 80, 80, form)
            text = few.text(lanes, form) if lanes else tile.text(tile.tile_for(rows, 80, 200), form)
            found[f"attention of {rows}, {form.keys} and {form.values} wide, {form.capped}"] = text
    found["sample"] = draw.shader().source
    found["turns of experts"] = turns.TEXT
    for chooses, final in ((False, False), (False, True), (True, True)):
        found[f"topk, {chooses}, {final}"] = topk.shader(chooses, final, final).source
    for final in (False, True):
        found[f"concatenate, {final}"] = concatenate.shader(final).source
    for shared in (False, True):
        found[f"lz4_decompress, {shared}"] = decompress.shader(shared).source
    for level in (1, 2):
        found[f"lz4_compress, {level}"] = sequences.shader(level, 11).source
    for what in ("add", "parts", "place", "place one", "copy"):
        found[f"lz4_pack, {what}"] = pack.shader(what).source
    ending = Store(False, epilogue=spliced(op_of("quant_matvec", "ewr", "gelu")))
    for form in ("q4_0", "q4_k", "q6_k", "mxfp4"):
        found[f"dequantize, {form}"] = dequantize.shader(form).source
        found[f"lookup, {form}"] = lookup.shader(form).source
        found[f"columns, {form}"] = columnwise.shader(form, 2).source
        for kind in ("q8", "f32", "colmajor"):
            found[f"tile, {form}, {kind}"] = quantized_tile.shader(form, kind).source
        for activations in ("q8", "f32"):
            for columns in (1, 8):
                text = experts.shader(form, activations, columns).source
                found[f"experts, {form}, {activations}, {columns}"] = text
            found[f"rows, {form}, {activations}"] = by_rows.shader(form, activations, 1, 4, ending).source
    for block in (32, 256):
        found[f"activations by {block}"] = rounded.shader(block).source
    for form in ("f32", "f16", "bf16", "q8_0"):
        found[f"scatter, {form}"] = scatter.shader(form, False).source
        for d, e, store in ((64, 96, guarded), (128, 32, PARTIAL)):
            attended = decode.Form(Rows(form, d), Rows(form, e), 4, store.guarded, store)
            found[f"decode, {form}, {d}"] = decode.text(attended)
    for form in ("f16", "bf16"):
        found[f"scatter, {form}, shared"] = scatter.shader(form, True).source
    for form in ("f32", "f16", "bf16"):
        found[f"decode, {form}, narrow"] = decode.text(decode.Form(Rows(form, 33), Rows(form, 5), 1))
    return found


def test_every_text_is_another():
    made = texts()
    assert len(set(made.values())) > 0.9 * len(made)


@pytest.mark.slow
def test_tint_takes_every_text(tmp_path):
    blank = tmp_path / "blank.html"
    blank.write_text("<title>WebGPU</title>")
    asked = texts()
    with Browser(chromium(), tmp_path, "--enable-unsafe-webgpu", "--use-webgpu-adapter=swiftshader") as browser:
        answer = browser.open(blank).evaluate(f"{ASK}({json.dumps(asked)})")
    assert answer == {"count": len(asked), "refused": {}}
