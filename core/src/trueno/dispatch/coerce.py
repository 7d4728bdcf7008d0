"""What comes in: lists, scalars, vectors and arrays become NumPy arrays of one float dtype, or an error.

Lists become float32; a Python or NumPy scalar takes the dtype of the arrays beside it; big-endian is
converted later, and 16-bit floats are widened then (`trueno.dispatch.half`); integers, booleans, objects, masked
arrays and mixed float dtypes are errors that name the operand and the remedy.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from trueno.dispatch.half import FLOATS, TAKEN, is_half
from trueno.dispatch.operands import float_dtype, is_number
from trueno.dispatch.transfer import imported
from trueno.errors import DtypeError, ParameterError, ShapeError
from trueno.floatenv import ieee
from trueno.formats.table import INTERLEAVED
from trueno.ops.fused import narrowed
from trueno.ops.op import Op, Parameter

Array = npt.NDArray[Any]
WIDE_BITS, SHOWN = 256, 200
"""Bits of a whole number, and characters of any value, up to which a message shows it."""


def coerce(op: Op, operands: tuple[Any, ...]) -> tuple[list[Array], np.dtype[Any], Callable[[Any], Any]]:
    """Arrays in the operands' order, their dtype, and what puts a result back into the caller's type."""
    found: list[Array | None] = []
    dtypes: list[tuple[str, np.dtype[Any]]] = []
    wrap: Callable[[Any], Any] = _same
    for spec, x in zip(op.signature.inputs, operands, strict=True):
        if hasattr(x, "_wrap_result"):
            wrap, x = x._wrap_result, x.array
        if spec.blocks:
            found.append(_bytes(op, spec.name, x))
            continue
        if spec.index:
            found.append(_index(op, spec.name, x))
            continue
        if isinstance(x, (float, int, np.generic)) and not isinstance(x, (bool, np.bool_)):
            found.append(None)
            if not is_number(x):
                raise DtypeError(f"{op.name}: {spec.name} is {type(x).__name__}; real numbers only")
            continue
        array = _array(op, spec.name, x)
        dtypes.append((spec.name, np.dtype(array.dtype.type)))  # NumPy's own object, by which the fast path knows it
        found.append(array)
    dtype = float_dtype(op, dtypes) or np.dtype(np.float32)
    arrays = []
    for x, a in zip(operands, found, strict=True):
        arrays.append(number(op, x, dtype) if a is None else a)
    return arrays, dtype, wrap


def unpacked(op: Op, name: str, x: Any, told: str) -> tuple[Any, str]:
    """The bytes of a `QuantizedMatrix` and its format; anything else as it is.

    ParameterError where it says another format than `told`, or lies in the other orientation than the op reads.
    """
    told = lower(told)
    form = getattr(x, "_blocks", None)
    if form is None:
        return x, told
    data, known, columns = form
    if told is not None and (not isinstance(told, str) or told not in ("", known)):
        raise ParameterError(f"{op.name}: {name} is in {known}, but format is {shown(told)}; leave format out")
    if columns != op.columnwise:
        way, other = ("column by column", "_colmajor") if columns else ("row by row", "")
        twin = f"trueno.{op.name.removesuffix('_colmajor')}{other}"
        remedy = f"{twin}, or `@`, which looks" if op.chain else ".T to read it as rows"
        raise ParameterError(f"{op.name}: the blocks of {name} lie {way}; use {remedy}")
    return data, known


def unpack(op: Op, operands: tuple[Any, ...], given: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Operands with bytes for each `QuantizedMatrix`, and parameters with its format."""
    if not op.quantized:
        return operands, given
    form, found = lower(given.get("format", "")), []
    for spec, x in zip(op.signature.inputs, operands, strict=False):
        if spec.blocks:
            x, form = unpacked(op, spec.name, x, form)
        elif op.chain and getattr(x, "_blocks", None) is not None:
            raise _swapped(op, spec.name, "quantized")
        elif op.chain and not spec.type and _holds(x, "u") and any(_holds(other, "f") for other in operands):
            raise _swapped(op, spec.name, str(x.dtype))
        found.append(x)
    return tuple(found), {**given, "format": form}


def _holds(x: Any, kind: str) -> bool:
    return isinstance(x, np.ndarray) and x.dtype.kind == kind


def _swapped(op: Op, name: str, what: str) -> DtypeError:
    """For a product whose operand of numbers is in blocks: most likely the two are in the other order."""
    blocks = next(spec.name for spec in op.signature.inputs if spec.blocks)
    order = f"the order is trueno.{op.name}({', '.join(op.operands)})"
    remedy = "swap them, or multiply with @, which takes either order: q @ x, x @ q"
    return DtypeError(f"{op.name}: {name} is {what}, but it is {blocks} that comes in blocks: {order}; {remedy}")


