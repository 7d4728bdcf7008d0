"""The calls whose kernels a backend compiles in advance.

A backend may have a method `variants(op, dtype) -> Iterable[Call]` that lists its own; without it, these are
the usual calls: one row and many, few elements and many, and each choice of the static parameters.
"""

from collections.abc import Iterable, Sequence
from itertools import product
from typing import Any

import numpy as np

from trueno.discovery import registry
from trueno.discovery.protocol import Call
from trueno.ops.op import Op

Keys = Sequence[tuple[int, int]]
SMALL, LARGE = 10, 20
"""Size classes below and above every backend's threshold for threads: about 1 000 and 1 000 000 elements."""


def usual(op: Op, dtype: str) -> Iterable[Call]:
    """The calls that users make of an op, by what decides about kernels."""
    options = [p.choices or ((False, True) if p.type is bool else (p.default,)) for p in op.static]
    ranks = (max(len(op.signature.inputs[0].dims), 1),) if op.structured else (1, 2)
    for values, rank, size in product(product(*options), ranks, (SMALL, LARGE)):
        static = tuple((p.name, v) for p, v in zip(op.static, values, strict=True))
        yield Call(op, np.dtype(dtype), op.layout, rank, (size,), static)


def variants(backend: str, op: Op, dtype: str, keys: Keys = ()) -> list[Call]:
    """The calls to compile for an op on a backend: of these (rank, size class) pairs, or all.

    Those that the backend rejects are left out.
    """
    loaded: Any = registry.load(backend)
    wanted: Iterable[Call]
    if keys:
        static = tuple((p.name, p.typical) for p in op.static)
        wanted = [Call(op, np.dtype(dtype), op.layout, rank, (size,), static) for rank, size in keys]
    else:
        wanted = loaded.variants(op, dtype) if hasattr(loaded, "variants") else usual(op, dtype)
    return [call for call in wanted if loaded.supports(call) is None]


def ready(backend: str, op: Op, dtype: str, keys: Keys = ()) -> tuple[int, list[str]]:
    """Compile an op's kernels: returns how many, and a sentence for each that failed."""
    kernels: list[Any] = []
    failures: list[str] = []
    for call in variants(backend, op, dtype, keys):
        try:
            kernel = registry.load(backend).kernel(call)
        except Exception as error:  # a compiler may raise anything, and the other kernels are still needed
            text = " ".join(str(error).split())
            where = f"{dtype}, rank {call.rank}, size class {call.sizes[0]}"
            failures.append(f"{op.name} ({where}): {type(error).__name__}: {text[:300]}")
            continue
        if not any(kernel is other for other in kernels):  # small and large sizes may share one
            kernels.append(kernel)
    return len(kernels), failures


__all__ = ["Keys", "ready", "usual", "variants"]
