"""The judge: how far may a correct kernel be from the meaning of a program?

`bound` interprets a program in a wider type than the kernel's while carrying with every node the range of
values that a correct kernel may have there (`trueno.judge.interval`).  So every output gets its own tolerance,
which follows from the program and from what the backend states about itself (`Accuracy`); there is no
tolerance table to tune, and a wrong constant in the sixth digit is caught.

Rows whose intermediates may overflow, or whose branches may be taken either way, get a range that
says so: unbounded, or the hull of both branches.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import inf
from typing import Any

import numpy as np
import numpy.typing as npt

from trueno.discovery.protocol import Accuracy
from trueno.judge.interval import Array, Judge, Range, Truth, exact, unsigned
from trueno.programs.evaluate import evaluate
from trueno.programs.program import Program

EXACT = Accuracy(default=1.0)


@dataclass(frozen=True)
class Bound:
    """The allowed values of an output: `value` is the meaning, [low, high] the numbers, `nan` whether NaN is allowed.

    low > high with `nan` means "must be NaN".  `allowed` is for argmax and argmin, [rows, n]: which indices
    may win.
    """

    value: Array
    low: Array
    high: Array
    nan: Array
    allowed: Array | None = None

    @cached_property
    def error(self) -> Array:
        """Largest allowed distance from `value`; Inf where any value is allowed, 0 where the value is certain."""
        with np.errstate(invalid="ignore"):
            far = np.maximum(self.value - self.low, self.high - self.value)
        certain = (self.low == self.high) | (self.low > self.high)
        return np.where(self.free, inf, np.where(certain & ~np.isfinite(far), 0.0, far))

    @cached_property
    def free(self) -> Array:
        """Elements that the judge cannot check: unbounded on both sides, or open-ended with NaN possible."""
        if self.allowed is not None:
            return np.zeros(np.shape(self.value), bool)
        open_ended = (self.low < self.high) & (np.isinf(self.low) | np.isinf(self.high))
        return open_ended & (self.nan | (np.isinf(self.low) & np.isinf(self.high)))

    def reshape(self, shape: tuple[int, ...]) -> "Bound":
        """The same bound for results of another shape (not for index results' `allowed`, which keeps rows)."""
        value, low, high, nan = (a.reshape(shape) for a in (self.value, self.low, self.high, self.nan))
        return Bound(value, low, high, nan, self.allowed)


@dataclass(frozen=True)
class Verdict:
    """The judge's result: `worst` is the largest |got − value| / allowed, `free` the share that was not judged."""

    ok: bool
    worst: float
    free: float
    size: int
    bad: int = 0
    index: tuple[int, ...] | None = None
    got: float | None = None
    want: float | None = None
    low: float | None = None
    high: float | None = None
    why: str = ""

    def __bool__(self) -> bool:
        return self.ok

    def __str__(self) -> str:
        if self.ok:
            return f"right: {self.size} values, worst {self.worst:.2f} of the bound, {self.free:.1%} not judged"
        allowed = (
            "NaN"
            if self.low is not None and self.high is not None and self.low > self.high
            else (f"{self.low!r} … {self.high!r}")
        )
        why = f" ({self.why})" if self.why else ""
        return (
            f"wrong: {self.bad} of {self.size} values; first at {self.index}: got {self.got!r}, "
            f"want {self.want!r}, allowed {allowed}{why}"
        )


def judge(got: npt.ArrayLike, bound: Bound) -> Verdict:
    """Whether every element of `got` is one that a correct kernel may give."""
    g = np.asarray(got)
    if g.shape != bound.value.shape:
        raise ValueError(f"judged shape {g.shape} against a bound of shape {bound.value.shape}")
    if g.size == 0:
        return Verdict(True, 0.0, 0.0, 0)
    if bound.allowed is not None:
        rows, n = bound.allowed.shape
        flat = g.reshape(-1)
        right = (flat >= 0) & (flat < n)
        right &= bound.allowed[np.arange(rows), np.where(right, flat, 0)]
        right = right.reshape(g.shape)
        worst = 0.0
    else:
        with np.errstate(invalid="ignore"):  # a signalling NaN stays a NaN, and the cast says so
            wide = g.astype(bound.low.dtype)
        right = np.where(np.isnan(wide), bound.nan, (wide >= bound.low) & (wide <= bound.high))
        with np.errstate(all="ignore"):
            ratio = np.abs(wide - bound.value) / bound.error
        worst = float(np.max(ratio, initial=0.0, where=np.isfinite(ratio)))
    free = float(np.mean(bound.free))
    if right.all():
        return Verdict(True, worst, free, g.size)
    at = np.unravel_index(int(np.argmin(right)), g.shape)
    low, high = float(bound.low[at]), float(bound.high[at])
    index = tuple(int(i) for i in at)
    return Verdict(
        False, worst, free, g.size, int(np.sum(~right)), index, float(g[at]), float(bound.value[at]), low, high
    )


def bound(
    program: Program,
    operands: Sequence[npt.ArrayLike],
    params: Sequence[float],
    dtype: npt.DTypeLike,
    accuracy: Accuracy = EXACT,
    known: Mapping[str, Range] | None = None,
) -> list[Bound]:
    """A `Bound` for each output: element outputs [rows, n], row outputs [rows].

    Operands and parameters are rounded to `dtype` first, as a kernel sees them; constants count with
    and without their rounding.  known: for operands that are results of other ops, their possible values, shaped
    as the operand; the operand itself is then the meaning, and is not rounded.
    """
    known = known or {}
    judge = Judge(np.dtype(dtype), accuracy)
    T, wide = judge.dtype.type, judge.wide
    names = [name for name, _ in program.operands]
    inputs: list[Array] = [np.asarray(x, wide if name in known else T) for name, x in zip(names, operands, strict=True)]
    scalars = {name: float(T(value)) for name, value in zip(program.params, params, strict=True)}
    leaves: dict[str, Array] = {}
    ranges: dict[str, Range] = {}
    rows, n = 1, 1
    for (name, kind), a in zip(program.operands, inputs, strict=True):
        shape = {"e": (-1, a.shape[-1] if a.ndim else 1), "w": (1, -1), "r": (-1, 1), "u": (1, 1)}[kind]
        leaves[name] = a = a.reshape(shape)
        if name in known:
            ranges[name] = Range(*(np.asarray(x).reshape(shape) for x in known[name]))
        rows, n = max(rows, a.shape[0]), max(n, a.shape[1])
    values: list[Any] = []
    winners: dict[int, Array] = {}
    with np.errstate(all="ignore"):
        for i, node in enumerate(program.nodes):
            args = [values[a] for a in node.args]
            match node.kind:
                case "leaf":
                    name = str(node.value)
                    value: Any = judge.flushed(ranges[name] if name in ranges else exact(leaves[name].astype(wide)))
                case "param":
                    value = exact(np.full((1, 1), scalars[str(node.value)], wide))
                case "const":
                    c: Array = np.full((1, 1), node.value, wide)
                    value = Range(np.minimum(c, judge.nearest(c)), np.maximum(c, judge.nearest(c)), np.isnan(c))
                case "count":
                    value = exact(judge.nearest(np.full((1, 1), n, wide)))
                case "position":
                    value = exact(np.arange(n, dtype=wide)[None, :])
                case "cast":
                    value = _cast(judge, args[0])
                case "argmax" | "argmin":
                    a = _spread(args[0], rows, n)
                    winners[i] = _winners(a if node.kind == "argmax" else Range(-a.high, -a.low, a.nan))
                    value = _span(winners[i], wide)
                case kind if kind in FOLDS:
                    value = FOLDS[kind](judge, _spread(args[0], args[0][0].shape[0], n))
                case kind:
                    value = judge.element(kind, *args)
            values.append(value)
        meant = evaluate(program, [a.astype(wide) for a in inputs], [scalars[p] for p in program.params], wide)
    return [
        _result(program, o, values[o], m, rows, n, winners.get(o)) for o, m in zip(program.outputs, meant, strict=True)
    ]


def _result(program: Program, o: int, value: Any, meant: Array, rows: int, n: int, allowed: Array | None) -> Bound:
    if isinstance(value, Truth):
        low, high = (~value.false).astype(float), value.true.astype(float)
        value = Range(low, high, np.zeros(low.shape, bool))
    element = program.nodes[o].space == "e"
    shape = (rows, n) if element else (rows, 1)
    low, high, nan = (np.broadcast_to(a, shape) if element else np.broadcast_to(a, shape)[:, 0] for a in value)
    if allowed is not None:
        allowed = np.broadcast_to(allowed, (rows, n))
    return Bound(meant, low, high, nan, allowed)


def _spread(a: Any, rows: int, n: int) -> Any:
    return type(a)(*(np.broadcast_to(x, (rows, n)) for x in a))


def _cast(judge: Judge, a: Any) -> Range:
    if isinstance(a, Truth):
        return Range((~a.false).astype(judge.wide), a.true.astype(judge.wide), np.zeros(a.true.shape, bool))
    return Range(judge.nearest(a.low), judge.nearest(a.high), a.nan)


# ---- folds: [rows, n] to [rows, 1] ------------------------------------------------------------------


def _each(reduce: Any, x: Array) -> Array:
    return np.asarray(reduce(x, axis=-1, keepdims=True))


def _sum(judge: Judge, a: Range, rounding: float | None = None) -> Range:
    """Any order of additions in which one term passes through at most `chain` of them.

    Partial sums may reach the sum of the positive terms alone, so that sum must not overflow.
    """
    n = a.low.shape[1]
    low, high = (np.where(np.isfinite(x), x, 0) for x in (a.low, a.high))
    size = _each(np.sum, np.maximum(np.abs(low), np.abs(high)))
    steps = min(n - 1, judge.accuracy.chain + 1) if rounding is None else min(n - 1, rounding)
    slack = steps * judge.u / (1 - steps * judge.u) + n * 2 * float(np.finfo(judge.wide).eps)
    if rounding is not None:
        slack += 8 * n * judge.u**2
    if not judge.accuracy.subnormals:
        size = size + n * judge.smallest_normal / max(slack, judge.u)
    up = (_each(np.sum, np.maximum(high, 0)) + slack * size > judge.largest) | _each(np.any, a.high == inf)
    down = (_each(np.sum, np.minimum(low, 0)) - slack * size < -judge.largest) | _each(np.any, a.low == -inf)
    plus, minus = _each(np.any, a.point & (a.low == inf)), _each(np.any, a.point & (a.high == -inf))
    bottom, top = _each(np.sum, low) - slack * size, _each(np.sum, high) + slack * size
    bottom = np.where(plus, inf, np.where(down, -inf, bottom))
    top = np.where(minus, -inf, np.where(up, inf, top))
    # Terms that are +0 or more never sum to less than +0, in any order.
    some_negative = _each(np.any, np.signbit(a.low))
    bottom, top = np.where(some_negative, bottom, np.maximum(bottom, 0.0)), np.where(top == 0, 0.0, top)
    bottom = np.where(bottom == 0, np.where(some_negative, -0.0, 0.0), bottom)
    none = _each(np.any, a.empty)
    nan = _each(np.any, a.nan) | (up & down)
    return Range(np.where(none, inf, bottom), np.where(none, -inf, top), nan)


def _fsum(judge: Judge, a: Range) -> Range:
    """Compensated or wider: three roundings of the whole, and n of the second order."""
    return _sum(judge, a, rounding=3)


def _prod(judge: Judge, a: Range) -> Range:
    """Any order; a partial product may overflow or underflow on the way, whatever the whole product is."""
    n = a.low.shape[1]
    crosses = (a.low < 0) & (a.high > 0)
    least = np.where(crosses, 0, np.minimum(np.abs(a.low), np.abs(a.high)))
    most = np.maximum(np.abs(a.low), np.abs(a.high))
    least, most = np.where(a.empty, 1, least), np.where(a.empty, 1, most)
    slack = n * judge.u / (1 - n * judge.u)
    largest = _each(np.prod, np.maximum(most, 1)) * (1 + slack)
    smallest = _each(np.prod, np.minimum(np.where(least == 0, 1, least), 1)) * (1 - slack)
    overflow, underflow = largest > judge.largest, smallest < judge.smallest_normal
    low, high = _each(np.prod, least) * (1 - slack), _each(np.prod, most) * (1 + slack)
    infinite, zero = _each(np.any, most == inf), _each(np.any, least == 0)
    low = np.where(underflow | np.isnan(low), 0, low)
    high = np.where(overflow | np.isnan(high), inf, np.where(underflow, high + n * judge.smallest * largest, high))
    mixed = _each(np.any, crosses)
    negative = _each(np.sum, (a.low < 0) & (a.high <= 0)) % 2 == 1
    bottom = np.where(mixed, -high, np.where(negative, -high, low))
    top = np.where(mixed, high, np.where(negative, -low, high))
    none = _each(np.any, a.empty) | (_each(np.any, a.point & (most == inf)) & _each(np.any, a.point & (most == 0)))
    nan = _each(np.any, a.nan) | ((infinite | overflow) & (zero | underflow)) | none
    return unsigned(Range(np.where(none, inf, bottom), np.where(none, -inf, top), nan))


def _max(_: Judge, a: Range) -> Range:
    none = _each(np.any, a.empty)
    low, high = _each(np.max, a.low), _each(np.max, a.high)
    return unsigned(Range(np.where(none, inf, low), np.where(none, -inf, high), _each(np.any, a.nan)))


def _min(judge: Judge, a: Range) -> Range:
    r = _max(judge, Range(-a.high, -a.low, a.nan))
    return Range(-r.high, -r.low, r.nan)


def _truth(a: Any) -> Truth:
    if isinstance(a, Truth):
        return a
    zero = (a.low <= 0) & (a.high >= 0)
    return Truth(a.nan | (a.low < 0) | (a.high > 0), zero)


def _any(_: Judge, a: Any) -> Truth:
    t = _truth(a)
    return Truth(_each(np.any, t.true), _each(np.all, t.false))


def _all(_: Judge, a: Any) -> Truth:
    t = _truth(a)
    return Truth(_each(np.all, t.true), _each(np.any, t.false))


FOLDS = {"sum": _sum, "fsum": _fsum, "prod": _prod, "max": _max, "min": _min, "any": _any, "all": _all}


def _winners(a: Range) -> Array:
    """The elements that argmax may name: none certainly beaten, the first of equals, NaN first."""
    rows, n = a.low.shape
    certain = a.empty
    best = np.maximum.accumulate(np.where(certain, -inf, a.low), axis=1)
    before = np.concatenate([np.full((rows, 1), -inf, best.dtype), best[:, :-1]], axis=1)
    first = np.arange(n)[None, :] == 0  # `before` starts at −Inf, with which nothing earlier ties
    number = ((a.high > before) | first) & (a.high >= best[:, -1:]) & ~certain
    has_nan = _each(np.any, certain)
    earliest = np.where(has_nan, np.argmax(certain, axis=1)[:, None], n)
    nans = a.nan & (np.arange(n)[None, :] <= earliest)
    return np.asarray((number & ~has_nan) | nans)


def _span(allowed: Array, wide: Any) -> Range:
    n = allowed.shape[1]
    first = np.argmax(allowed, axis=1)[:, None]
    last = n - 1 - np.argmax(allowed[:, ::-1], axis=1)[:, None]
    return Range(first.astype(wide), last.astype(wide), np.zeros(first.shape, bool))


__all__ = ["EXACT", "Bound", "Verdict", "bound", "judge"]
