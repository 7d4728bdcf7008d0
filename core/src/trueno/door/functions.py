"""A Python function whose calls go to machine code, and back again.

It stays the same object, so that a program that imported it before has the fast one too, and a function in every
respect: attributes, signature, pickling, methods.  Only profilers and debuggers do not see such a call.

CPython 3.12 has a function of its C API for this.  CPython 3.11 runs the code of a function directly if its class is
exactly that of functions; so there the function gets a subclass, which differs in nothing else, and its own slot of the
vectorcall protocol gets the entry.
"""

import ctypes
import sys
from collections.abc import Callable
from functools import cache
from types import FunctionType
from typing import Any, Final

from trueno.door.abi import POINTER, Unverified, keep, word

_VECTORCALL_OFFSET, _FLAGS = 56, 168  # of a class
_BASETYPE, _HAVE_VECTORCALL, _METHOD_DESCRIPTOR, _DEFAULT = 1 << 10, 1 << 11, 1 << 17, 1 << 18
_IN_API: Final = sys.version_info >= (3, 12)


class _Slot(ctypes.Structure):
    _fields_ = [("slot", ctypes.c_int), ("function", POINTER)]


class _Spec(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("basicsize", ctypes.c_int), ("itemsize", ctypes.c_int),
                ("flags", ctypes.c_uint), ("slots", POINTER)]  # fmt: skip


def divert(function: FunctionType, entry: int) -> None:
    """Let calls of `function` go to the vectorcall at address `entry`; Unverified if that is not possible here."""
    at = _vectorcall_offset()
    if _IN_API:
        _set_vectorcall(function, entry)
    else:
        if type(function) is FunctionType:
            _set_class(function, _op_function())
        _poke(id(function) + at, entry)


def restore(function: FunctionType) -> None:
    """Let calls of `function` run its Python code again."""
    original = word(id(_example) + _vectorcall_offset())
    if _IN_API:
        _set_vectorcall(function, original)
    else:
        _poke(id(function) + _vectorcall_offset(), original)
        _set_class(function, FunctionType)


def copied(function: FunctionType) -> FunctionType:
    """The same Python function as another object, which stays one."""
    copy = FunctionType(
        function.__code__, function.__globals__, function.__name__, function.__defaults__, function.__closure__
    )
    copy.__kwdefaults__ = function.__kwdefaults__
    return copy


def _example() -> None: ...


@cache
def _vectorcall_offset() -> int:
    """The offset of a function's own slot of the vectorcall protocol."""
    at = word(id(FunctionType) + _VECTORCALL_OFFSET)
    if not 16 < at < FunctionType.__basicsize__ or at % 8:
        raise Unverified("functions are laid out otherwise")
    if word(id(_example) + at) != word(id(copied) + at):
        raise Unverified("functions are not called alike")
    return at


def _poke(address: int, value: int) -> None:
    ctypes.c_int64.from_address(address).value = value


def _set_vectorcall(function: FunctionType, entry: int) -> None:
    put: Any = ctypes.PYFUNCTYPE(None, ctypes.py_object, POINTER)(("PyFunction_SetVectorcall", ctypes.pythonapi))
    put(function, entry)


def _set_class(function: Callable[..., Any], kind: type) -> None:
    keep(kind)  # the reference that each object has to its class
    _poke(id(function) + 8, id(kind))


@cache
def _op_function() -> type:
    """A subclass of the class of functions, which Python itself does not allow to be made: CPython 3.11 alone."""
    at = id(FunctionType) + _FLAGS
    flags = word(at)
    if flags != FunctionType.__flags__ or word(id(_example) + 8) != id(FunctionType):
        raise Unverified("classes are laid out otherwise")
    slots = (_Slot * 1)(_Slot(0, None))
    wanted = _DEFAULT | _HAVE_VECTORCALL | _METHOD_DESCRIPTOR
    name = b"builtins.function"  # as users see it
    spec = _Spec(name, FunctionType.__basicsize__, 0, wanted, ctypes.addressof(slots))
    make: Any = ctypes.PYFUNCTYPE(ctypes.py_object, POINTER, ctypes.py_object)(
        ("PyType_FromSpecWithBases", ctypes.pythonapi)
    )
    _poke(at, flags | _BASETYPE)
    try:
        kind = make(ctypes.addressof(spec), FunctionType)
    finally:
        _poke(at, flags)
    inherited: Any = vars(FunctionType)
    for attribute in ("__module__", "__doc__"):  # a class has these itself, and they would hide a function's
        setattr(kind, attribute, inherited[attribute])
    kind.__reduce__ = _reduced  # pickled and copied by name, as functions are
    keep(name)
    keep(slots)
    return kind  # type: ignore[no-any-return]


def _reduced(function: FunctionType) -> str:
    return function.__qualname__
