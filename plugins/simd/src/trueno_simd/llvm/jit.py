"""The Numba decorators of functions that kernels call, each flag with its reason.

`contract` alone is allowed on functions: it never assumes finite values.  Reassociation belongs on
the one instruction of a fold (`trueno_simd.rows.folds.radd`), because on a whole function it would also rewrite
Cody-Waite reductions.  `error_model="numpy"` divides without a zero check, `_nrt=False` keeps views
free of reference counts (and the IR free of what other targets cannot compile); so kernels never allocate.
"""

from collections.abc import Callable
from types import FunctionType
from typing import Any

from numba import njit

from trueno_simd.llvm import isa
from trueno_simd.llvm.linking import INGREDIENT, INGREDIENT_WIDE

isa.settle()  # before the first dispatcher: Numba then compiles for the level that the sources are printed for

FLAGS: dict[str, Any] = {"fastmath": {"contract"}, "error_model": "numpy", "_nrt": False}
INSIDE = FLAGS | {"no_cpython_wrapper": True, "no_cfunc_wrapper": True, "pipeline_class": INGREDIENT}


def inner(function: Callable[..., Any]) -> Any:
    """A function that only kernels call; LLVM inlines it, so that loops around it vectorize."""
    return njit(function, forceinline=True, **INSIDE)


def outer(function: Callable[..., Any]) -> Any:
    """A function that only kernels call and that is compiled once a signature, not inlined by force."""
    return njit(function, **INSIDE)


def outer_wide(function: Callable[..., Any]) -> Any:
    """Like `outer`, with registers of 512 bits where the CPU has them, whatever LLVM prefers for it."""
    return njit(function, **(INSIDE | {"pipeline_class": INGREDIENT_WIDE}))


EXACT: dict[str, Any] = {"fastmath": False, "error_model": "numpy", "_nrt": False}
"""For what must come out bit for bit as another program's: not even a product and a sum may be fused.

Said outright, because a function that says nothing is compiled with its first caller's flags.
"""


def exact(function: Callable[..., Any]) -> Any:
    """Like `inner`, but every operation rounds."""
    return njit(function, forceinline=True, no_cpython_wrapper=True, no_cfunc_wrapper=True, **EXACT)


def exact_outer(function: Callable[..., Any]) -> Any:
    """Like `outer`, but every operation rounds."""
    return njit(function, no_cpython_wrapper=True, no_cfunc_wrapper=True, **EXACT)


def special(function: Any, name: str, known: dict[str, Any]) -> Any:
    """A copy of a function (or of what a Numba function was made of) that finds `known` among its globals.

    A closure would do, but Numba could not keep its machine code on disk: what it closes over is part of the key.
    """
    plain = getattr(function, "py_func", function)
    copy = FunctionType(plain.__code__, plain.__globals__ | known, name)
    copy.__module__, copy.__qualname__ = plain.__module__, name
    return copy
