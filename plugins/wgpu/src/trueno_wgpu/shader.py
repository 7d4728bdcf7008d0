"""A WGSL module and how its buffers are bound: what kernels hand to the device layer."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Shader:
    """source: WGSL whose entry point is `main`.

    Bindings are in group 0: binding 0 is `var<uniform>` (every shader has one), binding 1 + i is storage buffer i,
    `read_write` where writes[i], else `read`.  name: for people.
    """

    name: str
    source: str
    writes: tuple[bool, ...]
