"""The operators of `Vector` and `Matrix`: arithmetic, `@`, comparisons, ops as methods, and NumPy's functions.

A method is the op: it reduces the last axis unless `axis` says otherwise.  `np.sum(m)` calls the method with
`axis=None`, NumPy's own default, and so reduces all axes.
"""

import operator
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from trueno.border import shorten
from trueno.dispatch.asking import use
from trueno.dispatch.function import function
from trueno.dispatch.transfer import device_of, imported
from trueno.errors import DeviceError, TruenoError
from trueno.hints import attribute, product
from trueno.ops import ALIASES, TABLE


def _binary(op: str, *, swapped: bool = False) -> Callable[["Operators", Any], Any]:
    def method(self: "Operators", other: Any) -> Any:
        if not _is_operand(other):
            return NotImplemented
        try:
            return self._call(op, other, self, bare=True) if swapped else self._call(op, other)
        except TruenoError as error:
            shorten(error)
            raise

    return method


def _product(*, swapped: bool = False) -> Callable[["Operators", Any], Any]:
    """`@`: dot, vecmat, matvec, matmul or batched_matmul, by the ranks of both sides."""

    def method(self: "Operators", other: Any) -> Any:
        if not _is_operand(other) or hasattr(type(other), "_blocks"):
            return NotImplemented  # a QuantizedMatrix knows the order of its blocks
        sides = (other, self) if swapped else (self, other)
        try:
            return self._call(product([_rank(x) for x in sides]), *sides, bare=True)
        except TruenoError as error:
            shorten(error)
            raise

    return method


def _is_operand(x: Any) -> bool:
    """Whether an operator takes it: a holder, an array of the host or a device, a number or a list."""
    taken = (Operators, np.ndarray, float, int, np.generic, list)
    return isinstance(x, taken) or hasattr(type(x), "__dlpack__") or device_of(x) is not None


MOST_AXES = 64
"""Of an array of NumPy's."""


def _rank(x: Any) -> int:
    """Its number of axes; a list's by its first elements, so that a ragged one has a rank, too."""
    if isinstance(x, Operators):
        return x.rank
    if hasattr(x, "shape"):
        return len(x.shape)
    rank = 0
    while isinstance(x, list) and rank <= MOST_AXES:  # a list may hold itself
        rank, x = rank + 1, x[0] if x else None
    return rank or 2  # the op for matrices refuses a number


def _compared(compare: Callable[[Any, Any], Any], symbol: str) -> Any:
    """A comparison of elements, as an array of truth values."""

    def method(self: "Operators", other: object) -> Any:
        bare = other.array if isinstance(other, Operators) else other
        if device_of(self.array) is not None or device_of(bare) is not None:
            raise DeviceError(
                f"{type(self).__name__}: {symbol} compares elements on the host only; copy both there with .numpy()"
            )
        if hasattr(type(bare), "__dlpack__") and not isinstance(bare, (np.ndarray, np.generic)):
            bare = imported(symbol, "the other side", bare)  # a tensor: comparing NumPy's and another's mixes types
        return compare(self.array, bare)

    return method


@cache
def _op_of(ufunc: Any) -> str:
    """The op that computes what a NumPy function of elements computes, or `@`; empty if there is none."""
    name = ALIASES.get(ufunc.__name__, ufunc.__name__)
    row, numpys = TABLE.get(name), bool(getattr(np, ufunc.__name__, None) is ufunc)
    if row is None or row.params or not numpys:
        return ""
    return name if (len(row.operands), len(row.signature.outputs)) == (ufunc.nin, ufunc.nout) else ""


NEUTRAL: dict[str, tuple[Any, ...]] = {
    "dtype": (None,), "ddof": (0,), "correction": (0,), "decimals": (0,), "where": (True,), "initial": (), "mean": (),
}  # fmt: skip
"""Values of keywords with which NumPy's functions call an array's method, and which change nothing."""


def _ours(kw: dict[str, Any]) -> dict[str, Any]:
    """The keywords of a method that `np.mean(m)` calls, without those that change nothing."""
    unset = np._NoValue
    return {k: v for k, v in kw.items() if v is not unset and not any(v is n for n in NEUTRAL.get(k, ()))}


class Operators:
    """What a holder of an array can do by operators, methods and NumPy's functions."""

    __slots__ = ()
    __array_priority__ = 1000
    rank = 0
    array: Any
    backend: str | None

    def _call(self, name: str, *args: Any, bare: bool = False, **kw: Any) -> Any:
        """Call an op on this holder's backend, with the holder as first operand unless `bare`."""
        operands = args if bare else (self, *args)
        if self.backend is None:
            return function(name)(*operands, **kw)
        with use(self.backend):
            return function(name)(*operands, **kw)

    __add__, __radd__ = _binary("add"), _binary("add", swapped=True)
    __sub__, __rsub__ = _binary("sub"), _binary("sub", swapped=True)
    __mul__, __rmul__ = _binary("mul"), _binary("mul", swapped=True)
    __truediv__, __rtruediv__ = _binary("div"), _binary("div", swapped=True)
    __pow__, __rpow__ = _binary("pow"), _binary("pow", swapped=True)
    __matmul__, __rmatmul__ = _product(), _product(swapped=True)

    def __neg__(self) -> Any:
        return self._call("neg")

    def __abs__(self) -> Any:
        return self._call("abs")

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("_") or (name not in TABLE and name not in ALIASES):
            raise AttributeError(attribute(type(self).__name__, name, np.ndarray, [*TABLE, *ALIASES]))

        def method(*args: Any, **kw: Any) -> Any:
            try:
                return self._call(name, *args, **(_ours(kw) if kw else kw))
            except TruenoError as error:
                shorten(error)
                raise

        method.__name__, method.__doc__ = name, function(name).__doc__
        return method

    __eq__, __ne__ = _compared(operator.eq, "=="), _compared(operator.ne, "!=")
    __lt__, __le__ = _compared(operator.lt, "<"), _compared(operator.le, "<=")
    __gt__, __ge__ = _compared(operator.gt, ">"), _compared(operator.ge, ">=")
    __hash__ = None  # type: ignore[assignment]

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *TABLE, *ALIASES})

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kw: Any) -> Any:
        """A NumPy function of elements, called with a holder: the op of that name, or NumPy's own result.

        `np.exp(v)` is `v.exp()`.  Functions without an op, `out=`, `.reduce` and the like read the held arrays, and
        return what NumPy returns; TypeError if they are on a device.
        """
        name = _op_of(ufunc) if method == "__call__" and not kw else ""
        try:
            if ufunc is np.matmul and not kw:
                name = product([_rank(x) for x in inputs])
            if name:
                return self._call(name, *inputs, bare=True)
        except TruenoError as error:
            shorten(error)
            raise
        bare = [np.asarray(x) if isinstance(x, Operators) else x for x in inputs]
        out = kw.get("out", ())
        if out:
            kw["out"] = tuple(np.asarray(x) if isinstance(x, Operators) else x for x in out)
        result = getattr(ufunc, method)(*bare, **kw)
        return result if not out else out[0] if len(out) == 1 else out
