"""A device's limits, for kernels that plan, and its counters, for tests."""

from dataclasses import dataclass, fields


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits that kernels plan with.  In bytes, except the last three."""

    binding: int
    buffer: int
    workgroup: int
    alignment: int
    invocations: int
    groups: int
    trips: int
    """Loop trips that one invocation may make in total, over all its loops; 0 for no limit."""


@dataclass(slots=True)
class Counts:
    """What a device has done since the last `reset`.

    uploads, downloads: over the link, with their bytes.  submits: calls of the queue; launches: those with
    kernels, because reading takes one, too.  kernels: dispatches.  allocations: blocks that were not in the pool.
    pipelines, bind_groups: those that were not cached.
    """

    uploads: int = 0
    downloads: int = 0
    bytes_up: int = 0
    bytes_down: int = 0
    submits: int = 0
    launches: int = 0
    kernels: int = 0
    copies: int = 0
    allocations: int = 0
    pipelines: int = 0
    bind_groups: int = 0

    def reset(self) -> None:
        """Start again."""
        for f in fields(self):
            setattr(self, f.name, 0)
