"""Which elements of shared memory each thread of a block accesses: enough to see that two accesses never meet.

An offset is a number per thread, known while the kernel is built, plus multiples of values that all threads share.
Conditions choose the threads, and bound such values: where `tid < d`, element `tid + d` is none of those that the
others write at `tid`.  What follows from neither is not known, and counts as meeting.  Sums with shared values are
taken to be inside of their array, as the emulator checks: they do not wrap around.
"""

import heapq
import operator
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from itertools import product
from typing import Final, NamedTuple

from trueno_cuda.ptx.hazards import Uniformity
from trueno_cuda.ptx.types import Type
from trueno_cuda.ptx.values import Seen, Value, plain

Terms = dict[tuple[int, int], int]
"""Coefficients of values that all threads share, by what identifies them."""
DEPTH: Final = 40
"""Operations that an index is followed through; a value that all threads share needs none."""
PER_THREAD: Final[dict[str, Callable[[int, int], int]]] = {
    "and_": operator.and_, "or_": operator.or_, "xor": operator.xor, "shr": operator.rshift,
    "div": operator.floordiv, "rem": operator.mod, "min": min, "max": max,
}  # fmt: skip
"""Of numbers that are not negative, where nothing else is in them."""
ADDRESSES: Final = 1 << 32
"""Of shared memory."""
FAR: Final = 1 << 24
"""Bytes that are more than any shared memory: sums of such numbers may wrap around."""
OPPOSITE: Final = {"lt": "ge", "ge": "lt", "gt": "le", "le": "gt", "eq": "ne", "ne": "eq"}


class Offset(NamedTuple):
    """lanes: a number for each thread of the block, along x first."""

    lanes: list[int]
    terms: Terms

    def plus(self, other: "Offset", sign: int = 1) -> "Offset":
        terms = dict(self.terms)
        for key, factor in other.terms.items():
            terms[key] = terms.get(key, 0) + sign * factor
        lanes = [a + sign * b for a, b in zip(self.lanes, other.lanes, strict=True)]
        return Offset(lanes, {key: factor for key, factor in terms.items() if factor})

    def times(self, factor: int) -> "Offset":
        return Offset([a * factor for a in self.lanes], {key: factor * f for key, f in self.terms.items() if factor})

    @property
    def constant(self) -> int | None:
        """The number that it is for all threads."""
        first = self.lanes[0]
        return first if not self.terms and all(a == first for a in self.lanes) else None


class Bound(NamedTuple):
    """What a condition says of a sum of shared values: it is at least so much in each thread that goes on."""

    terms: Terms
    least: list[int]


