"""Loads, stores and atomics.

All values are lanewise arrays of the instruction's type.  Bad lanes read zero and write nothing.
"""

from collections.abc import Callable

import numpy as np

from trueno_cuda.ptx.emulate.findings import READ_ONLY
from trueno_cuda.ptx.emulate.group import Group
from trueno_cuda.ptx.emulate.lanes import Lanes
from trueno_cuda.ptx.emulate.memory import GLOBAL, LOCAL, PARAM, SHARED
from trueno_cuda.ptx.emulate.places import Place, Places
from trueno_cuda.ptx.emulate.shadow import SharedShadow
from trueno_cuda.ptx.emulate.shadow_global import GlobalShadow
from trueno_cuda.ptx.syntax.tree import Instruction
from trueno_cuda.ptx.syntax.types import Array, Type

BASES = {"global": 0, "shared": SHARED, "local": LOCAL, "param": PARAM}
Combine = Callable[[Array, list[Array]], Array]


class Access(Places):
    """The memory operations of instructions.  The shadows are None if races are not checked."""

    def __init__(self, lanes: Lanes, shadow: SharedShadow | None, global_shadow: GlobalShadow | None) -> None:
        super().__init__(lanes)
        self.shadow = shadow
        self.global_shadow = global_shadow

    # ---- loads and stores -----------------------------------------------------------------------

    def load(
        self, ins: Instruction, g: Group, sel: Array | None, address: Array, space: str, kind: Type, count: int
    ) -> list[Array]:
        """`count` values a lane, for all lanes of the group; those outside `sel` are zero."""
        if space == "generic":
            parts = self.split(address)
            if len(parts) == 1:
                space = parts[0][0]
                address = address - BASES[space]
            else:
                out = [np.zeros(g.n, kind.dtype) for _ in range(count)]
                for name, mask in parts:
                    assert mask is not None
                    some = mask if sel is None else mask & sel
                    if some.any():
                        values = self.load(ins, g, some, address - BASES[name], name, kind, count)
                        out = [np.where(some, v, o) for v, o in zip(values, out, strict=True)]
                return out
        size = kind.bytes * count
        if sel is None or address.size == 1:
            lanes, where = g.lanes, address
            if sel is not None:
                lanes = g.lanes[sel]
            place = self.place(ins, g, lanes, where, space, size, size)
        else:
            lanes, where = g.lanes[sel], address[sel]
            place = self.place(ins, g, lanes, where, space, size, size)
        self._account(ins, g, sel, address, space, size, len(lanes), "read")
        if space == "shared" and self.shadow is not None:
            self._shadow(ins, place, size, write=False)
        view = self.m.launch.view(place.buffer, kind.dtype)
        index = place.at >> (kind.bytes.bit_length() - 1)
        out = [view.take(index + k if k else index) for k in range(count)]
        if place.good is not None:
            out = [np.where(place.good, v, v.dtype.type(0)) for v in out]
        if sel is not None and out[0].size > 1:
            spread = []
            for v in out:
                full = np.zeros(g.n, kind.dtype)
                full[sel] = v
                spread.append(full)
            return spread
        if sel is not None and g.n > 1 and len(lanes) == 1 and out[0].size == 1:
            return out
        return out

    def store(
        self, ins: Instruction, g: Group, sel: Array | None, address: Array, space: str, kind: Type, values: list[Array]
    ) -> None:
        """The values of the selected lanes go to memory; of lanes with the same address the last one stays."""
        if space == "generic":
            for name, mask in self.split(address):
                some = sel if mask is None else mask if sel is None else mask & sel
                if some is None or some.any():
                    self.store(ins, g, some, address - BASES[name], name, kind, values)
            return
        m = self.m
        size = kind.bytes * len(values)
        lanes = g.lanes if sel is None else g.lanes[sel]
        where = address if sel is None or address.size == 1 else address[sel]
        place = self.place(ins, g, lanes, where, space, size, size)
        if space in ("const", "param"):
            m.find(READ_ONLY, ins, f"{space} memory is read-only", lanes[0], len(lanes))
            return
        if space == "global":
            kept = m.arena.protected(where)
            if kept is not None:
                self._say(ins, lanes, where, kept, READ_ONLY, "in an array that NumPy holds read-only", "global")
        self._account(ins, g, sel, address, space, size, len(lanes), "written")
        m.launch.changes += 1
        view = m.launch.view(place.buffer, kind.dtype)
        index = np.broadcast_to(place.at >> (kind.bytes.bit_length() - 1), lanes.shape)
        values = [v if v.size == 1 or sel is None else v[sel] for v in values]
        values = [np.broadcast_to(v, lanes.shape) for v in values]
        if place.good is not None:
            index, lanes = index[place.good], lanes[place.good]
            values = [v[place.good] for v in values]
            if not len(lanes):
                return
        raw = np.dtype(f"u{kind.bytes}")
        shadowed = space == "shared" and self.shadow is not None
        if shadowed:
            assert self.shadow is not None

            def unchanged() -> Array:
                same = np.ones(len(lanes), bool)
                for k, v in enumerate(values):
                    same &= view.take(index + k).view(raw) == np.ascontiguousarray(v).view(raw)
                return same

            self.shadow.write(ins, lanes, index * kind.bytes, size, unchanged=unchanged)
        for k, v in enumerate(values):
            view[index + k if k else index] = v
        if shadowed:
            assert self.shadow is not None
            for k, v in enumerate(values):
                lost = view.take(index + k).view(raw) != np.ascontiguousarray(v).view(raw)
                if lost.any():
                    self.shadow.lost(ins, lanes, index * kind.bytes, lost)
        if self.global_shadow is not None and space == "global":
            self.global_shadow.write(m, ins, lanes, index * kind.bytes, size)

    # ---- atomics --------------------------------------------------------------------------------

    def atomic(
        self,
        ins: Instruction,
        g: Group,
        sel: Array | None,
        address: Array,
        space: str,
        kind: Type,
        combine: Combine,
        operands: list[Array],
        quick: Callable[[Array, Array, Array], None] | None,
        want_old: bool,
        offset: int = 0,
        width: int = 0,
    ) -> Array | None:
        """Read, combine, write, one lane after the other where lanes meet; returns what each lane read.

        quick: a ufunc's `at`, for callers that do not need the old values.  offset, width: of one element of a
        vector (a red of v2 or v4), whose alignment is the whole vector's.
        """
        if space == "generic":
            parts = self.split(address)
            old = np.zeros(g.n, kind.dtype)
            for name, mask in parts:
                some = sel if mask is None else mask if sel is None else mask & sel
                if some is None or some.any():
                    got = self.atomic(ins, g, some, address - BASES[name], name, kind, combine, operands, quick,
                                      want_old, offset, width)  # fmt: skip
                    if got is not None:
                        old = got if some is None else np.where(some, got, old)
            return old
        m = self.m
        lanes = g.lanes if sel is None else g.lanes[sel]
        where = address if sel is None or address.size == 1 else address[sel]
        size = width or kind.bytes
        place = self.place(ins, g, lanes, where, space, size, size)
        if not offset:
            self._account(ins, g, sel, address, space, size, len(lanes), "atomic")
        view = m.launch.view(place.buffer, kind.dtype)
        index = np.broadcast_to((place.at >> (kind.bytes.bit_length() - 1)) + offset, lanes.shape)
        values = [np.broadcast_to(v if v.size == 1 or sel is None else v[sel], lanes.shape) for v in operands]
        good = place.good
        if good is not None:
            index, values, who = index[good], [v[good] for v in values], lanes[good]
        else:
            who = lanes
        if len(index) == 0:
            return np.zeros(g.n, kind.dtype) if want_old else None
        if space == "shared" and self.shadow is not None:
            self.shadow.read(ins, who, index * kind.bytes, kind.bytes, atomic=True)
            self.shadow.write(ins, who, index * kind.bytes, kind.bytes, atomic=True)
        if self.global_shadow is not None and space == "global":
            self.global_shadow.write(m, ins, who, index * kind.bytes, kind.bytes, atomic=True)
        if quick is not None and not want_old:
            quick(view, index, values[0])
            m.launch.changes += 1
            return None
        old_values = serial(view, index, values, combine)
        if (view.take(index) != old_values).any():
            m.launch.changes += 1
        if not want_old:
            return None
        full = np.zeros(len(lanes), kind.dtype)
        if good is None:
            full = old_values
        else:
            full[good] = old_values
        if sel is None:
            return full
        out = np.zeros(g.n, kind.dtype)
        out[sel] = full
        return out

    # ---- accounts -------------------------------------------------------------------------------

    def _account(
        self,
        ins: Instruction,
        g: Group,
        sel: Array | None,
        address: Array,
        space: str,
        size: int,
        lanes: int,
        verb: str,
    ) -> None:
        launch = self.m.launch
        key = f"{space} {verb}"
        launch.report.bytes[key] = launch.report.bytes.get(key, 0) + lanes * size
        if launch.traffic is not None:
            if space == "global":
                launch.traffic.touched(g, sel, address, ins, size)
                if self.global_shadow is not None and verb == "read":
                    where = address if sel is None or address.size == 1 else address[sel]
                    who = g.lanes if sel is None else g.lanes[sel]
                    self.global_shadow.read(self.m, ins, who, np.broadcast_to(where - GLOBAL, who.shape), size)
            elif space == "shared":
                launch.traffic.banks(g, sel, address, ins, size)

    def _shadow(self, ins: Instruction, place: Place, size: int, write: bool) -> None:
        assert self.shadow is not None
        lanes = place.lanes
        index = np.broadcast_to(place.at, lanes.shape)
        if place.good is not None:
            lanes, index = lanes[place.good], index[place.good]
            if not len(lanes):
                return
        self.shadow.read(ins, lanes, index, size)


def serial(view: Array, index: Array, values: list[Array], combine: Combine) -> Array:
    """Apply `combine(old, values)` at each index in lane order; returns what each lane found.

    Lanes with distinct addresses go together; those that share one take turns.
    """
    order = np.argsort(index, kind="stable")
    at = index[order]
    same = at[1:] == at[:-1]
    if not same.any():
        old = view.take(index)
        view[index] = combine(old, values)
        return old
    values = [v[order] for v in values]
    starts = np.flatnonzero(np.concatenate([[True], ~same]))
    lengths = np.diff(np.append(starts, len(at)))
    turn = np.arange(len(at)) - np.repeat(starts, lengths)
    old = np.zeros(len(at), view.dtype)
    by_turn = np.argsort(turn, kind="stable")
    bounds = np.searchsorted(turn[by_turn], np.arange(int(turn.max()) + 2))
    for t in range(int(turn.max()) + 1):
        who = by_turn[bounds[t] : bounds[t + 1]]
        previous = view.take(at[who])
        old[who] = previous
        view[at[who]] = combine(previous, [v[who] for v in values])
    out = np.empty_like(old)
    out[order] = old
    return out
