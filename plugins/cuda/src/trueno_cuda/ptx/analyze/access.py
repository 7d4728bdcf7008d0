"""Memory operations: where each goes, how many bytes, and what its addresses mean for a warp."""

from dataclasses import dataclass

import numpy as np

from trueno_cuda.ptx.analyze.effects import address, space, width
from trueno_cuda.ptx.analyze.graph import Graph
from trueno_cuda.ptx.analyze.lanes import Lanes
from trueno_cuda.ptx.analyze.values import Form, Values
from trueno_cuda.ptx.syntax.tree import Address, Immediate, Instruction
from trueno_cuda.ptx.syntax.types import Array

SECTOR = 32
"""Bytes that global memory moves at least."""
BANKS = 32
SIZES = (4, 8, 16)
"""Bytes of an asynchronous copy; with another number there is none."""
ROW = 16
"""Bytes of a row of an 8 × 8 matrix, whose address one lane gives to ldmatrix."""
KINDS = {"ld": "load", "ldu": "load", "st": "store", "atom": "atomic", "red": "atomic"}
ORDERED = {"volatile", "relaxed", "acquire", "release", "acq_rel", "sc", "mmio"}
"""Modifiers of accesses that other threads may watch."""


@dataclass(frozen=True)
class Access:
    """at: the instruction.  space: where it goes as its text or its address says.  kind: load, store, atomic, or copy:
    what an asynchronous copy reads or writes.  bytes: that a thread moves.  lanes: of a warp, whose addresses count."""

    at: int
    ins: Instruction
    space: str
    kind: str
    bytes: int
    form: Form
    lanes: int = 32

    @property
    def reads(self) -> bool:
        return self.kind in ("load", "copied")

    @property
    def writes(self) -> bool:
        return self.kind in ("store", "copy")

    @property
    def ordered(self) -> bool:
        return not ORDERED.isdisjoint(self.ins.mods)


def accesses(graph: Graph, values: Values) -> list[Access]:
    """The loads, stores, atomics and asynchronous copies within reach."""
    result = []
    for n in graph.order:
        for at in range(graph.blocks[n].start, graph.blocks[n].end):
            ins = graph.code[at]
            if ins.unread:
                continue
            place = address(ins)
            if ins.opcode in KINDS and place is not None:
                form = values.address(place, at)
                result.append(Access(at, ins, where(space(ins), form), KINDS[ins.opcode], width(ins), form))
            elif ins.opcode in ("ldmatrix", "stmatrix") and place is not None:
                kind = "load" if ins.opcode == "ldmatrix" else "store"
                rows = next((8 * int(m[1:]) for m in ins.mods if m in ("x1", "x2", "x4")), 32)
                result.append(Access(at, ins, "shared", kind, ROW, values.address(place, at), rows))
            elif ins.opcode == "cp" and "async" in ins.mods and "bulk" not in ins.mods:
                result += _copies(at, ins, values)
    return sorted(result, key=lambda access: access.at)


def _copies(at: int, ins: Instruction, values: Values) -> list[Access]:
    places = [o for o in ins.operands if isinstance(o, Address)]
    sizes = [o.value for o in ins.operands if isinstance(o, Immediate)]
    if len(places) != 2 or not sizes or sizes[0] not in SIZES:
        return []
    size = int(sizes[0])
    to, source = places
    return [Access(at, ins, "global", "copied", size, values.address(source, at)),
            Access(at, ins, "shared", "copy", size, values.address(to, at))]  # fmt: skip


def where(named: str, form: Form) -> str:
    """The space of an access, for a generic one from the variable that its address was made from."""
    if named != "generic":
        return named
    for atom, _ in form.terms:
        if atom == ("generic", "shared"):
            return "shared"
        if atom[0] == "var" and atom[1] in ("local", "global", "const"):
            return str(atom[1])
    return "generic"


def offsets(lanes: Lanes, form: Form) -> Array | None:
    """Distances between the addresses of a block's first warp; None where they are not known."""
    parts = lanes.split(form)
    if parts is None:
        return None
    count = min(32, lanes.threads)
    for key, vector in parts.items():
        if key is not None and (vector[:count] != vector[0]).any():
            return None
    return parts[None][:count]


def coalescing(lanes: Lanes, access: Access) -> tuple[int, float] | None:
    """Sectors that a warp's access to global memory moves, and the part of their bytes that it uses."""
    first = offsets(lanes, access.form)
    if first is None or not access.bytes:
        return None
    touched = (first[:, None] + np.arange(0, access.bytes, min(access.bytes, 4))).ravel()
    sectors = len(np.unique(touched // SECTOR))
    used = len(np.unique(touched)) * min(access.bytes, 4)
    return sectors, min(1.0, used / (sectors * SECTOR))


def banks(lanes: Lanes, access: Access) -> int | None:
    """How many passes a warp's access to shared memory takes, of the one that it would take without conflicts."""
    first = offsets(lanes, access.form)
    if first is None or access.bytes not in (1, 2, 4, 8, 16):
        return None
    first = first[: access.lanes]
    together = {8: 16, 16: 8}.get(access.bytes, 32)
    ways = 1
    for start in range(0, len(first), together):
        part = first[start : start + together]
        words = np.unique((part[:, None] + np.arange(0, access.bytes, 4)) // 4)
        ways = max(ways, int(np.bincount(words % BANKS).max()))
    return ways
