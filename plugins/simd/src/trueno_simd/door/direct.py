"""Kernels that Python calls without Numba: `kernel(*operands, *parameters, *results)`.

Such a kernel is a Python function whose calls go to an entry; the entry checks that every argument is exactly of the
kernel's type, and calls its machine code.  Everything else is `Refused`, as Numba's kernels refuse it.
"""

from functools import cache
from typing import Any

import numpy as np
from trueno.backend import EntryKind, EntryLayout, Kernel, Refused, divert, ieee, kernel_layout, standard

from trueno_simd.door import arrays, build, entry, numbers
from trueno_simd.door.frame import PLAIN, WRITEABLE, Frame
from trueno_simd.door.text import Function
from trueno_simd.llvm import convention

SYMBOL = "kernel"
"""The name of a kernel in its object code."""
ITEMSIZE = {"float32": 4, "float64": 8, "int64": 8}
WORDS = {"float32": "single", "float64": "double", "int64": "whole"}
DESCRIPTOR = {"slow": 0, "code": 8}
_ENTRY = f"define ptr @{entry.SYMBOL}(ptr %self, ptr %args, i64 %nargsf, ptr %kwnames) #0"
_WITHOUT_FLAG = (1 << 63) - 1


def kernel(code: bytes, arguments: tuple[str, ...]) -> Kernel | None:
    """A kernel from its object code and its arguments' types; None where this process has no room for entries."""
    try:
        layout = kernel_layout()
    except Exception:  # something here is not as entries assume
        return None

    def refuse(*args: Any) -> Any:
        if standard():
            raise Refused("not the types of this kernel")
        with ieee():
            return function(*args)

    def function(*args: Any) -> Any:
        return refuse(*args)

    descriptor = np.zeros(len(DESCRIPTOR), np.int64)
    engine = build.load((_entry(arguments, layout), code), layout.words, descriptor.ctypes.data)
    address = engine.get_function_address(SYMBOL)
    descriptor[:] = id(refuse), address
    function.code = address  # type: ignore[attr-defined]
    build.keep((descriptor, refuse, function))
    divert(function, engine.get_function_address(entry.SYMBOL))
    return function


@cache
def _entry(arguments: tuple[str, ...], layout: EntryLayout) -> bytes:
    return build.code(module(arguments, layout))


def module(arguments: tuple[str, ...], layout: EntryLayout) -> str:
    """The text of the entry of kernels with these arguments."""
    f = Function(_ENTRY)
    frame = Frame(f, EntryKind("", False, False, True), layout, "")
    count = f(f"and i64 %nargsf, {_WITHOUT_FLAG}")
    f.require(f.same("i64", count, len(arguments)), "slow")
    f.require(f.null("%kwnames"), "slow")
    parts: list[str] = []
    for i, argument in enumerate(arguments):
        value = f.load("ptr", "%args", 8 * i)
        if argument == "number":
            into, done = f.slot("double"), f.label("number")
            numbers.number(frame, value, into, done, ("float", "float64"))
            parts.append(f"double {f.load('double', into)}")
        else:
            parts += _array(frame, value, *argument.split())
    numbers.environment(frame)
    result, exception = f.slot("i64"), f.slot("ptr")
    address = f.load("ptr", frame.descriptor, DESCRIPTOR["code"])
    status = f(f"call i32 {address}(ptr {result}, ptr {exception}, {', '.join(parts)})")
    f.require(f.same("i32", status, 0), "slow")
    value = f.load("i64", result)
    f.do(f"ret ptr {frame.call('ptr', 'int_from', f'i64 {value}')}")
    f.place("clear")
    f.do(f"call void {frame.word('error_clear')}()")
    f.goto("slow")
    f.place("slow")
    slow, vectorcall = f.load("ptr", frame.descriptor, DESCRIPTOR["slow"]), frame.word("vectorcall")
    result = f(f"tail call ptr {vectorcall}(ptr {slow}, ptr %args, i64 %nargsf, ptr %kwnames)")
    f.do(f"ret ptr {result}")
    return entry.whole(f.text())


def _array(frame: Frame, value: str, dtype: str, rank: str, use: str) -> list[str]:
    """Check one array; its parts as the kernel takes them."""
    f = frame.f
    f.require(f.same("ptr", frame.part(value, "type"), frame.word("ndarray")), "slow")
    f.store("ptr", frame.word(WORDS[dtype]), frame.native)
    arrays.dtype(frame, value)
    arrays.flags(frame, value, PLAIN | WRITEABLE if use == "out" else PLAIN)
    f.require(f.same("i32", frame.part(value, "ndim", "i32"), rank), "slow")
    shape = frame.part(value, "shape")
    extents = [f.load("i64", shape, 8 * axis) for axis in range(int(rank))]
    return convention.array(f, frame.part(value, "data"), str(ITEMSIZE[dtype]), extents)
