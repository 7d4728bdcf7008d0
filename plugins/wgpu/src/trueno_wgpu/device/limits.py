"""What a device allows, and what it did: for kernels that plan, and for tests that count."""

from dataclasses import dataclass, fields


@dataclass(frozen=True, slots=True)
class Limits:
    """What kernels plan with.  Bytes but for the last three."""

    binding: int
    buffer: int
    workgroup: int
    alignment: int
    invocations: int
    groups: int
    trips: int
    """Loop trips that one invocation may make in all, over all its loops; 0 for no end."""


@dataclass(slots=True)
class Counts:
    """What a device did since the last `reset`.

    uploads, downloads: over the link, with their bytes.  submits: calls of the queue; launches: those that brought
    kernels, for reading takes one, too.  kernels: dispatches.  allocations: blocks that the pool did not have.
    pipelines, bind_groups: that no cache had.
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
