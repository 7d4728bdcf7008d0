"""Sixteen rows of blocks by bulk copies: one warp of a block asks for them, and the others multiply.

A slot of the ring has what all warps take next: of each row the spans of the warps that share its tile, side by side,
so that a row is one copy of neighbouring bytes.  A copy begins and ends at multiples of sixteen bytes: where rows do
not, it begins before and ends behind what is wanted, and stays inside of the matrix, which does.  Barriers count the
bytes of a full slot, and the warps that are done with one.  The warp that copies goes on from one tile to the next
while others finish, and never meets them elsewhere.

Where few slots have a whole row, a warp has the same spans of every tile: what it takes of x may stay in registers
(`Form.kept`), so that the first cache has nothing to hold, and shared memory can have all of it.

Floor: the bytes of w, as of `tiles`.  A copy is one instruction for some hundred bytes, which leaves addresses and
waits to a warp that has nothing else to do.  On an H200, for 8 rows of x, with rings of each warp, bulk copies, and x
in registers: two of 18944x3584 in q4_k 26.9, 24.7 and 23.2 us, 77 % of the floor; 4608x3584 7.2, 6.4 and 6.1 us;
3584x18944 in q4_k 15.2 and 14.3 us, in q6_k 21.3 and 20.0.
"""

from collections.abc import Iterator
from typing import Any

from trueno_cuda.kernels.gemm.wgmma import Ring
from trueno_cuda.kernels.quant.blocks import Line
from trueno_cuda.kernels.quant.tile_ring import CHUNK, ROWS, Staged, span_bytes
from trueno_cuda.ptx import Value, u32, u64


class Barriers:
    """Of each slot: `full` once its bytes are there, `free` once all warps are done with it."""

    def __init__(self, k: Any, form: Any) -> None:
        self.full, self.free = k.mbarrier(form.stages), k.mbarrier(form.stages)
        with k.when(k.tid == 0):
            for slot in range(form.stages):
                self.full.init(1, slot)
                self.free.init(form.warps, slot)
            k.fence("mbarrier_init")
        k.sync()


class BulkRing(Staged):
    """What a warp that multiplies sees of the ring: its tiles up to `last`, in slots that it shares with others."""

    def __init__(self, s: Any, barriers: Barriers, last: Value) -> None:
        super().__init__(s, s.form.turns, s.form.high)
        self.barriers, self.last, self.ring = barriers, last, Ring(s.k, self.stages)
        for w in self.blocks:
            w.know()

    def spans(self, tile: Value) -> Iterator[Value]:
        """The warp's spans of the tile, once they are there.

        All warps take all slots: one that has no span in the last of them, or no tile, lets it go.
        """
        k, s, turns = self.k, self.s, self.s.form.turns
        for number in range(s.form.kept):
            self.number = number
            yield from self._take(s.turn + number * turns, tile)
        if not s.form.kept:
            groups = (s.spans + (turns - 1)) // turns
            for span in k.range(s.turn, groups * turns, turns):
                yield from self._take(span, tile)

    def _take(self, span: Value, tile: Value) -> Iterator[Value]:
        """The warp's span of the next slot, if it has one."""
        k = self.k
        self.barriers.full.wait(self.ring.turn, self.ring.stage)
        with k.when((span < self.s.spans) & (tile < self.last)):
            self.land(span, self._lines(span))
            yield span
        k.sync_warp()
        with k.when(k.lane == 0):
            self.barriers.free.arrive(self.ring.stage)
        self.ring.step()

    def _lines(self, span: Value) -> list[list[Line]]:
        """Of each part, the lane's two rows of a span."""
        k, s = self.k, self.s
        tile, lines = s.ring[self.ring.stage], list[list[Line]]()
        for part, (f, offset, size) in enumerate(zip(s.formats, self.offsets, self.sizes, strict=True)):
            lines.append([])
            for i, more in enumerate((0, ROWS // 2)):
                at = (s.place * ROWS + s.group + more) * size + offset
                within, low = s.turn * span_bytes(f), k.const(u32, 0) if f.nbytes % 4 else 0
                if self.shifted[part]:  # the row's bytes of the slot lie in place modulo CHUNK, as those of the matrix
                    low = self.low(part, i, span * span_bytes(f))
                    before = self.low(part, i, (span - s.turn) * span_bytes(f))
                    within = k.multiple_of(within + before - low, CHUNK)
                lines[-1].append(Line(f, tile + (at + within), low))
        return lines

    def end(self) -> None:
        """Every slot was waited for."""


def fill(s: Any, barriers: Barriers, first: Value, last: Value) -> None:
    """One warp's work: copy the section's tiles from `first` up to `last`, as slots are free; a lane copies a row.

    The last row stands for those behind it.  s: the kernel's section.
    """
    k, form, place = s.k, s.form, Staged(s, s.form.turns, s.form.high)
    ring, policy = Ring(k, form.stages), k.l2_policy("evict_first")
    numbers = [k.lane + begin for begin in range(0, form.high * ROWS, 32)]
    for top in k.range(first, last, form.high):
        there, starts = list[Value](), list[list[Value]]()
        for number in numbers:
            tile = top + (number >> 4)  # ptxas divides even by powers of two
            row = k.min(tile * ROWS + (number & ROWS - 1), s.rows - 1)
            there.append((number < form.high * ROWS) & (tile < last))
            starts.append([k.mul_wide(row, pitch) for pitch in place.pitches])
        for span in k.range(0, s.spans, form.turns):
            barriers.free.wait(ring.turn ^ 1, ring.stage)
            copies, nbytes = list[tuple[Value, Value]](), k.const(u32, 0)
            for here, begins in zip(there, starts, strict=True):
                for part in range(len(s.parts)):
                    copies.append(_piece(place, part, begins[part], span, here))
                    nbytes = nbytes + copies[-1][1]
            nbytes = k.warp_reduce(nbytes, "add")
            with k.when(k.lane == 0):
                barriers.full.arrive_expecting(nbytes, ring.stage)
            k.sync_warp()
            for i, (begin, count) in enumerate(copies):
                n, part = divmod(i, len(s.parts))
                to = numbers[n] * place.sizes[part] + place.offsets[part]
                with k.when(count != 0):
                    k.copy_bulk(
                        s.ring[ring.stage], to, s.matrices[part], begin, count, barriers.full, ring.stage,
                        policy=policy,
                    )  # fmt: skip
            ring.step()


def _piece(place: Staged, part: int, start: Value, span: Value, here: Value) -> tuple[Value, Value]:
    """Where a copy begins in the matrix, and its bytes; none unless `here`.

    Of the row that begins at byte `start`, it has what all warps take from `span` on.
    """
    k, s = place.k, place.s
    f, pitch = s.formats[part], place.pitches[part]
    at = span * span_bytes(f)
    count, begin = k.min(pitch - at, s.form.turns * span_bytes(f)), start + at.to(u64)
    if place.shifted[part]:
        count = (begin.to(u32) & (CHUNK - 1)) + count + (CHUNK - 1) & (1 << 32) - CHUNK
        begin = begin & (1 << 64) - CHUNK
    count = k.select(here, k.multiple_of(count, CHUNK), 0)
    return k.multiple_of(begin, CHUNK), k.multiple_of(count, CHUNK)
