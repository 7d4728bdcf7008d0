"""Guards where rows are cut: parts are not looked at, whole results are."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from trueno.deferred import rules
from trueno.errors import GuardError, ParameterError
from trueno.events.stream import emit, logger
from trueno.guards.rules import Action, Rules
from trueno.ops.op import Op
from trueno.ops.signature import ArraySpec

Array = npt.NDArray[Any]
NAN, INF = 1, 2
EXPLAINS = {"nan": NAN, "inf": INF, "overflow": NAN | INF}
"""What of the operands explains a condition, so that it is not one."""
BACKEND = "trueno-dask"
"""The name that events and errors have in place of a backend's: several backends may have computed the parts."""


def found(blocks: Sequence[Any]) -> int:
    """What operands hold, as bits."""
    floats = [x for x in map(np.asarray, blocks) if x.dtype.kind not in "iu"]
    return NAN * any(np.isnan(x).any() for x in floats) | INF * any(np.isinf(x).any() for x in floats)


def possible(op: Op, now: Rules) -> None:
    """Raise ParameterError for rules that need the operands of a whole row at once."""
    for condition, action in now:
        if action in (Action.PROMOTE_F64, Action.FALL_BACK) or condition.kind == "divergence":
            problem = f"a guard with {condition} and {action} computes a call again, but its rows lie in several chunks"
            raise ParameterError(f"{op.name}: {problem}; rechunk the row axis to one, or guard by STOP or LOG")


def inspect(specs: Sequence[ArraySpec], op: str, results: Sequence[Array], held: int) -> None:
    """Check results of whole rows; GuardError from a rule that stops.  held: what the operands hold."""
    for condition, action in rules():
        if condition.kind not in EXPLAINS or held & EXPLAINS[condition.kind]:
            continue
        test = np.isnan if condition.kind == "nan" else np.isinf
        for spec, y in zip(specs, results, strict=True):
            bad = test(y) if y.dtype.kind not in "iu" else np.zeros(y.shape, bool)
            count = int(np.count_nonzero(bad))
            if not count:
                continue
            index = tuple(int(i) for i in np.argwhere(bad)[0])
            word = "NaN" if condition.kind == "nan" else "Inf"
            place = f"{spec.name}{list(index)}" if index else spec.name
            message = f"{op} made {count} {word}: the first is {place}; no operand explains it"
            emit("guard", op, BACKEND, message, condition=condition.kind, action=action.value)
            if action is Action.LOG:
                logger().warning("%s", message)
                continue
            error = GuardError(message)
            facts = {"result": spec.name, "index": index, "shape": y.shape, "count": count}
            vars(error).update(facts, op=op, backend=BACKEND, condition=condition)
            raise error
