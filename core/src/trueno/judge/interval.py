"""Interval arithmetic of the judge: which values may a correct kernel have at this node?

A `Range` holds, for every element of a node, the numbers [low, high] that a kernel may have there, and
whether NaN is possible.  An empty interval (low > high) with `nan` set means "must be NaN".
The ends are in a wider type than the kernel's, and every rule ends in `Judge.rounded` (IEEE operations)
or `Judge.within` (functions, by their stated ulp).

A rule admits the exact result *and* the rounded one, so that contraction into fma and wider
intermediates are right too; an output is in the kernel's own type, where that admits nothing extra.
A zero end carries its sign: [−0, −0] is negative zero, [−0, +0] a zero of unknown sign.  That is what
lets 1/0 be judged.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from trueno.discovery.protocol import Accuracy
from trueno.programs.evaluate import ELEMENT_FUNCTIONS
from trueno.programs.fused import two_product

Array = npt.NDArray[Any]


class Range(NamedTuple):
    """Numbers [low, high] that a value may have, and whether it may be NaN."""

    low: Array
    high: Array
    nan: Array

    @property
    def empty(self) -> Array:
        """Elements where no number is possible: they must be NaN."""
        return np.asarray(self.low > self.high)

    @property
    def point(self) -> Array:
        """Elements where exactly one number is possible."""
        return np.asarray(self.low == self.high)


class Truth(NamedTuple):
    """A truth value that may be true, may be false, or both (undecided)."""

    true: Array
    false: Array


def hull(a: Range, b: Range) -> Range:
    """The union: any value that either allows."""
    return Range(np.minimum(a.low, b.low), np.maximum(a.high, b.high), a.nan | b.nan)


def unsigned(r: Range) -> Range:
    """`r` with the sign of its zeros unknown: −0 as a lower end, +0 as an upper one."""
    return Range(np.where(r.low == 0, -0.0, r.low), np.where(r.high == 0, 0.0, r.high), r.nan)


def exact(values: Array) -> Range:
    """The range of a known value: a point, or must be NaN."""
    nan = np.isnan(values)
    return Range(np.where(nan, inf, values), np.where(nan, -inf, values), nan)


def negated(a: Range) -> Range:
    return Range(-a.high, -a.low, a.nan)


@dataclass(frozen=True)
class Judge:
    """The arithmetic of one dtype under one backend's stated accuracy."""

    dtype: np.dtype[Any]
    accuracy: Accuracy

    @property
    def wide(self) -> type:
        """The type that the ends are computed in."""
        return np.float64 if self.dtype == np.float32 else np.longdouble

    @property
    def u(self) -> float:
        """Unit roundoff: half the distance from 1 to the next number."""
        return float(np.finfo(self.dtype).eps) / 2

    @property
    def largest(self) -> Any:
        return self.wide(np.finfo(self.dtype).max)

    @property
    def smallest_normal(self) -> Any:
        return self.wide(np.finfo(self.dtype).smallest_normal)

    @property
    def smallest(self) -> Any:
        """The smallest subnormal, which is also one ulp of everything below the normal numbers."""
        return self.wide(np.finfo(self.dtype).smallest_subnormal)

    def nearest(self, x: Array) -> Array:
        """x rounded to the kernel's type, kept in the wide one."""
        return np.asarray(np.asarray(x, self.dtype), self.wide)

    def ulp(self, x: Array) -> Array:
        """Distance of neighbouring kernel numbers at x; 0 at 0, ±Inf and NaN."""
        _, exponent = np.frexp(x)
        step = np.ldexp(self.wide(2 * self.u), exponent - 1)
        return np.asarray(np.where(np.isfinite(x) & (x != 0), np.maximum(step, self.smallest), 0), self.wide)

    def rounded(self, low: Array, high: Array, nan: Array, kind: str = "") -> Range:
        """After an operation that IEEE rounds once (or that the backend states to be worse).

        Rounding is monotone, so the rounded ends enclose every rounded value; they are first moved out by
        the wide type's own error, unless the kernel's type holds them, which makes them exact.
        """
        stated = self.accuracy.ulp.get(kind, 0.5)
        if stated > 0.5:
            return self.within(low, high, nan, stated)
        step = self.wide(np.finfo(self.wide).eps)
        down = np.where(np.isinf(low), low, low - step * np.abs(low))
        up = np.where(np.isinf(high), high, high + step * np.abs(high))
        # float64 has more than twice float32's digits: rounding twice equals rounding once, ties included; not so where
        # an operand is a product, which has twice as many digits.
        once = self.wide is np.float64 and kind != "fma"
        near, far = self.nearest(low), self.nearest(high)
        low = np.where(near == low, low, np.minimum(down, near if once else self.nearest(down)))
        high = np.where(far == high, high, np.maximum(up, far if once else self.nearest(up)))
        return self.flushed(Range(low, high, nan))

    def within(self, low: Array, high: Array, nan: Array, ulps: float) -> Range:
        """After a function whose results are off by at most `ulps` (plus the wide type's own error)."""
        low, high = np.broadcast_arrays(low, high)
        step = self.wide(8 * np.finfo(self.wide).eps)
        down = np.where(np.isinf(low), low, low - ulps * self.ulp(low) - step * np.abs(low))
        up = np.where(np.isinf(high), high, high + ulps * self.ulp(high) + step * np.abs(high))
        down = np.where((down < -self.largest) & (low > -inf), -inf, down)
        up = np.where((up > self.largest) & (high < inf), inf, up)
        return self.flushed(Range(down, up, nan))

    def flushed(self, r: Range) -> Range:
        """Where subnormals flush, a value below the normal numbers may also be zero."""
        if self.accuracy.subnormals:
            return r
        t = self.smallest_normal
        low = np.where((r.low > 0) & (r.low < t), -0.0, r.low)
        high = np.where((r.high < 0) & (r.high > -t), 0.0, r.high)
        return Range(low, high, r.nan)

    # ---- IEEE operations ------------------------------------------------------------------------

    def add(self, a: Range, b: Range, kind: str = "add") -> Range:
        low, high = a.low + b.low, a.high + b.high
        opposite = ((a.high == inf) & (b.low == -inf)) | ((a.low == -inf) & (b.high == inf))
        # An end that is Inf − Inf: the one infinity is certain, so any resulting number is that infinity.
        low, high = np.where(np.isnan(low), inf, low), np.where(np.isnan(high), -inf, high)
        return _signed(self.rounded(low, high, a.nan | b.nan | opposite, kind), a.point & b.point)

    def sub(self, a: Range, b: Range) -> Range:
        return self.add(a, negated(b), "sub")

    def mul(self, a: Range, b: Range) -> Range:
        if a is b:  # a square is never negative
            crosses = (a.low < 0) & (a.high > 0)
            ends = a.low * a.low, a.high * a.high
            low = np.where(crosses, 0.0, np.minimum(*ends))
            high = np.maximum(*ends)
            low, high = np.where(a.empty, inf, low), np.where(a.empty, -inf, high)
            return self.rounded(low, high, a.nan, "mul")
        corners = [x * y for x in (a.low, a.high) for y in (b.low, b.high)]
        nan = (_zero(a) & _infinite(b)) | (_infinite(a) & _zero(b))
        zero = (_zero(a) & _finite(b)) | (_finite(a) & _zero(b))
        return self._corners(a, b, corners, nan, zero, "mul")

    def div(self, a: Range, b: Range) -> Range:
        corners = [x / y for x in (a.low, a.high) for y in (b.low, b.high)]
        nan = (_zero(a) & _zero(b)) | (_infinite(a) & _infinite(b))
        zero = _finite(a) & _infinite(b)
        r = self._corners(a, b, corners, nan, zero, "div")
        # A divisor that reaches zero from both sides, or a zero of unknown sign: either infinity.
        crosses = np.signbit(b.low) & ~np.signbit(b.high) & ~a.empty & ~b.empty
        both_zero = (a.low == 0) & (a.high == 0) & (b.low == 0) & (b.high == 0)
        low, high = np.where(crosses, -inf, r.low), np.where(crosses, inf, r.high)
        return Range(np.where(both_zero, inf, low), np.where(both_zero, -inf, high), r.nan)

    def _corners(self, a: Range, b: Range, corners: list[Array], nan: Array, zero: Array, kind: str) -> Range:
        low, high = corners[0], corners[0]
        for corner in corners[1:]:
            low, high = np.fmin(low, corner), np.fmax(high, corner)
        lost = np.isnan(low)  # every corner was 0·Inf or similar: only 0 can remain
        low = np.where(lost, np.where(zero, -0.0, inf), low)
        high = np.where(lost, np.where(zero, 0.0, -inf), high)
        empty = a.empty | b.empty
        low, high = np.where(empty, inf, low), np.where(empty, -inf, high)
        # A zero of unknown sign makes zeros of unknown sign, and to fmin and fmax those of the corners are equal.
        sign_known = (
            a.point & b.point & (np.signbit(a.low) == np.signbit(a.high)) & (np.signbit(b.low) == np.signbit(b.high))
        )
        return _signed(self.rounded(low, high, a.nan | b.nan | nan, kind), sign_known)

    def fma(self, a: Range, b: Range, c: Range) -> Range:
        """`mul` admits the exact product as well as the rounded one, so this covers one rounding and two."""
        product = self.mul(a, b)
        if self.wide is not np.float64:  # float64 holds all products of float32; products of float64 may lose digits
            _, lost = two_product(a.low, b.low)
            step = np.where(a.point & b.point & (lost == 0), 0, np.finfo(self.wide).eps)
            low = np.where(np.isinf(product.low), product.low, product.low - step * np.abs(product.low))
            high = np.where(np.isinf(product.high), product.high, product.high + step * np.abs(product.high))
            product = Range(low, high, product.nan)
        return self.add(product, c, "fma")

    def sqrt(self, a: Range) -> Range:
        low, high = np.sqrt(np.maximum(a.low, 0)), np.sqrt(np.maximum(a.high, 0))
        low = np.where(a.low == 0, a.low, low)  # √−0 is −0
        none = (a.high < 0) | a.empty
        low, high = np.where(none, inf, low), np.where(none, -inf, high)
        return self.rounded(low, high, a.nan | (a.low < 0), "sqrt")

    # ---- exact operations -----------------------------------------------------------------------

    def abs(self, a: Range) -> Range:
        low = np.where((a.low < 0) & (a.high > 0), 0.0, np.minimum(np.abs(a.low), np.abs(a.high)))
        high = np.maximum(np.abs(a.low), np.abs(a.high))
        return Range(np.where(a.empty, inf, low), np.where(a.empty, -inf, high), a.nan)

    def maximum(self, a: Range, b: Range) -> Range:
        empty = a.empty | b.empty
        low, high = np.maximum(a.low, b.low), np.maximum(a.high, b.high)
        return unsigned(Range(np.where(empty, inf, low), np.where(empty, -inf, high), a.nan | b.nan))

    def minimum(self, a: Range, b: Range) -> Range:
        return negated(self.maximum(negated(a), negated(b)))

    def copysign(self, a: Range, sign: Range) -> Range:
        size = self.abs(a)
        free = sign.nan | sign.empty
        plus, minus = ~np.signbit(sign.high) | free, np.signbit(sign.low) | free
        low = np.where(minus, -size.high, size.low)
        high = np.where(plus, size.high, -size.low)
        return Range(np.where(size.empty, inf, low), np.where(size.empty, -inf, high), a.nan)

    def stepwise(self, kind: str, a: Range) -> Range:
        """floor, ceil, trunc, rint: monotone, so a boundary inside the interval leaves both sides open."""
        f = ELEMENT_FUNCTIONS[kind]
        return unsigned(Range(f(a.low), f(a.high), a.nan))

    # ---- functions ------------------------------------------------------------------------------

    def function(self, kind: str, a: Range) -> Range:
        """A function of one argument, off by what the backend states for it."""
        ulps = self.accuracy.ulp.get(kind, self.accuracy.default)
        if kind == "erf" and self.wide is not np.float64:
            ulps += 2  # the oracle's own: math.erf is float64
        if kind in ("sin", "cos"):
            return self._wave(kind, a, ulps)
        start, least, most = DOMAIN[kind]
        f = ELEMENT_FUNCTIONS[kind]
        outside = (a.low < start) if kind not in OPEN else np.zeros(np.shape(a.low), bool)
        low = f(np.maximum(a.low, start))
        high = low if a.high is a.low else f(np.maximum(a.high, start))
        if kind == "rsqrt":
            unknown = (a.low <= 0) & np.signbit(a.low) & (a.high >= 0)  # 1/√−0 is −Inf
            low, high = np.where(unknown, -inf, high), np.where(a.low <= 0, np.where(a.high < 0, 0, inf), low)
            high = np.where((a.high == 0) & np.signbit(a.high), -inf, high)
        r = self.within(low, high, a.nan | outside, ulps)
        if kind in ("exp", "exp2"):  # where the wide type underflows too, one step above zero
            r = r._replace(high=np.where((high == 0) & (a.high > -inf), ulps * self.smallest, r.high))
        low, high = (r.low, r.high) if kind == "rsqrt" else (np.maximum(r.low, least), np.minimum(r.high, most))
        none = a.empty | (a.high < start)
        return Range(np.where(none, inf, low), np.where(none, -inf, high), r.nan)

    def _wave(self, kind: str, a: Range, ulps: float) -> Range:
        f = np.sin if kind == "sin" else np.cos
        finite = np.isfinite(a.low) & np.isfinite(a.high)
        low, high = np.where(finite, a.low, 0), np.where(finite, a.high, 0)
        half = (high - low) / 2
        middle = f(low + half)
        r = self.within(middle - half, middle + half, a.nan, ulps)
        infinite = (a.low == -inf) | (a.high == inf)
        low, high = np.where(finite, np.maximum(r.low, -1), -1), np.where(finite, np.minimum(r.high, 1), 1)
        none = a.empty | (a.point & infinite)
        return Range(np.where(none, inf, low), np.where(none, -inf, high), a.nan | (infinite & ~a.empty))

    def pow(self, a: Range, b: Range) -> Range:
        ulps = self.accuracy.ulp.get("pow", self.accuracy.default)
        corners = [np.power(x, y) for x in (a.low, a.high) for y in (b.low, b.high)]
        low = np.fmin(np.fmin(corners[0], corners[1]), np.fmin(corners[2], corners[3]))
        high = np.fmax(np.fmax(corners[0], corners[1]), np.fmax(corners[2], corners[3]))
        points = a.point & b.point
        invalid = points & np.isnan(corners[0])
        r = self.within(np.where(invalid, inf, low), np.where(invalid, -inf, high), invalid, ulps)
        r = r._replace(high=np.where((high == 0) & (a.low > 0), ulps * self.smallest, r.high))
        # x > 0: monotone in each argument, so the corners enclose all.  Else only points are known.
        wild = ~points & ((a.low <= 0) | ~np.isfinite(a.high) | ~np.isfinite(b.low) | ~np.isfinite(b.high))
        r = Range(np.where(wild, -inf, r.low), np.where(wild, inf, r.high), r.nan | wild)
        # pow(1, NaN) and pow(NaN, 0) are 1.
        one = (a.nan & (b.low <= 0) & (b.high >= 0)) | (b.nan & (a.low <= 1) & (a.high >= 1))
        empty = a.empty | b.empty
        low = np.where(one, np.where(empty, 1.0, np.minimum(r.low, 1)), np.where(empty, inf, r.low))
        high = np.where(one, np.where(empty, 1.0, np.maximum(r.high, 1)), np.where(empty, -inf, r.high))
        sure = one & empty & (((b.low == 0) & (b.high == 0)) | ((a.low == 1) & (a.high == 1)))
        return Range(low, high, (r.nan | a.nan | b.nan) & ~sure)

    # ---- truth ----------------------------------------------------------------------------------

    def compare(self, kind: str, a: Range, b: Range) -> Truth:
        some = ~a.empty & ~b.empty
        nan = a.nan | b.nan
        match kind:
            case "gt" | "ge":
                return self.compare("lt" if kind == "gt" else "le", b, a)
            case "lt":
                return Truth(some & (a.low < b.high), (some & (a.high >= b.low)) | nan)
            case "le":
                return Truth(some & (a.low <= b.high), (some & (a.high > b.low)) | nan)
            case "eq":
                same = a.point & b.point & (a.low == b.low)
                return Truth(some & (a.low <= b.high) & (b.low <= a.high), (some & ~same) | nan)
        equal = self.compare("eq", a, b)
        return Truth(equal.false, equal.true)

    def where(self, c: Truth, a: Any, b: Any) -> Any:
        """The chosen branch; where undecided, the hull of both."""
        if isinstance(a, Truth):
            return Truth((c.true & a.true) | (c.false & b.true), (c.true & a.false) | (c.false & b.false))
        nothing = (inf, -inf)
        left = Range(np.where(c.true, a.low, nothing[0]), np.where(c.true, a.high, nothing[1]), c.true & a.nan)
        right = Range(np.where(c.false, b.low, nothing[0]), np.where(c.false, b.high, nothing[1]), c.false & b.nan)
        return hull(left, right)

    def element(self, kind: str, *args: Any) -> Any:
        """The rule of one element kind."""
        if kind in RULES:
            return RULES[kind](self, *args)
        if kind in ("floor", "ceil", "trunc", "rint"):
            return self.stepwise(kind, *args)
        if kind in ("lt", "le", "gt", "ge", "eq", "ne"):
            return self.compare(kind, *args)
        return self.function(kind, *args)


