"""The words of this process: every address that machine code uses, so that none is in the code itself.

They are written once and live as long as the process: threads and finalizers call ops until the very end.
"""

import ctypes
import sys
from collections.abc import Mapping
from functools import cache
from itertools import accumulate
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from trueno.door.abi import OFFSET, keep, numpy_function, python_function, verify, word
from trueno.door.contract import FORMS, KEYWORDS, EntryLayout

Words = npt.NDArray[np.int64]

FROM_PYTHON: Final = {
    "vectorcall": "PyObject_Vectorcall", "call_one": "PyObject_CallOneArg", "context_get": "PyContextVar_Get",
    "incref": "Py_IncRef", "decref": "Py_DecRef", "int_from": "PyLong_FromLongLong", "int_as_double": "PyLong_AsDouble",
    "error_occurred": "PyErr_Occurred", "error_clear": "PyErr_Clear",
    "malloc": "PyMem_RawMalloc", "free": "PyMem_RawFree",
}  # fmt: skip
FROM_NUMPY: Final = {"array_new": "NewFromDescr", "scalar_new": "Scalar"}

_FIELDS: Final = {
    "slow": 1, "fill": 1, "table": 1, "twins": len(FORMS), "names": KEYWORDS, "values": KEYWORDS, "defaults": KEYWORDS,
}  # fmt: skip
DESCRIPTOR: Final = dict(zip(_FIELDS, accumulate((8 * n for n in _FIELDS.values()), initial=0), strict=False))
DESCRIPTOR_WORDS: Final = sum(_FIELDS.values())


def address(array: Words) -> int:
    """Where the numbers of an array are."""
    return int(array.__array_interface__["data"][0])


def layout(base: Words, overridden: Words, variable: Any, state_words: int) -> EntryLayout:
    """The words of this process for entries, and where everything is in them.

    base: the words of the base state.  overridden: not 0 once any other state was ever current.  variable: the context
    variable of the current state.  state_words: the offset at which a state refers to its words.
    """
    state = {"base": address(base), "overridden": address(overridden), "variable": keep(variable)}
    for owner in (base, overridden):
        keep(owner)
    return _laid_out(state | _process(), OFFSET | {"state_words": state_words})


@cache
def kernel_layout() -> EntryLayout:
    """The words of this process for code that knows neither states nor tables; Unverified where it cannot be used."""
    verify()
    return _laid_out(_process(), OFFSET)


def _process() -> dict[str, int]:
    single, double, whole = np.dtype(np.float32), np.dtype(np.float64), np.dtype(np.int64)
    twin = next((t for t in map(np.dtype, "ql") if t.itemsize == 8 and t.char != whole.char), whole)
    return {
        "ndarray": id(np.ndarray), "float": id(float), "int": id(int),
        "float32": id(np.float32), "float64": id(np.float64),
        "single": keep(single), "double": keep(double), "whole": keep(whole),
        "single_text": word(id(single) + OFFSET["text"]), "double_text": word(id(double) + OFFSET["text"]),
        "whole_text": word(id(whole) + OFFSET["text"]),
        "twin": keep(twin), "twin_text": word(id(twin) + OFFSET["text"]),
        "none": id(None), "out": keep(sys.intern("out")),
        **{name: python_function(symbol) for name, symbol in FROM_PYTHON.items()},
        **{name: numpy_function(symbol) for name, symbol in FROM_NUMPY.items()},
    }  # fmt: skip


def _laid_out(values: dict[str, int], offset: Mapping[str, int]) -> EntryLayout:
    words: Words = np.array(list(values.values()), np.int64)
    keep(words)
    names: Mapping[str, int] = {name: 8 * i for i, name in enumerate(values)}
    return EntryLayout(address(words), names, DESCRIPTOR, offset)


def offset_of(holder: Any, value: Any) -> int | None:
    """The offset at which an object of a class with `__slots__` refers to `value`; None unless there is just one."""
    places = [at for at in range(16, type(holder).__basicsize__, 8) if word(id(holder) + at) == id(value)]
    return places[0] if len(places) == 1 else None


def set_double(descriptor: Words, name: str, index: int, value: float) -> None:
    """Put a double into a field of a descriptor."""
    ctypes.c_double.from_address(address(descriptor) + DESCRIPTOR[name] + 8 * index).value = value
