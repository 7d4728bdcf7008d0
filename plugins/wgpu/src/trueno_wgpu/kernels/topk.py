"""topk: a workgroup finds the best of its numbers, then the best that comes after that one, k times.

A long row has several workgroups, which leave the positions of their own k in a scratch array, and a second dispatch
chooses among those.  Numbers are compared by their bits, which are made to order like them, NaN above all and −0 as +0,
and then by position; so no float is compared, and WGSL may assume nothing about NaN.
"""

import struct
from functools import cache
from math import prod
from typing import Any

from trueno.backend import Call, Kernel

from trueno_wgpu.device.array import Array
from trueno_wgpu.device.gpu import Gpu, Limits
from trueno_wgpu.device.grid import fold
from trueno_wgpu.device.shader import Shader
from trueno_wgpu.kernels.dispatches import INVOCATIONS, Plans, Shape
from trueno_wgpu.kernels.memory import Band, bands, bind, clashes
from trueno_wgpu.kernels.store import Store
from trueno_wgpu.kernels.table import KERNELS, RATES

EACH = 4096
"""Numbers of a workgroup, at least."""
REDUCED = 10
"""Trips of a pass's other loops."""

KEY = """\
fn key(word: u32) -> u32 {
    let size = word & 0x7fffffffu;
    if (size > 0x7f800000u) { return 0xffffffffu; }
    if (size == 0u) { return 0x80000000u; }
    return select(word | 0x80000000u, ~word, word >= 0x80000000u);
}
"""
"""A number's bits as an integer that orders like it: NaN above all, and −0 as +0."""
TEXT = """\
struct Sizes {
    rows: u32, n: u32, k: u32,  // of the rows that are bound
    parts: u32, each: u32,  // workgroups of a row, and the candidates of one
    begin: u32, end: u32,  // of the k that are found here
}
@group(0) @binding(0) var<uniform> sizes: Sizes;
@group(0) @binding(1) var<storage, read> x: array<u32>;
BINDINGS
STATUS
const NONE = 0xffffffffu;
var<workgroup> keys: array<u32, 256>;
var<workgroup> places: array<u32, 256>;

KEY_OF
fn before(a: u32, i: u32, b: u32, j: u32) -> bool {
    return a > b || (a == b && i < j);
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) me: u32) {
    let group = wid.x + wid.y * groups.x;
    if (group >= sizes.rows * sizes.parts) { return; }
    let row = group / sizes.parts;
    let first = group % sizes.parts * sizes.each;
    var last_key = NONE;
    var last_place = NONE;  // of the number found before; at first all come after it
    if (sizes.begin > 0u) {
        last_place = LAST;
        last_key = key(x[row * sizes.n + last_place]);
    }
    for (var p = sizes.begin; p < sizes.end; p += 1u) {
        var best = 0u;
        var place = NONE;
        for (var c = me; c < sizes.each; c += 256u) {
            CANDIDATE
            if (at < sizes.n) {
                let word = key(x[row * sizes.n + at]);
                let left = p == 0u || before(last_key, last_place, word, at);
                if (left && (place == NONE || before(word, at, best, place))) {
                    best = word;
                    place = at;
                }
            }
        }
        keys[me] = best;
        places[me] = place;
        for (var half = 128u; half > 0u; half = half / 2u) {
            workgroupBarrier();
            if (me < half) {
                let other = places[me + half];
                if (other != NONE && (places[me] == NONE || before(keys[me + half], other, keys[me], places[me]))) {
                    keys[me] = keys[me + half];
                    places[me] = other;
                }
            }
        }
        workgroupBarrier();
        last_key = keys[0];
        last_place = places[0];
        workgroupBarrier();
        if (me == 0u) {
            let to = group * sizes.k + p;
STORE        }
    }
"""
FOUND = "@group(0) @binding(2) var<storage, read_write> found: array<u32>;"
RESULTS = """\
@group(0) @binding(BASE) var<storage, read_write> values: array<u32>;
@group(0) @binding(NEXT) var<storage, read_write> indices: array<vec2<u32>>;"""
OWN = "let at = first + c;"
CHOSEN = "let at = found[row * sizes.each + c];"