def lower(format: Any) -> Any:  # noqa: A002 - the parameter's own word
    """A format's name as the table has it; anything else as it is."""
    return format.lower() if isinstance(format, str) else format


def _bytes(op: Op, name: str, x: Any) -> Array:
    """Rows of blocks."""
    if not isinstance(x, np.ndarray) or x.dtype != np.uint8:
        what = x.dtype if isinstance(x, np.ndarray) else type(x).__name__
        raise DtypeError(f"{op.name}: {name} is {what}; give a QuantizedMatrix (trueno.quantize), or its bytes (uint8)")
    if x.ndim != 2:
        raise ShapeError(f"{op.name}: {name} has shape {x.shape}; bytes of a matrix are [rows, bytes a row]")
    return np.asarray(x)


def number(op: Op, x: Any, dtype: np.dtype[Any]) -> Array:
    """A number as an array without axes; ParameterError for a whole number past every float."""
    try:
        with np.errstate(over="ignore"), ieee():  # a batch keeps it
            return narrowed(np.asarray(x, np.float64), dtype) if dtype.itemsize == 2 else np.asarray(x, dtype)
    except OverflowError:
        raise ParameterError(f"{op.name}: a whole number of {x.bit_length()} bits is past every {dtype}") from None


def _same(result: Any) -> Any:
    return result


def _array(op: Op, name: str, x: Any) -> Array:
    if hasattr(x, "_blocks"):
        if hasattr(x, "batch"):
            raise DtypeError(f"{op.name}: {name} is a handle of a batch; go on in the batch: b.{op.name}(…)")
        remedy = "trueno.quant_matvec, trueno.quant_matmul and @ multiply with one, trueno.dequantize gives its numbers"
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
        raise ParameterError(f"{op.name}: {name} holds {array.max()}, which is past every table")
    return array.astype(np.int64, copy=False)


def unfit(op: Op, p: Parameter, value: Any) -> ParameterError:
    """The error for a value that is none of the choices."""
    if p.name == "format" and isinstance(value, str) and value in INTERLEAVED:
        plain = INTERLEAVED[value].plain
        remedy = f"q.plain() puts the blocks of a matrix back, q.interleaved() makes {value} of {plain}"
        return ParameterError(f"{op.name}: format is {value!r}, but it takes rows that are not interleaved; {remedy}")
    said = "is missing" if value is p.default else f"is {shown(value)}"
    return ParameterError(f"{op.name}: {p.name} {said}; it must be {' or '.join(map(repr, p.choices))}")


def shown(value: Any) -> str:
    """A value for a message: of a long one the beginning, of one that has no text its type."""
    if isinstance(value, int) and value.bit_length() > WIDE_BITS:
        return f"a whole number of {value.bit_length()} bits"
    try:
        text = repr(value)
    except Exception:
        return f"a {type(value).__name__}"
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"


def plain(value: Any) -> Any:
    """The text itself that a member of an enumeration, or of any subclass, is."""
    return str.__str__(value) if isinstance(value, str) else value


def _float(op: Op, p: Parameter, value: Any) -> float:
    """The value of a float parameter; ParameterError for what is not a number, or beyond every float."""
    kind = type(value)
    number = hasattr(kind, "__float__") or hasattr(kind, "__index__")  # float() takes texts and bytes as well
    if number and not isinstance(value, (bool, np.bool_, complex, np.complexfloating)) and not np.ndim(value):
        try:
            return float(value)
        except OverflowError:
            raise ParameterError(f"{op.name}: {p.name} is {shown(value)}, which is past every float") from None
        except Exception:  # whatever its own code raises
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
            said = f"{op.name}: {p.name} is {shown(value)}; it must be {p.type.__name__}"
            raise unfit(op, p, value) if p.choices else ParameterError(said)
        elif p.name == "format" and not value and op.quantized:
            said = "are bytes that do not say their format; give a QuantizedMatrix, or format="
            raise ParameterError(f"{op.name}: blocks {said}{p.choices[0]!r}, or another of {', '.join(p.choices)}")
        elif not p.takes(value):
            raise unfit(op, p, value)
        else:
            values[p.name] = value
    for rule in op.rules:
        if not eval(rule, {"__builtins__": {}}, {**values, "inf": math.inf}):
            said = ", ".join(f"{k} is {v!r}" for k, v in values.items() if k in rule.split())
            raise ParameterError(f"{op.name}: {said}, but {rule} must hold")
    return tuple(values[n] for n in op.symbolic), {p.name: values[p.name] for p in op.static}
