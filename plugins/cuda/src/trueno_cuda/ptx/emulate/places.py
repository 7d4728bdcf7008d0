"""Addresses to places in buffers, and findings for invalid ones.

Bounds are those of the array that the address was made from, where that is known; else of any array.
"""

from typing import NamedTuple

import numpy as np

from trueno_cuda.ptx.emulate.findings import ADDRESS_SPACE, MISALIGNED, OUT_OF_BOUNDS, Kind
from trueno_cuda.ptx.emulate.group import Group
from trueno_cuda.ptx.emulate.lanes import Lanes
from trueno_cuda.ptx.emulate.memory import (
    CLUSTER_SHIFT,
    GLOBAL,
    LOCAL,
    PARAM,
    SHARED,
    SHARED_BASE,
    WINDOW,
    Allocation,
)
from trueno_cuda.ptx.syntax.tree import Instruction
from trueno_cuda.ptx.syntax.types import TYPES, Array

SPACES = {GLOBAL >> WINDOW: "global", SHARED >> WINDOW: "shared", LOCAL >> WINDOW: "local", PARAM >> WINDOW: "param"}


class Place(NamedTuple):
    """Where lanes access: `buffer` and byte indexes `at`; `good` lanes, None for all; lanes' numbers in the chunk."""

    buffer: Array
    at: Array
    good: Array | None
    lanes: Array


