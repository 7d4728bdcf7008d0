"""The text of an entry in front of one kernel, for `trueno_simd.door.direct`: checks of types, then the call."""

from typing import Final

from trueno.backend import EntryKind, EntryLayout

from trueno_simd.door import arrays, environment, numbers
from trueno_simd.door.arguments import COUNT
from trueno_simd.door.entry import whole
from trueno_simd.door.frame import PLAIN, WRITEABLE, Frame
from trueno_simd.door.text import Function
from trueno_simd.llvm import convention

DESCRIPTOR: Final = {"slow": 0, "code": 8}
"""The descriptor of such an entry: the Python function for every other call, and the kernel's machine code."""
_ITEMSIZE: Final = {"float32": 4, "float64": 8, "int64": 8}
_WORDS: Final = {"float32": ("single",), "float64": ("double",), "int64": ("whole", "twin")}
"""Words with the dtypes that a kernel takes as its own: there are two integer types of 64 bits."""


def module(arguments: tuple[str, ...], layout: EntryLayout, symbol: str) -> str:
    """The text of the entry of kernels with these arguments."""
    f = Function(f"define ptr @{symbol}(ptr %self, ptr %args, i64 %nargsf, ptr %kwnames) #0")
    frame = Frame(f, EntryKind("", False, False, True), layout, "")
    count = f(f"and i64 %nargsf, {COUNT}")
    f.require(f.same("i64", count, len(arguments)), "slow")
    f.require(f.null("%kwnames"), "slow")
    parts: list[str] = []
    for i, argument in enumerate(arguments):
        value = f.load("ptr", "%args", 8 * i)
        if argument == "number":
            into, done = f.slot("double"), f.label("number")
            numbers.number(frame, value, into, done, ("float", "float32", "float64"))
            parts.append(f"double {f.load('double', into)}")
        else:
            parts += _array(frame, value, *argument.split())
    saved = environment.enter(frame)
    result, exception = f.slot("i64"), f.slot("ptr")
    address = f.load("ptr", frame.descriptor, DESCRIPTOR["code"])
    status = f(f"call i32 {address}(ptr {result}, ptr {exception}, {', '.join(parts)})")
    environment.leave(frame, saved)
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
    return whole(f.text())


def _array(frame: Frame, value: str, dtype: str, rank: str, use: str) -> list[str]:
    """Check one array; its parts as the kernel takes them."""
    f = frame.f
    f.require(f.same("ptr", frame.part(value, "type"), frame.word("ndarray")), "slow")
    _dtype(frame, frame.part(value, "dtype"), dtype)
    arrays.flags(frame, value, PLAIN | WRITEABLE if use == "out" else PLAIN)
    f.require(f.same("i32", frame.part(value, "ndim", "i32"), rank), "slow")
    shape = frame.part(value, "shape")
    extents = [f.load("i64", shape, 8 * axis) for axis in range(int(rank))]
    return convention.array(f, frame.part(value, "data"), str(_ITEMSIZE[dtype]), extents)


def _dtype(frame: Frame, theirs: str, wanted: str) -> None:
    """A dtype that says the same as the kernel's; metadata mean nothing to a kernel."""
    f, fits = frame.f, f"fits{theirs[1:]}"
    for name in _WORDS[wanted]:
        for field, kind, actual in (
            (name, "ptr", theirs),
            (f"{name}_text", "i64", frame.part(theirs, "text", "i64")),
        ):
            further = f.label("on")
            f.branch(f.same(kind, actual, frame.word(field, kind)), fits, further)
            f.place(further)
    f.goto("slow")
    f.place(fits)
