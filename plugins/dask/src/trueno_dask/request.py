"""A call on Dask arrays, checked: what the rules that split it need."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import isnan
from typing import Any

import dask.array as da
import numpy as np
from dask.array.utils import meta_from_array
from dask.base import tokenize
from trueno.deferred import Checked, Scopes, StandIn, check, scopes
from trueno.errors import DtypeError, ParameterError, ShapeError
from trueno.ops.op import Op
from trueno.version import __version__

UNKNOWN = 1_000_003
"""The size that stands for an unknown one while a call is checked: a prime, which no other size matches by chance."""
NUMBERS = (float, int, np.generic)


@dataclass(frozen=True)
class Request:
    """A valid call.

    arrays: the operands as Dask arrays, by place; numbers: the others, by place.  scalars: the parameters as the public
    function takes them.  scopes: the request for backends and the guard around the caller.
    """

    op: Op
    checked: Checked
    arrays: dict[int, da.Array]
    numbers: dict[int, Any]
    scalars: dict[str, Any]
    scopes: Scopes

    @cached_property
    def unknown(self) -> bool:
        """Whether the size of some chunk is not known."""
        return any(isnan(n) for x in self.arrays.values() for n in x.shape)

    @cached_property
    def token(self) -> str:
        """The same for equal calls on equal arrays, in every process of one version."""
        names = [(i, x.name) for i, x in sorted(self.arrays.items())]
        held = (self.checked.axes, self.checked.keepdims, sorted(self.scalars.items()), sorted(self.numbers.items()))
        return tokenize("trueno", __version__, self.op.name, names, held, repr(self.scopes))

    def name(self, part: str = "") -> str:
        """The name of the layer that computes a part of the call, or its result."""
        return f"{self.op.name}{part and '-'}{part}-{self.token}"

    def meta(self, k: int, ndim: int) -> Any:
        """An empty array of the type and dtype of result `k`."""
        first = next(iter(self.arrays.values()))
        return meta_from_array(first._meta, ndim=ndim, dtype=self.checked.dtypes[k])

    @property
    def on_host(self) -> bool:
        """Whether every chunk is an array of NumPy."""
        return all(type(x._meta) is np.ndarray for x in self.arrays.values())


def requested(op: Op, operands: Sequence[Any], scalars: dict[str, Any]) -> Request:
    """The call, or its error, as far as shapes and dtypes show it."""
    if op.caches or op.updates:
        problem = "a cache of keys and values is written in place, and belongs to one process"
        raise DtypeError(f"{op.name}: an operand is a Dask array, but {problem}; compute the operand first")
    stand_ins = [_stand_in(op, i, x) for i, x in enumerate(operands)]
    unknown = any(isinstance(x, da.Array) and any(map(isnan, x.shape)) for x in operands)
    try:
        checked = check(op, stand_ins, scalars)
    except ShapeError as error:
        if not unknown:
            raise
        who = next(name for name, x in zip(op.operands, operands, strict=False) if isinstance(x, da.Array))
        problem = "some chunks have unknown sizes, so that shapes cannot be compared"
        raise ShapeError(f"{op.name}: {problem}; call {who}.compute_chunk_sizes() first") from error
    arrays, numbers = {}, {}
    for i, (x, held) in enumerate(zip(operands, checked.operands, strict=True)):
        if isinstance(x, da.Array):
            arrays[i] = _filled(x)
        elif isinstance(x, NUMBERS):
            numbers[i] = x
        else:
            assert held is not None
            arrays[i] = da.from_array(held, chunks=-1)
    parameters = {**checked.params, **checked.static}
    return Request(op, checked, arrays, numbers, parameters, scopes())


def _stand_in(op: Op, i: int, x: Any) -> Any:
    if not isinstance(x, da.Array):
        if type(x).__module__.partition(".")[0] in ("torch", "pandas", "jax"):
            name = op.operands[i]
            remedy = f"dask.array.from_array(numpy.asarray({name}))"
            raise DtypeError(f"{op.name}: {name} is a {type(x).__name__} beside a Dask array; give {remedy}")
        return x
    if isinstance(x._meta, np.ma.MaskedArray):
        return np.ma.zeros((0,) * x.ndim, x.dtype)  # the core's own error
    return StandIn(tuple(UNKNOWN if isnan(n) else int(n) for n in x.shape), np.dtype(x.dtype))


def _filled(x: da.Array) -> da.Array:
    """The array without chunks that are known to be empty: Dask takes an axis of one element for one to broadcast."""
    chunks = tuple(tuple(n for n in c if n) or (0,) for c in x.chunks)
    if chunks == x.chunks or any(map(isnan, x.shape)):
        return x
    return x.rechunk(chunks) if x.size else da.zeros_like(x, chunks=chunks)  # `rechunk` leaves an array of nothing


def whole(request: Request, i: int, axis: int, why: str) -> None:
    """Raise ShapeError if operand `i` has several chunks along an axis."""
    x = request.arrays[i]
    if x.numblocks[axis] > 1:
        name = request.op.operands[i]
        remedy = f"give {name}.rechunk({{{axis}: -1}})"
        problem = f"{name} has {x.numblocks[axis]} chunks along axis {axis}, but {why}"
        raise ShapeError(f"{request.op.name}: {problem}; {remedy}")


def refused(request: Request, why: str) -> ParameterError:
    """The error for a call that cannot be split."""
    return ParameterError(f"{request.op.name}: {why}")
