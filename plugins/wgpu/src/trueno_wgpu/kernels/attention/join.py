"""The parts of each result put together: Σ 2^(maximum of the part − maximum) · part, divided by the sum of weights.

A sink is a part of its own: a score whose value is 0.  A query that no part has shown a key gives 0, whatever its sink.
"""

import re
import struct
from functools import cache

from trueno_wgpu.device.grid import fold
from trueno_wgpu.device.shader import Shader
from trueno_wgpu.kernels.attention.text import WEIGHT
from trueno_wgpu.kernels.dispatches import INVOCATIONS
from trueno_wgpu.kernels.store import Store
from trueno_wgpu.rows.prelude import prelude

SIZES = """\
struct Sizes { count: u32, e: u32, rows: u32, parts: u32, hq: u32, }
@group(0) @binding(0) var<uniform> sizes: Sizes;
@group(0) @binding(1) var<storage, read> values: array<KIND>;
@group(0) @binding(2) var<storage, read> stats: array<vec2<f32>>;
OF_SINKS@group(0) @binding(PLACE) var<storage, read_write> out: array<KIND>;
"""
SINKS = {
    "OF_SINKS": "@group(0) @binding(3) var<storage, read> sinks: array<f32>;\n",
    "BEFORE": "        let raw = sinks[row % sizes.hq];\n"
              "        let sink = select(raw * 1.4426950408889634, LOW, bits(raw) == 0xff800000u);\n",
    "LARGEST": "sink",
    "ALREADY": "weight_of(sink, most)",
}  # fmt: skip
NO_SINKS = {"OF_SINKS": "", "BEFORE": "", "LARGEST": "LOW", "ALREADY": "0.0"}
MAIN = """\
@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) me: u32) {
    let at = ((wid.x + wid.y * groups.x) * 256u + me) * WIDTHu;
    if (at < sizes.count) {
        let row = at / sizes.e;
BEFORE        var most = LARGEST;
        for (var i = 0u; i < sizes.parts; i += 1u) { most = max(most, stats[i * sizes.rows + row].x); }
        var y = KIND();
        var total = ALREADY;
        var seen = false;
        for (var i = 0u; i < sizes.parts; i += 1u) {
            let part = stats[i * sizes.rows + row];
            let w = weight(part.x - most);
            y += w * values[(i * sizes.count + at) / WIDTHu];
            total += w * part.y;
            seen = seen || bits(part.y) != 0u;
        }
        store(at, 0u, 0u, select(KIND(), y / total, seen));
    }
"""


@cache
def shader(width: int, guarded: bool, sinks: bool) -> Shader:
    store, free = Store(guarded), 3 + sinks
    functions = re.sub(r"\bu\.", "sizes.", prelude(WEIGHT))
    parts = [SIZES, store.declarations(free + 1), functions, WEIGHT, store.function(width), MAIN + store.end + "}\n"]
    words = {"KIND": "f32" if width == 1 else "vec4<f32>", "WIDTH": str(width), "PLACE": str(free)}
    text = "\n".join(part for part in parts if part)
    for word, value in (words | (SINKS if sinks else NO_SINKS)).items():
        text = text.replace(word, value)
    return Shader("attention join", text, (*(False,) * (2 + sinks), True, *store.writes))


def launch(
    rows: int, e: int, parts: int, hq: int, guarded: bool, sinks: bool, limit: int
) -> tuple[Shader, bytes, tuple[int, int, int]]:
    """Shader, uniforms and grid for so many rows of e numbers."""
    width = 4 if e % 4 == 0 else 1
    count = rows * e
    grid = fold(-(-count // (INVOCATIONS * width)), limit)
    return shader(width, guarded, sinks), struct.pack("<5I", count, e, rows, parts, hq), grid