class Threads:
    """The threads of a block of this shape, and what indices are in each of them."""

    def __init__(self, shape: tuple[int, int, int]) -> None:
        x, y, z = shape
        self.all = range(x * y * z)
        self.special = {"tid": [t % x for t in self.all], "tid_y": [t // x % y for t in self.all],
                        "tid_z": [t // (x * y) for t in self.all], "lane": [t % 32 for t in self.all],
                        "warp": [t // 32 for t in self.all]}  # fmt: skip
        self.known: dict[int, tuple[Value, Offset | None]] = {}  # by identity, with what keeps that

    def same(self, number: int) -> Offset:
        """A number for all threads."""
        return Offset([number] * len(self.all), {})

    def offset(self, operand: object, depth: int = DEPTH) -> Offset | None:
        """An operand in each thread; None where it is not known."""
        operand = plain(operand)
        if isinstance(operand, Seen):
            shared = operand.uniformity is Uniformity.BLOCK
            return self._shared((id(operand.var), operand.version)) if shared else None
        if isinstance(operand, int):
            return self.same(operand)
        if not isinstance(operand, Value) or not operand.type.integer:
            return None
        if id(operand) not in self.known:
            self.known[id(operand)] = operand, None
            found = self._computed(*operand.origin, depth) if operand.origin and depth else None
            if found is None and operand.uniformity is Uniformity.BLOCK:
                found = self._shared((id(operand), 0))
            self.known[id(operand)] = operand, _held(found, operand.type) if found else None
        return self.known[id(operand)][1]

    def _shared(self, key: tuple[int, int]) -> Offset:
        return Offset(self.same(0).lanes, {key: 1})

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
                if min(*a.lanes, *b.lanes) < 0 or (name in ("div", "rem") and not all(b.lanes)):
                    return None
                return Offset(list(map(PER_THREAD[name], a.lanes, b.lanes)), {})
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
                yield Bound(more.terms, [(name == "lt") - a for a in more.lanes])
            if name in ("gt", "ge", "eq"):
                less = more.times(-1)
                yield Bound(less.terms, [(name == "gt") - a for a in less.lanes])
            if name == "ne" and not more.terms:
                yield Bound({}, [int(a == 0) for a in more.lanes])


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
        total = self.threads.same(0)
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
    def active(self) -> list[int]:
        """The threads that may access it."""
        some = [bound.least for bound in self.bounds if not bound.terms]
        return [t for t in self.threads.all if all(least[t] <= 0 for least in some)]

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
        owners: dict[int, set[int]] = {}
        for word, thread in self._words(grain):
            owners.setdefault(word, set()).add(thread)
        return any(owners.get(word, {thread}) != {thread} for word, thread in other._words(grain))

    def _words(self, grain: int) -> Iterator[tuple[int, int]]:
        """The words of `grain` bytes that are accessed, and by which thread."""
        assert self.offset is not None
        for thread in self.active:
            first = self.offset.lanes[thread] % ADDRESSES // grain
            for step in range(self.width // grain):
                yield first + step, thread

    def _separated(self, other: "Place", terms: Terms) -> bool:
        """Whether the conditions keep the offsets apart, which differ by these terms: there minus here."""
        assert self.offset is not None and other.offset is not None
        if max(map(abs, (*self.offset.lanes, *other.offset.lanes))) > FAR:
            return False
        for place in (self, other):
            for bound in place.bounds:
                factor = _ratio(terms, bound.terms)
                if not factor:
                    continue
                here, there = self.offset.lanes, other.offset.lanes
                if place is self:
                    here = [a - factor * b for a, b in zip(here, bound.least, strict=True)]
                else:
                    there = [a + factor * b for a, b in zip(there, bound.least, strict=True)]
                mine, theirs = [(here[t], t) for t in self.active], [(there[t], t) for t in other.active]
                if _above(mine, theirs, self.width) if factor > 0 else _above(theirs, mine, other.width):
                    return True
        return False


def _above(low: list[tuple[int, int]], high: list[tuple[int, int]], width: int) -> bool:
    """Whether every number of `high` is at least that much above every one of `low` that is another thread's."""
    closest = product(heapq.nlargest(2, low), heapq.nsmallest(2, high))  # two, as one pair may be of one thread
    return all(b - a >= width for (a, mine), (b, theirs) in closest if mine != theirs)


def _held(offset: Offset, kind: Type) -> Offset:
    """What a register of that type holds of it; where shared values are in it, that is known up to their multiples."""
    if offset.terms:
        return offset
    size, low = 1 << kind.bits, -(1 << kind.bits - 1) if kind.kind == "s" else 0
    return Offset([(a - low) % size + low for a in offset.lanes], {})


def _product(a: Offset, b: Offset) -> Offset | None:
    for one, number in ((a, b.constant), (b, a.constant)):
        if number is not None:
            return one.times(number)
    return None if a.terms or b.terms else Offset(list(map(operator.mul, a.lanes, b.lanes)), {})


def _natural(offset: Offset, operand: object) -> bool:
    """Whether a comparison of unsigned numbers compares what this says; signed ones always do."""
    kind = getattr(operand, "type", None)
    signed = kind is not None and kind.kind == "s"
    return signed or (min(offset.lanes) >= 0 and min(offset.terms.values(), default=0) >= 0)


def _ratio(terms: Terms, unit: Terms) -> int:
    """How often `unit` is in `terms`, which have nothing else; 0 for no such number."""
    if terms.keys() != unit.keys() or not unit:
        return 0
    key = next(iter(unit))
    factor, rest = divmod(terms[key], unit[key])
    return factor if not rest and all(terms[k] == factor * unit[k] for k in unit) else 0
