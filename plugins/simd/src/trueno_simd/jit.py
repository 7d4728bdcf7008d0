"""The Numba decorators that every kernel of this plugin uses, each flag with its reason.

`contract` alone is allowed on functions: it never assumes finite values.  Reassociation belongs on
the one instruction of a fold (`intrinsics.radd`), because on a whole function it would also rewrite
Cody-Waite reductions.  `error_model="numpy"` divides without a zero check, `_nrt=False` keeps views
free of reference counts (and the IR free of what other targets cannot compile); so kernels never allocate.
"""

from collections.abc import Callable
from typing import Any

from numba import njit

FLAGS: dict[str, Any] = {"fastmath": {"contract"}, "error_model": "numpy", "_nrt": False}


def inner(function: Callable[..., Any]) -> Any:
    """A function that only kernels call; LLVM inlines it, so that loops around it vectorize."""
    return njit(function, forceinline=True, no_cpython_wrapper=True, no_cfunc_wrapper=True, **FLAGS)


def outer(function: Callable[..., Any]) -> Any:
    """A function that only kernels call and that is compiled once a signature, not inlined by force."""
    return njit(function, no_cpython_wrapper=True, no_cfunc_wrapper=True, **FLAGS)


def entry(signature: Any, *, cache: bool = True) -> Callable[[Callable[..., Any]], Any]:
    """A kernel that Python calls: compiled at once for `signature`, kept on disk."""

    def compile_(function: Callable[..., Any]) -> Any:
        kernel = njit(signature, cache=cache, no_cfunc_wrapper=True, **FLAGS)(function)
        kernel.disable_compile()
        return kernel

    return compile_
