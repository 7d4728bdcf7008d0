"""Checks of a user's arguments to a batch: operands, arrays to read into, replacement arrays for uploads."""

from collections.abc import Callable
from typing import Any

import numpy as np

from trueno.batch.graph import Graph, Number, Shape, Value
from trueno.dispatch import transfer
from trueno.dispatch.operands import check_dtype, float_dtype
from trueno.errors import DtypeError, OutError, ParameterError, ShapeError
from trueno.ops.op import Op


def taken(op: Op, operands: tuple[Any, ...], graph: Graph, value: Callable[[str, str, Any], int]
          ) -> tuple[list[int | Number], np.dtype[Any]]:  # fmt: skip
    """A call's operands, as values and numbers, and its float dtype.

    value: returns the value of a handle, from the op's name, the operand's name and the handle.
    """
    items: list[int | Number] = []
    named: list[tuple[str, np.dtype[Any]]] = []
    for spec, x in zip(op.signature.inputs, operands, strict=True):
        if isinstance(x, (float, int, np.floating, np.integer)) and not isinstance(x, bool) and not spec.blocks:
            items.append(Number(x))  # type: ignore[arg-type]
            continue
        v = value(op.name, spec.name, x)
        items.append(v)
        check_dtype(op, spec, graph.values[v].dtype, "in a batch")
        if not spec.type:
            named.append((spec.name, graph.values[v].dtype))
    dtype = float_dtype(op, named)
    if dtype is None:
        raise DtypeError(f"{op.name}: no operand is a handle of float32 or float64; call trueno.{op.name}")
    return items, dtype


def replaces(value: Value, array: Any, x: Any) -> None:
    """Raise ShapeError or DtypeError if `array`, made from the user's `x`, cannot replace the array of an upload."""
    if tuple(array.shape) != value.shape:
        raise ShapeError(f"update: x has shape {tuple(array.shape)}, but h has {value.shape}; record a new batch")
    if np.dtype(array.dtype) != value.dtype:
        numbers = None if getattr(x, "_blocks", None) else transfer.unwrap(x)
        dtype = getattr(numbers, "dtype", array.dtype)  # the user's own dtype: whole numbers are int64 in `array`
        raise DtypeError(f"update: x is {dtype}, but h is {value.dtype}; convert it with .astype(numpy.{value.dtype})")
    _, blocks, columns = getattr(x, "_blocks", None) or (None, "", False)
    if blocks != value.blocks:
        raise DtypeError(f"update: x is {blocks or 'not quantized'}, but h is {value.blocks or 'not quantized'}")
    if columns != value.columns:
        way = "a transposed matrix, whose blocks are stored column by column"
        raise ShapeError(f"update: {'x' if columns else 'h'} is {way}, and the other is not; pass x.T")


def feeds(graph: Graph, v: int, result: int) -> None:
    """Raise ParameterError or ShapeError if the upload `v` cannot get the contents of `result`."""
    upload, made = graph.values[v], graph.values[result]
    if upload.maker >= 0 or upload.updated or upload.blocks:
        raise ParameterError("feed: h is not an upload of numbers that only feed and update change; upload one for it")
    if made.maker < 0:
        raise ParameterError("feed: result is an upload; give a handle that an op returned")
    if (upload.shape, upload.dtype) != (made.shape, made.dtype):
        has, gets = (f"{x.dtype} of shape {x.shape}" for x in (upload, made))
        raise ShapeError(f"feed: h is {has}, but result is {gets}; upload an array like the result")


def fits(array: Any, out: Any) -> None:
    """Raise OutError if a result cannot be read into `out`."""
    shape: Shape = tuple(array.shape)
    plain = isinstance(out, np.ndarray) and not isinstance(out, np.ma.MaskedArray)
    if not plain or out.shape != shape or out.dtype != array.dtype or not out.flags.writeable:
        actual = f"{out.dtype} of shape {out.shape}" if plain else type(out).__name__
        raise OutError(f"read: out is {actual}; it must be a writeable array of {array.dtype} and shape {shape}")


def kind(x: Any) -> str:
    """A description of an object, for an error message."""
    return f"an array of shape {x.shape}" if isinstance(x, np.ndarray) else type(x).__name__
