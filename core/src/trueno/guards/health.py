"""Checks of results: the positions of NaN and Inf, and the distance from the reference.

A healthy result costs one fast check; the exact positions are computed only for an unhealthy one.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from math import isfinite
from typing import Any

import numpy as np
import numpy.typing as npt

from trueno.discovery.protocol import Call
from trueno.errors import GuardError, KernelError
from trueno.formats.decode import decode
from trueno.ops.signature import ArraySpec

Array = npt.NDArray[Any]
Test = Callable[[Any], Any]
Back = Callable[[tuple[int, ...], int], tuple[int, ...]]

NAN, INF = 1, 2
"""Status bits, as guarded kernels return them."""
ROW = 4096
"""The most elements of a dot product: OpenBLAS starts threads from 10 000 on, whose spinning slows the next kernel."""
FREE = {"symmetric_eigen": ("vectors",), "lz4_compress": ("blocks", "sizes")}
"""Results that the reference does not determine: an eigenvector's sign, a basis of equal values, matches of a block."""


@dataclass(frozen=True, slots=True)
class Finding:
    """The unhealthy elements of results.

    result: name of the first result with a bad element; index: of that element, in the array that the kernel wrote;
    shape: of that array; count: unhealthy elements of all results; detail: further facts.
    """

    result: str
    index: tuple[int, ...]
    shape: tuple[int, ...]
    count: int
    detail: str = ""

    @property
    def place(self) -> str:
        """`y[3, 5]`; `y` for a single value."""
        return f"{self.result}{list(self.index)}" if self.index else self.result


def locate(
    error: GuardError, names: Sequence[str], shapes: Sequence[tuple[int, ...]], back: Back | None = None
) -> None:
    """Convert the position in a guard's error to the caller's results; a kernel's results are one row, or rows.

    shapes: those of the results, with elements in the kernel's order.  back: converts a shape or an index of result k
    to the caller's order of axes; the index along an axis of length 1 that it adds is 0.
    """
    facts = vars(error)
    if facts.get("result") not in names:
        return
    k = names.index(facts["result"])
    old, before = Finding(facts["result"], facts["index"], facts["shape"], 0).place, f" of shape {facts['shape']}"
    flat = int(np.ravel_multi_index(facts["index"], facts["shape"])) if facts["index"] else 0
    index, shape = tuple(int(i) for i in np.unravel_index(flat, shapes[k])), tuple(shapes[k])
    if back is not None:
        shape = back(shape, k)
        index = tuple(min(i, s - 1) for i, s in zip(back(index, k), shape, strict=True))
    facts |= {"index": index, "shape": shape}
    text = str(error)
    if "[" in old:
        text = text.replace(old, Finding(facts["result"], index, shape, 0).place)
        text = text.replace(before, f" of shape {shape}" if shape else "")
    error.args = (text,)


def finite(x: Array) -> bool:
    """Whether no element is NaN or Inf.

    A sum of squares is finite only if every term is, and computing it takes half the time of `isfinite`.
    If the sum is not finite, the squares alone may have overflowed, so an exact check follows.
    """
    flat = x.reshape(-1)
    whole = flat.size // ROW * ROW
    rest = flat[whole:]
    if isfinite(np.vdot(rest, rest)):
        if not whole:
            return True
        rows = flat[:whole].reshape(-1, ROW)
        with np.errstate(all="ignore"):
            if np.isfinite(np.vecdot(rows, rows)).all():
                return True
    return bool(np.isfinite(flat).all())


def status(results: Iterable[Array]) -> int:
    """The status bits of all results together."""
    bits = 0
    for r in results:
        if r.dtype.kind == "f" and not finite(r):
            bits |= NAN * bool(np.isnan(r).any()) | INF * bool(np.isinf(r).any())
    return bits


def holds(test: Test, operands: Sequence[Array], params: Sequence[float]) -> bool:
    """Whether a float operand or a parameter passes `test` at any element."""
    return any(bool(test(p)) for p in params) or any(x.dtype.kind == "f" and bool(test(x).any()) for x in operands)


def floats(call: Call, arrays: Sequence[Array], specs: Sequence[ArraySpec]) -> list[Array]:
    """The operands or results that `specs` describe, with rows of blocks decoded to numbers."""
    blocks = call.op.blocks(dict(call.static)) if call.op.quantized else None
    return [decode(blocks, x) if s.blocks and blocks else x for s, x in zip(specs, arrays, strict=True)]


