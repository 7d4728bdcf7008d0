"""The living definition of row programs: interpret one with NumPy, in any float dtype.

In the call's dtype this is the `reference` backend; in float64 (or wider) it is the reference of every test.
Slow and obvious on purpose: one NumPy call per node, every intermediate an array.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from trueno.programs.fused import fma
from trueno.programs.program import Program

Array = npt.NDArray[Any]


def _erf(x: Array) -> Array:
    out = np.frompyfunc(math.erf, 1, 1)(np.asarray(x, np.float64))
    return np.asarray(out, np.float64).astype(x.dtype)


ELEMENT_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "neg": np.negative,
    "abs": np.abs,
    "floor": np.floor,
    "ceil": np.ceil,
    "trunc": np.trunc,
    "rint": np.rint,
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "copysign": np.copysign,
    "fma": fma,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "eq": np.equal,
    "ne": np.not_equal,
    "and": np.logical_and,
    "or": np.logical_or,
    "not": np.logical_not,
    "isnan": np.isnan,
    "isinf": np.isinf,
    "where": np.where,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: x.dtype.type(1) / np.sqrt(x),
    "exp": np.exp,
    "exp2": np.exp2,
    "expm1": np.expm1,
    "log": np.log,
    "log2": np.log2,
    "log10": np.log10,
    "log1p": np.log1p,
    "log1p_unit": np.log1p,
    "tanh": np.tanh,
    "erf": _erf,
    "sin": np.sin,
    "cos": np.cos,
    "atan": np.arctan,
    "pow": np.power,
}


def _any(x: Array) -> Array:
    return np.asarray(np.any(x if x.dtype == bool else x != 0, axis=-1, keepdims=True))  # NaN != 0: NaN is true


def _all(x: Array) -> Array:
    return np.asarray(np.all(x if x.dtype == bool else x != 0, axis=-1, keepdims=True))


def _fsum(x: Array) -> Array:
    wide = np.float64 if x.dtype == np.float32 else np.longdouble
    return np.sum(x, axis=-1, keepdims=True, dtype=wide).astype(x.dtype)


FOLD_FUNCTIONS: dict[str, Callable[[Array], Array]] = {
    "sum": lambda x: np.sum(x, axis=-1, keepdims=True),
    "fsum": _fsum,
    "prod": lambda x: np.prod(x, axis=-1, keepdims=True),
    "max": lambda x: np.max(x, axis=-1, keepdims=True),
    "min": lambda x: np.min(x, axis=-1, keepdims=True),
    "any": _any,
    "all": _all,
    "argmax": lambda x: np.argmax(x, axis=-1, keepdims=True),
    "argmin": lambda x: np.argmin(x, axis=-1, keepdims=True),
}


def evaluate(
    program: Program, operands: Sequence[Array], params: Sequence[float], dtype: npt.DTypeLike
) -> tuple[Array, ...]:
    """Results of `program`: element outputs [rows, n], row outputs [rows].

    Operands by kind: `e` [rows, n], `w` [n], `r` [rows], `u` []; one row may also come as [n].
    Parameters are rounded to `dtype` first, as kernels see them.
    """
    T = np.dtype(dtype).type
    leaves = {}
    rows, n = 1, 1
    for (name, kind), array in zip(program.operands, operands, strict=True):
        a = np.asarray(array, T)
        shape = {"e": (-1, a.shape[-1] if a.ndim else 1), "w": (1, -1), "r": (-1, 1), "u": (1, 1)}[kind]
        leaves[name] = a = a.reshape(shape)
        rows, n = max(rows, a.shape[0]), max(n, a.shape[1]) if a.size else a.shape[1]
    scalars = dict(zip(program.params, params, strict=True))
    values: list[Any] = []
    with np.errstate(all="ignore"):
        for node in program.nodes:
            args = [values[a] for a in node.args]
            if node.kind == "leaf":
                value = leaves[node.value]  # type: ignore[index]
            elif node.kind == "param":
                value = np.full((1, 1), scalars[node.value], T)  # type: ignore[index]
            elif node.kind == "const":
                value = np.full((1, 1), node.value, T)
            elif node.kind == "count":
                value = np.full((1, 1), n, T)
            elif node.kind == "position":
                value = np.arange(n)[None, :]
            elif node.kind == "cast":
                value = args[0].astype(T)
            elif node.kind in FOLD_FUNCTIONS:
                value = FOLD_FUNCTIONS[node.kind](args[0] if args[0].shape[1] == n else _spread(args[0], n))
            else:
                value = ELEMENT_FUNCTIONS[node.kind](*args)
            values.append(value)
    results = []
    for o in program.outputs:
        element = program.nodes[o].space == "e"
        shape = (rows, n) if element else (rows, 1)
        value = np.broadcast_to(values[o], shape)
        results.append(value if element else value[:, 0])
    return tuple(results)


def _spread(x: Array, n: int) -> Array:
    return np.broadcast_to(x, (x.shape[0], n))
