"""The shared parts of the structured kernels: types of their operands and the checks that they make themselves."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numba import types

from trueno_simd.kernels.tile import address
from trueno_simd.llvm.calls import unpack
from trueno_simd.llvm.jit import inner

F32, F64 = np.float32(0), np.float64(0)  # stand for their type where compiled code holds only addresses


def number(dtype: Any) -> Any:
    """Numba's float type for a NumPy dtype."""
    return {"f4": types.float32, "f8": types.float64}[np.dtype(dtype).str[1:]]


def source(kind: Any, ndim: int) -> Any:
    """An operand: contiguous, and read-only arrays are welcome."""
    return types.Array(kind, ndim, "C", readonly=True)


def target(kind: Any, ndim: int) -> Any:
    return types.Array(kind, ndim, "C")


SCRATCH = types.Array(types.uint8, 1, "C")
NONE = np.empty(0, np.uint8)


def with_scratch(compiled: Any) -> Callable[..., int]:
    """Call `compiled(*operands, out, scratch)`, which returns the number of bytes it needs if scratch is too small.

    One that needs none takes one call; NumPy's allocator keeps small blocks and requests huge pages for large ones.
    """

    def kernel(*args: Any) -> int:
        need: int = compiled(*args, NONE)
        while need > 0:
            need = compiled(*args, np.empty(need, np.uint8))
        return need

    kernel.resolve = partial(resolved, compiled)  # type: ignore[attr-defined]
    return kernel


def resolved(compiled: Any, *args: Any) -> tuple[Any, tuple[Any, ...], int] | None:
    """What a call of a kernel with scratch comes down to (`trueno_simd.door.sequence`)."""
    need = compiled(*args, NONE)
    return None if need < 0 else (compiled, args if need else (*args, NONE), need)


def resolving(resolve: Callable[..., tuple[Any, tuple[Any, ...], int] | None]) -> Callable[..., int]:
    """A kernel that calls what `resolve(*args)` says: a compiled kernel with its arguments, or None to refuse.

    What that depends on is arrays' shapes and numbers, not the contents of arrays, so that it can be kept.
    """

    def kernel(*args: Any) -> int:
        call = resolve(*args)
        return -1 if call is None else call[0](*call[1])

    kernel.resolve = resolve  # type: ignore[attr-defined]
    return kernel


def adapted(adapt: Callable[..., tuple[Any, ...] | None], product: Any) -> Callable[..., int]:
    """A kernel that calls `product(*adapt(*args))`; `adapt` gives None to refuse, and depends on what `resolve` may."""

    def kernel(*args: Any) -> int:
        arguments = adapt(*args)
        return -1 if arguments is None else product(*arguments)

    def resolve(*args: Any) -> Any:
        arguments = adapt(*args)
        if arguments is None:
            return None
        deeper = getattr(product, "resolve", None)
        return (product, arguments, 0) if deeper is None else deeper(*arguments)

    kernel.resolve = resolve  # type: ignore[attr-defined]
    return kernel


def reader(count: int) -> Any:
    """Load a job of `count` integers from the address that a chunk gets."""
    return unpack(types.UniTuple(types.int64, count))


@inner
def overlaps(out, x):
    """Whether two contiguous arrays share a byte."""
    start, other = address(out), address(x)
    return start < other + x.nbytes and other < start + out.nbytes
