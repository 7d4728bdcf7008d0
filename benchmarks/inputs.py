"""Operands, results and scratch of one shape: made once, used by every op and every peer."""

from collections.abc import Callable
from math import isinf
from typing import Any

import numpy as np
from trueno.ops.op import Op

NORMAL = ("activations", "normalization")
"""Families on the host around 0; others get values in (0.1, 1.1), like the figures in the project's notes."""
ASCENDING = (0.3, 0.7, 0.9)
"""Values of parameters that have no default."""

Kind = tuple[str, float, float]


def kind(op: Op) -> Kind:
    """The distribution of an op's operands: a name and two numbers."""
    if op.family in NORMAL:
        return ("normal", 0.0, 1.0)
    low, high = op.domain or (-np.inf, np.inf)
    if low <= 0.1 and high >= 1.1:
        return ("uniform", 0.1, 1.1)
    if isinf(high):
        return ("uniform", low + 0.1, low + 1.1)
    margin = 0.05 * (high - low)
    return ("uniform", low + margin, high - margin)


def values(kind: Kind, shape: tuple[int, ...], seed: int = 0) -> np.ndarray[Any, Any]:
    """float32 values of a distribution."""
    name, a, b = kind
    rng = np.random.default_rng(seed)
    if name == "normal":
        x = rng.standard_normal(shape, np.float32)
    else:
        x = rng.random(shape, np.float32)
        x *= np.float32(b - a)
        x += np.float32(a)
    return x


def required(op: Op) -> dict[str, Any]:
    """Values of the parameters that must be given."""
    return dict(zip((p.name for p in op.params if p.required), ASCENDING, strict=False))


def variants(op: Op) -> list[dict[str, Any]]:
    """Keyword arguments to measure: the defaults, then each other value of a static choice."""
    base = required(op)
    others = [base | {p.name: v} for p in op.static for v in p.choices if v != p.default]
    return [base, *others]


def complete(op: Op, given: dict[str, Any]) -> dict[str, Any]:
    """All parameters in the op's order, defaults filled in."""
    return {p.name: given.get(p.name, p.default) for p in op.params}


class Arena:
    """Arrays whose row axis is the last of `shape`."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.shape = shape
        self._arrays: dict[Any, np.ndarray[Any, Any]] = {}

    def _kept(self, key: Any, make: Callable[[], np.ndarray[Any, Any]]) -> np.ndarray[Any, Any]:
        if key not in self._arrays:
            self._arrays[key] = make()
        return self._arrays[key]

    def operands(self, op: Op) -> tuple[np.ndarray[Any, Any], ...]:
        """Operands of an elementwise op or one over rows."""
        shapes = {"e": self.shape, "w": self.shape[-1:], "r": self.shape[:-1]}
        of, arrays = kind(op), []
        for i, letter in enumerate(op.layout):
            key = (*of, shapes[letter], i)
            arrays.append(self._kept(key, lambda s=shapes[letter], i=i: values(of, s, i)))
        return tuple(arrays)

    def out(self, op: Op, operands: tuple[Any, ...], given: dict[str, Any]) -> Any:
        """What results are written to: an array, or a tuple of them."""
        static = {p.name: given.get(p.name, p.default) for p in op.static}
        shapes = op.result_shapes(tuple(x.shape for x in operands), static)
        outs = tuple(
            self._kept(("out", i, shape, spec.index), lambda s=shape, d=spec.index: np.empty(s, np.int64 if d else "f"))
            for i, (shape, spec) in enumerate(zip(shapes, op.signature.outputs, strict=True))
        )
        return outs if len(outs) > 1 else outs[0]

    def scratch(self) -> Callable[[tuple[int, ...]], np.ndarray[Any, Any]]:
        """Temporaries for one way; the next way gets the same memory again."""
        used: dict[tuple[int, ...], int] = {}

        def give(shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
            used[shape] = used.get(shape, 0) + 1
            return self._kept(("scratch", shape, used[shape]), lambda: np.empty(shape, np.float32))

        return give


_current: list[Arena] = []


def arena(shape: tuple[int, ...]) -> Arena:
    """The arena of a shape; the one of another shape is given back first, 16 M elements being 64 MB an array."""
    if not _current or _current[0].shape != shape:
        _current.clear()
        _current.append(Arena(shape))
    return _current[0]
