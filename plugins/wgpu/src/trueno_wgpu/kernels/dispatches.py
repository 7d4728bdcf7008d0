"""What a kernel does for operands of given shapes: dispatches, planned once and kept.

A sum over k may come in several dispatches that add to one another, where a binding or an invocation's loop budget
ends, and in splits that run side by side, each into its own part of a scratch array, which a second pass adds up in
order: so results do not depend on who came first.
"""

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

from trueno.backend import Call, FusedOp, Kernel
from trueno.errors import KernelError

from trueno_wgpu.device.gpu import Gpu, Groups
from trueno_wgpu.device.grid import fold
from trueno_wgpu.device.shader import Shader
from trueno_wgpu.kernels.memory import Band, bind, clashes, zero
from trueno_wgpu.kernels.store import Store

Shape = tuple[int, ...]
INVOCATIONS = 256
MOST_PLANS = 256
"""Shapes whose plans a kernel keeps; the cache is cleared when full."""


@dataclass(frozen=True, slots=True)
class Dispatch:
    """One dispatch, or two: `then` adds up what this one leaves in `scratch` bytes.

    reads: which operands, in the shader's order, and which rows of them; out: which rows of the result.
    uniforms: all but the first word, which is alpha.
    """

    shader: Shader
    uniforms: bytes
    groups: Groups
    reads: tuple[tuple[int, Band | None], ...]
    out: Band | None = None
    final: bool = True
    scratch: int = 0
    then: "Dispatch | None" = None


ONE = struct.pack("<f", 1.0)


def run(
    gpu: Gpu, dispatches: Sequence[Dispatch], operands: Sequence[Any], out: Any, alpha: bytes = ONE,
    beside: Sequence[Any] = (), numbers: bytes = b"", guarded: bool = False,
) -> int:  # fmt: skip
    """Run what was planned.  beside: the arrays that an epilogue reads; numbers: its parameters, padded to 16 bytes."""
    limits = gpu.limits
    after = [bind(None, x.buffer, x.nbytes, limits) for x in beside]
    if guarded:
        after.append(gpu.status)
    for dispatch in dispatches:
        buffers = [bind(band, operands[i].buffer, operands[i].nbytes, limits) for i, band in dispatch.reads]
        target = bind(dispatch.out, out.buffer, out.nbytes, limits)
        ends, more = (after, numbers) if dispatch.final else ([], b"")
        if dispatch.then is None:
            gpu.run(dispatch.shader, [*buffers, target, *ends], alpha + dispatch.uniforms + more, dispatch.groups)
            continue
        scratch = gpu.alloc(dispatch.scratch)
        gpu.run(dispatch.shader, [*buffers, scratch], alpha + dispatch.uniforms, dispatch.groups)
        gpu.run(
            dispatch.then.shader, [scratch, target, *ends], alpha + dispatch.then.uniforms + more, dispatch.then.groups
        )
    return 0


def product_kernel(gpu: Gpu, call: Call, make: Callable[..., Sequence[Dispatch] | None]) -> Kernel:
    """The kernel of a product of two operands, with what follows it if the call says so.

    make: (store, shapes of operands and result) → dispatches, none for a sum over no products, None for other shapes.
    """
    guarded = call.guarded
    if isinstance(call.op, FusedOp):
        return _with_epilogue(gpu, call, make)
    plans = Plans(partial(make, Store(guarded)))

    def kernel(a: Any, b: Any, out: Any) -> int:
        dispatches = plans(a.shape, b.shape, out.shape)
        if dispatches is None or clashes(out, a, b):
            return -1
        if not dispatches:
            return zero(out) if out.size else 0
        return run(gpu, dispatches, (a, b), out, guarded=guarded)

    return kernel


