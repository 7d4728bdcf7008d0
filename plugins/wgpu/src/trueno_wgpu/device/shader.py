"""A WGSL module and the way its buffers are bound: what kernels pass to the device layer."""

import re
from dataclasses import dataclass

_SHARED = re.compile(r"var\s*<\s*workgroup\s*>\s*\w+\s*:\s*([^;]+);")
_ARRAY = re.compile(r"array\s*<\s*(.+?)\s*,\s*(\d+)u?\s*>$")
_VECTOR = re.compile(r"vec([234])\s*<\s*\w+\s*>$|vec([234])[fiu]$")
_WORD = re.compile(r"(f32|u32|i32|atomic\s*<\s*\w+\s*>)$")


@dataclass(frozen=True, slots=True)
class Shader:
    """source: WGSL whose entry point is `main`.

    Bindings are in group 0: binding 0 is `var<uniform>` (every shader has one), binding 1 + i is storage buffer i,
    `read_write` where writes[i], else `read`.  name: for people.  workgroup_bytes: of memory that a workgroup shares,
    where the text does not say it plainly (see `shared_bytes`).
    """

    name: str
    source: str
    writes: tuple[bool, ...]
    workgroup_bytes: int = 0


def shared_bytes(shader: Shader) -> int:
    """Bytes of workgroup memory: as declared, or more where the text says so.

    Nothing else checks this against the device's limit: naga does not, and Mesa runs what hardware would refuse.
    It understands words, vectors and arrays of them whose length is a number; anything else must be declared.
    """
    return max(shader.workgroup_bytes, sum(_size(kind.strip()) for kind in _SHARED.findall(shader.source)))


def _size(kind: str) -> int:
    if _WORD.match(kind):
        return 4
    if match := _VECTOR.match(kind):
        lanes = int(match[1] or match[2])
        return 4 * (4 if lanes == 3 else lanes)  # three take the space of four
    if match := _ARRAY.match(kind):
        return _size(match[1]) * int(match[2])
    return 0
