"""Rows of x in turns of eight that name the same expert: one workgroup counts and distributes them on the device.

The order within an expert is that of whichever invocation comes first, and changes no result: rows of a turn are
computed beside one another.  Rows whose expert is outside of the matrix have turns of their own.
"""

import struct
from typing import Any

from trueno_wgpu.device.gpu import Buffer, Gpu
from trueno_wgpu.device.shader import Shader
from trueno_wgpu.kernels.memory import whole
from trueno_wgpu.kernels.stacked import Stack, place

TOGETHER = 8
"""Rows of x of a turn."""
NONE, OUTSIDE = 0xFFFFFFFF, 0xFFFFFFFE
"""In place of an expert or a row where there is none, and of an expert that is outside."""

TEXT = f"""\
struct Sizes {{
    pairs: u32, experts: u32, turns: u32, zero: u32,
    lead: vec4<u32>, x_step: vec4<u32>, i_step: vec4<u32>,
}}
@group(0) @binding(0) var<uniform> sizes: Sizes;
@group(0) @binding(1) var<storage, read> ids: array<vec2<u32>>;
@group(0) @binding(2) var<storage, read_write> counts: array<atomic<u32>>;
@group(0) @binding(3) var<storage, read_write> turns: array<u32>;
@group(0) @binding(4) var<storage, read_write> pairs: array<vec2<u32>>;  // number of the result, row of x

struct Named {{ expert: u32, column: u32 }}

fn named(pair: u32) -> Named {{
{place("pair", column="x_step", place="i_step")}
    let word = ids[place];
    return Named(select(sizes.experts, word.x, word.y == 0u && word.x < sizes.experts), column);
}}

@compute @workgroup_size(256)
fn main(@builtin(local_invocation_index) me: u32) {{
    for (var i = me; i <= sizes.experts; i += 256u) {{ atomicStore(&counts[i], 0u); }}
    for (var i = me; i < sizes.turns; i += 256u) {{ turns[i] = {NONE}u; }}
    for (var i = me; i < sizes.turns * {TOGETHER}u; i += 256u) {{ pairs[i] = vec2<u32>({NONE}u, 0u); }}
    storageBarrier();
    for (var i = me; i < sizes.pairs; i += 256u) {{ atomicAdd(&counts[named(i).expert], 1u); }}
    storageBarrier();
    if (me == 0u) {{
        var next = 0u;
        for (var i = 0u; i <= sizes.experts; i += 1u) {{
            let count = atomicLoad(&counts[i]);
            atomicStore(&counts[i], next * {TOGETHER}u);
            next += (count + {TOGETHER - 1}u) / {TOGETHER}u;
        }}
    }}
    storageBarrier();
    for (var i = me; i < sizes.pairs; i += 256u) {{
        let one = named(i);
        let slot = atomicAdd(&counts[one.expert], 1u);
        pairs[slot] = vec2<u32>(i, one.column);
        if (slot % {TOGETHER}u == 0u) {{
            turns[slot / {TOGETHER}u] = select(one.expert, {OUTSIDE}u, one.expert == sizes.experts);
        }}
    }}
}}
"""
SHADER = Shader("turns of experts", TEXT, (False, True, True, True))
MOST_EXPERTS = 1024
"""Experts that one invocation counts through."""


def worthwhile(pairs: int, experts: int) -> bool:
    """Whether rows of x share experts often enough: at least two each, on average."""
    return pairs >= max(2 * experts, 2 * TOGETHER) and experts <= MOST_EXPERTS


def most(pairs: int, experts: int) -> int:
    """Turns, at most: one of each expert, and of what is outside, may be partly empty."""
    return pairs // TOGETHER + min(experts + 1, pairs)


def sorted_pairs(gpu: Gpu, ids: Any, planned: Stack, experts: int) -> tuple[Buffer, Buffer]:
    """The expert of each turn, and its rows, `most(…)` turns in all."""
    count = most(planned.count, experts)
    counts, turns, pairs = gpu.alloc(4 * (experts + 1)), gpu.alloc(4 * count), gpu.alloc(8 * TOGETHER * count)
    numbers = struct.pack("<16I", planned.count, experts, count, 0, *planned.words())
    gpu.run(SHADER, (whole(ids.buffer, ids.nbytes, gpu.limits), counts, turns, pairs), numbers, (1, 1, 1))
    return turns, pairs
