"""What machine code assumes of CPython's and NumPy's objects, verified on live ones.

Macros of both C APIs put these offsets into every extension module, so they do not change within NumPy 2 or a minor
version of CPython.  They are verified all the same, once a process: where one object is not laid out as
stated here, the Python functions stay.
"""

import ctypes
import gc
import sys
import sysconfig
from typing import Any, Final

import numpy as np

POINTER: Final = ctypes.c_void_p
OFFSET: Final = {
    "type": 8,
    "tuple_size": 16,
    "tuple_items": tuple.__basicsize__,  # CPython 3.14 keeps a tuple's hash before them
    "number": 16,  # of a float, and of NumPy's scalars
    "data": 16, "ndim": 24, "shape": 32, "strides": 40, "dtype": 56, "flags": 64,  # of an array
    "text": 24, "metadata": 56,  # of a dtype: 8 bytes with kind, character, byte order and number
}  # fmt: skip
PLAIN: Final = 0x101
"""The flags of an array that kernels take: C-contiguous and aligned."""
WRITEABLE: Final = 0x400
_KNOWN: Final = 0x507
_API: Final = {"CVersion": 0, "Array_Type": 2, "Scalar": 60, "NewFromDescr": 94}


class Unverified(Exception):
    """This interpreter or this NumPy is not laid out as assumed."""


def word(address: int) -> int:
    """The 8 bytes at an address."""
    return ctypes.c_int64.from_address(address).value


def keep(value: Any) -> int:
    """The address of an object that is never freed from now on."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(value))
    return id(value)


def python_function(name: str) -> int:
    """The address of a function of CPython's C API."""
    return ctypes.cast(getattr(ctypes.pythonapi, name), POINTER).value or 0


def numpy_function(name: str) -> int:
    """The address of a function of NumPy's C API."""
    return word(_numpy_table() + 8 * _API[name])


