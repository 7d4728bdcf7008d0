"""quant_matvec_colmajor and quant_matmul_colmajor: x · w[k, n], whose blocks lie along n.

    few rows of x    a lane owns a unit of columns and decodes it for every k that its warp takes; warps of a block take
                     turns along k and meet in shared memory, and blocks that share columns meet in a second kernel
    more             tensor cores, in float32's precision (`many`)

Floor: the bytes of w, at 4.28 TB/s on an H200.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

from trueno.backend import COLUMN, FORMATS, Call, Format, Kernel, unit_shape

from trueno_cuda.device.protocol import ArrayLaunch, Device
from trueno_cuda.kernels.gemm.choice import Choice
from trueno_cuda.kernels.gemm.matmul import product_launches
from trueno_cuda.kernels.gemm.problem import Problem
from trueno_cuda.kernels.gemm.splits import adding
from trueno_cuda.kernels.operands import Plan, Shape, called
from trueno_cuda.kernels.product import ProductLaunch
from trueno_cuda.kernels.quant.blocks import Blocks, access_of
from trueno_cuda.kernels.quant.decoding import decoded, refusal
from trueno_cuda.kernels.quant.many import Many
from trueno_cuda.kernels.source import build
from trueno_cuda.kernels.store import PARTIAL, Finish, Store
from trueno_cuda.kernels.table import KERNELS, RATES
from trueno_cuda.ptx import Kernel as Built
from trueno_cuda.ptx import f32, ptr, u8, u32, u64

WARPS = 8
THREADS = 32 * WARPS
MOST_SUMS = 64
"""Of a lane, in registers."""
FEW = 4
"""Rows of x up to which w is read from its blocks, once or twice; more go to tensor cores."""
FILLING = 4
"""Blocks that a multiprocessor is to have."""
LEAST = 4 * WARPS
"""Rows of w that a block takes at least."""
SHORT = 64
"""Terms below which sums are those of fma in any case: a product of parts in bfloat16 is off by some 3 roundings."""
MOST = 1 << 31


def together(f: Format) -> int:
    """Rows of x that one launch multiplies."""
    return max(min(MOST_SUMS // unit_shape(f.name).elements, FEW), 1)


@cache
def columns(arch: str, name: str, access: int, count: int, store: Store) -> Built:
    """out[v, j] = sum over k of x[v, k] w[k, j], of `count` rows of x.  Grid: 32 units, splits of k."""
    f, s = FORMATS[name], unit_shape(name)
    each = s.elements

    def body(k: Any, p: Any) -> None:
        finish, warp, lane = Finish(k, p, store), k.warp, k.lane
        w = Blocks(k, f, p.w, access)
        number = k.ctaid * 32 + lane
        live = number < p.across * s.units
        safe = k.select(live, number, 0)
        unit, block = safe % s.units, safe // s.units
        e = w.first(unit)
        first, end = k.ctaid_y * p.share, k.min(p.depth, k.ctaid_y * p.share + p.share)
        row_bytes = p.across.to(u64) * f.nbytes
        sums = [k.vars(f32, each, 0.0) for _ in range(count)]
        for row in k.range(first + warp, end, WARPS):
            here = w.line(row.to(u64) * row_bytes).block(block)
            xs = [p.x.load(p.depth.to(u64) * v + row.to(u64)) for v in range(count)]
            raws, head = w.raws(here, e), w.head(here)
            for way in range(s.ways):
                for i, y in enumerate(decoded(k, w, raws, head, e, way)):
                    for x, mine in zip(xs, sums, strict=True):
                        mine[way * COLUMN + i].fma(x, y)
        scratch = k.shared(f32, WARPS, COLUMN, 33)  # column by column, so that lanes write neighbours
        for v in range(count):
            for way in range(s.ways):
                for i in range(COLUMN):
                    scratch.store((warp, i, lane), sums[v][way * COLUMN + i])
                k.sync()
                for turn in range(0, 32 * COLUMN, THREADS):
                    i, from_ = (k.tid + turn) % COLUMN, (k.tid + turn) // COLUMN
                    total = k.var(scratch.load((0, i, from_)))
                    for other in range(1, WARPS):
                        total += scratch.load((other, i, from_))
                    unit_ = k.ctaid * 32 + from_
                    inside = unit_ < p.across * s.units
                    column = unit_ // s.units * f.elements + (w.first(unit_ % s.units) + way * s.run) + i
                    at = (k.ctaid_y * count + v if store.partial else k.const(u32, v)).to(u64)
                    at = at * (p.across.to(u64) * f.elements) + column.to(u64)
                    p.out.store(at, finish([total], at, k.const(u32, v), column, inside), where=inside)
                k.sync()
        finish.end()

    params = {
        "w": ptr(u8), "x": ptr(f32), "out": ptr(f32), **store.pointers(f32), "across": u32, "depth": u32, "share": u32,
    }  # fmt: skip
    return build(f"quant_columns_{name}_{count}_a{access}{store.word}", arch, params, body, THREADS)


class Few:
    """out[m, n] = x[m, k] · w[k, n] for one set of sizes, a few rows at a time: `run(w, x, out, *status)`."""

    def __init__(self, device: Device, f: Format, m: int, n: int, k: int, wide: bool, *, guarded: bool) -> None:
        self.device, self.sizes = device, (n, k)
        across = n // f.elements
        access = access_of(f, 0, k * f.row_bytes(n)) if wide else 1
        grid = -(-across * unit_shape(f.name).units // 32)
        splits = max(min(-(-device.sms * FILLING // grid), k // LEAST), 1)
        share = -(-k // splits)
        splits = -(-k // share)
        self.turns: list[tuple[int, ProductLaunch]] = []
        for first in range(0, m, together(f)):
            count, store = min(together(f), m - first), Store(guarded)
            kernel = columns(device.arch, f.name, access, count, PARTIAL if splits > 1 else store)
            launch = device.prepare(kernel, (grid, splits, 1), (across, k, share))
            then = None
            if splits > 1:
                vectors = wide and n % 4 == 0
                width = THREADS * (4 if vectors else 1)
                second = adding(device.arch, f32, vectors, store)
                then = device.prepare(second, (-(-count * n // width), 1, 1), (count, n, splits))
            self.turns.append((first, ProductLaunch(launch, (0, 0, 0, 0), then, 4 * splits * count * n)))

    def run(self, w: int, x: int, out: int, *status: int) -> None:
        n, k = self.sizes
        memory = self.device.scratch(max(p.scratch for _, p in self.turns))
        parts = memory.data.ptr
        for first, planned in self.turns:
            given, to = (w, x + 4 * first * k), out + 4 * first * n
            if planned.then is None:
                planned.launch((*given, to, *status))
            else:
                planned.launch((*given, parts))
                planned.then((parts, to, *status))


def runner(device: Device, f: Format, m: int, n: int, k: int, wide: bool, guarded: bool) -> Callable[..., None]:
    """`run(w, x, out, *status)` for these sizes."""
    if not k:
        (zeros,) = product_launches(device, Problem(m, n, 0), f32, Store(guarded), False, Choice("naive"))
        return lambda w, x, out, *status: zeros.launch((x, w, out, *status))
    if m <= FEW or k < SHORT:
        return Few(device, f, m, n, k, wide, guarded=guarded).run
    many = Many(device, f, "f32", m, n, k, wide, guarded=guarded, along=False)

    def run(w: int, x: int, out: int, *status: int) -> None:
        memory = device.scratch(many.nbytes)
        many.run(memory.data.ptr, w, x, out, status=status)

    return run


@KERNELS.add("quant_matvec_colmajor", rates=RATES, dtypes=("float32",), refusal=refusal)
def quant_matvec_colmajor(device: Device, call: Call) -> Kernel:
    """w[k,b] bytes of static["format"], x[k] -> out[n]."""
    f, guarded = FORMATS[dict(call.static)["format"]], call.guarded

    def plan(w: Shape, x: Shape, out: Shape, wide: bool) -> Plan:
        if len(w) != 2 or w[1] % f.nbytes or x != w[:1] or out != (f.row_elements(w[1]),) or max(*out, *x) >= MOST:
            return None
        if not out[0]:
            return []
        run = runner(device, f, 1, *out, *x, wide, guarded)
        return [ArrayLaunch(lambda pointers, floats=(): run(*pointers))]  # type: ignore[arg-type]

    return called(device, plan, guarded, 2)


@KERNELS.add("quant_matmul_colmajor", rates=RATES, dtypes=("float32",), refusal=refusal)
def quant_matmul_colmajor(device: Device, call: Call) -> Kernel:
    """x[m,k], w[k,b] bytes of static["format"] -> out[m,n]."""
    f, guarded = FORMATS[dict(call.static)["format"]], call.guarded

    def plan(x: Shape, w: Shape, out: Shape, wide: bool) -> Plan:
        if len(w) != 2 or len(x) != 2 or w[1] % f.nbytes or x[1] != w[0] or out != (x[0], f.row_elements(w[1])):
            return None
        if max(*x, *out) >= MOST:
            return None
        if 0 in out:
            return []
        run = runner(device, f, *out, x[1], wide, guarded)
        return [ArrayLaunch(lambda pointers, floats=(): run(pointers[1], pointers[0], *pointers[2:]))]  # type: ignore[arg-type]

    return called(device, plan, guarded, 2)
