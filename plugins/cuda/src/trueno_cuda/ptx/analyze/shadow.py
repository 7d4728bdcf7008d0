"""Which thread of a block last wrote and read each word of shared memory, and what has ordered the threads since.

`epoch` counts the barriers of the block, `rounds` those of each warp.  Two accesses to one word in one epoch, by
threads of different warps, have nothing between them; for threads of one warp the same holds in one round.
"""

from dataclasses import dataclass

import numpy as np

from trueno_cuda.ptx.syntax.types import Array

NONE, MANY = -1, -2
"""Instead of a thread: no thread, and several with one instruction."""
GROUPS = 64
"""Groups of asynchronous copies that are told apart."""


@dataclass(frozen=True)
class Clash:
    """first, second: instructions.  thread, other: that executed them.  kind: race, flight (a copy that nothing waited
    for) or arrival (one that its own thread alone waited for)."""

    kind: str
    first: int
    second: int
    thread: int
    other: int


class Shadow:
    """Of `words` words, for a block of `threads` threads."""

    def __init__(self, words: int, threads: int) -> None:
        self.epoch = 0
        self.rounds = np.zeros(-(-threads // 32), np.int32)
        self.writer, self.low, self.high = (np.full(words, NONE, np.int32) for _ in range(3))
        self.written, self.read = (np.full(words, -1, np.int32) for _ in range(2))  # epochs
        self.write_round, self.read_round = np.zeros(words, np.int32), np.zeros(words, np.int32)
        self.write_site, self.read_site = np.zeros(words, np.int32), np.zeros(words, np.int32)
        self.watched_write, self.watched_read = np.zeros(words, bool), np.zeros(words, bool)
        self.group = np.full(words, -1, np.int32)  # of a copy
        self.committed, self.completed = np.zeros(threads, np.int32), np.zeros(threads, np.int32)
        self.done = np.full((threads, GROUPS), -1, np.int32)  # the epoch in which a thread waited for a group

    # ---- copies ---------------------------------------------------------------------------------

    def commit(self, threads: Array) -> None:
        self.committed[threads] += 1

    def wait(self, threads: Array, left: int) -> None:
        """Threads wait until so many of their groups are on the way; −1: for what is not committed, too."""
        reached = np.maximum(self.committed[threads] - left, self.completed[threads])
        for group in range(int(self.completed[threads].min()), min(int(reached.max()), GROUPS)):
            now = threads[(self.completed[threads] <= group) & (group < reached)]
            self.done[now, group] = self.epoch
        self.completed[threads] = reached

    # ---- accesses -------------------------------------------------------------------------------

    def load(self, at: int, words: Array, threads: Array, watched: bool) -> list[Clash]:
        """Threads read words, one each; watched: as volatile, so that other warps are expected to change them."""
        writer = self.writer[words]
        foreign = (writer != threads) & (writer >= 0)
        inside = self._inside(writer, threads)
        fresh = (self.written[words] == self.epoch) & np.where(
            inside, self.write_round[words] == self.rounds[threads // 32], not watched or ~self.watched_write[words]
        )
        group = self.group[words]
        copied = (group >= 0) & (writer >= 0)
        clashes = self._one("race", self.write_site, at, words, threads, writer, foreign & fresh & ~copied)
        if copied.any():
            clashes += self._copied(at, words, threads, writer, group, copied, inside)
        again = self.read[words] == self.epoch
        high = np.where(again, np.maximum(self.high[words], threads), threads)
        low = np.where(again, np.minimum(self.low[words], threads), threads)
        order = np.argsort(high, kind="stable")
        self.high[words[order]] = high[order]
        order = np.argsort(-low, kind="stable")
        self.low[words[order]] = low[order]
        self.read[words], self.read_site[words] = self.epoch, at
        self.read_round[words], self.watched_read[words] = self.rounds[threads // 32], watched
        return clashes

    def store(self, at: int, words: Array, threads: Array, watched: bool, copy: bool = False) -> list[Clash]:
        """Threads write words, one each; copy: when a later wait says so."""
        now = self.read[words] == self.epoch
        clashes = []
        for reader in (self.low[words], self.high[words]):
            inside = self._inside(reader, threads)
            fresh = now & np.where(
                inside, self.read_round[words] == self.rounds[threads // 32], not watched or ~self.watched_read[words]
            )
            foreign = (reader != threads) & (reader >= 0)
            clashes += self._one("race", self.read_site, at, words, threads, reader, foreign & fresh)
        writer, group = self.writer[words], self.group[words]
        copied = (group >= 0) & (writer >= 0)
        if not copy and copied.any():  # what the copy brings late would stand over what this writes
            inside = self._inside(writer, threads)
            clashes += self._copied(at, words, threads, writer, group, copied, inside)
        self.writer[words] = threads
        self.writer[words[self.writer[words] != threads]] = MANY
        self.written[words], self.write_site[words] = self.epoch, at
        self.write_round[words], self.watched_write[words] = self.rounds[threads // 32], watched
        self.group[words] = np.minimum(self.committed[threads], GROUPS) if copy else -1
        return clashes

    def forget(self, words: Array) -> None:
        """Nothing is known of some words any more."""
        self.writer[words], self.read[words] = NONE, -1

    @staticmethod
    def _inside(others: Array, threads: Array) -> Array:
        return others // 32 == threads // 32

    def _copied(
        self, at: int, words: Array, threads: Array, writer: Array, group: Array, copied: Array, inside: Array
    ) -> list[Clash]:
        """Reads of what a copy brings: before its thread has waited for it, or before a barrier behind that wait."""
        known = copied & (group < GROUPS)
        owner, which = np.where(known, writer, 0), np.where(known, group, 0)
        flight = known & (which >= self.completed[owner])
        arrived = known & ~flight & (writer != threads) & ~inside & (self.done[owner, which] == self.epoch)
        return self._one("flight", self.write_site, at, words, threads, writer, flight) + self._one(
            "arrival", self.write_site, at, words, threads, writer, arrived
        )

    @staticmethod
    def _one(
        kind: str, sites: Array, at: int, words: Array, threads: Array, others: Array, where: Array
    ) -> list[Clash]:
        if not where.any():
            return []
        k = int(np.flatnonzero(where)[0])
        return [Clash(kind, int(sites[words[k]]), at, int(others[k]), int(threads[k]))]