def _with_epilogue(gpu: Gpu, call: Call, make: Callable[..., Sequence[Dispatch] | None]) -> Kernel:
    from trueno_wgpu.kernels.epilogue import numbers, spliced

    op: FusedOp = call.op
    guarded = call.guarded
    beside = len(op.kinds) - 1
    plans = Plans(partial(make, Store(guarded, epilogue=spliced(op))))

    def kernel(a: Any, b: Any, *more: Any) -> int:
        *rest, out = more
        others, params = rest[:beside], rest[beside:]
        shapes = {"e": out.shape, "w": out.shape[-1:], "r": out.shape[:-1], "u": ()}
        if any(x.shape != shapes[kind] for x, kind in zip(others, op.kinds[1:], strict=True)):
            return -1
        dispatches = plans(a.shape, b.shape, out.shape)
        if dispatches is None or clashes(out, a, b, *others):
            return -1
        if not out.size:
            return 0
        if not dispatches or any(dispatch.out is not None for dispatch in dispatches):
            raise KernelError(
                f"{op.name}: k is {a.shape[-1]}, and the result has {out.nbytes} bytes, of which this adapter binds "
                f"{gpu.limits.binding}; call {op.head.name} and what follows it apart"
            )
        return run(gpu, dispatches, (a, b), out, ONE, others, numbers(tuple(params)), guarded)

    return kernel


class Plans:
    """The dispatches for each set of shapes: made by `make`, which gives None for shapes that do not agree."""

    def __init__(self, make: Callable[..., "Sequence[Dispatch] | None"]) -> None:
        self._make = make
        self._made: dict[tuple[Shape, ...], Sequence[Dispatch] | None] = {}

    def __call__(self, *shapes: Shape) -> Sequence[Dispatch] | None:
        try:
            return self._made[shapes]
        except KeyError:
            if len(self._made) >= MOST_PLANS:
                self._made.clear()
            dispatches = self._made[shapes] = self._make(*shapes)
            return dispatches


# ------------------------------------------------------------------------------------- adding up splits

FOLD = """\
struct Sizes {
    alpha: f32,
    count: u32, each: u32, splits: u32,  // elements in all, of one product, and products that add up to one
    add: u32,
    n: u32, first: u32, pitch: u32,  // of the result: columns, where it begins, elements from row to row
    above: u32, left: u32,  // rows and columns of the whole result before it
GIVEN}
@group(0) @binding(0) var<uniform> sizes: Sizes;
@group(0) @binding(1) var<storage, read> parts: array<KIND>;
@group(0) @binding(2) var<storage, read_write> out: array<KIND>;
"""
MAIN = """\
@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) me: u32) {
    let i = ((wid.x + wid.y * groups.x) * 256u + me) * WIDTHu;
    if (i < sizes.count) {
        var at = (i / sizes.each * sizes.splits * sizes.each + i % sizes.each) / WIDTHu;
        var sum = parts[at];
        for (var s = 1u; s < sizes.splits; s += 1u) {
            at += sizes.each / WIDTHu;
            sum += parts[at];
        }
        let row = i / sizes.n;
        let column = i % sizes.n;
        store(sizes.first + row * sizes.pitch + column, sizes.above + row, sizes.left + column, sum);
    }
"""


@cache
def adding(width: int, store: Store) -> Shader:
    """The shader that adds up splits, in order; `width` elements an invocation."""
    kind = "f32" if width == 1 else "vec4<f32>"
    text = [
        store.sizes(FOLD).replace("KIND", kind),
        store.declarations(3),
        store.function(width, adds=True),
        MAIN.replace("WIDTH", str(width)),
    ]
    return Shader("add splits", "\n".join(t for t in text if t) + store.end + "}\n", (False, True, *store.writes))


def added(
    count: int, each: int, splits: int, n: int, store: Store, limit: int, *, add: bool = False, first: int = 0,
    pitch: int = 0, above: int = 0, left: int = 0,
) -> Dispatch:  # fmt: skip
    """The pass that adds up `splits` products of `each` elements, rows of n, for each `each` of `count`.

    above, left: for an epilogue, the row and the column of the first of them in the whole result.
    """
    pitch = pitch or n
    width = 4 if n % 4 == first % 4 == pitch % 4 == 0 else 1
    packed = struct.pack("<9I", count, each, splits, add, n, first, pitch, above, left)
    return Dispatch(adding(width, store), packed, fold(-(-count // (INVOCATIONS * width)), limit), ())
