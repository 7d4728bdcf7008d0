"""Conversion of operands: lists, scalars, vectors and arrays become NumPy arrays of one float dtype, or an error.

Lists become float32; a Python or NumPy scalar takes the dtype of the arrays beside it; later code converts
big-endian arrays and widens 16-bit floats (`trueno.dispatch.half`); integers, booleans, objects, masked
arrays and mixed float dtypes raise errors that name the operand and the remedy.
"""

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from trueno.dispatch.half import FLOATS, TAKEN, is_half
from trueno.dispatch.operands import float_dtype, is_number
from trueno.dispatch.transfer import imported
from trueno.errors import DtypeError, OutError, ParameterError, ShapeError
from trueno.floatenv import ieee
from trueno.formats.table import INTERLEAVED
from trueno.ops.op import TABLE, Op, Parameter
from trueno.ops.signature import ArraySpec
from trueno.programs.fused import narrowed

Array = npt.NDArray[Any]
WIDE_BITS, SHOWN = 256, 200
"""The most bits of a whole number, and the most characters of any value, that a message shows."""


def coerce(op: Op, operands: tuple[Any, ...]) -> tuple[list[Array], np.dtype[Any], Callable[[Any], Any]]:
    """Arrays in the operands' order, their dtype, and the function that converts a result to the caller's type."""
    converted: list[Array | None] = []
    dtypes: list[tuple[str, np.dtype[Any]]] = []
    wrap: Callable[[Any], Any] = _same
    for spec, x in zip(op.signature.inputs, operands, strict=True):
        if hasattr(x, "_wrap_result"):
            wrap, x = x._wrap_result, x.array
        if spec.blocks or spec.type == "bytes":
            converted.append(_bytes(op, spec, x))
            continue
        if spec.index:
            converted.append(_index(op, spec.name, x))
            continue
        if isinstance(x, (float, int, np.generic)) and not isinstance(x, (bool, np.bool_)):
            converted.append(None)
            if not is_number(x):
                raise DtypeError(f"{op.name}: {spec.name} is {type(x).__name__}; real numbers only")
            continue
        array = _array(op, spec.name, x)
        dtypes.append((spec.name, np.dtype(array.dtype.type)))  # NumPy's own object: the fast path compares by identity
        converted.append(array)
    dtype = float_dtype(op, dtypes) or np.dtype(np.float32)
    arrays = []
    for x, a in zip(operands, converted, strict=True):
        arrays.append(number(op, x, dtype) if a is None else a)
    return arrays, dtype, wrap


def unpacked(op: Op, name: str, x: Any, told: str) -> tuple[Any, str]:
    """The bytes of a `QuantizedMatrix` and its format; any other object unchanged, with the format `told`.

    ParameterError if its format differs from `told`, or if the op reads blocks in the transposed layout.
    """
    told = lower(told)
    form = getattr(x, "_blocks", None)
    if form is None and op.caches:
        form = _cells(op, name, x)
    if form is None:
        return x, told
    data, actual, columns = form
    if told is not None and (not isinstance(told, str) or told not in ("", actual)):
        remedy = "caches of one call have one dtype" if op.caches else "leave format out"
        raise ParameterError(f"{op.name}: {name} is in {actual}, but format is {shown(told)}; {remedy}")
    if columns != op.columnwise:
        way, other = ("column by column", "_colmajor") if columns else ("row by row", "")
        twin = f"{op.name.removesuffix('_colmajor')}{other}"
        remedy = f"trueno.{twin}, or `@`, which takes either layout" if twin in TABLE else ".T to read it as rows"
        raise ParameterError(f"{op.name}: the blocks of {name} are stored {way}; use {remedy}")
    return data, actual


