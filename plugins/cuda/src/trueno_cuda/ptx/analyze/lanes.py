"""Forms evaluated for every thread of a block: a vector of numbers, beside multiples of what all threads share.

`split` gives a dict: None → the part that is known, and for each shared unknown its coefficients, a number per thread;
("product", a, b) is the product of two of them.
Functions such as masks of an index go through it where the unknowns provably do not reach the bits concerned.
"""

from collections.abc import Callable
from math import gcd

import numpy as np

from trueno_cuda.ptx.analyze.launch import Launch, Size
from trueno_cuda.ptx.analyze.values import Atom, Form, Values
from trueno_cuda.ptx.syntax.types import Array

Split = dict[Atom | None, Array]
PERSONAL = {"tid.x", "tid.y", "tid.z", "laneid", "warpid"}
"""Special registers whose value follows from a thread's place in its block."""
LIMIT = 1 << 62
KEPT = 1 << 15
"""Forms whose vectors are kept."""
MOST = 16
"""Terms of a product of two sums."""


class Lanes:
    """shape: the block.  shared: whether all threads that are compared see the same value of an atom."""

    def __init__(self, values: Values, shape: Size, launch: Launch, shared: Callable[[Atom], bool]) -> None:
        self.values, self.shape, self.launch, self.shared = values, shape, launch, shared
        x, y, z = shape
        self.threads = x * y * z
        linear = np.arange(self.threads, dtype=np.int64)
        self.linear = linear
        self.places = {"tid.x": linear % x, "tid.y": linear // x % y, "tid.z": linear // (x * y), "laneid": linear & 31,
                       "warpid": linear >> 5}  # fmt: skip
        self.zero, self.one = np.zeros(self.threads, np.int64), np.ones(self.threads, np.int64)
        self.memo: dict[Form, Split | None] = {}
        self.spans: dict[Form, tuple[int, int]] = {}

    def split(self, form: Form) -> Split | None:
        """The parts of a form; None where it depends on something that differs between threads and is not known."""
        if form not in self.memo:
            if len(self.memo) > KEPT:
                self.memo.clear()
            self.memo[form] = None  # of itself
            self.memo[form] = self._split(form)
        return self.memo[form]

    def span(self, form: Form) -> tuple[int, int]:
        """The least and the greatest value of the part that is known."""
        if form not in self.spans:
            vector = (self.split(form) or {None: self.zero})[None]
            self.spans[form] = int(vector.min()), int(vector.max())
        return self.spans[form]

    def known(self, form: Form) -> Array | None:
        """The form's value for every thread, where nothing unknown is in it."""
        parts = self.split(form)
        return None if parts is None or set(parts) != {None} else parts[None]

    def _split(self, form: Form) -> Split | None:
        if abs(form.const) > (LIMIT if form.terms else 1 << 63):
            return None
        parts: Split = {None: self.one * form.const if form.const else self.zero}
        for atom, coefficient in form.terms:
            if abs(coefficient) > 1 << 40:
                return None
            inner = self._atom(atom)
            if inner is None:
                return None
            for key, vector in inner.items():
                if key is None and vector is self.zero:
                    continue
                scaled = vector if coefficient == 1 else vector * coefficient
                parts[key] = parts[key] + scaled if key in parts else scaled
        return {key: vector for key, vector in parts.items() if key is None or vector is self.one or vector.any()}

    def _atom(self, atom: Atom) -> Split | None:
        if atom[0] == "special" and atom[1] in PERSONAL:
            return {None: self.places[atom[1]]}
        if atom[0] == "special" and (known := self._size(atom[1])) is not None:
            return {None: self.zero + known}
        if atom[0] == "op":
            return self._function(atom)
        return {None: self.zero, atom: self.one} if self.shared(atom) else None

    def _size(self, name: str) -> int | None:
        head, _, axis = name.partition(".")
        return self.shape["xyz".index(axis)] if head == "ntid" and axis in ("x", "y", "z") else None

    # ---- functions ------------------------------------------------------------------------------

    def _function(self, atom: Atom) -> Split | None:
        _, name, left, right = atom
        a, b = self.split(left), self.split(right)
        if a is None or b is None:
            return None
        if name in ("mul", "div", "rem") and max(abs(left.const), abs(right.const)) > LIMIT:
            return None
        if set(a) == {None} == set(b):
            return self._vector(name, a[None], b[None])
        if name == "mul" and (set(a) == {None} or set(b) == {None}):
            some, vector = (b, a[None]) if set(a) == {None} else (a, b[None])
            if max(np.abs(v).max() for v in some.values()) * max(int(np.abs(vector).max()), 1) > LIMIT:
                return None
            return {key: v * vector for key, v in some.items()}
        if name == "mul" and len(a) * len(b) <= MOST:
            return self._expanded(a, b)
        found = self._bits(name, a, b)
        if found is not None:
            return found
        if all((v == v[0]).all() for parts in (a, b) for v in parts.values()):
            return {None: self.zero, atom: self.one}
        return None

    def _expanded(self, a: Split, b: Split) -> Split | None:
        """A product of two sums, term by term: a product of two shared unknowns is one, too."""
        result: Split = {None: self.zero}
        for left, x in a.items():
            for right, y in b.items():
                if int(np.abs(x).max()) * int(np.abs(y).max()) > LIMIT:
                    return None
                key = (
                    left if right is None else right if left is None else ("product", *sorted((left, right), key=repr))
                )
                result[key] = result[key] + x * y if key in result else x * y
        return {key: v for key, v in result.items() if key is None or v.any()}

    def _vector(self, name: str, a: Array, b: Array) -> Split | None:
        simple = {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor, "min": np.minimum,
                  "max": np.maximum}  # fmt: skip
        if name in simple:
            return {None: simple[name](a, b)}
        if name == "mul":
            return {None: a * b} if int(np.abs(a).max()) * int(np.abs(b).max()) < LIMIT else None
        if name in ("shr", "lsr32", "lsr64"):
            if int(b.min()) < (name != "shr") or int(b.max()) >= int(name[3:] or 64):
                return None
            if name == "lsr64":
                return {None: (a.view(np.uint64) >> b.view(np.uint64)).view(np.int64)}
            return {None: (a if name == "shr" else a & 0xFFFFFFFF) >> b}
        if (b == 0).any():
            return None
        quotient = np.abs(a) // np.abs(b) * np.where((a < 0) == (b < 0), 1, -1)
        return {None: quotient if name == "div" else a - quotient * b}

    def _bits(self, name: str, a: Split, b: Split) -> Split | None:
        """Masks, shifts and divisions by powers of two, where unknowns are multiples of the power."""
        if name in ("or", "xor"):
            pure, other = (a, b) if set(a) == {None} else (b, a)
            if set(pure) != {None} or int(pure[None].min()) < 0:
                return None
            power = 1 << int(pure[None].max()).bit_length()
            if not self._divides(power, other):
                return None
            both = {"or": np.bitwise_or, "xor": np.bitwise_xor}[name]
            return {**other, None: both(other[None], pure[None])}
        if set(b) != {None} or not (b[None] == b[None][0]).all():
            return None
        amount = int(b[None][0])
        if name == "and":
            if amount >= 0 and amount & (amount + 1) == 0 and self._divides(amount + 1, a):
                return {None: a[None] & amount}
            clear = amount | (-1 << 31) if amount >= 1 << 30 else amount  # all bits but the lowest
            low = -clear
            if clear < 0 and low & (low - 1) == 0 and self._divides(low, a):
                return {**a, None: a[None] & clear}
            return None
        power = (
            1 << amount
            if name in ("shr", "lsr32", "lsr64") and 0 <= amount < 32
            else amount
            if name in ("div", "rem")
            else 0
        )
        if power < 1 or power & (power - 1) or not self._divides(power, a) or int(a[None].min()) < 0:
            return None
        if name == "rem":
            return {None: a[None] % power}
        if any((v % power).any() for key, v in a.items() if key is not None):
            return None  # an unknown that is a multiple: its quotient has no name
        return {key: v // power for key, v in a.items()}

    def _divides(self, power: int, parts: Split) -> bool:
        """Whether every unknown part is a multiple of a power of two."""
        if power > LIMIT:
            return False
        return all(not (v * self.factor(key) % power).any() for key, v in parts.items() if key is not None)

    def factor(self, atom: Atom) -> int:
        """A number that divides an atom."""
        if atom[0] == "param":
            return self.launch.multiples.get(atom[1], 1)
        if atom[0] == "count":
            step = self.values.steps.get(atom[1])
            return self.divisor(step) if step is not None else 1
        if atom[0] == "product":
            return self.factor(atom[1]) * self.factor(atom[2])
        if atom[0] == "op" and atom[1] == "mul":
            return self.divisor(atom[2]) * self.divisor(atom[3])
        if atom[0] == "op" and atom[1] == "and" and atom[3].constant and atom[3].const:
            return atom[3].const & -atom[3].const
        return 1

    def divisor(self, form: Form) -> int:
        """A number that divides a form: 1 where nothing is known."""
        result = abs(form.const)
        for atom, coefficient in form.terms:
            result = gcd(result, abs(coefficient) * self.factor(atom))
        return result or 1
