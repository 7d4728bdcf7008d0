"""Rows of blocks on their way through shared memory, for blocks that are dear to hold in registers.

A block of 210 bytes begins anywhere, so that a lane needs eight registers for sixteen bytes of it, and too few rows are
on their way.  Here each warp copies what its own lanes read, sixteen bytes at a time and in place modulo sixteen, into
a ring of its own: nothing but the warp waits, and registers hold one row at a time.
"""

from collections.abc import Sequence
from typing import Any

from trueno.backend import FORMATS, unit_shape

from trueno_cuda.kernels.quant.blocks import Block, Blocks, Line
from trueno_cuda.ptx import Value, u8, u32, u64

CHUNK = 16
"""Bytes of a copy."""


def span(name: str) -> int:
    """Bytes of a row that a warp reads; 0 where its lanes do not have whole blocks."""
    units = unit_shape(name).units
    return 0 if 32 % units else 32 // units * FORMATS[name].nbytes


def slot_bytes(name: str) -> int:
    """Bytes that a warp's part of a row takes, wherever it begins."""
    return -(-(span(name) + CHUNK - 1) // CHUNK) * CHUNK


class Ring:
    """The rows of one section's parts that a warp has ahead of it, in `groups` groups of `ahead` rows.

    places: of each part, the block that the lane's unit is in.
    """

    def __init__(
        self, k: Any, matrices: Sequence[Blocks], row_bytes: Sequence[Value], places: Sequence[Value], last: Value,
        warps: int, ahead: int, groups: int,
    ) -> None:  # fmt: skip
        self.k, self.matrices, self.row_bytes, self.last = k, matrices, row_bytes, last
        self.ahead, self.groups = ahead, groups
        self.turn = k.var(u32, 0)
        self.sizes = [slot_bytes(w.f.name) for w in matrices]
        self.memory = [k.shared(u8, warps, ahead * size, stages=groups, per="warp") for size in self.sizes]
        self.firsts = [k.warp * (32 // w.shape.units) for w in matrices]
        self.mine = [place - first for place, first in zip(places, self.firsts, strict=True)]
        self.reads = [
            k.min(span(w.f.name), nbytes - first * w.f.nbytes)
            for w, nbytes, first in zip(matrices, row_bytes, self.firsts, strict=True)
        ]

    def _start(self, part: int, row: Value) -> Value:
        """The byte of the matrix at which the warp's part of a row begins."""
        start: Value = self.k.mul_wide(row, self.row_bytes[part])
        return start + (self.firsts[part] * self.matrices[part].f.nbytes).to(u64)

    def ask(self, row: Value, slot: Value) -> None:
        """Begin to copy the group of rows from `row` on, where there are such rows."""
        k = self.k
        for part, w in enumerate(self.matrices):
            tile = self.memory[part][slot]
            for u in range(self.ahead):
                start = self._start(part, row + u)
                low = start.to(u32) & (CHUNK - 1)
                source = w.w + k.multiple_of(start & (1 << 64) - CHUNK, CHUNK)
                for begin in range(0, self.sizes[part], 32 * CHUNK):
                    at = k.lane * CHUNK + begin
                    with k.when((row + u < self.last) & (at < low + self.reads[part])):
                        k.copy_async(tile, (k.warp, u * self.sizes[part] + at), source, at, CHUNK)
        k.async_commit()

    def begin(self, first: Value) -> None:
        """Ask for all groups but one."""
        for group in range(self.groups - 1):
            self.ask(first + group * self.ahead, self.k.const(u32, group))

    def step(self, row: Value) -> Value:
        """Wait for the group of rows from `row` on, and ask for another; gives where it is."""
        k, mask = self.k, self.groups - 1
        k.async_wait(self.groups - 2)
        k.sync_warp()
        slot = self.turn & mask
        self.ask(row + mask * self.ahead, (self.turn + mask) & mask)
        self.turn += 1
        return slot  # type: ignore[no-any-return]

    def end(self) -> None:
        """Let nothing land when the block is over."""
        self.k.async_wait(0)

    def block(self, part: int, row: Value, u: int, slot: Value) -> Block:
        """The block of this lane's unit in row u of a group."""
        k, w = self.k, self.matrices[part]
        low = self._start(part, row).to(u32) & (CHUNK - 1)
        pointer = self.memory[part][slot] + self.k.flat(self.memory[part], (k.warp, u * self.sizes[part]))
        return Line(w.f, pointer, k.multiple_of(low, w.f.nbytes & -w.f.nbytes)).block(self.mine[part])
