"""The shadow of shared memory: the readers and writers of each word since those warps last synchronised.

Each warp has a clock that its synchronisations advance, and knows up to which tick of every other warp's clock it is
ordered behind that warp (a vector clock per warp).  A word remembers its last write, and per warp its last read, with
the tick.  An access that is not ordered behind a conflicting one is a race: no schedule need show it.  Barriers,
named barriers, `bar.warp.sync`, mbarriers and cluster barriers synchronise; shuffles and votes do not.
"""

from collections.abc import Callable, Sequence

import numpy as np

from trueno_cuda.ptx.emulate.findings import MISSING_WAIT, SHARED_RACE, UNINITIALISED_SHARED, Kind
from trueno_cuda.ptx.emulate.lanes import Lanes
from trueno_cuda.ptx.syntax.tree import Instruction
from trueno_cuda.ptx.syntax.types import Array

LOG = 1 << 22  # reads kept in the log at most
LATE = 1 << 19  # a clock's 20 bits are nearly used up
UNORDERED = "with nothing that orders them, as bar.sync (k.sync()) does"
UNWRITTEN = "is read before it was written; store it first, then bar.sync (k.sync())"
SENT = 1 << 10  # the last write of a word, where another block wrote it: ordered before all
SEVERAL = 32  # in place of a lane: several lanes of the warp read the word


