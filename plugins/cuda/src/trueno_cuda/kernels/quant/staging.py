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
WORD = 4
"""Bytes of a read: five words and a funnel shift are fewer instructions than two vectors and a choice among them."""
GROUPS = 2
AHEAD, AHEAD_ALONE = 4, 2
"""Rows of a group; of one vector in a large block, which takes all of a multiprocessor."""
LARGE = 512
"""Threads of such a block."""
THREADS = {1: 768, 2: 640}
"""Threads that a multiprocessor is to hold, by the rows of x for which staging pays."""
ROOM = 200 << 10
"""Bytes of shared memory that all rings of a multiprocessor may take."""


def span(name: str) -> int:
    """Bytes of a row that a warp reads; 0 where its lanes do not have whole blocks."""
    units = unit_shape(name).units
    return 0 if 32 % units else 32 // units * FORMATS[name].nbytes


def slot_bytes(name: str) -> int:
    """Bytes that a warp's part of a row takes, wherever it begins."""
    return -(-(span(name) + CHUNK - 1) // CHUNK) * CHUNK


def plan(names: Sequence[str], parts: int, count: int, threads: int) -> tuple[int, int]:
    """Blocks that a multiprocessor holds, and rows of a group.  parts: of a section, at most; count: rows of x."""
    ahead = max((AHEAD_ALONE if count == 1 and threads > LARGE else AHEAD) // parts, 1)
    block = threads // 32 * GROUPS * ahead * parts * max(map(slot_bytes, names))
    return max(min(THREADS[count] // threads, ROOM // block), 1), ahead


class Ring:
    """The rows of one section's parts that a warp has ahead of it, in `groups` groups of `ahead` rows.

    places: of each part, the block that the lane's unit is in.  It begins to copy the groups from row `first` on.
    """

    def __init__(
        self, k: Any, matrices: Sequence[Blocks], row_bytes: Sequence[Value], places: Sequence[Value], first: Value,
        last: Value, warps: int, ahead: int, groups: int,
    ) -> None:  # fmt: skip
        self.k, self.matrices, self.row_bytes, self.last = k, matrices, row_bytes, last
        self.ahead, self.groups = ahead, groups
        self.turn = k.var(u32, 0)
        self.sizes = [slot_bytes(w.f.name) for w in matrices]
        self.memory = [k.shared(u8, warps, ahead * size, stages=groups, per="warp") for size in self.sizes]
        self.firsts = [k.warp * (32 // w.shape.units) for w in matrices]
        self.mine = [place - block for place, block in zip(places, self.firsts, strict=True)]
        self.reads = [
            k.min(span(w.f.name), nbytes - block * w.f.nbytes)
            for w, nbytes, block in zip(matrices, row_bytes, self.firsts, strict=True)
        ]
        self.lane = k.lane * CHUNK
        self.starts, self.lows = [], []
        for w, nbytes, block in zip(matrices, row_bytes, self.firsts, strict=True):
            start = k.mul_wide(first, nbytes) + (block * w.f.nbytes).to(u64)
            self.starts.append(k.var(start))
            self.lows.append(k.var(start.to(u32)))
        for group in range(groups - 1):
            self.ask(first + group * ahead, k.const(u32, group))

    def ask(self, row: Value, slot: Value) -> None:
        """Begin to copy the group of rows from `row` on, behind those before; the last row stands for more."""
        k = self.k
        for part, w in enumerate(self.matrices):
            tile, start = self.memory[part][slot], self.starts[part]
            for u in range(self.ahead):
                low = start.to(u32) & (CHUNK - 1)
                end = k.select(row < self.last, low + self.reads[part], 0)
                source = w.w + k.multiple_of(start & (1 << 64) - CHUNK, CHUNK)
                for begin in range(0, self.sizes[part], 32 * CHUNK):
                    at = self.lane + begin
                    with k.when(at < end):
                        k.copy_async(tile, (k.warp, u * self.sizes[part] + at), source, at, CHUNK)
                start += self._step(part, row + u).to(u64)
        k.async_commit()

    def _step(self, part: int, row: Value) -> Value:
        """Bytes from a row to the next one, where there is one."""
        return self.k.select(row + 1 < self.last, self.row_bytes[part], 0)  # type: ignore[no-any-return]

    def step(self, row: Value) -> list[list[Block]]:
        """Wait for the group of rows from `row` on, and ask for another: the lane's blocks, of each row and part."""
        k, mask = self.k, self.groups - 1
        k.async_wait(self.groups - 2)
        k.sync_warp()
        slot = self.turn & mask
        self.ask(row + mask * self.ahead, (self.turn + mask) & mask)
        self.turn += 1
        blocks: list[list[Block]] = [[] for _ in range(self.ahead)]
        for part, w in enumerate(self.matrices):
            tile, low, even = self.memory[part][slot], self.lows[part], w.f.nbytes & -w.f.nbytes
            for u in range(self.ahead):
                pointer = tile + k.flat(self.memory[part], (k.warp, u * self.sizes[part]))
                within = k.multiple_of(low & (CHUNK - 1), min(even, CHUNK))
                blocks[u].append(Line(w.f, pointer, within).block(self.mine[part]))
                low += self._step(part, row + u)
        return blocks

    def end(self) -> None:
        """Let nothing land when the block is over."""
        self.k.async_wait(0)