def found(names: Sequence[str], bad: Sequence[Array], detail: str = "") -> Finding | None:
    """The first true element of masks, one mask per result; None if all elements are false."""
    count = sum(int(np.count_nonzero(b)) for b in bad)
    for name, mask in zip(names, bad, strict=True):
        if mask.any():
            index = np.unravel_index(int(np.argmax(mask)), mask.shape)
            return Finding(name, tuple(int(i) for i in index), mask.shape, count, detail)
    return None


def where(test: Test, names: Sequence[str], results: Sequence[Array]) -> Finding | None:
    """The first element of a float result that passes `test`; None if no element does."""
    nothing = np.zeros((), bool)
    return found(names, [test(r) if r.dtype.kind == "f" else nothing for r in results])


def reference(call: Call, operands: Sequence[Array], params: Sequence[float], dtype: npt.DTypeLike) -> list[Array]:
    """The results of the op's own body under NumPy, computed in `dtype` from the call's operands.

    The parameters are rounded to the call's dtype, as for a kernel.
    """
    from trueno.reference import ReferenceBackend  # start-up

    T = np.dtype(dtype)
    converted = [np.asarray(x, T) if x.dtype.kind == "f" else x for x in operands]
    with np.errstate(all="ignore"):
        scalars = [float(call.dtype.type(p)) for p in params]
    results = [np.empty(shape, spec.holds(T)) for shape, spec in shapes(call, operands)]
    kernel = ReferenceBackend().kernel(replace(call, dtype=T, residency="host", guarded=False))
    if kernel(*converted, *scalars, *results):
        raise KernelError(f"{call.op.name}: the reference refused operands of shapes {[x.shape for x in operands]}")
    return results


def shapes(call: Call, operands: Sequence[Array]) -> list[tuple[tuple[int, ...], ArraySpec]]:
    """The kernels' shape of each result, and its part of the signature."""
    op = call.op
    if op.structured:
        shapes = op.result_shapes(tuple(x.shape for x in operands), dict(call.static))
        return [(shape, spec) for shape, spec in zip(shapes, op.signature.outputs, strict=True)]
    rows: tuple[int, ...] = ()
    row: tuple[int, ...] = ()
    for kind, x in zip(call.layout, operands, strict=True):
        if kind in "ew":
            row = x.shape[-1:]
        if kind in "er" and call.rank == 2:
            rows = x.shape[:1]
    along = [op.over is None or op.over in spec.dims for spec in op.signature.outputs]
    return [(rows + row if e else rows, spec) for e, spec in zip(along, op.signature.outputs, strict=True)]


def divergence(call: Call, results: Sequence[Array], references: Sequence[Array], tolerance: float) -> Finding | None:
    """The elements that differ from `references`, computed in float64, by more than `tolerance`; None if none does.

    The reference is rounded to the call's dtype, so that a correctly rounded result never diverges.  Differences count
    in units of the largest finite |reference| of that result.  NaN or Inf where the reference has none (or another),
    a different position, and a result of a different shape diverge whatever the tolerance.
    """
    specs = call.op.signature.outputs
    bad, worst = [], 0.0
    for spec, got, wanted in zip(specs, results, references, strict=True):
        if spec.name in FREE.get(call.op.name, ()):
            bad.append(np.zeros((), bool))
        elif got.shape != wanted.shape:
            other = f"{spec.name} has shape {got.shape}, the reference's {wanted.shape}"
            return Finding(spec.name, (), got.shape, max(got.size, wanted.size), other)
        elif spec.type:
            bad.append(got != wanted)
        else:
            far, mask = _distance(got, wanted, call.dtype, tolerance)
            worst = max(worst, far)
            bad.append(mask)
    first = found([s.name for s in specs], bad)
    if first is None:
        return None
    k = [s.name for s in specs].index(first.result)
    there = f"{first.place} is {results[k][first.index]!s} where {references[k][first.index]!s} was expected"
    by = f"; the worst differs by {worst:.2g} of the largest value" if worst else ""
    return replace(first, detail=there + by)


def _distance(got: Array, wanted: Array, dtype: np.dtype[Any], tolerance: float) -> tuple[float, Array]:
    """The largest difference of finite values in units of the largest |reference|, and which elements diverge."""
    with np.errstate(all="ignore"):
        x, y = got.astype(np.float64), wanted.astype(dtype).astype(np.float64)
        both = np.isfinite(x) & np.isfinite(y)
        scale = float(np.abs(y, where=np.isfinite(y), out=np.zeros_like(y)).max(initial=0.0))
        difference = np.where(both, np.abs(x - y), 0.0)
        alike = (x == y) | (np.isnan(x) & np.isnan(y))
        largest = float(difference.max(initial=0.0))
        far = largest / scale if scale else largest
        return far, ~alike & (~both | (difference > tolerance * scale))
