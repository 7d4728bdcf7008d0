"""pandas: a result keeps the labels of every axis that it shares with an operand, by the symbols of the op's signature.

`softmax` of a DataFrame has its index and its columns, a sum of its rows is a Series with its index, a product has the
index of the first operand and the columns of the second.  Labels of one axis must agree: nothing is aligned silently.
"""

import sys
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np

from trueno.errors import DtypeError, OutError, ParameterError, ShapeError, dimensions
from trueno.ops.op import Op
from trueno.ops.signature import ArraySpec

NOUN, MIXES = "pandas object", True
Labels = dict[Any, tuple[Any, str]]
"""By axis: the index, and the operand that has it."""


def take(what: str, name: str, x: Any) -> Any:
    """The values of a Series or DataFrame as a NumPy array; of a DataFrame of one dtype in the same memory.

    Floats of pandas' own (`Float64`, `double[pyarrow]`) become NumPy's, and a missing one NaN.  DtypeError for columns
    that hold no numbers, and names them.
    """
    values = x.to_numpy()
    if values.dtype != object:
        return values
    kinds = [x.dtype] if x.ndim == 1 else list(x.dtypes)
    numbers = sys.modules["pandas"].api.types.is_numeric_dtype
    if all(numbers(kind) and getattr(kind, "kind", "") in "fiu" for kind in kinds):
        own = {getattr(kind, "numpy_dtype", kind) for kind in kinds}
        return x.to_numpy(dtype=own.pop() if len(own) == 1 else np.float64, na_value=np.nan)
    if x.ndim == 1:
        return values
    wrong = [repr(c) for c, kind in zip(x.columns, kinds, strict=True) if not numbers(kind)]
    if not wrong:
        return values
    some = ", ".join(wrong[:3]) + ", …" * (len(wrong) > 3)
    remedy = f"select the others: {name}.select_dtypes('number')"
    raise DtypeError(f"{what}: {name} has columns that are not numbers: {some}; {remedy}")


def host(what: str, name: str, x: Any) -> np.ndarray[Any, Any]:
    """As `take`: the values are on the host."""
    return take(what, name, x)  # type: ignore[no-any-return]


def target(what: str, name: str, x: Any) -> Any:
    """OutError: pandas does not promise that an array of its values is their memory."""
    remedy = "give a NumPy array, or omit it: the result has the labels"
    raise OutError(f"{what}: {name} is a {type(x).__name__}, whose values pandas may copy at any time; {remedy}")


def wrong(what: str, name: str, x: Any) -> DtypeError | None:
    """None: the call itself names a wrong dtype."""
    return None


def context(x: Any) -> AbstractContextManager[Any]:
    """Nothing."""
    return nullcontext()


def convert(name: str, other: str) -> str:
    """The remedy for an array `other` of another library beside `name`."""
    return f"{name}.to_numpy() for the values"


def labelled(op: Op, operands: tuple[Any, ...], results: tuple[Any, ...], scalars: dict[str, Any]) -> tuple[Any, ...]:
    """The results with the labels of the operands: Series, DataFrames, or arrays where no axis has labels."""
    pandas = sys.modules["pandas"]
    axis = scalars.get("axis", -1) if op.over is not None and not op.structured else -1
    labels = shared(op, operands, axis)
    own = {x.name if isinstance(x, pandas.Series) else None for x in operands if _labelled(x)}
    title = own.pop() if len(own) == 1 else None
    given = []
    for spec, result in zip(op.signature.outputs, results, strict=True):
        keys = _result_keys(op, spec, np.ndim(result), axis, bool(scalars.get("keepdims", False)))
        found = [labels.get(key, (None, ""))[0] for key in keys]
        named = [x if x is not None and len(x) == n else None for x, n in zip(found, np.shape(result), strict=True)]
        if all(x is None for x in named) or len(named) > 2:
            given.append(result)
        elif len(named) == 1:
            given.append(pandas.Series(result, index=named[0], name=title, copy=False))
        else:
            given.append(pandas.DataFrame(result, index=named[0], columns=named[1], copy=False))
    return tuple(given)


def give(result: Any, like: Any) -> Any:
    """The result itself: `labelled` is the way of results with labels."""
    return result


def shared(op: Op, operands: tuple[Any, ...], axis: Any) -> Labels:
    """The labels of every axis; ShapeError if two operands label one axis differently."""
    labels: Labels = {}
    for spec, x in zip(op.signature.inputs, operands, strict=True):
        if not _labelled(x):
            continue
        for key, index in zip(_keys(op, spec, x.ndim, axis), x.axes, strict=True):
            before, name = labels.setdefault(key, (index, spec.name))
            if len(before) == len(index) and not before.equals(index):
                remedy = f"align them first, or give {spec.name}.to_numpy() to combine by position"
                raise ShapeError(f"{op.name}: {spec.name} and {name} have different labels; {remedy}")
            if len(before) == 1:  # an axis of one element is repeated along that of another operand
                labels[key] = index, spec.name
    return labels


def _labelled(x: Any) -> bool:
    pandas = sys.modules["pandas"]
    return isinstance(x, (pandas.Series, pandas.DataFrame))


def _keys(op: Op, spec: ArraySpec, rank: int, axis: Any) -> list[Any]:
    """A key for every axis of an operand: a symbol of the signature, or the place of a leading axis from the end."""
    leading = rank - len(spec.dims)
    keys: list[Any] = [*(leading - i for i in range(leading)), *spec.dims]
    if axis is None or axis == -1 or not spec.leading or op.over not in spec.dims:
        return keys
    at = _place(op, axis, rank)
    return [*keys[:at], keys[-1], *keys[at:-1]]


def _result_keys(op: Op, spec: ArraySpec, rank: int, axis: Any, keepdims: bool) -> list[Any]:
    reduced = op.over is not None and not op.structured and op.over not in spec.dims
    if not reduced:
        return _keys(op, spec, rank, axis)
    if axis is None:
        return [None] * rank
    leading: list[Any] = [*range(rank - keepdims, 0, -1)]
    if keepdims:
        leading.insert(_place(op, axis, rank), None)
    return leading


def _place(op: Op, axis: Any, rank: int) -> int:
    """The axis counted from the front."""
    if not -rank <= axis < rank:
        raise ParameterError(f"{op.name}: axis is {axis}, but the operand has {dimensions(rank)}")
    return int(axis) % rank