class Places:
    """Finds the places of accesses in the memory of one chunk."""

    def __init__(self, lanes: Lanes) -> None:
        self.m = lanes

    # ---- finding the place ----------------------------------------------------------------------

    def place(
        self, ins: Instruction, g: Group, lanes: Array, address: Array, space: str, size: int, align: int
    ) -> Place:
        """Resolve addresses in a space; `lanes` are those that take part, `address` is theirs (or one for all)."""
        m = self.m
        if space in ("global", "const"):
            buffer, index, bad = m.arena.bytes, address - GLOBAL, self.outside(ins, lanes, address, size)
        elif space == "shared":
            buffer = m.shared
            index, bad = self._shared(ins, g, lanes, address, size)
        elif space == "local":
            buffer = m.local
            inside = (address >= 0) & (address + size <= m.local_size)
            bad = None if inside.all() else ~inside
            index = lanes * m.local_size + address
            if bad is not None:
                self._say(ins, lanes, address, bad, OUT_OF_BOUNDS,
                          f"outside the {m.local_size} bytes of local memory")  # fmt: skip
        else:
            buffer = m.params
            inside = (address >= 0) & (address + size <= len(m.params))
            bad = None if inside.all() else ~inside
            index = address
            if bad is not None:
                self._say(ins, lanes, address, bad, OUT_OF_BOUNDS, "outside the parameters")
        if align > 1 and int(np.bitwise_or.reduce(address)) & (align - 1):
            odd = (address & (align - 1)) != 0
            self._say(ins, lanes, address, odd, MISALIGNED,
                      f"at no multiple of {align} bytes, which an access of {size} bytes wants", space)  # fmt: skip
            bad = odd if bad is None else bad | odd
        if bad is None:
            return Place(buffer, index, None, lanes)
        good = ~bad
        if good.size == 1 and len(lanes) > 1:
            good = np.full(len(lanes), bool(good[0]))
        return Place(buffer, np.where(good, index, 0), good, lanes)

    def _shared(
        self, ins: Instruction, g: Group, lanes: Array, address: Array, size: int
    ) -> tuple[Array, Array | None]:
        m = self.m
        start: Array | int = 0 if m.blocks_here == 1 else m.shared_start(g, lanes)
        offset = address - SHARED_BASE
        high = int(address.max())
        generic = None
        if high >> CLUSTER_SHIFT:  # another block of the cluster, or no shared address at all
            rank = address >> CLUSTER_SHIFT
            cluster = m.launch.cluster_blocks
            generic = (rank > cluster) | (rank < 0)
            if generic.any():
                self._say(ins, lanes, address, generic, ADDRESS_SPACE,
                          "no shared address (is it generic? cvta.to.shared makes one)")  # fmt: skip
            mine = lanes // m.block_lanes
            block = np.where(rank > 0, mine // cluster * cluster + np.where(generic, 0, rank - 1), mine)
            start = block * m.shared_size
            offset = (address & ((1 << CLUSTER_SHIFT) - 1)) - SHARED_BASE
        bad = None
        home = m.launch.home(ins, "shared")
        low, high = (0, m.shared_size) if home is None else (home.low - SHARED_BASE, home.high - SHARED_BASE)
        if int(offset.min()) < low or int(offset.max()) + size > high:
            bad = (offset < low) | (offset + size > high)
            shown = bad if generic is None else bad & ~generic
            if shown.any():
                k = int(np.argmax(shown))
                has = f"the block has {m.shared_size} bytes of shared memory"
                if home is None:
                    words = f"offset {int(offset[k])} of shared memory; {has}"
                else:
                    words = f"{_by_element(home, ins).outside(int(offset[k]) + SHARED_BASE, size)}; {has}"
                m.find(OUT_OF_BOUNDS, ins, words, lanes[k], _count(shown, lanes), int(address[k]),
                       home and home.name)  # fmt: skip
        if generic is not None and generic.any():
            bad = generic if bad is None else bad | generic
        return start + offset, bad

    def outside(self, ins: Instruction, lanes: Array, address: Array, size: int) -> Array | None:
        """Lanes whose `size` bytes are not in the array that they should be in, which are reported; None for none."""
        m = self.m
        home = m.launch.home(ins, "global")
        if home is None:
            bad = m.arena.outside(address, size)
        elif int(address.min()) >= home.low and int(address.max()) + size <= home.high:
            return None
        else:
            bad = (address < home.low) | (address + size > home.high)
        if bad is None:
            return None
        k = int(np.argmax(bad))
        where = int(address[k])
        name, words = m.arena.describe(where, size)
        if home is not None:
            there = f"; {words} lies there" if name not in (None, home.name) and ":" not in words else ""
            name, words = home.name, home.outside(where, size) + there
        m.find(OUT_OF_BOUNDS if name else ADDRESS_SPACE, ins, words, lanes[k], _count(bad, lanes), where, name)
        return bad

    def _say(
        self, ins: Instruction, lanes: Array, address: Array, bad: Array, kind: Kind, words: str, space: str = ""
    ) -> None:
        """Report what the first of the bad lanes does: where it accesses, `is`, and the words."""
        k = int(np.argmax(bad))
        where, size = int(address[k]), _bytes(ins)
        home = self.m.launch.home(ins, space) if space in ("global", "shared") else None
        name: str | None
        if home is not None:
            name, what = home.name, _by_element(home, ins).place(where, size)
        elif where >> WINDOW == GLOBAL >> WINDOW:
            name, what = self.m.arena.describe(where, size)
            what = what.partition(":")[0]
        else:
            name, what = None, f"{where:#x}"
        self.m.find(kind, ins, f"{what} is {words}", lanes[k], _count(bad, lanes), where, name)

    # ---- generic addresses ----------------------------------------------------------------------

    def split(self, address: Array) -> list[tuple[str, Array | None]]:
        """The spaces that generic addresses lie in, each with its lanes (None for all)."""
        window = address >> WINDOW
        first = int(window[0])
        if window.size == 1 or bool((window == first).all()):
            return [(SPACES.get(first, "global"), None)]
        return [(SPACES.get(w, "global"), window == w) for w in np.unique(window).tolist()]


def _bytes(ins: Instruction) -> int:
    """Of an element that an instruction accesses; 1 where it has no type."""
    return next((TYPES[m].bytes for m in reversed(ins.mods) if m in TYPES), 1)


def _by_element(array: Allocation, ins: Instruction) -> Allocation:
    """An array that is declared as bytes counts the elements that the instruction accesses."""
    return array._replace(item=_bytes(ins)) if array.item == 1 and array.size % _bytes(ins) == 0 else array


def _count(bad: Array, lanes: Array) -> int:
    """How many lanes are bad, where one value may stand for all of them."""
    return int(np.count_nonzero(bad)) if bad.size > 1 else len(lanes)
