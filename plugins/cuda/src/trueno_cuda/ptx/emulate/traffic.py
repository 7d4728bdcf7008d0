"""Coalescing and bank conflicts, counted from the addresses that were used.

A request is one warp's access.  Of an instruction that thousands of warps run at once, evenly spaced ones are looked
at: sorting addresses would cost more than the access itself.
"""

import numpy as np

from trueno_cuda.ptx.emulate.group import WARP, Group
from trueno_cuda.ptx.emulate.report import BankConflicts, Coalescing, Report
from trueno_cuda.ptx.syntax.tree import Instruction
from trueno_cuda.ptx.syntax.types import Array

SECTOR = 32
BANKS = 32
SAMPLE = 64  # warps looked at in one turn
OFTEN = 16  # turns of an instruction that are all looked at


class Traffic:
    def __init__(self, report: Report, sample: int | None = SAMPLE) -> None:
        self.report = report
        self.sample = sample
        self.turns: dict[int, int] = {}

    def _skip(self, ins: Instruction) -> bool:
        """Whether this turn is one too many: of an instruction in a long loop, every eighth is enough."""
        seen = self.turns[id(ins)] = self.turns.get(id(ins), -1) + 1
        return self.sample is not None and seen >= OFTEN and seen % 8 != 0

    def _warps(self, g: Group, sel: Array | None, address: Array) -> tuple[Array, Array | None]:
        """[warps, 32] addresses and which lanes take part, None for all; a sample of the group's warps that do."""
        warps = len(g.warps)
        step = 1 if self.sample is None else -(-warps // self.sample)
        if g.whole:
            take = slice(None, None, step)
            count = -(-warps // step)
            if address.size == 1:
                a = np.broadcast_to(address.reshape(1, 1), (count, WARP))
            else:
                a = address.reshape(-1, WARP)[take]
            if sel is None:
                return a, None
            active = sel.reshape(-1, WARP)[take]
        else:
            a = g.matrix(np.broadcast_to(address, g.n) if address.size == 1 else address)[::step]
            active = g.matrix(np.ones(g.n, bool) if sel is None else sel, False)[::step]
        rows = active.any(axis=1)
        return (a, active) if rows.all() else (a[rows], active[rows])

    def touched(self, g: Group, sel: Array | None, address: Array, ins: Instruction, size: int) -> None:
        """A global access of `size` bytes a lane."""
        if self._skip(ins):
            return
        a, active = self._warps(g, sel, address)
        if not len(a):
            return
        record = self.report.coalescing.get((ins.line, ins.text))
        if record is None:
            record = self.report.coalescing[ins.line, ins.text] = Coalescing(ins.line, ins.text)
        if self._neighbours(a, active, size):
            record.requests += len(a)
            record.sectors += int(((a[:, -1] + (size - 1)) // SECTOR - a[:, 0] // SECTOR).sum()) + len(a)
            record.ideal += len(a) * size * WARP // SECTOR
            return
        if active is None:
            active = np.ones(a.shape, bool)
        first = a // SECTOR
        if size > SECTOR // 2:
            ends = (a + size - 1) // SECTOR
            sectors = np.concatenate([first, ends], axis=1)
            used = np.concatenate([active, active], axis=1)
        else:
            sectors, used = first, active
        sectors = np.where(used, sectors, -1)
        sectors.sort(axis=1)
        distinct = np.count_nonzero(sectors[:, 1:] != sectors[:, :-1], axis=1) + (sectors[:, 0] != -1)
        record.requests += len(a)
        record.sectors += int(distinct.sum())
        if len(a) and a.strides[1] == 0 and size <= SECTOR:  # one address for the whole warp
            record.ideal += len(a)
            return
        bytes_asked = np.where(active, a, -1)
        bytes_asked.sort(axis=1)
        different = np.count_nonzero(bytes_asked[:, 1:] != bytes_asked[:, :-1], axis=1) + (bytes_asked[:, 0] != -1)
        record.ideal += int((-(-different * size // SECTOR)).sum())

    def banks(self, g: Group, sel: Array | None, address: Array, ins: Instruction, size: int) -> None:
        """A shared access: 8- and 16-byte accesses pass half and quarter warps at a time."""
        if self._skip(ins):
            return
        a, active = self._warps(g, sel, address)
        if not len(a):
            return
        parts = max(size // 4, 1)
        whole = active is None or bool(active.all())
        if size >= 4 and whole and (a.strides[1] == 0 or self._neighbours(a, None, size)):
            record = self._conflicts(ins)
            record.requests += len(a)
            record.wavefronts += len(a) * parts
            record.ideal += len(a) * parts
            return
        if active is None:
            active = np.ones(a.shape, bool)
        words = a[:, :, None] // 4 + np.arange(parts)
        self.count(ins, words.reshape(len(a) * parts, -1), np.repeat(active, parts, axis=1).reshape(len(a) * parts, -1),
                   len(a))  # fmt: skip

    @staticmethod
    def _neighbours(a: Array, active: Array | None, size: int) -> bool:
        """Whether all lanes of each warp access one thing after the other, which needs no counting."""
        if not a.strides[1] or not (active is None or active.all()):
            return False
        return bool((a[:, 1:] - a[:, :-1] == size).all())

    def _conflicts(self, ins: Instruction) -> BankConflicts:
        record = self.report.bank_conflicts.get((ins.line, ins.text))
        if record is None:
            record = self.report.bank_conflicts[ins.line, ins.text] = BankConflicts(ins.line, ins.text)
        return record

    def count(self, ins: Instruction, words: Array, active: Array, requests: int) -> None:
        """Word numbers [phases, words]: each phase takes as many wavefronts as its busiest bank has words."""
        record = self._conflicts(ins)
        w = np.where(active, words, -1)
        w.sort(axis=1)
        fresh = np.ones(w.shape, bool)
        fresh[:, 1:] = w[:, 1:] != w[:, :-1]
        fresh &= w >= 0
        phase = np.broadcast_to(np.arange(len(w))[:, None], w.shape)
        load = np.bincount((phase * BANKS + w % BANKS)[fresh], minlength=len(w) * BANKS).reshape(-1, BANKS).max(axis=1)
        record.requests += requests
        record.wavefronts += int(load.sum())
        record.ideal += int((load > 0).sum())
