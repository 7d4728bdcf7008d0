"""The decorator of a kernel: compiled at once for one signature, cached on disk, strict about its arguments."""

from collections.abc import Callable
from functools import partial
from typing import Any

from numba import njit, types
from trueno.backend import Refused

from trueno_simd.codecache.kernel_cache import KernelCache
from trueno_simd.llvm import convention, isa
from trueno_simd.llvm.jit import FLAGS
from trueno_simd.llvm.linking import FOREIGN, WHOLE, WHOLE_WIDE


def kernel_entry(
    signature: Any, *, cache: bool = True, nogil: bool = False, wide: bool = False
) -> Callable[[Callable[..., Any]], Any]:
    """A kernel that Python calls: compiled at once for `signature`, kept on disk, exact about its arguments.

    Arguments of other types are `Refused` in under a microsecond; Numba's own search for
    conversions and its explanation of why there is none take a hundred.  `kernel.code` is the address of its
    machine code, for the entries of `trueno_simd.door`, and `kernel.passed` that with its arguments, for sequences.

    wide: with registers of 512 bits where the CPU has them, whatever LLVM prefers for it (`trueno_simd.rows.width`).
    """
    pipeline, cache = (WHOLE_WIDE if wide else WHOLE, cache) if isa.level() != isa.WASM else (FOREIGN, False)

    def compile_(function: Callable[..., Any]) -> Any:
        kernel = njit(no_cfunc_wrapper=True, nogil=nogil, pipeline_class=pipeline, **FLAGS)(function)
        if cache:
            kernel._cache = KernelCache(function)
        kernel.compile(signature)
        kernel.disable_compile()
        usual = tuple(_usual(t) for t in signature.args)
        kernel.targetdescr.typing_context.install_possible_conversions(usual, signature.args)
        kernel._search_new_conversions = _refuse  # where it is asked first: one Python frame less than to explain
        kernel.typeof_pyval = partial(_typeof, kernel.typeof_pyval)
        kernel._explain_matching_error = _refuse
        kernel.passed = address, kinds = convention.passed(kernel)
        kernel.code = 0 if convention.WHOLE in kinds else address  # entries pass no whole numbers
        return kernel

    return compile_


def _usual(kind: types.Type) -> types.Type:
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