class SharedShadow:
    """wrote: clock << 11 | atomic << 10 | warp << 5 | lane of each word's last write, 0 for none.

    log: reads that are not yet in read_by.  read_by: clock << 6 | lane, by word and warp.  read_in: the block's
    barrier count at its last read, plus 1.
    knows[block, a, b]: the tick of b that a is ordered behind; b's running tick is knows[block, b, b] + 1.
    """

    def __init__(self, lanes: Lanes) -> None:
        self.m = lanes
        self.shift = lanes.layout.granule.bit_length() - 1
        self.warps = lanes.block_warps
        words = (len(lanes.shared) >> self.shift) + 1
        self.wrote = np.zeros(words, np.int32)
        self.read_by = np.zeros(words * self.warps, np.int32)
        self.read_in = np.zeros(words, np.int32)
        self.flying = np.zeros(words, np.uint8)
        self.in_flight = 0
        self.knows = np.zeros((lanes.blocks_here, self.warps, self.warps), np.int32)
        self.epoch = np.zeros(lanes.blocks_here, np.int32)
        self.known_to_all = 0
        self.log: list[tuple[Array, Array]] = []  # reads since the last synchronisation: words, lanes
        self.logged = 0
        self.barriers: dict[int, Array] = {}  # mbarrier → what its arrivals knew

    # ---- synchronisation ------------------------------------------------------------------------

    def full_barrier(self) -> None:
        """All warps of all blocks met."""
        self.log.clear()
        self.logged = 0
        ticks = np.einsum("cww->cw", self.knows) + 1
        self.knows[:] = ticks[:, None, :]
        self.epoch += 1
        if int(ticks.max()) > LATE:
            self._begin_again()
            ticks = np.zeros(1, np.int32)
        self.known_to_all = int(ticks.min())

    def _begin_again(self) -> None:
        """Clocks that would run out of their bits start again; all that was written before is ordered."""
        self.knows[:] = 0
        self.wrote = (self.wrote != 0).astype(np.int32) << 10
        self.read_by[:] = 0

    def meet(self, block: int, warps: Sequence[int]) -> None:
        """These warps (numbers in the chunk) of one block met at a barrier."""
        self._flush()
        inside = np.array(warps) - block * self.warps
        alive = self.m.live.reshape(-1, self.warps, 32)[block].any(axis=1)
        k = self.knows[block]
        if alive[np.setdiff1d(np.arange(self.warps), inside)].any():
            vector = k[inside].max(axis=0)
            vector[inside] = k[inside, inside] + 1
            k[inside] = vector
        else:
            k[:] = np.diagonal(k) + 1
            self.epoch[block] += 1
        self.known_to_all = int(self.knows.min())

    def warp_sync(self, warps: Array) -> None:
        """The lanes of each of these warps met."""
        self._flush()
        block, w = np.divmod(warps, self.warps)
        self.knows[block, w, w] += 1

    def arrive(self, slots: Array, warps: Array) -> None:
        """Warps arrive at mbarriers: what they did is known to those who wait."""
        self._flush()
        for slot, warp in set(zip(slots.tolist(), warps.tolist(), strict=True)):
            block, w = divmod(warp, self.warps)
            self.knows[block, w, w] += 1
            if (slot * 8) // self.m.shared_size != block:
                continue  # a remote arrival: blocks of a cluster are not checked against each other
            vector = self.barriers.setdefault(slot, np.zeros(self.warps, np.int32))
            np.maximum(vector, self.knows[block, w], out=vector)

    def wait(self, slots: Array, warps: Array) -> None:
        """Warps saw a phase of mbarriers complete."""
        self._flush()
        for slot, warp in set(zip(slots.tolist(), warps.tolist(), strict=True)):
            block, w = divmod(warp, self.warps)
            if slot in self.barriers and (slot * 8) // self.m.shared_size == block:
                np.maximum(self.knows[block, w], self.barriers[slot], out=self.knows[block, w])

    def cluster_arrive(self, warps: Array) -> None:
        self.warp_sync(warps)

    def cluster_wait(self, warps: Array) -> None:
        for block in np.unique(warps // self.warps).tolist():
            self.meet(block, list(range(block * self.warps, (block + 1) * self.warps)))

    # ---- accesses -------------------------------------------------------------------------------

    def _lane(self, lanes: Array) -> tuple[Array, Array, Array]:
        """Block, warp in the block, lane in the warp."""
        warp = lanes >> 5
        block = warp // self.warps
        return block, warp - block * self.warps, lanes & 31

    def ordered(self, ins: Instruction, lanes: Array, index: Array) -> None:
        """Lanes use the mbarrier at `index`: its init must be ordered before."""
        lanes, index = self._own(lanes, index)
        last = self.wrote.take(index >> self.shift)
        if len(last) and (int(last.max()) >> 11) > self.known_to_all:
            self._check_write(ins, lanes, self._lane(lanes), last, index, False, "uses", None)

    def _own(self, lanes: Array, index: Array) -> tuple[Array, Array]:
        """Without accesses to another block of the cluster, which are not checked."""
        if self.m.launch.cluster_blocks == 1:
            return lanes, index
        keep = index // self.m.shared_size == lanes // self.m.block_lanes
        return (lanes, index) if keep.all() else (lanes[keep], index[keep])

    def _sent(self, lanes: Array, index: Array, size: int) -> None:
        """Words of other blocks of the cluster that lanes write are written, whichever lanes use them."""
        away = index // self.m.shared_size != lanes // self.m.block_lanes
        for word in self._words(index[away], size):
            self.wrote[word[self.wrote.take(word) == 0]] = SENT

    def _words(self, index: Array, size: int) -> list[Array]:
        first = index >> self.shift
        return [first + k for k in range(max(size >> self.shift, 1))]

    def read(self, ins: Instruction, lanes: Array, index: Array, size: int, atomic: bool = False) -> None:
        """Lanes read `size` bytes each at `index` of the chunk's shared memory."""
        lanes, index = self._own(lanes, index)
        if not len(lanes):
            return
        for word in self._words(index, size):
            last = self.wrote.take(word)
            if not last.min():
                self._find(UNINITIALISED_SHARED, ins, lanes, last == 0, index, UNWRITTEN)
            self._check_flight(ins, lanes, word, index, "read")
            if (int(last.max()) >> 11) > self.known_to_all:
                self._check_write(ins, lanes, self._lane(lanes), last, index, atomic, "reads", None)
            self.log.append((word, lanes))
        self.logged += len(lanes)
        if self.logged > LOG:
            self._flush()

    def _flush(self) -> None:
        """Enter the reads of the log; a barrier of all blocks makes that unnecessary, and it is the common end."""
        for word, lanes in self.log:
            block, warp, lane = self._lane(lanes)
            ticks = self.knows[block, warp, warp] + 1
            cell = word * self.warps + warp
            old = self.read_by.take(cell)
            code = (ticks << 6) | lane
            code = np.where(((old >> 6) == ticks) & (old != code), (ticks << 6) | SEVERAL, code)
            self.read_by[cell] = code
            several = self.read_by.take(cell) != code
            if several.any():
                self.read_by[cell[several]] = (ticks[several] << 6) | SEVERAL
            self.read_in[word] = self.epoch[block] + 1
        self.log.clear()
        self.logged = 0

    def write(
        self,
        ins: Instruction,
        lanes: Array,
        index: Array,
        size: int,
        atomic: bool = False,
        unchanged: Callable[[], Array] | None = None,
    ) -> None:
        """Lanes write; `unchanged` says which of them write what is there already, which is harmless."""
        if self.log:
            self._flush()
        if self.m.launch.cluster_blocks > 1:
            self._sent(lanes, index, size)
            lanes, index = self._own(lanes, index)
            unchanged = None
            if not len(lanes):
                return
        block, warp, lane = self._lane(lanes)
        ticks = self.knows[block, warp, warp] + 1
        me = (ticks << 11) | (atomic << 10) | (warp << 5) | lane
        for word in self._words(index, size):
            last = self.wrote.take(word)
            self._check_flight(ins, lanes, word, index, "written")
            if (int(last.max()) >> 11) > self.known_to_all:
                self._check_write(ins, lanes, (block, warp, lane), last, index, atomic, "writes", unchanged)
            hit = self.read_in.take(word) > self.epoch[block]
            if hit.any() and not atomic:
                self._check_reads(ins, lanes, (block, warp, lane), word, hit, index, unchanged)
            self.wrote[word] = me

    def _check_write(
        self,
        ins: Instruction,
        lanes: Array,
        who: tuple[Array, Array, Array],
        last: Array,
        index: Array,
        atomic: bool,
        does: str,
        unchanged: Callable[[], Array] | None,
    ) -> None:
        block, warp, lane = who
        by, of = (last >> 5) & 31, last & 31
        bad = (last >> 11) > self.knows[block, warp, by]
        bad &= (by != warp) | (of != lane)
        if atomic:
            bad &= (last >> 10) & 1 == 0
        if bad.any() and unchanged is not None:
            bad &= ~unchanged()
        if bad.any():
            k = int(np.argmax(bad))
            self._find(SHARED_RACE, ins, lanes, bad, index,
                       f"{does} what warp {by[k]} lane {of[k]} wrote, {UNORDERED}")  # fmt: skip

    def _check_reads(
        self,
        ins: Instruction,
        lanes: Array,
        who: tuple[Array, Array, Array],
        word: Array,
        hit: Array,
        index: Array,
        unchanged: Callable[[], Array] | None,
    ) -> None:
        block, warp, lane = (x[hit] for x in who)
        rows = self.read_by.reshape(-1, self.warps)[word[hit]]
        bad = (rows >> 6) > self.knows[block, warp]
        own = np.arange(len(warp))
        bad[own, warp] &= (rows[own, warp] & 63) != lane
        if not bad.any():
            return
        some = np.zeros(len(lanes), bool)
        some[np.flatnonzero(hit)] = bad.any(axis=1)
        if unchanged is not None:
            some &= ~unchanged()
        if some.any():
            k = int(np.argmax(some[hit]))
            reader = int(np.argmax(bad[k]))
            self._find(SHARED_RACE, ins, lanes, some, index,
                       f"overwrites what warp {reader} read, {UNORDERED}")  # fmt: skip

    def lost(self, ins: Instruction, lanes: Array, index: Array, different: Array) -> None:
        """Lanes of one instruction wrote different values to the same word."""
        self._find(SHARED_RACE, ins, lanes, different, index, "is written by several lanes of this instruction at once")

    # ---- asynchronous copies --------------------------------------------------------------------

    def depart(self, words: Array) -> None:
        """An asynchronous copy into these words is in flight."""
        self.flying[words] = 1
        self.in_flight += 1

    def land(self, words: Array, lanes: Array) -> None:
        """It has arrived: a write by the lanes that asked for it."""
        block, warp, lane = self._lane(lanes)
        self.flying[words] = 0
        self.in_flight -= 1
        self.wrote[words] = ((self.knows[block, warp, warp] + 1) << 11) | (warp << 5) | lane

    def words(self, index: Array, size: int) -> Array:
        """[lanes, words] of accesses of `size` bytes."""
        return (index >> self.shift)[:, None] + np.arange(max(size >> self.shift, 1))

    def _check_flight(self, ins: Instruction, lanes: Array, word: Array, index: Array, does: str) -> None:
        if self.in_flight:
            bad = self.flying.take(word) != 0
            if bad.any():
                self._find(MISSING_WAIT, ins, lanes, bad, index,
                           f"is {does} while an asynchronous copy into it is in flight")  # fmt: skip

    def _find(self, kind: Kind, ins: Instruction, lanes: Array, bad: Array, index: Array, words: str) -> None:
        k = int(np.argmax(bad))
        lane = int(np.broadcast_to(lanes, bad.shape)[k])
        offset = int(np.broadcast_to(index, bad.shape)[k]) % self.m.shared_size
        name, place = self.m.layout.shared_name(offset, ins)
        self.m.find(kind, ins, f"{place} {words}", lane, int(np.count_nonzero(bad)), offset, name)
