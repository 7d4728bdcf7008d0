"""Guards on the backend's results: what must raise, what must not, and the state after an error."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

import trueno
from trueno.discovery import registry
from trueno.discovery.protocol import Accuracy
from trueno.errors import GuardError
from trueno.judge.bound import Bound
from trueno.ops.op import Op
from trueno.testing.calls import invoke, told
from trueno.testing.case import Case, keywords, rng_for
from trueno.testing.cases import cases, grid
from trueno.testing.expected import expected, stated, verdict
from trueno.testing.halves import computing

Array = npt.NDArray[Any]
KINDS = ("nan", "inf", "overflow")


def check_guard(op: Op, backend: str, dtype: npt.DTypeLike, seed: int = 0) -> None:
    """Under a guard an unexplained value raises, and a healthy call gives its result.

    The error names op, backend and the number of unhealthy values, and an operand that is also `out` is unchanged.
    """
    T = np.dtype(dtype)
    _healthy(op, backend, T, seed)
    if op.structured:
        return
    if any(o.type for o in op.signature.outputs):
        for case, _, _ in _rows(op, backend, T, seed):
            _passes(case, backend, seed, *KINDS)
        return
    asked = set[str]()
    for case, bounds, held in _rows(op, backend, T, seed):
        for kind, explains in (("nan", {"nan"}), ("inf", {"inf"}), ("overflow", {"nan", "inf"})):
            least, most = _sick(bounds, kind)
            if held & explains:
                kind = f"explained {kind}"
                if most and kind not in asked:
                    asked.add(kind)
                    _passes(case, backend, seed, kind.split()[1])
            elif least and kind not in asked:
                asked.add(kind)
                _stops(case, backend, seed, kind, least, most)


def _guard(*kinds: str) -> Any:
    return trueno.JidokaGuard.parse((kind, "stop") for kind in kinds)


def _healthy(op: Op, backend: str, T: np.dtype[Any], seed: int) -> None:
    """A healthy call under every condition at once; for a row program also divergence, with the op's own tolerance."""
    accuracy = registry.load(backend).accuracy
    label = "normal" if op.structured else "one row of 65"
    case = next(c for c in cases(op, T, seed, long=False) if c.label == label)
    kinds = list(KINDS)
    if not op.structured:
        bounds = _seen(op, case.operands, case.kwargs, T, accuracy)
        tolerance = max(map(_tolerance, bounds)) + float(np.finfo(computing(T)).eps)  # the reference is rounded too
        kinds.append(f"divergence({tolerance!r})")
    with told(case, backend, seed), _guard(*kinds):
        v = verdict(op, case.operands, case.kwargs, T, invoke(op, case.operands, case.kwargs, backend), accuracy)
        assert v.ok, f"guarded: {stated(v, op, accuracy)}"


def _tolerance(bound: Bound) -> float:
    """The largest error of a correct result, in units of the largest value."""
    finite = np.isfinite(bound.low) & np.isfinite(bound.high) & np.isfinite(bound.value)
    width = np.subtract(bound.high, bound.low, where=finite, out=np.zeros(np.shape(bound.low)))
    largest = float(np.max(np.abs(bound.value), initial=0.0, where=finite)) or 1.0
    return float(np.max(width, initial=0.0)) / largest


def _rows(op: Op, backend: str, T: np.dtype[Any], seed: int) -> Iterator[tuple[Case, list[Bound], set[str]]]:
    """One row of each kind of value, the possible results, and which of NaN and Inf the operands hold."""
    accuracy, kwargs = registry.load(backend).accuracy, keywords(op)[0]
    operands = grid(op, T, rng_for(op, T, seed), 65)
    count = next(len(x) for x, k in zip(operands, op.layout, strict=True) if k != "w")
    for r in range(count):
        row = tuple(x if k == "w" else np.array(x[r]) for x, k in zip(operands, op.layout, strict=True))
        held = {name for name, test in (("nan", np.isnan), ("inf", np.isinf)) if any(test(x).any() for x in row)}
        yield Case(op, T, f"row {r} of every kind", row, kwargs), _seen(op, row, kwargs, T, accuracy), held


def _seen(
    op: Op, operands: Sequence[Array], kwargs: dict[str, Any], T: np.dtype[Any], accuracy: Accuracy
) -> list[Bound]:
    """The values that a guard may see: of 16-bit floats the results before they are rounded."""
    return expected(op, [x.astype(computing(T)) for x in operands], kwargs, computing(T), accuracy)


def _sick(bounds: list[Bound], kind: str) -> tuple[int, int]:
    """How many values must be unhealthy, and how many may be."""
    least = most = 0
    for b in bounds:
        if b.allowed is not None:
            continue
        if kind == "nan":
            must, may = b.low > b.high, b.nan
        else:
            must, may = (b.low == np.inf) | (b.high == -np.inf), (b.high == np.inf) | (b.low == -np.inf)
            must &= ~b.nan & (b.low <= b.high)
        least, most = least + int(np.count_nonzero(must)), most + int(np.count_nonzero(may | must))
    return least, most


def _passes(case: Case, backend: str, seed: int, *kinds: str) -> None:
    with told(case, backend, seed), _guard(*kinds):
        try:
            invoke(case.op, case.operands, case.kwargs, backend)
        except GuardError as error:
            raise AssertionError(f"a guard on {' and '.join(kinds)} stopped what operands explain: {error}") from None


@dataclass
class _Target:
    """An operand that is also `out`, and its content."""

    operands: tuple[Array, ...]
    at: int
    name: str


def _targets(case: Case) -> Iterator[_Target | None]:
    """None for fresh results; then each operand to which a result can be written."""
    yield None
    op = case.op
    if len(op.signature.outputs) > 1:
        return
    (shape,) = op.result_shapes(tuple(x.shape for x in case.operands), {})
    for i, x in enumerate(case.operands):
        if x.shape == shape:
            yield _Target(tuple(np.copy(y) for y in case.operands), i, op.operands[i])


def _stops(case: Case, backend: str, seed: int, kind: str, least: int, most: int) -> None:
    op = case.op
    for target in _targets(case):
        operands = target.operands if target else case.operands
        how = f" with out={target.name}" if target else ""
        with told(case, backend, seed), _guard(kind):
            error = _error(op, operands, case.kwargs, backend, operands[target.at] if target else None)
            assert error is not None, f"{least} values must be {kind}, and a guard on {kind}{how} did not stop"
            prefix = f"the error of a guard on {kind}{how} names"
            assert (error.op, error.backend) == (op.name, backend), f"{prefix} {error.op} on {error.backend}"
            assert least <= error.count <= most, f"{prefix} {error.count} values; {least} to {most} can be {kind}"
            for name, now, was in zip(op.operands, operands, case.operands, strict=True):
                assert now.tobytes() == was.tobytes(), f"a guard stopped the call{how}, and {name} was changed"


def _error(
    op: Op, operands: tuple[Array, ...], kwargs: dict[str, Any], backend: str, out: Array | None
) -> GuardError | None:
    """The error that a guard raised, if any."""
    try:
        invoke(op, operands, kwargs, backend, out)
    except GuardError as error:
        return error
    return None
