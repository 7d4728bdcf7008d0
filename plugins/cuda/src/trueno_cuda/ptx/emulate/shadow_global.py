"""The shadow of global memory, on request: threads of one launch that touch the same word without an order.

Blocks of a launch are never ordered (this shadow does not follow flags in global memory: reads and writes that are
volatile, relaxed, acquire or release count as atomic, which never race with each other).  Within a block the
clocks of the shared shadow decide.
"""

import numpy as np

from trueno_cuda.ptx.emulate.findings import GLOBAL_RACE
from trueno_cuda.ptx.emulate.lanes import Lanes
from trueno_cuda.ptx.emulate.memory import GLOBAL
from trueno_cuda.ptx.syntax.tree import Instruction
from trueno_cuda.ptx.syntax.types import Array

STRONG = {"volatile", "relaxed", "acquire", "release", "acq_rel"}


class GlobalShadow:
    """Per four bytes: the last writing and the last reading thread (number in the grid + 1) and their epochs.

    epoch: how many barriers the thread's block had passed.  several: more than one block has read the word.
    """

    def __init__(self, size: int) -> None:
        words = size // 4 + 1
        self.writer = np.zeros(words, np.int64)
        self.reader = np.zeros(words, np.int64)
        self.write_epoch = np.zeros(words, np.int32)
        self.read_epoch = np.zeros(words, np.int32)
        self.atomic = np.zeros(words, bool)
        self.several = np.zeros(words, bool)

    def _thread(self, m: Lanes, lanes: Array) -> tuple[Array, Array]:
        thread = m.first * m.block_lanes + lanes + 1
        return thread, m.passed[lanes // m.block_lanes]

    def read(self, m: Lanes, ins: Instruction, lanes: Array, index: Array, size: int) -> None:
        thread, epoch = self._thread(m, lanes)
        strong = bool(STRONG & set(ins.mods))
        for k in range(max(size // 4, 1)):
            word = (index >> 2) + k
            word = np.where((word >= 0) & (word < len(self.writer)), word, 0)
            by = self.writer[word]
            bad = (by != 0) & (by != thread) & self._unordered(m, by, thread, self.write_epoch[word], epoch)
            if strong:
                bad &= ~self.atomic[word]
            self._report(m, ins, lanes, bad, by, index, "reads what {} wrote")
            old = self.reader[word]
            self.several[word] |= (old != 0) & ((old - 1) // m.block_lanes != (thread - 1) // m.block_lanes)
            self.reader[word] = np.where((old != 0) & (old != thread) & (self.read_epoch[word] == epoch), -1, thread)
            self.read_epoch[word] = epoch

    def write(self, m: Lanes, ins: Instruction, lanes: Array, index: Array, size: int, atomic: bool = False) -> None:
        thread, epoch = self._thread(m, lanes)
        strong = atomic or bool(STRONG & set(ins.mods))
        for k in range(max(size // 4, 1)):
            word = (index >> 2) + k
            by, reader = self.writer[word], self.reader[word]
            bad = (by != 0) & (by != thread) & self._unordered(m, by, thread, self.write_epoch[word], epoch)
            if strong:
                bad &= ~self.atomic[word]
            self._report(m, ins, lanes, bad, by, index, "writes what {} wrote")
            late = (reader != 0) & (reader != thread)
            late &= self.several[word] | (self.read_epoch[word] == epoch)
            if not strong:
                self._report(m, ins, lanes, late & ~bad, reader, index, "overwrites what {} read")
            self.writer[word] = thread
            if size >= 4 and not strong:
                lost = self.writer[word] != thread
                self._report(m, ins, lanes, lost, self.writer[word], index, "writes what {} wrote")
            self.write_epoch[word] = epoch
            self.atomic[word] = strong

    @staticmethod
    def _unordered(m: Lanes, by: Array, thread: Array, then: Array, now: Array) -> Array:
        other = (by - 1) // m.block_lanes != (thread - 1) // m.block_lanes
        return np.asarray(other | (then == now))

    @staticmethod
    def _report(m: Lanes, ins: Instruction, lanes: Array, bad: Array, by: Array, index: Array, words: str) -> None:
        if not bad.any():
            return
        k = int(np.argmax(bad))
        who = int(np.broadcast_to(by, bad.shape)[k])
        name, place = m.arena.describe(GLOBAL + int(index[k]))
        other = "other threads" if who < 1 else "thread {1} of block {0}".format(*divmod(who - 1, m.block_lanes))
        m.find(GLOBAL_RACE, ins, f"{words.format(other)}: {place}", lanes[k], int(np.count_nonzero(bad)),
               GLOBAL + int(index[k]), name)  # fmt: skip
