"""Kernels that Python calls without Numba: `kernel(*operands, *parameters, *results)`.

Such a kernel is a Python function whose calls go to an entry; the entry checks that every argument is exactly of the
kernel's type, and calls its machine code.  Everything else is `Refused`, as Numba's kernels refuse it.
"""

from functools import cache
from typing import Any

import numpy as np
from trueno.backend import EntryLayout, Kernel, Refused, divert, kernel_layout

from trueno_simd.door import build

SYMBOL = "kernel"
"""The name of a kernel in its object code."""


def kernel(code: bytes, arguments: tuple[str, ...]) -> Kernel | None:
    """A kernel from its object code and its arguments' types; Unverified where this process takes no entries."""
    layout = kernel_layout()
    whole = [i for i, argument in enumerate(arguments) if argument == "number"]

    def refuse(*args: Any) -> Any:
        if len(args) == len(arguments) and any(isinstance(args[i], np.integer) for i in whole):
            return function(*(float(x) if i in whole and isinstance(x, np.integer) else x for i, x in enumerate(args)))
        raise Refused("not the types of this kernel")

    def function(*args: Any) -> Any:
        return refuse(*args)

    entry = _entry(arguments, layout)
    if entry is None:
        return None
    descriptor = np.array([id(refuse), 0], np.int64)  # as `direct_entry.DESCRIPTOR` says
    engine = build.load((entry, code), layout.words, descriptor.ctypes.data)
    address = descriptor[1] = engine.get_function_address(SYMBOL)
    function.code, function.passed = address, (address, arguments)  # type: ignore[attr-defined]
    build.keep((descriptor, refuse, function))
    divert(function, engine.get_function_address(build.SYMBOL))
    return function


@cache
def _entry(arguments: tuple[str, ...], layout: EntryLayout) -> bytes | None:
    def text() -> str:
        from trueno_simd.door import direct_entry  # most processes print nothing

        return direct_entry.module(arguments, layout, build.SYMBOL)

    return build.stored(arguments, layout, text)
