"""quant_experts: rows of x with the experts that indices name, each read from its blocks.

A warp sums a few outputs of one row of x, whose elements it reads once for all of them; a lane takes every 32nd unit
of a row of blocks.  "q8" and "bf16" round x once, to float32 in scratch.  An index outside of the experts gives NaN.

Floor: the bytes of the experts that are named, for each row of x that names them, from memory or from L2.
"""

from collections.abc import Sequence
from functools import cache
from itertools import product
from math import nan, prod
from typing import Any

import numpy as np
from trueno.backend import COLUMN, FORMATS, Call, Format, Kernel, stacks, unit_shape

from trueno_cuda.device.protocol import ArrayLaunch, Device
from trueno_cuda.kernels.gemm.choice import Choice
from trueno_cuda.kernels.gemm.matmul import product_launches
from trueno_cuda.kernels.gemm.problem import Problem
from trueno_cuda.kernels.operands import Plan, Shape, called
from trueno_cuda.kernels.quant.blocks import Blocks, access_of
from trueno_cuda.kernels.quant.decoding import decoded, refusal
from trueno_cuda.kernels.quant.parts import rounding
from trueno_cuda.kernels.source import build
from trueno_cuda.kernels.store import Finish, Store
from trueno_cuda.kernels.table import KERNELS, RATES
from trueno_cuda.ptx import Kernel as Built
from trueno_cuda.ptx import bf16, f32, ptr, u8, u32, u64

WARPS = 4
THREADS = 32 * WARPS
EACH = 4
"""Outputs of a warp at once."""
AXES = 3
"""Leading axes that a launch knows; further ones are walked on the host."""


@cache
def experts(arch: str, name: str, access: int, wide: bool, narrow: bool, store: Store) -> Built:
    """out[…, j] = sum over k of x[…, k] w[ids[…] outputs + j, k].  Grid: tiles of outputs, for each place of AXES axes.

    wide: x begins at a multiple of 16 bytes.  narrow: weights are rounded to bfloat16.  x_gap, i_gap: elements of x and
    of ids from one place to the next along each axis.
    """
    f, s = FORMATS[name], unit_shape(name)
    vec = 4 if wide else 1

    def body(k: Any, p: Any) -> None:
        finish, lane = Finish(k, p, store), k.lane
        w = Blocks(k, f, p.w, access)
        place, tile = k.ctaid // p.tiles, k.ctaid % p.tiles
        rest, x_at, i_at = place, k.const(u64, 0), k.const(u64, 0)
        for axis in reversed(range(AXES)):
            at = (rest % getattr(p, f"size{axis}")).to(u64)
            rest = rest // getattr(p, f"size{axis}")
            x_at, i_at = x_at + at * getattr(p, f"x_gap{axis}"), i_at + at * getattr(p, f"i_gap{axis}")
        index = p.ids.load(i_at)
        inside = index < p.experts  # as an unsigned number, which a negative one exceeds
        top = k.select(inside, index, 0) * p.outputs.to(u64)
        first = (tile * WARPS + k.warp) * EACH
        rows = [k.min(first + r, p.outputs - 1) for r in range(EACH)]
        lines = [w.line((top + row.to(u64)) * (p.across.to(u64) * f.nbytes)) for row in rows]
        line = p.x + k.multiple_of(x_at, 32)
        sums = k.vars(f32, EACH, 0.0)
        for unit in k.range(lane, p.across * s.units, 32):
            e, number = w.first(unit % s.units), unit // s.units
            heres = [own.block(number) for own in lines]
            read = [(w.raws(here, e), w.head(here)) for here in heres]
            for way in range(s.ways):
                start = line + k.multiple_of((number * f.elements + e + way * s.run).to(u64), COLUMN)
                xs = [x for i in range(0, COLUMN, vec) for x in start.load(i, vec=vec)] if vec > 1 else [
                    start.load(i) for i in range(COLUMN)
                ]  # fmt: skip
                for mine, (raws, head) in zip(sums, read, strict=True):
                    for x, y in zip(xs, decoded(k, w, raws, head, e, way), strict=True):
                        mine.fma(x, y.to(bf16).to(f32) if narrow else y)
        base = place.to(u64) * p.outputs.to(u64)
        for r in range(EACH):
            total = k.select(inside, k.warp_sum(sums[r]), nan)
            at = base + (first + r).to(u64)
            live = (lane == 0) & (first + r < p.outputs)
            p.out.store(at, finish([total], at, place, first + r, live), where=live)
        finish.end()

    params = {
        "w": ptr(u8), "x": ptr(f32), "ids": ptr(u64), "out": ptr(f32), **store.pointers(f32),
        "across": u32, "tiles": u32, "outputs": u32, "experts": u64, **{f"size{i}": u32 for i in range(AXES)},
        **{f"x_gap{i}": u64 for i in range(AXES)}, **{f"i_gap{i}": u64 for i in range(AXES)},
    }  # fmt: skip
    words = f"quant_experts_{name}_a{access}{'_w' * wide}{'_bf16' * narrow}{store.word}"
    return build(words, arch, params, body, THREADS)


