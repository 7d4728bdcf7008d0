"""The Numba decorators that every kernel of this plugin uses, each flag with its reason.

`contract` alone is allowed on functions: it never assumes finite values.  Reassociation belongs on
the one instruction of a fold (`intrinsics.radd`), because on a whole function it would also rewrite
Cody-Waite reductions.  `error_model="numpy"` divides without a zero check, `_nrt=False` keeps views
free of reference counts (and the IR free of what other targets cannot compile); so kernels never allocate.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from numba import njit, types
from trueno.backend import Refused

from trueno_simd.linking import INGREDIENT, WHOLE
from trueno_simd.store import KernelCache

FLAGS: dict[str, Any] = {"fastmath": {"contract"}, "error_model": "numpy", "_nrt": False}
INSIDE = FLAGS | {"no_cpython_wrapper": True, "no_cfunc_wrapper": True, "pipeline_class": INGREDIENT}


def inner(function: Callable[..., Any]) -> Any:
    """A function that only kernels call; LLVM inlines it, so that loops around it vectorize."""
    return njit(function, forceinline=True, **INSIDE)


def outer(function: Callable[..., Any]) -> Any:
    """A function that only kernels call and that is compiled once a signature, not inlined by force."""
    return njit(function, **INSIDE)


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


def entry(signature: Any, *, cache: bool = True, nogil: bool = False) -> Callable[[Callable[..., Any]], Any]:
    """A kernel that Python calls: compiled at once for `signature`, kept on disk, exact about its arguments.

    Arguments of other types are `Refused` in under a microsecond; Numba's own search for
    conversions and its explanation of why there is none take a hundred.
    """

    def compile_(function: Callable[..., Any]) -> Any:
        kernel = njit(no_cfunc_wrapper=True, nogil=nogil, pipeline_class=WHOLE, **FLAGS)(function)
        if cache:
            kernel._cache = KernelCache(function)
        kernel.compile(signature)
        kernel.disable_compile()
        given = tuple(_as_given(t) for t in signature.args)
        kernel.targetdescr.typing_context.install_possible_conversions(given, signature.args)
        kernel._search_new_conversions = _refuse  # where it is asked first: one Python frame less than to explain
        kernel.typeof_pyval = partial(_typeof, kernel.typeof_pyval)
        kernel._explain_matching_error = _refuse
        return kernel

    return compile_


def _as_given(kind: types.Type) -> types.Type:
    """What callers mostly pass for a parameter: a writable array for a read-only one, a whole number for a float."""
    if isinstance(kind, types.Array):
        return kind.copy(readonly=False)
    return types.int64 if kind == types.float64 else kind


def _typeof(known: Callable[[Any], types.Type], value: Any) -> types.Type:
    """Numba's type of a value; of one that Numba refuses, a type that no kernel takes."""
    try:
        return known(value)
    except Exception:  # Numba raises its own errors, and pages of advice
        return types.pyobject


def _refuse(*_: Any) -> Any:
    raise Refused("not the types of this kernel")
