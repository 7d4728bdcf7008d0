"""Each fold on the GPU: a state in registers, how it takes elements, and how two states are combined.

Combining is commutative, so that all lanes of a warp get the same bits.  A fold does not say
which states are combined: `trueno_cuda.rows.printer` does that for lanes, blocks and chunks.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf

from trueno.backend import FOLDS as IDENTITIES

from trueno_cuda.ptx import Builder, Type, Value, Var, f32, pred, u32

State = tuple[Value, ...]
NOBODY = 0xFFFFFFFF
"""Index of a state that has seen no element, or none above -Inf."""


@dataclass(frozen=True)
class Fold:
    """A fold's code.

    types: of the state, for programs of T.  start: the state of nothing.  lift: an element (value, index) as a state.
    join: of two states.  result: the fold's value, from a state: a T, a predicate or an index.
    absorb: a state and elements (value, index) in ascending order; what is not given is made of the others.
    """

    types: Callable[[Type], tuple[Type, ...]]
    start: tuple[float | int, ...]
    lift: Callable[[Builder, Value, Value], State]
    join: Callable[[Builder, State, State], State]
    result: Callable[[Builder, State], Value]
    absorb: Callable[[Builder, State, Sequence[tuple[Value, Value]]], State] | None = None

    def begin(self, k: Builder, kind: Type) -> list[Var]:
        """Vars that hold the state of nothing."""
        return [k.var(t, s) for t, s in zip(self.types(kind), self.start, strict=True)]

    def take(self, k: Builder, state: State, elements: Sequence[tuple[Value, Value]]) -> State:
        """The state after some elements.  They are joined by halves first, so that a sum's chain is short."""
        if self.absorb is not None:
            return self.absorb(k, state, elements)
        return self.join(k, state, halved(k, self.join, [self.lift(k, v, i) for v, i in elements]))


def masked(k: Builder, kind: str, value: Value, live: Value | None) -> Value:
    """`value`, or where there is no element what changes nothing."""
    if live is None:
        return value
    if value.type is pred:
        return value | ~live if kind == "all" else value & live
    return k.select(live, value, IDENTITIES[kind].identity)


def halved(k: Builder, join: Callable[[Builder, State, State], State], states: list[State]) -> State:
    """All states joined, each passing through as few joins as may be."""
    while len(states) > 1:
        pairs = [join(k, a, b) for a, b in zip(states[::2], states[1::2], strict=False)]
        states = pairs + states[2 * len(pairs) :]
    return states[0]


def highest(k: Builder, a: Value, b: Value) -> Value:
    """The larger; NaN where either is."""
    if a.type is f32 and k.target.number >= 80:
        return k.apply("max", a, b, nan=True)
    return k.select((a > b) | (a != a), a, b)


def lowest(k: Builder, a: Value, b: Value) -> Value:
    if a.type is f32 and k.target.number >= 80:
        return k.apply("min", a, b, nan=True)
    return k.select((a < b) | (a != a), a, b)


def add_exactly(k: Builder, state: State, value: Value) -> State:
    """A sum in two floats, of which the second collects what the first rounds off (Knuth's two-sum).

    Source: Ogita, Rump, Oishi (2005), Accurate Sum and Dot Product, algorithm 4.4.
    """
    high, low = state
    total = high + value
    apart = total - high
    return total, low + ((high - (total - apart)) + (value - apart))


def join_pairs(k: Builder, a: State, b: State) -> State:
    return add_exactly(k, (a[0], a[1] + b[1]), b[0])


def whole(k: Builder, state: State) -> Value:
    """A pair as one float; the second of an infinite or NaN sum means nothing."""
    high, low = state
    return k.select(abs(high) < inf, high + low, high)


def _truth(k: Builder, value: Value, index: Value) -> State:
    return ((value if value.type is pred else value != 0.0).to(u32),)  # a NaN differs from 0: it is true


def _add_each(k: Builder, state: State, elements: Sequence[tuple[Value, Value]]) -> State:
    for value, _ in elements:
        state = add_exactly(k, state, value)
    return state


def _add_block(k: Builder, state: State, elements: Sequence[tuple[Value, Value]]) -> State:
    (block,) = halved(k, lambda k, a, b: (a[0] + b[0],), [(v,) for v, _ in elements])
    return add_exactly(k, state, block)


def _better(sign: int) -> Callable[[Builder, State, Sequence[tuple[Value, Value]]], State]:
    def absorb(k: Builder, state: State, elements: Sequence[tuple[Value, Value]]) -> State:
        best, at = state
        for value, index in elements:
            value = value if sign > 0 else -value
            wins = k.compare("gtu", value, best) & (best == best)  # the first NaN wins for good
            best, at = k.select(wins, value, best), k.select(wins, index, at)
        return best, at

    return absorb


def _one(kind: Type) -> tuple[Type, ...]:
    return (kind,)


def _arg(sign: int) -> Fold:
    return Fold(
        lambda kind: (kind, u32),
        (-inf, NOBODY),
        lambda k, v, i: (v if sign > 0 else -v, i),
        lambda k, a, b: k.first_larger(a, b),
        lambda k, s: s[1],
        _better(sign),
    )


def _pairs(absorb: Callable[[Builder, State, Sequence[tuple[Value, Value]]], State]) -> Fold:
    return Fold(lambda t: (t, t), (0.0, 0.0), lambda k, v, i: (v, k.const(v.type, 0.0)), join_pairs, whole, absorb)


FOLDS: dict[str, Fold] = {
    "sum": Fold(_one, (0.0,), lambda k, v, i: (v,), lambda k, a, b: (a[0] + b[0],), lambda k, s: s[0]),
    "fsum": _pairs(_add_each),
    "prod": Fold(_one, (1.0,), lambda k, v, i: (v,), lambda k, a, b: (a[0] * b[0],), lambda k, s: s[0]),
    "max": Fold(_one, (-inf,), lambda k, v, i: (v,), lambda k, a, b: (highest(k, a[0], b[0]),), lambda k, s: s[0]),
    "min": Fold(_one, (inf,), lambda k, v, i: (v,), lambda k, a, b: (lowest(k, a[0], b[0]),), lambda k, s: s[0]),
    "any": Fold(lambda _: (u32,), (0,), _truth, lambda k, a, b: (a[0] | b[0],), lambda k, s: s[0] != 0),
    "all": Fold(lambda _: (u32,), (1,), _truth, lambda k, a, b: (a[0] & b[0],), lambda k, s: s[0] != 0),
    "argmax": _arg(1),
    "argmin": _arg(-1),
}
LONG = FOLDS | {"sum": _pairs(_add_block)}
"""Where a thread meets many elements: blocks of plain additions are added exactly, however long the row."""
