"""What `trueno.interop` requires of a library of arrays that runs calls itself: the module behind the entry point."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import dask.array as da
import numpy as np
from trueno.errors import DtypeError, OutError
from trueno.ops.op import Op

NOUN, MIXES = "Dask array", True


def takes(kind: type) -> bool:
    """Whether a class is that of Dask arrays: its data frames and bags have no ops."""
    return issubclass(kind, da.Array)


def call(op: Op, operands: tuple[Any, ...], scalars: dict[str, Any], out: Any) -> Any:
    """The lazy result of an op, or a tuple of them; the call's own errors, where shapes and dtypes show them."""
    if out is not None:
        raise OutError(f"{op.name}: out is given beside a Dask array, but lazy results cannot be written; omit it")
    from trueno_dask.calls import run  # it reads the table of ops

    return run(op, operands, scalars)


def host(what: str, name: str, x: Any) -> np.ndarray[Any, Any]:
    """The computed array: a `Vector`, a batch or an index of an array in memory needs its elements now."""
    return np.asarray(x.compute())


def take(what: str, name: str, x: Any) -> Any:
    """DtypeError: a Dask array has no memory that a kernel could read."""
    remedy = "call the op itself, which is lazy, or trueno_dask.explain on its result"
    raise DtypeError(f"{what}: {name} is a Dask array, which has no memory here; {remedy}, or compute it first")


def target(what: str, name: str, x: Any) -> Any:
    """OutError: a Dask array cannot be written."""
    raise OutError(f"{what}: {name} is a Dask array, which cannot be written; omit it")


def wrong(what: str, name: str, x: Any) -> DtypeError | None:
    """None: the call itself names a wrong dtype."""
    return None


def context(x: Any) -> AbstractContextManager[Any]:
    """Nothing."""
    return nullcontext()


def give(result: Any, like: Any) -> Any:
    """The result itself."""
    return result


def convert(name: str, other: str) -> str:
    """The remedy for an array `other` of another library beside `name`."""
    return f"dask.array.from_array({other})"