def _numpy_table() -> int:
    core: Any = np
    pointer = ctypes.PYFUNCTYPE(POINTER, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_GetPointer", ctypes.pythonapi))
    return pointer(core._core._multiarray_umath._ARRAY_API, None) or 0


def verify() -> None:
    """Unverified, with the reason, unless every assumption holds here."""
    _interpreter()
    _python_objects()
    _dtypes()
    _arrays()
    _numpy_functions()


def _interpreter() -> None:
    if sys.implementation.name != "cpython":
        raise Unverified(f"{sys.implementation.name} does not keep objects as CPython does")
    if sysconfig.get_config_var("Py_GIL_DISABLED") or not getattr(sys, "_is_gil_enabled", lambda: True)():
        raise Unverified("this build of CPython runs without the GIL")
    if hasattr(sys, "gettotalrefcount"):
        raise Unverified("this is a debug build of CPython")
    if ctypes.sizeof(POINTER) != 8 or sys.byteorder != "little":
        raise Unverified("this is not a little-endian process of 64 bits")


def _python_objects() -> None:
    texts = ("first", "second")
    if object.__basicsize__ != 16 or OFFSET["tuple_items"] not in (24, 32) or float.__basicsize__ != 24:
        raise Unverified("the header of an object has not 16 bytes")
    at = id(texts)
    items = at + OFFSET["tuple_items"]
    expected = (id(tuple), len(texts), *map(id, texts))
    if (word(at + OFFSET["type"]), word(at + OFFSET["tuple_size"]), word(items), word(items + 8)) != expected:
        raise Unverified("tuples are laid out otherwise")
    number = 1.2345e67 * len(texts)
    if ctypes.c_double.from_address(id(number) + OFFSET["number"]).value != number:
        raise Unverified("floats are laid out otherwise")


def _dtypes() -> None:
    for dtype in map(np.dtype, ("f4", "f8", ">f4", ">f8", "i8", "f2", "c8", "S3", "M8[s]")):
        text = (dtype.kind + dtype.char + dtype.byteorder).encode()
        at = id(dtype) + OFFSET["text"]
        if ctypes.string_at(at, 3) != text or ctypes.c_int32.from_address(at + 4).value != dtype.num:
            raise Unverified("dtypes are laid out otherwise")
    noted: np.dtype[Any] = np.dtype("f4", metadata={"note": 1})
    (metadata,) = gc.get_referents(noted.metadata)
    if word(id(noted) + OFFSET["metadata"]) != id(metadata) or word(id(np.dtype("f4")) + OFFSET["metadata"]):
        raise Unverified("dtypes keep their metadata elsewhere")


def _arrays() -> None:
    row = np.arange(2 * 3 * 5 * 7, dtype=np.float32)
    cube, locked = row.reshape(2, 3, 5, 7), row.copy()
    locked.flags.writeable = False
    unaligned = np.zeros(41, np.uint8)[1:].view(np.float64)
    others = (np.empty((0, 3)), np.array(3.0), row[::-1], row.reshape(10, 21)[::2, ::3])
    for array in (row, cube, cube.astype(">f4"), locked, unaligned, *others):
        flags = array.flags
        bits = flags.c_contiguous | flags.f_contiguous << 1 | flags.owndata << 2
        bits |= flags.aligned << 8 | flags.writeable << 10
        known = (
            id(np.ndarray),
            array.__array_interface__["data"][0],
            id(array.dtype),
            bits,
            array.shape,
            array.strides,
        )
        if _read(array) != known:
            raise Unverified("arrays are laid out otherwise")


def _read(array: np.ndarray[Any, Any]) -> tuple[Any, ...]:
    """Class, data, dtype, flags, shape and strides of an array, as they are in memory."""
    at = {name: id(array) + offset for name, offset in OFFSET.items()}
    rank = ctypes.c_int32.from_address(at["ndim"]).value
    bits = ctypes.c_int32.from_address(at["flags"]).value & _KNOWN
    shape, strides = word(at["shape"]), word(at["strides"])
    # NumPy keeps both in one piece of memory; what is not there might not be an address at all.
    axes = range(rank) if rank == array.ndim and strides == shape + 8 * rank else ()
    extents, steps = (tuple(word(start + 8 * i) for i in axes) for start in (shape, strides))
    return word(at["type"]), word(at["data"]), word(at["dtype"]), bits, extents, steps


def _numpy_functions() -> None:
    """NumPy's table of functions: two entries whose answer is known, then the two that are used."""
    problem = "NumPy's table of functions is another one"
    if numpy_function("Array_Type") != id(np.ndarray):
        raise Unverified(problem)
    version = ctypes.CFUNCTYPE(ctypes.c_uint)(numpy_function("CVersion"))()
    if version >> 24 != 2:
        raise Unverified(f"NumPy's binary interface is {version:#x}")
    C = ctypes
    single = np.dtype(np.float32)
    keep(single)  # the next function takes a reference
    new: Any = C.PYFUNCTYPE(C.py_object, POINTER, POINTER, C.c_int, POINTER, POINTER, POINTER, C.c_int, POINTER)(
        numpy_function("NewFromDescr")
    )
    array = new(id(np.ndarray), id(single), 2, (C.c_int64 * 2)(3, 4), None, None, 0, None)
    if type(array) is not np.ndarray or array.shape != (3, 4) or array.dtype is not single or not array.flags.writeable:
        raise Unverified(problem)
    box: Any = C.PYFUNCTYPE(C.py_object, POINTER, POINTER, POINTER)(numpy_function("Scalar"))
    scalar = box(C.addressof(C.c_float(1.5)), id(single), None)
    if type(scalar) is not np.float32 or scalar != np.float32(1.5):
        raise Unverified(problem)
    double = np.float64(2.5)
    numbers = (
        C.c_float.from_address(id(scalar) + OFFSET["number"]),
        C.c_double.from_address(id(double) + OFFSET["number"]),
    )
    if [number.value for number in numbers] != [1.5, 2.5]:
        raise Unverified("NumPy's scalars are laid out otherwise")
