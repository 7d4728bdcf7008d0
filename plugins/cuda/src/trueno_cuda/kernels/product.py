"""A call of a product's kernel: look up its plan, check addresses, launch.

Plans depend on shapes and alignment, and are made once.  A warm call looks one up, compares addresses, and launches.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from trueno.backend import Call, FusedOp, Kernel

from trueno_cuda.device.protocol import Array, Device, Launch
from trueno_cuda.device.repeated import quick
from trueno_cuda.kernels.epilogue import spliced
from trueno_cuda.kernels.store import Store

Shape = tuple[int, ...]
Make = Callable[[Store, bool, Shape, Shape, Shape], "Sequence[ProductLaunch] | None"]
"""(store, aligned, shapes of operands and result) → launches, or None for shapes that do not agree."""
MOST_PLANS = 64
"""Shapes whose launches a kernel keeps; the cache is cleared when full."""


@dataclass(frozen=True, slots=True)
class ProductLaunch:
    """One launch.  offsets: elements to add to the addresses of a, b, the result, and of its rows."""

    launch: Any
    offsets: tuple[int, int, int, int]
    then: Any = None
    scratch: int = 0


def overlaps(out: Array, x: Array) -> bool:
    """Whether a result lies, in part or whole, where an operand does."""
    return out.data.ptr < x.data.ptr + x.nbytes and x.data.ptr < out.data.ptr + out.nbytes


def product_kernel(device: Device, call: Call, make: Make) -> Kernel:
    """The kernel of a product of two operands, with what follows it where the op has an epilogue."""
    op, guarded = call.op, call.guarded
    kinds = op.kinds[1:] if isinstance(op, FusedOp) else ""
    beside, size = len(kinds), call.dtype.itemsize
    store = Store(guarded, spliced(op) if isinstance(op, FusedOp) else None)
    plans: dict[Any, Sequence[ProductLaunch] | None] = {}
    laid = device.contiguous

    def plan(key: tuple[bool, Shape, Shape, Shape]) -> Sequence[ProductLaunch] | None:
        if len(plans) >= MOST_PLANS:
            plans.clear()
        launches = plans[key] = make(store, *key)
        return launches

    def kernel(a: Any, b: Any, *more: Any) -> int:
        out, extras = more[-1], more[:beside]
        if laid(out) is not out:
            return -1
        a, b = laid(a), laid(b)
        to = out.data.ptr
        pa, pb = a.data.ptr, b.data.ptr
        key = (not (pa | pb | to) & 15, a.shape, b.shape, out.shape)
        launches = plans.get(key)
        if launches is None:
            launches = plan(key)
            if launches is None:
                return -1
        if not out.size:
            return 0
        if overlaps(out, a) or overlaps(out, b):
            return -1
        if beside:
            shapes = {"e": out.shape, "w": out.shape[-1:], "r": out.shape[:-1], "u": ()}
            extras = tuple(map(laid, extras))
            for x, kind in zip(extras, kinds, strict=True):
                if x.shape != shapes[kind]:
                    return -1
                if overlaps(out, x) and not (kind == "e" and x.data.ptr == to):  # its own element it may read
                    return -1
        floats = more[beside:-1]
        status = (device.status(),) if guarded else ()
        for planned in launches:
            first_a, first_b, first, row = planned.offsets
            ends = status
            if beside:
                moved = {"e": first * size, "r": row * size, "w": 0, "u": 0}
                ends = (*(x.data.ptr + moved[kind] for x, kind in zip(extras, kinds, strict=True)), *status)
            target = to + first * size
            if planned.then is None:
                planned.launch((pa + first_a * size, pb + first_b * size, target, *ends), floats)
                continue
            parts = device.empty((planned.scratch,), call.dtype)
            planned.launch((pa + first_a * size, pb + first_b * size, parts.data.ptr))
            planned.then((parts.data.ptr, target, *ends), floats)
        return 0

    def seen(arrays: Sequence[Any]) -> Launch | None:
        """The launch that a call on these arrays came to, where it was one."""
        a, b, out = arrays
        aligned = not (a.data.ptr | b.data.ptr | out.data.ptr) & 15
        launches = plans.get((aligned, a.shape, b.shape, out.shape))
        if (
            not launches
            or len(launches) > 1
            or launches[0].then is not None
            or any(launches[0].offsets)
            or not out.size
        ):
            return None
        launch: Launch = launches[0].launch
        return launch

    return kernel if guarded or isinstance(op, FusedOp) or not device.alone else quick(kernel, seen, 2, 0, 1)
