"""One kernel of a batch's plan."""

from dataclasses import dataclass, field

from trueno.batch.graph import Recorded, Shape
from trueno.discovery.protocol import Call
from trueno.ops.op import Op


@dataclass(slots=True)
class Step:
    """One kernel.

    ops: the recorded ops that it runs.  reads, makes: values, and their shapes as the kernel sees them.  call: the
    selector's request; None if the general path runs the op, for `reason`.  apart: why one of the ops did not fuse.
    members: the ops of each member of a `SharedOp`.
    """

    op: Op
    ops: list[int]
    reads: list[tuple[int, Shape]]
    params: list[float]
    makes: list[tuple[int, Shape]]
    call: Call | None
    entry: Recorded
    apart: dict[int, str] = field(default_factory=dict)
    reason: str = ""
    members: list[list[int]] = field(default_factory=list)