@cache
def shader(chooses: bool, final: bool, guarded: bool) -> Shader:
    """chooses: candidates are those that other workgroups found.  final: it writes results."""
    store = Store(guarded and final)
    bindings, base = [], 2
    if chooses:
        bindings.append(FOUND.replace("read_write", "read"))
        base = 3
    bindings.append(RESULTS.replace("BASE", str(base)).replace("NEXT", str(base + 1)) if final else FOUND)
    lines, last = ["found[to] = last_place;"], "found[group * sizes.k + sizes.begin - 1u]"
    if final:
        last = "indices[row * sizes.k + sizes.begin - 1u].x"
        lines = ["let word = x[row * sizes.n + last_place];", "values[to] = word;",
                 "indices[to] = vec2<u32>(last_place, 0u);"]  # fmt: skip
        lines += ["look(bitcast<f32>(word));"] if guarded else []
    text = TEXT.replace("BINDINGS", "\n".join(bindings)).replace("CANDIDATE", CHOSEN if chooses else OWN)
    text = text.replace("KEY_OF\n", KEY).replace("STATUS", store.declarations(base + 2)).replace("LAST", last)
    text = text.replace("STORE", "".join(f"            {line}\n" for line in lines))
    writes = (False, *(False,) * chooses, *((True, True) if final else (True,)), *store.writes)
    return Shader("topk", text + store.end + "}\n", writes)


def plan(rows: int, n: int, k: int, limits: Limits) -> list[tuple[Band | None, ...]]:
    """Bands of x, of values and of indices."""
    planned: list[tuple[Band | None, ...]] = []
    for first, count in bands("topk", "x", rows, (n * 4, k * 4, k * 8), limits):
        whole = count == rows
        planned.append(tuple(None if whole else Band(first, count, size) for size in (n * 4, k * 4, k * 8)))
    return planned


def _found(gpu: Gpu, how: Shader, buffers: list[Any], sizes: tuple[int, ...]) -> None:
    """Find the k of each workgroup, as many in a dispatch as an invocation's loop budget allows."""
    rows, _, k, parts, each = sizes
    trips, groups = gpu.limits.trips, fold(rows * parts, gpu.limits.groups)
    step = max(1, trips // (-(-each // INVOCATIONS) + REDUCED)) if trips else k
    for begin in range(0, k, step):
        gpu.run(how, buffers, struct.pack("<7I", *sizes, begin, min(begin + step, k)), groups)


@KERNELS.add("topk", rates=RATES)
def topk(gpu: Gpu, call: Call) -> Kernel:
    """x[...,n] -> values[...,k] indices[...,k]."""
    limits, guarded = gpu.limits, call.guarded

    def make(x: Shape, values: Shape, indices: Shape) -> Any:
        if not x or not values == indices == (*x[:-1], values[-1]) or values[-1] > x[-1]:
            return None
        return plan(prod(x[:-1]), x[-1], values[-1], limits) if 0 not in values else []

    plans = Plans(make)

    def kernel(x: Any, values: Any, indices: Any) -> int:
        planned = plans(x.shape, values.shape, indices.shape)
        if planned is None or clashes(values, x, indices) or clashes(indices, x):
            return -1
        _select(gpu, planned, x, values, indices, guarded)
        return 0

    return kernel


def _select(gpu: Gpu, planned: Any, x: Any, values: Any, indices: Any, guarded: bool) -> None:
    """Run what was planned."""
    n, k, arrays = x.shape[-1], values.shape[-1], (x, values, indices)
    for each in planned:
        source, *targets = (bind(b, a.buffer, a.nbytes, gpu.limits) for b, a in zip(each, arrays, strict=True))
        rows = each[0].count if each[0] is not None else prod(x.shape[:-1])
        targets += [gpu.status] * guarded
        share = max(EACH, 4 * k)
        parts = -(-n // share)
        if parts == 1:
            _found(gpu, shader(False, True, guarded), [source, *targets], (rows, n, k, 1, n))
            continue
        found = gpu.alloc(rows * parts * k * 4)
        _found(gpu, shader(False, False, guarded), [source, found], (rows, n, k, parts, share))
        _found(gpu, shader(True, True, guarded), [source, found, *targets], (rows, n, k, 1, parts * k))


def best(gpu: Gpu, x: Any, indices: Any) -> int:
    """The position of the largest number of each row of x: topk with k = 1, whose values are dropped."""
    shape = (*x.shape[:-1], 1)
    planned = plan(prod(x.shape[:-1]), x.shape[-1], 1, gpu.limits)
    _select(gpu, planned, x, Array.empty(gpu, shape, x.dtype), indices.reshape(shape), False)
    return 0