def _signed(r: Range, known: Array) -> Range:
    """`r`, the sign of whose zeros is known only where the operands were."""
    loose = unsigned(r)
    return Range(np.where(known, r.low, loose.low), np.where(known, r.high, loose.high), r.nan)


def _zero(r: Range) -> Array:
    return (r.low <= 0) & (r.high >= 0)


def _infinite(r: Range) -> Array:
    return np.asarray(((r.low == -inf) | (r.high == inf)) & ~r.empty)


def _finite(r: Range) -> Array:
    return np.asarray((r.low < inf) & (r.high > -inf) & ~r.empty)


def _isinf(_: Judge, a: Range) -> Truth:
    return Truth(_infinite(a), a.nan | _finite(a))


OPEN = frozenset({"exp", "exp2", "expm1", "tanh", "erf", "atan"})
DOMAIN: dict[str, tuple[float, float, float]] = {
    # where the argument begins; the least and the most that a result can be
    "exp": (-inf, 0, inf),
    "exp2": (-inf, 0, inf),
    "expm1": (-inf, -1, inf),
    "tanh": (-inf, -1, 1),
    "erf": (-inf, -1, 1),
    "atan": (-inf, -inf, inf),
    "rsqrt": (0, 0, inf),
    "log": (0, -inf, inf),
    "log2": (0, -inf, inf),
    "log10": (0, -inf, inf),
    "log1p": (-1, -inf, inf),
    "log1p_unit": (-1, -inf, inf),
}
RULES: dict[str, Callable[..., Any]] = {
    "neg": lambda _, a: negated(a),
    "isnan": lambda _, a: Truth(a.nan, ~a.empty),
    "isinf": _isinf,
    "and": lambda _, a, b: Truth(a.true & b.true, a.false | b.false),
    "or": lambda _, a, b: Truth(a.true | b.true, a.false & b.false),
    "not": lambda _, a: Truth(a.false, a.true),
    **{
        kind: getattr(Judge, kind)
        for kind in ("add", "sub", "mul", "div", "fma", "sqrt", "abs", "maximum", "minimum", "copysign", "pow", "where")
    },
}
