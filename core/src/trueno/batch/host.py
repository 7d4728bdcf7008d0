"""What a batch on the host runs without Python between its kernels.

A backend with the method `sequence` makes one function of kernels with their arguments.  What that leaves out, the
steps of other backends among it, Python runs between its parts, as it runs every step the first time.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from trueno.batch.step import Step
from trueno.discovery import registry
from trueno.discovery.protocol import Kernel
from trueno.errors import warn
from trueno.select import policy

Arguments = tuple[Any, ...]

MOST_BYTES = 1 << 27
"""Bytes of arrays that kernels work on before Python looks again: a few milliseconds at memory's speed, in which no
signal is handled and no other thread of Python runs.  Of a cache a kernel reads what is in use, so none counts."""
MOST_KERNELS = 256
"""Kernels before Python looks again: under a millisecond of the shortest."""


class HostSequence:
    """Steps that run without Python between them.

    updated: the caller's arrays that are written.
    """

    __slots__ = ("_run", "_stops", "updated")

    def __init__(self, run: Callable[[int, int], int], stops: list[int], updated: list[Any]) -> None:
        self._run = run
        self._stops = stops
        self.updated = updated

    def run(self, first: int) -> tuple[int, bool]:
        """Run steps from `first` on; the next step, and whether that is one for Python."""
        stop = self._stops[bisect_right(self._stops, first)]
        at = self._run(first, stop)
        return at, at < stop

    def right(self) -> bool:
        """Whether the arrays that are written still may be; if not, the step that writes will say so."""
        return all(x.flags.writeable for x in self.updated)


def sequence_of(
    steps: Sequence[Step], owners: Sequence[str], calls: Sequence[tuple[Kernel, Arguments]]
) -> HostSequence | None:
    """The sequence of the backend that runs most of the steps; None if it has none.

    owners: of each step, the backend that runs it; calls: its kernel and the arguments, which stay the same.
    """
    if not steps:
        return None
    name, _ = Counter(owners).most_common(1)[0]
    backend = registry.load(name) if name in registry.entries() else None
    make = getattr(backend, "sequence", None)
    if make is None:
        return None
    ours = [
        call if owner == name and _refuses(step) else None
        for call, owner, step in zip(calls, owners, steps, strict=True)
    ]
    try:
        with policy.asking(name):
            run = make(ours)
    except RecursionError:  # the caller used up the stack
        raise
    except Exception as error:
        warn(f"Batch: {name} made no sequence of its kernels ({type(error).__name__}: {error}); they run one by one")
        return None
    if run is None:
        return None
    updated = [x for step, (_, arguments) in zip(steps, calls, strict=True) if step.op.updates
               for x in arguments[-len(step.makes) :]]  # fmt: skip
    return HostSequence(run, _stops(steps, calls), updated)


def _refuses(step: Step) -> bool:
    """Whether the kernel itself refuses wrong values: of an op with a check, if it is of indices.

    Then Python runs the step, and its check says what is wrong.
    """
    return step.op.check is None or any(spec.index for spec in step.op.signature.inputs)


def check_of(step: Step) -> Callable[..., None]:
    """The check of a step that has one, of its arguments."""
    check, inputs = step.op.check, len(step.reads)
    assert check is not None
    static = {name: step.entry.static[name] for name in step.op.checked}
    return lambda *arguments: check(*arguments[:inputs], **static)


def _stops(steps: Sequence[Step], calls: Sequence[tuple[Kernel, Arguments]]) -> list[int]:
    """Where Python looks again: indices of steps, the last of them one more than the last step."""
    stops, since, moved = [], 0, 0
    for at, (step, (_, arguments)) in enumerate(zip(steps, calls, strict=True)):
        if not any(spec.cache for spec in step.op.signature.inputs):
            moved += sum(x.nbytes for x in arguments if hasattr(x, "nbytes"))
        if moved >= MOST_BYTES or at - since >= MOST_KERNELS:
            stops.append(at + 1)
            since, moved = at + 1, 0
    return stops if stops and stops[-1] == len(calls) else [*stops, len(calls)]
