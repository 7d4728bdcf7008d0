"""A case, and what all families of cases share: keyword arguments and random numbers."""

from dataclasses import dataclass, field
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt

from trueno.ops.op import Op, Parameter

POSITIVE = ("imatrix",)
"""Operands that are weights, 0 or more."""
ALSO = 2
"""Values to try besides a parameter's choices: for formats, one of each size of block."""
DEMANDED = (0.7, 1.9, 2.5, 3.5)  # values of parameters without default, ascending: min < max


@dataclass
class Case:
    """One call: `op(*operands, **kwargs)`.

    The operands repeat their first `1/repeat` along the first axis, and so will the results.
    """

    op: Op
    dtype: np.dtype[Any]
    label: str
    operands: tuple[Any, ...]
    kwargs: dict[str, Any] = field(default_factory=dict)
    repeat: int = 1

    def __str__(self) -> str:
        shapes = ", ".join(str(np.shape(x)) for x in self.operands)
        keywords = "".join(f", {k}={v!r}" for k, v in self.kwargs.items())
        return f"{self.op.name}({shapes}{keywords}) {self.dtype} [{self.label}]"


def rng_for(op: Op, dtype: npt.DTypeLike, seed: int) -> np.random.Generator:
    """A generator that depends on op, dtype and seed, so that a case can be repeated alone."""
    return np.random.default_rng([seed, *f"{op.name} {np.dtype(dtype)}".encode()])


def _values(p: Parameter) -> tuple[Any, ...]:
    """The values to pass for a static parameter, the usual one first."""
    if p.choices:
        return (p.choices[0], *p.also[:ALSO], *p.choices[1:])
    return (False, True) if p.type is bool else (p.default,)


def keywords(op: Op) -> list[dict[str, Any]]:
    """Arguments to try: the defaults with each combination of static choices, then other floats once.

    Only a few of the further values: they all affect the call in the same way.
    """
    demanded = iter(DEMANDED)
    base = {p.name: next(demanded) for p in op.params if p.required and p.symbolic}
    options = [_values(p) for p in op.static]
    arguments = [base | dict(zip((p.name for p in op.static), c, strict=True)) for c in product(*options)]
    other = {p.name: 0.375 for p in op.params if p.symbolic and not p.required}
    if other:
        arguments.append(arguments[0] | other)
    elif base:
        arguments.append(
            arguments[0] | {name: -value if i == 0 else value for i, (name, value) in enumerate(base.items())}
        )
    return arguments