class Experts:
    """The launches for one set of shapes: `run((w, x, ids, out, *status))`."""

    def __init__(
        self, device: Device, f: Format, activations: str, arrays: tuple[Shape, Shape, Shape, Shape], wide: bool,
        guarded: bool,
    ) -> None:  # fmt: skip
        w, x, ids, out = arrays
        self.device, outputs, k, whole = device, out[-1], x[-1], out[:-1]
        x_gaps, i_gaps = stacks.leading(x[:-1], whole, k), stacks.leading(ids, whole, 1)
        assert x_gaps is not None and i_gaps is not None
        lead, (xs, i_s) = stacks.merged(whole, x_gaps, i_gaps)
        lead, xs, i_s = ((*[fill] * (AXES - len(v)), *v) for v, fill in ((lead, 1), (xs, 0), (i_s, 0)))
        self.nbytes = 0
        self.rounding = None
        if activations != "f32":
            count = prod(x)
            self.nbytes, self.rounding = 4 * count, rounding(device, f, activations, count)
        access = access_of(f, 0, w[0] * w[1]) if wide else 1
        kernel = experts(device.arch, f.name, access, wide, activations == "bf16", Store(guarded))
        tiles = -(-outputs // (WARPS * EACH))
        inner = lead[-AXES:]
        count = inner[0] * inner[1] * inner[2]
        numbers = (w[1] // f.nbytes, tiles, outputs, w[0] // outputs, *inner, *xs[-AXES:], *i_s[-AXES:])
        self.launch = device.prepare(kernel, (tiles * count, 1, 1), numbers)
        self.places = []
        for n, at in enumerate(product(*map(range, lead[:-AXES]))):
            moved = [sum(a * b for a, b in zip(at, gaps, strict=False)) for gaps in (xs, i_s)]
            self.places.append((4 * moved[0], 8 * moved[1], 4 * n * count * outputs))

    def run(self, pointers: Sequence[int], floats: Sequence[float] = ()) -> None:
        w, x, ids, out, *status = pointers
        memory = self.device.scratch(self.nbytes) if self.rounding else None
        if self.rounding and memory is not None:
            self.rounding((x, memory.data.ptr))
            x = memory.data.ptr
        for x_at, i_at, to in self.places:
            self.launch((w, x + x_at, ids + i_at, out + to, *status))


@KERNELS.add("quant_experts", rates=RATES, dtypes=("float32",), refusal=refusal)
def quant_experts(device: Device, call: Call) -> Kernel:
    """w[m,b] bytes of static["format"], x[...,k], ids[...] -> out[...,outputs]."""
    static, guarded = dict(call.static), call.guarded
    f, outputs = FORMATS[static["format"]], static["outputs"]

    def plan(w: Shape, x: Shape, ids: Shape, out: Shape, wide: bool) -> Plan:
        if len(w) != 2 or not x or out[-1:] != (outputs,) or w[1] % f.nbytes or w[0] % outputs:
            return None
        leads = [stacks.leading(lead, out[:-1], 1) for lead in (x[:-1], ids)]
        if None in leads or x[-1] != f.row_elements(w[1]) or (w[0] == 0 and 0 not in out):
            return None
        if np.broadcast_shapes(x[:-1], ids) != out[:-1]:
            return None
        if 0 in out:
            return []
        if not x[-1]:
            problem = Problem(prod(out[:-1]), outputs, 0)
            (zeros,) = product_launches(device, problem, f32, Store(guarded), False, Choice("naive"))
            return [ArrayLaunch(lambda given, floats=(): zeros.launch((given[1], given[0], *given[3:])))]  # type: ignore[arg-type]
        return [ArrayLaunch(Experts(device, f, static["activations"], (w, x, ids, out), wide, guarded).run)]  # type: ignore[arg-type]

    return called(device, plan, guarded, 3)
