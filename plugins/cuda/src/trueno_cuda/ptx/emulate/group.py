"""Lanes that are at the same place: a group runs each instruction as one NumPy operation over all of them.

A group owns its registers: arrays with one value a lane, or with a single value where all lanes agree (so uniform
work costs nothing).  Arrays are never written in place, so groups may share them.  A group's lanes are sorted;
where they are whole warps, `reshape(-1, 32)` is the warp view.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from trueno_cuda.ptx.syntax.types import Array

WARP = 32


class Group:
    """lanes: their numbers in the chunk.  registers: by index; None where nothing was written."""

    __slots__ = ("_cta", "_whole", "block", "cached", "lanes", "n", "registers")

    def __init__(self, lanes: Array, registers: list[Array | None], block: int) -> None:
        self.lanes = lanes
        self.n = len(lanes)
        self.registers = registers
        self.block = block
        self._whole: bool | None = None
        self._cta: Array | None = None
        self.cached: dict[Any, Any] = {}  # facts of these lanes: special registers, CTA numbers

    @property
    def whole(self) -> bool:
        """Whether the lanes are whole warps, in order."""
        if self._whole is None:
            n, lanes = self.n, self.lanes
            self._whole = (
                n % WARP == 0
                and not (lanes[::WARP] & 31).any()
                and bool((lanes[WARP - 1 :: WARP] - lanes[::WARP] == WARP - 1).all())
            )
        return self._whole

    @property
    def warps(self) -> Array:
        """Numbers of the warps that have a lane here."""
        if "warps" not in self.cached:
            w = self.lanes >> 5
            self.cached["warps"] = w[::WARP] if self.whole else w[np.concatenate([[True], w[1:] != w[:-1]])]
        warps: Array = self.cached["warps"]
        return warps

    @property
    def place(self) -> Array:
        """Where each lane stands in a [warps, 32] matrix, flat."""
        if "place" not in self.cached:
            self.cached["place"] = np.searchsorted(self.warps, self.lanes >> 5) * WARP + (self.lanes & 31)
        place: Array = self.cached["place"]
        return place

    def matrix(self, value: Array, fill: Any = 0) -> Array:
        """A value as [warps, 32]; lanes that are not here hold `fill`."""
        if value.size == 1 and self.whole:
            return np.broadcast_to(value.reshape(1, 1), (self.n // WARP, WARP))
        if self.whole:
            return value.reshape(-1, WARP)
        out = np.full(len(self.warps) * WARP, fill, value.dtype)
        out[self.place] = value
        return out.reshape(-1, WARP)

    def present(self) -> Array:
        """Which lanes of [warps, 32] are here."""
        return self.matrix(np.ones(self.n, bool), False)

    def lanewise(self, matrix: Array) -> Array:
        """The inverse of `matrix`."""
        flat = np.ascontiguousarray(matrix).reshape(-1)
        return flat if self.whole else flat[self.place]

    def take(self, mask: Array, live: Sequence[int], block: int) -> "Group":
        """The lanes of a mask, with the registers that `block` still needs."""
        registers: list[Array | None] = [None] * len(self.registers)
        for i in live:
            v = self.registers[i]
            registers[i] = v if v is None or v.size == 1 else v[mask]
        return Group(self.lanes[mask], registers, block)

    def join(self, other: "Group", live: Sequence[int]) -> "Group":
        """Both groups' lanes, at this group's place."""
        lanes = np.concatenate([self.lanes, other.lanes])
        order = None
        if self.lanes[-1] > other.lanes[0]:
            order = np.argsort(lanes, kind="stable")
            lanes = lanes[order]
        registers: list[Array | None] = [None] * len(self.registers)
        for i in live:
            a, b = self.registers[i], other.registers[i]
            if a is None and b is None:
                continue
            if a is None or b is None:
                present = a if a is not None else b
                assert present is not None
                a = a if a is not None else np.zeros(1, present.dtype)
                b = b if b is not None else np.zeros(1, present.dtype)
            if a.size == 1 and b.size == 1 and a.tobytes() == b.tobytes():
                registers[i] = a
                continue
            a = np.broadcast_to(a, self.n) if a.size == 1 else a
            b = np.broadcast_to(b, other.n) if b.size == 1 else b
            both = np.concatenate([a, b])
            registers[i] = both if order is None else both[order]
        return Group(lanes, registers, self.block)