def unpack(op: Op, operands: tuple[Any, ...], given: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The operands with each `QuantizedMatrix` replaced by its bytes, and the parameters with its format."""
    if not op.quantized:
        return operands, given
    form, replaced = lower(given.get("format", "")), []
    for spec, x in zip(op.signature.inputs, operands, strict=False):
        if spec.blocks:
            x, form = unpacked(op, spec.name, x, form)
        elif op.chain and getattr(x, "_blocks", None) is not None:
            raise _swapped(op, spec.name, "quantized")
        elif op.chain and not spec.type and _holds(x, "u") and any(_holds(other, "f") for other in operands):
            raise _swapped(op, spec.name, str(x.dtype))
        replaced.append(x)
    return tuple(replaced), {**given, "format": form}


def _cell(x: Any) -> str:
    """The format of an array of floats that a cache may be; empty for any other object."""
    return _cell_of(x.dtype) if x.__class__ is np.ndarray and x.ndim else ""


@lru_cache(64)
def _cell_of(dtype: np.dtype[Any]) -> str:
    """The format of native floats; kept, as NumPy spends two microseconds on a dtype's name."""
    return {"float32": "f32", "float16": "f16", "bfloat16": "bf16"}.get(dtype.name, "") if dtype.isnative else ""


def _cells(op: Op, name: str, x: Any) -> tuple[Any, str, bool] | None:
    """The bytes of a cache that is an array of floats, and their format; None for bytes, and what is not an array."""
    if x.__class__ is not np.ndarray or not x.ndim or x.dtype == np.uint8:
        return None
    form = _cell(x)
    if not form:
        remedy = "a cache is float32, float16 or bfloat16, or uint8 with format='q8_0'"
        raise DtypeError(f"{op.name}: {name} is {x.dtype}; {remedy}")
    if x.strides[-1] != x.itemsize:
        x = np.ascontiguousarray(x)
    return x.view(np.uint8), form, False


def cache_bytes(op: Op, x: Array, form: str) -> Array:
    """The bytes of `out` for a cache in `form`; OutError for another dtype, or rows with gaps."""
    if x.dtype == np.uint8:
        return x
    if _cell(x) != form or x.strides[-1] != x.itemsize:
        raise OutError(f"{op.name}: out is {x.dtype}, strides {x.strides}; the cache is {form}, in rows without gaps")
    return x.view(np.uint8)


def _holds(x: Any, kind: str) -> bool:
    return isinstance(x, np.ndarray) and x.dtype.kind == kind


def _swapped(op: Op, name: str, what: str) -> DtypeError:
    """The error for a product whose operand of numbers is in blocks: most likely the operands are swapped."""
    blocks = next(spec.name for spec in op.signature.inputs if spec.blocks)
    order = f"the order is trueno.{op.name}({', '.join(op.operands)})"
    remedy = "swap them, or multiply with @, which takes either order: q @ x, x @ q"
    return DtypeError(f"{op.name}: {name} is {what}, but {blocks} is the operand in blocks: {order}; {remedy}")


def lower(format: Any) -> Any:  # noqa: A002 - the parameter's own word
    """A format's name in the table's lower case; an object that is not a name unchanged."""
    return format.lower() if isinstance(format, str) else format


def _bytes(op: Op, spec: ArraySpec, x: Any) -> Array:
    """`x` as bytes, or as rows of blocks: DtypeError unless it is a uint8 array, ShapeError for blocks not in rows."""
    name = spec.name
    if not isinstance(x, np.ndarray) or x.dtype != np.uint8 or isinstance(x, np.ma.MaskedArray):
        what = x.dtype if isinstance(x, np.ndarray) and x.dtype != np.uint8 else type(x).__name__
        if not spec.blocks:
            raise DtypeError(f"{op.name}: {name} is {what}; give a uint8 array: {name}.view(numpy.uint8)")
        if op.caches:
            raise DtypeError(f"{op.name}: {name} is {what}; give an array of the cache's dtype, or a trueno.KVCache's")
        raise DtypeError(f"{op.name}: {name} is {what}; give a QuantizedMatrix (trueno.quantize), or its bytes (uint8)")
    if x.ndim != 2 and spec.type == "blocks":
        raise ShapeError(f"{op.name}: {name} has shape {x.shape}; bytes of a matrix are [rows, bytes per row]")
    return np.asarray(x)


def number(op: Op, x: Any, dtype: np.dtype[Any]) -> Array:
    """A number as an array without axes; ParameterError for a whole number beyond the range of floats."""
    try:
        with np.errstate(over="ignore"), ieee():  # a batch keeps the array
            return narrowed(np.asarray(x, np.float64), dtype) if dtype.itemsize == 2 else np.asarray(x, dtype)
    except OverflowError:
        problem = f"a whole number of {x.bit_length()} bits is beyond the range of {dtype}"
        raise ParameterError(f"{op.name}: {problem}") from None


def _same(result: Any) -> Any:
    return result


def _array(op: Op, name: str, x: Any) -> Array:
    if hasattr(x, "_blocks"):
        if hasattr(x, "batch"):
            raise DtypeError(f"{op.name}: {name} is a handle of a batch; call the batch's method: b.{op.name}(…)")
        remedy = "trueno.quant_matvec, trueno.quant_matmul and @ multiply with one, trueno.dequantize gives its numbers"
        if f"quant_{op.name}" in TABLE:
            remedy = f"trueno.quant_{op.name} reads its blocks"
        raise DtypeError(f"{op.name}: {name} is quantized; {remedy}")
    if isinstance(x, np.ma.MaskedArray):
        raise DtypeError(f"{op.name}: {name} is a masked array, whose mask would be lost; fill it first (.filled)")
    if isinstance(x, np.ndarray):
        array = np.asarray(x)
    elif isinstance(x, (list, tuple)):
        try:
            array = np.asarray(x)
        except ValueError:
            raise ShapeError(f"{op.name}: {name} is a ragged list; every row must have the same length") from None
        if array.dtype.kind in "iuf" or is_half(array.dtype) or array.size == 0:
            with np.errstate(over="ignore"):
                array = array.astype(np.float32)
    elif hasattr(x, "__array__") or hasattr(x, "__dlpack__"):
        array = imported(op.name, name, x)
    else:
        raise DtypeError(f"{op.name}: {name} is {type(x).__name__}; give an array, a list or a number")
    if array.dtype.type not in FLOATS and not is_half(array.dtype):
        remedy = "convert it with .astype(numpy.float32)" if array.dtype.kind in "iufb" else "real numbers only"
        raise DtypeError(f"{op.name}: {name} is {array.dtype}; {TAKEN}, {remedy}")
    return array


def _index(op: Op, name: str, x: Any) -> Array:
    array = imported(op.name, name, x)
    if array.size == 0 and not isinstance(x, np.ndarray):
        array = array.astype(np.int64)
    if array.dtype.kind not in "iu":
        raise DtypeError(f"{op.name}: {name} is {array.dtype}; indices are whole numbers")
    if array.dtype == np.uint64 and array.size and array.max() > np.iinfo(np.int64).max:
        raise ParameterError(f"{op.name}: {name} holds {array.max()}, which is beyond int64, the dtype of indices")
    return array.astype(np.int64, copy=False)


def unfit(op: Op, p: Parameter, value: Any) -> ParameterError:
    """The error for a value that is not one of the choices."""
    if p.name == "format" and isinstance(value, str) and value in INTERLEAVED:
        plain = INTERLEAVED[value].plain
        remedy = f"q.plain() restores the order of a matrix's blocks, q.interleaved() converts {plain} to {value}"
        return ParameterError(f"{op.name}: format is {value!r}, but it takes rows that are not interleaved; {remedy}")
    problem = "is missing" if value is p.default else f"is {shown(value)}"
    return ParameterError(f"{op.name}: {p.name} {problem}; it must be {' or '.join(map(repr, p.choices))}")


def shown(value: Any) -> str:
    """A value for a message: the beginning of a long one, the type of one whose `repr` fails."""
    if isinstance(value, int) and value.bit_length() > WIDE_BITS:
        return f"a whole number of {value.bit_length()} bits"
    try:
        text = f"an array of shape {value.shape}" if getattr(value, "shape", ()) else repr(value)
    except Exception:
        return f"a {type(value).__name__}"
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"


def plain(value: Any) -> Any:
    """A member of an enumeration of strings, or of any subclass of `str`, as a plain `str`; other values unchanged."""
    return str.__str__(value) if isinstance(value, str) else value


def _float(op: Op, p: Parameter, value: Any) -> float:
    """The value of a float parameter; ParameterError if it is not a number, or is beyond the range of floats."""
    kind = type(value)
    number = hasattr(kind, "__float__") or hasattr(kind, "__index__")  # float() takes texts and bytes as well
    if number and not isinstance(value, (bool, np.bool_, complex, np.complexfloating)) and not np.ndim(value):
        try:
            return float(value)
        except OverflowError:
            problem = f"{p.name} is {shown(value)}, which is beyond the range of floats"
            raise ParameterError(f"{op.name}: {problem}") from None
        except Exception:  # any error of the value's own code
            pass
    raise ParameterError(f"{op.name}: {p.name} is {shown(value)}; it must be a number")


def coerce_params(op: Op, given: dict[str, Any]) -> tuple[tuple[float, ...], dict[str, Any]]:
    """Float parameters in calling order, static ones by name; ParameterError naming value and rule."""
    values: dict[str, Any] = {}
    for p in op.params:
        value = plain(given[p.name])
        if p.symbolic:
            values[p.name] = _float(op, p, value)
        elif not isinstance(value, p.type) or (p.type is int and isinstance(value, bool)):
            problem = f"{op.name}: {p.name} is {shown(value)}; it must be {p.type.__name__}"
            raise unfit(op, p, value) if p.choices else ParameterError(problem)
        elif p.name == "format" and not value and op.quantized:
            spec = next(spec for spec in op.signature.inputs if spec.blocks)
            problem = "blocks are bytes without a format; give a QuantizedMatrix, or format="
            problem = f"{spec.name} has no format; give Pages, or bytes and format=" if spec.cache else problem
            raise ParameterError(f"{op.name}: {problem}{p.choices[0]!r}, or another of {', '.join(p.choices)}")
        elif not p.takes(value):
            raise unfit(op, p, value)
        else:
            values[p.name] = value
    for rule in op.rules:
        if not eval(rule, {"__builtins__": {}}, {**values, "inf": math.inf}):
            problem = ", ".join(f"{k} is {shown(v)}" for k, v in values.items() if k in rule.split())
            raise ParameterError(f"{op.name}: {problem}, but {rule} must hold")
    return tuple(values[n] for n in op.symbolic), {p.name: values[p.name] for p in op.static}
