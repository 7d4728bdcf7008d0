"""Which elements of shared memory each thread of a block accesses: enough to see that two accesses never meet.

An offset is a number per thread, known while the kernel is built, plus multiples of values that all threads share.
Conditions choose the threads, and bound such values: where `tid < d`, element `tid + d` is none of those that the
others write at `tid`.  What follows from neither is not known, and counts as meeting.  Offsets are taken to be inside
of their array, as the emulator checks: they do not wrap around.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any, Final, NamedTuple

import numpy as np

from trueno_cuda.ptx.hazards import Uniformity
from trueno_cuda.ptx.values import Seen, Value, plain

Array = np.ndarray[Any, Any]
Terms = dict[tuple[int, int], int]
"""Coefficients of values that all threads share, by what identifies them."""
DEPTH: Final = 40
"""Operations that an index is followed through; a value that all threads share needs none."""
PER_THREAD: Final[dict[str, Callable[[Array, Array], Array]]] = {
    "and_": np.bitwise_and, "or_": np.bitwise_or, "xor": np.bitwise_xor, "shr": np.right_shift,
    "div": np.floor_divide, "rem": np.remainder, "min": np.minimum, "max": np.maximum,
}  # fmt: skip
"""Of numbers that are not negative, where nothing else is in them."""
OPPOSITE: Final = {"lt": "ge", "ge": "lt", "gt": "le", "le": "gt", "eq": "ne", "ne": "eq"}


class Offset(NamedTuple):
    """lanes: a number for each thread of the block, along x first."""

    lanes: Array
    terms: Terms

    def plus(self, other: "Offset", sign: int = 1) -> "Offset":
        terms = dict(self.terms)
        for key, factor in other.terms.items():
            terms[key] = terms.get(key, 0) + sign * factor
        return Offset(self.lanes + sign * other.lanes, {key: factor for key, factor in terms.items() if factor})

    def times(self, factor: int) -> "Offset":
        return Offset(self.lanes * factor, {key: factor * f for key, f in self.terms.items() if factor})

    @property
    def constant(self) -> int | None:
        """The number that it is for all threads."""
        first = int(self.lanes[0])
        return first if not self.terms and bool((self.lanes == first).all()) else None


class Bound(NamedTuple):
    """What a condition says of a sum of shared values: it is at least so much in each thread that goes on."""

    terms: Terms
    least: Array


class Threads:
    """The threads of a block of this shape, and what indices are in each of them."""

    def __init__(self, shape: tuple[int, int, int]) -> None:
        x, y, z = shape
        self.linear = np.arange(x * y * z, dtype=np.int64)
        self.special = {"tid": self.linear % x, "tid_y": self.linear // x % y, "tid_z": self.linear // (x * y),
                        "lane": self.linear % 32, "warp": self.linear // 32}  # fmt: skip
        self.known: dict[int, tuple[Value, Offset | None]] = {}  # by identity, with what keeps that

    def offset(self, operand: object, depth: int = DEPTH) -> Offset | None:
        """An operand in each thread; None where it is not known."""
        operand = plain(operand)
        if isinstance(operand, Seen):
            shared = operand.uniformity is Uniformity.BLOCK
            return self._shared((id(operand.var), operand.version)) if shared else None
        if isinstance(operand, int):
            return Offset(np.full(len(self.linear), operand, np.int64), {}) if abs(operand) < 1 << 40 else None
        if not isinstance(operand, Value) or not operand.type.integer:
            return None
        if id(operand) not in self.known:
            self.known[id(operand)] = operand, None
            found = self._computed(*operand.origin, depth) if operand.origin and depth else None
            if found is None and operand.uniformity is Uniformity.BLOCK:
                found = self._shared((id(operand), 0))
            self.known[id(operand)] = operand, found
        return self.known[id(operand)][1]

    def _shared(self, key: tuple[int, int]) -> Offset:
        return Offset(np.zeros(len(self.linear), np.int64), {key: 1})

    def _computed(self, name: str, operands: Sequence[object], depth: int) -> Offset | None:
        if name in self.special:
            return Offset(self.special[name], {})
        known = [self.offset(operand, depth - 1) for operand in operands]
        if not all(isinstance(o, Offset) for o in known):
            return None
        match name, known:
            case (("add" | "sub"), [Offset() as a, Offset() as b]):
                return a.plus(b, 1 if name == "add" else -1)
            case "copy", [Offset() as a]:
                return a
            case "mul", [Offset() as a, Offset() as b]:
                return _product(a, b)
            case "mad", [Offset() as a, Offset() as b, Offset() as c]:
                product = _product(a, b)
                return None if product is None else product.plus(c)
            case "shl", [Offset() as a, Offset() as b]:
                by = b.constant
                return a.times(1 << by) if by is not None and 0 <= by < 32 else None
            case _, [Offset() as a, Offset() as b] if name in PER_THREAD and not (a.terms or b.terms):
                least = min(a.lanes.min(), b.lanes.min())
                if (
                    least < 0
                    or (name in ("div", "rem") and not b.lanes.all())
                    or (name == "shr" and b.lanes.max() > 62)
                ):
                    return None
                return Offset(PER_THREAD[name](a.lanes, b.lanes), {})
        return None

    # ---- conditions -----------------------------------------------------------------------------------

    def bounds(self, condition: object, holds: bool) -> Iterator[Bound]:
        """What a predicate says where it is true, or false."""
        name, operands = getattr(condition, "origin", None) or ("", ())
        if name == "not_":
            yield from self.bounds(operands[0], not holds)
        elif name == ("and_" if holds else "or_"):
            for operand in operands:
                yield from self.bounds(operand, holds)
        elif name in OPPOSITE:
            a, b = map(self.offset, operands)
            if a is None or b is None or not all(_natural(o, v) for o, v in zip((a, b), operands, strict=True)):
                return
            name = name if holds else OPPOSITE[name]
            more = b.plus(a, -1)
            if name in ("lt", "le", "eq"):
                yield Bound(more.terms, int(name == "lt") - more.lanes)
            if name in ("gt", "ge", "eq"):
                less = more.times(-1)
                yield Bound(less.terms, int(name == "gt") - less.lanes)
            if name == "ne" and not more.terms:
                yield Bound({}, (more.lanes == 0).astype(np.int64))


class Place:
    """Bytes that an access touches: their offset as a sum of operands times sizes, in threads that meet conditions."""

    def __init__(
        self,
        threads: Threads,
        parts: Sequence[tuple[object, int]],
        width: int,
        conditions: Sequence[tuple[object, bool]],
    ) -> None:
        self.threads, self.parts, self.width, self.conditions = threads, parts, width, conditions

    @cached_property
    def offset(self) -> Offset | None:
        """In bytes."""
        total = Offset(np.zeros(len(self.threads.linear), np.int64), {})
        for operand, size in self.parts:
            part = self.threads.offset(operand)
            if part is None:
                return None
            total = total.plus(part.times(size))
        return total

    @cached_property
    def bounds(self) -> list[Bound]:
        return [bound for condition, holds in self.conditions for bound in self.threads.bounds(condition, holds)]

    @cached_property
    def active(self) -> Array:
        """Which threads may access it."""
        mask = np.ones(len(self.threads.linear), bool)
        for bound in self.bounds:
            if not bound.terms:
                mask &= bound.least <= 0
        return mask

    def apart(self, other: "Place", later: bool) -> bool:
        """Whether no element is accessed here by one thread and there by another.

        later: the other access is of another turn of a loop, where shared values may have changed.
        """
        a, b = self.offset, other.offset
        if a is None or b is None or (later and (a.terms or b.terms)):
            return False
        between = b.plus(a, -1)
        if not between.terms:
            return not self._meets(other)
        return not later and self._separated(other, between.terms)

    def _meets(self, other: "Place") -> bool:
        grain = min(self.width, other.width)
        mine, owners = self._words(grain)
        theirs, readers = other._words(grain)
        order = np.lexsort((owners, mine))
        mine, owners = mine[order], owners[order]
        begin, end = np.searchsorted(mine, theirs, "left"), np.searchsorted(mine, theirs, "right")
        some = end > begin
        first, last = owners[begin[some]], owners[end[some] - 1]
        return bool(((first != readers[some]) | (last != readers[some])).any())

    def _words(self, grain: int) -> tuple[Array, Array]:
        """The words of `grain` bytes that are accessed, and by which thread."""
        assert self.offset is not None
        steps = np.arange(0, self.width, grain)
        words = (self.offset.lanes[self.active][:, None] + steps).ravel() // grain
        return words, np.repeat(self.threads.linear[self.active], len(steps))

    def _separated(self, other: "Place", terms: Terms) -> bool:
        """Whether the conditions keep the offsets apart, which differ by these terms: there minus here."""
        assert self.offset is not None and other.offset is not None
        distance = other.offset.lanes[None, :] - self.offset.lanes[:, None]
        others = self.active[:, None] & other.active[None, :] & (self.threads.linear[:, None] != self.threads.linear)
        for bounds, shape in ((self.bounds, (-1, 1)), (other.bounds, (1, -1))):
            for bound in bounds:
                factor = _ratio(terms, bound.terms)
                if not factor:
                    continue
                nearest = distance + factor * bound.least.reshape(shape)
                if (nearest[others] >= self.width if factor > 0 else nearest[others] <= -other.width).all():
                    return True
        return False


def _product(a: Offset, b: Offset) -> Offset | None:
    for one, number in ((a, b.constant), (b, a.constant)):
        if number is not None:
            return one.times(number)
    return None if a.terms or b.terms else Offset(a.lanes * b.lanes, {})


def _natural(offset: Offset, operand: object) -> bool:
    """Whether a comparison of unsigned numbers compares what this says; signed ones always do."""
    kind = getattr(operand, "type", None)
    signed = kind is not None and kind.kind == "s"
    return signed or (offset.lanes.min() >= 0 and min(offset.terms.values(), default=0) >= 0)


def _ratio(terms: Terms, unit: Terms) -> int:
    """How often `unit` is in `terms`, which have nothing else; 0 for no such number."""
    if terms.keys() != unit.keys() or not unit:
        return 0
    key = next(iter(unit))
    factor, rest = divmod(terms[key], unit[key])
    return factor if not rest and all(terms[k] == factor * unit[k] for k in unit) else 0
