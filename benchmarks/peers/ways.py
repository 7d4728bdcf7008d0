"""How a peer's row is written.

A *way* is a factory: given an op's operands, parameters, `out` and scratch memory it returns a thunk that
takes nothing and computes once, or None where the way does not apply to operands like these.  Everything
that can be prepared (tensors, constants, temporaries) is prepared by the factory and not timed.

    np.exp                     a function called as f(*operands, *parameters, out=out)
    "linalg.vecdot"            the same of PyTorch's, by its path below `torch`
    @numpy_steps def silu(x, out, t): ...   several steps on NumPy arrays
    @torch_steps def zscore(x, out, r): ... several steps on tensors
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from typing import Any, Protocol

import numpy as np

from benchmarks.timing import Thunk, bind

try:
    import torch
except ImportError:  # NumPy alone is compared then
    torch = None

Function = Callable[..., Any]
Way = Callable[..., Thunk | None]


class Scratch(Protocol):
    """Gives memory for temporaries, made once a shape: a new array at each call."""

    def __call__(self, shape: tuple[int, ...]) -> Any: ...


@dataclass(frozen=True)
class Peers:
    """The ways of each library, any of which may be the best at some size; None for the function of the op's name."""

    numpy: tuple[Way, ...] | None = None
    torch: tuple[Way, ...] | None = None


def peers(numpy: Any = None, torch: Any = None) -> Peers:
    """A row of the table: each a way, a function, a path below `torch`, a tuple of those, or None."""
    return Peers(
        None if numpy is None else tuple(map(_numpy_way, _several(numpy))),
        None if torch is None else tuple(map(_torch_way, _several(torch))),
    )


def _several(ways: Any) -> tuple[Any, ...]:
    return ways if isinstance(ways, tuple) else (ways,)


def _numpy_way(way: Any) -> Way:
    return way if getattr(way, "is_way", False) else into(way)


def _torch_way(way: Any) -> Way:
    return way if getattr(way, "is_way", False) else torch_into(way)


def a_way(factory: Way) -> Way:
    """Mark a factory written by hand as a way."""
    factory.is_way = True
    return factory


def into(function: Function, *, rank: int | None = None, **fixed: Any) -> Way:
    """function(*operands, *parameters, **fixed, out=out), for first operands of that rank only."""

    @a_way
    def way(*operands: Any, out: Any, scratch: Scratch, **params: Any) -> Thunk | None:
        if rank not in (None, operands[0].ndim):
            return None
        return bind(function, *operands, *params.values(), **fixed, out=out)

    return way


def torch_into(path: str, *, rank: int | None = None, **fixed: Any) -> Way:
    """PyTorch's function of that path, called as in `into`."""

    @a_way
    def way(*operands: Any, out: Any, **rest: Any) -> Thunk | None:
        call = into(attrgetter(path)(torch), rank=rank, **fixed)
        return call(*map(tensor, operands), out=tensor(out), **rest)

    return way


def tensor(x: Any) -> Any:
    """The same memory as a PyTorch tensor (arrays, and tuples of them)."""
    if isinstance(x, tuple):
        return tuple(map(tensor, x))
    return torch.from_numpy(x) if isinstance(x, np.ndarray) else x


def _steps(function: Function, home: Callable[[Any], Any]) -> Way:
    """A function of (operands, parameters, out, temporaries).

    Temporaries are named: `r…` holds a value a row and keeps the axis, `v…` a value a row, others are like x.
    """
    names = list(inspect.signature(function).parameters)
    temporaries = names[names.index("out") + 1 :]

    @a_way
    def way(*operands: Any, out: Any, scratch: Scratch, **params: Any) -> Thunk:
        shape = operands[0].shape
        shapes = {"r": (*shape[:-1], 1), "v": shape[:-1]}
        memory = [home(scratch(shapes.get(name[0], shape))) for name in temporaries]
        return bind(function, *map(home, operands), *params.values(), home(out), *memory)

    way.__doc__ = function.__doc__
    return way


def numpy_steps(function: Function) -> Way:
    """Several steps on arrays."""
    return _steps(function, lambda x: x)


def torch_steps(function: Function) -> Way:
    """Several steps on tensors."""
    return _steps(function, tensor)


def aten(name: str) -> Any:
    """`torch.ops.aten.<name>`, when it is called."""
    return attrgetter(f"ops.aten.{name}")(torch)


reduce_last = partial(into, axis=-1)
"""NumPy's reductions over the last axis."""
