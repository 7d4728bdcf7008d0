"""What no op wants: objects of every kind as operands and as parameters.  Each entry makes a new one."""

import array
import collections
import datetime
import decimal
import fractions
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import trueno


class Mine(Exception):
    """Raised by the objects below, and to be let through."""


def _raises(*_: Any, **__: Any) -> Any:
    raise Mine


def _object(**members: Any) -> Any:
    """An object with these members in its class."""
    return type("Odd", (), members)()


def _deep(levels: int) -> list[Any]:
    seen: list[Any] = [1.0]
    for _ in range(levels):
        seen = [seen]
    return seen


def _itself() -> list[Any]:
    seen: list[Any] = []
    seen.append(seen)
    return seen


def _shared() -> Any:
    found = np.ones((3, 4), np.float32)
    return np.lib.stride_tricks.as_strided(found, (3, 4), (4, 4))


def _handle(closed: bool) -> Any:
    batch = trueno.Batch("scalar")
    handle = batch.upload(np.ones(3, np.float32))
    if closed:
        batch.close()
    return handle


OPERANDS: dict[str, Callable[[], Any]] = {
    "None": lambda: None,
    "True": lambda: True,
    "numpy bool": lambda: np.bool_(True),
    "whole": lambda: 7,
    "large whole": lambda: 10**400,
    "nan": lambda: float("nan"),
    "complex": lambda: 1 + 2j,
    "text": lambda: "1.0",
    "long text": lambda: "x\x1b[31m\n" * 5000,
    "bytes": lambda: b"12345678",
    "bytearray": lambda: bytearray(16),
    "memoryview": lambda: memoryview(bytes(16)),
    "array.array": lambda: array.array("f", [1, 2, 3]),
    "decimal": lambda: decimal.Decimal("1.5"),
    "fraction": lambda: fractions.Fraction(1, 3),
    "date": lambda: datetime.date(2020, 1, 1),
    "datetime64": lambda: np.datetime64("2020-01-01"),
    "timedelta array": lambda: np.ones(3, "m8[s]"),
    "numpy text": lambda: np.array(["a", "b"]),
    "void": lambda: np.zeros(3, "V4"),
    "records": lambda: np.zeros(3, [("x", "f4"), ("y", "f8")]),
    "object array": lambda: np.array([1, None, "x"], object),
    "complex array": lambda: np.ones((2, 3), complex),
    "longdouble array": lambda: np.ones((2, 3), np.longdouble),
    "int8 array": lambda: np.ones((2, 3), np.int8),
    "uint64 array": lambda: np.full((2, 3), 2**64 - 1, np.uint64),
    "bool array": lambda: np.ones((2, 3), bool),
    "float64 array": lambda: np.ones((2, 3)),
    "masked": lambda: np.ma.masked_array(np.ones(3, np.float32), [True, False, True]),
    "matrix": lambda: np.ones((2, 3), np.float32).view(np.matrix),
    "64 dimensions": lambda: np.ones((1,) * 64, np.float32),
    "no elements": lambda: np.ones((0, 3), np.float32),
    "wide and empty": lambda: np.ones((0, 2**33), np.float32),
    "overlapping": _shared,
    "ragged": lambda: [[1.0, 2.0], [3.0]],
    "deep": lambda: _deep(200),
    "itself": _itself,
    "list of None": lambda: [None, 1.0],
    "list of texts": lambda: ["1", "2"],
    "list of arrays": lambda: [np.ones(3), np.ones(3)],
    "empty list": list,
    "large numbers": lambda: [10**400, 1.0],
    "set": lambda: {1.0, 2.0},
    "dict": lambda: {"x": 1.0},
    "counter": lambda: collections.Counter("abc"),
    "generator": lambda: (x for x in (1.0, 2.0)),
    "range": lambda: range(3),
    "function": lambda: len,
    "type": lambda: float,
    "module": lambda: types,
    "ellipsis": lambda: ...,
    "slice": lambda: slice(1, 2),
    "exception": lambda: ValueError("x"),
    "object": object,
    "__array__ raises": lambda: _object(__array__=_raises),
    "__array__ lies": lambda: _object(__array__=lambda *_, **__: "no array"),
    "__array__ of texts": lambda: _object(__array__=lambda *_, **__: np.array(["a"])),
    "__dlpack__ raises": lambda: _object(__dlpack__=_raises, __dlpack_device__=lambda self: (1, 0)),
    "__dlpack__ lies": lambda: _object(__dlpack__=lambda *_, **__: None, __dlpack_device__=lambda self: (1, 0)),
    "__dlpack_device__ raises": lambda: _object(__dlpack__=lambda *_, **__: None, __dlpack_device__=_raises),
    "attributes raise": lambda: _object(__getattr__=_raises),
    "float subclass": lambda: type("F", (float,), {"__float__": _raises})(1.5),
    "int subclass": lambda: type("I", (int,), {"__index__": _raises, "__int__": _raises})(3),
    "list subclass": lambda: type("L", (list,), {"__len__": _raises, "__iter__": _raises})([1.0]),
    "vector": lambda: trueno.Vector([1, 2, 3]),
    "matrix of ours": lambda: trueno.Matrix([[1, 2], [3, 4]]),
    "quantized": lambda: trueno.quantize(np.ones((2, 32), np.float32), "q8_0"),
    "quantized, turned": lambda: trueno.quantize(np.ones((2, 32), np.float32), "q8_0").T,
    "handle": lambda: _handle(False),
    "handle of a closed batch": lambda: _handle(True),
}

PARAMETERS: dict[str, Callable[[], Any]] = {
    **{name: OPERANDS[name] for name in (
        "None", "True", "numpy bool", "large whole", "nan", "complex", "text", "long text", "bytes", "decimal",
        "fraction", "date", "datetime64", "object array", "complex array", "float64 array", "masked", "empty list",
        "set", "dict", "range", "function", "type", "ellipsis", "slice", "object", "__array__ raises",
        "__array__ lies", "float subclass", "int subclass", "list subclass", "vector", "quantized", "handle",
        "attributes raise", "no elements", "numpy text", "ragged",
    )},
    "infinite": lambda: float("inf"),
    "minus infinite": lambda: float("-inf"),
    "minus one": lambda: -1,
    "far": lambda: 2**63,
    "minus far": lambda: -(2**63) - 1,
    "-0.0": lambda: -0.0,
    "subnormal": lambda: 5e-324,
    "half": lambda: np.float16(0.5),
    "array of one": lambda: np.array([0.5]),
    "0-d": lambda: np.array(0.5, np.float32),
    "tuple": lambda: (0, 1),
    "empty text": lambda: "",
    "surrogate": lambda: "\ud800",
    "nul": lambda: "q8_0\0",
    "__float__ raises": lambda: _object(__float__=_raises),
    "__float__ lies": lambda: _object(__float__=lambda self: "1"),
    "__index__ raises": lambda: _object(__index__=_raises),
    "__index__ lies": lambda: _object(__index__=lambda self: 1.5),
    "__bool__ raises": lambda: _object(__bool__=_raises),
    "__eq__ raises": lambda: _object(__eq__=_raises, __hash__=lambda self: 1),
    "__hash__ raises": lambda: _object(__hash__=_raises),
    "__repr__ raises": lambda: _object(__repr__=_raises),
    "text subclass": lambda: type("S", (str,), {"lower": _raises, "__eq__": _raises, "__hash__": _raises})("q8_0"),
}  # fmt: skip
