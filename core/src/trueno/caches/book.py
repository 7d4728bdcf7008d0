"""Which pages each sequence lies on: pages are counted, shared by forks, and copied before one of them is written."""

from heapq import heapify, heappop, heappush
from numbers import Integral
from typing import Any

from trueno.errors import OutOfMemory, ParameterError
from trueno.text import counted


class Book:
    """Page tables of sequences over `pages` pages of `page` tokens; a sequence has at most `capacity` tokens.

    tables: the pages of each sequence, in the order of its tokens.  users: how many sequences each page belongs to.
    """

    __slots__ = ("_free", "_next", "capacity", "page", "tables", "users")

    def __init__(self, pages: int, page: int, capacity: int) -> None:
        self.page, self.capacity = page, capacity
        self.tables: dict[int, list[int]] = {}
        self.users = [0] * pages
        self._free = list(range(pages))
        self._next = 0

    @property
    def used(self) -> int:
        """Pages that hold tokens of a sequence."""
        return len(self.users) - len(self._free)

    def table(self, sequence: Any) -> list[int]:
        """The pages of a sequence; ParameterError if there is none of that number."""
        if isinstance(sequence, bool) or not isinstance(sequence, Integral) or sequence not in self.tables:
            known = ", ".join(map(str, list(self.tables)[:8]))
            remedy = f"those there are: {known}" if known else "there are none yet: call new()"
            raise ParameterError(f"KVCache: there is no sequence {sequence!r}; {remedy}")
        return self.tables[int(sequence)]

    def new(self) -> int:
        """The number of a new, empty sequence."""
        sequence, self._next = self._next, self._next + 1
        self.tables[sequence] = []
        return sequence

    def fork(self, sequence: int) -> int:
        """A new sequence on the same pages."""
        table = self.table(sequence)
        copy = self.new()
        self.tables[copy] = list(table)
        for page in table:
            self.users[page] += 1
        return copy

    def release(self, sequence: int) -> None:
        """Forget a sequence."""
        self.cut(sequence, 0)
        del self.tables[sequence]

    def cut(self, sequence: int, length: int) -> None:
        """Give back the pages beyond `length` tokens."""
        table = self.table(sequence)
        keep = -(-length // self.page)
        for page in table[keep:]:
            self._leave(page)
        del table[keep:]

    def _leave(self, page: int) -> None:
        self.users[page] -= 1
        if not self.users[page]:
            heappush(self._free, page)

    def reserve(self, spans: list[tuple[int, int, int]]) -> list[tuple[int, int]]:
        """Make room for tokens `start` to `end` of each sequence; the pages to copy, as (from, to).

        spans: (sequence, start, end).  OutOfMemory, with nothing changed, if a sequence has no room or pages are short.
        """
        spans = [span for span in spans if span[1] < span[2]]
        need, users = 0, dict[int, int]()
        for sequence, start, end in spans:
            table = self.table(sequence)
            if end > self.capacity:
                raise OutOfMemory(
                    f"KVCache: sequence {sequence} has {start} tokens, and {end - start} more need room for {end}, but "
                    f"the capacity is {self.capacity}; truncate it, or make a cache with more"
                )
            need += max(0, -(-end // self.page) - len(table))
            for page in table[start // self.page : -(-end // self.page)]:
                if users.setdefault(page, self.users[page]) > 1:
                    users[page] -= 1
                    need += 1
        if need > len(self._free):
            tokens = sum(end - start for _, start, end in spans)
            raise OutOfMemory(
                f"KVCache: {tokens} more tokens need {counted(need, 'page')} of {counted(self.page, 'token')}, but "
                f"{len(self._free)} of {len(self.users)} are free; release or truncate a sequence, or make a cache for "
                f"more"
            )
        copies = []
        for sequence, start, end in spans:
            table = self.tables[sequence]
            for at in range(start // self.page, -(-end // self.page)):
                if at == len(table):
                    table.append(self._take())
                elif self.users[table[at]] > 1:
                    copies.append((table[at], self._take()))
                    self._leave(table[at])
                    table[at] = copies[-1][1]
        return copies

    def undo(self, copies: list[tuple[int, int]]) -> None:
        """Let sequences have the shared pages again, of which `reserve` gave them copies."""
        for source, target in reversed(copies):
            table = next(table for table in self.tables.values() if target in table)
            table[table.index(target)] = source
            self.users[source] += 1
            self._leave(target)

    def _take(self) -> int:
        page = heappop(self._free)
        self.users[page] = 1
        return page

    def order(self) -> list[int]:
        """The used pages in the order of sequences, by the numbers that they have before `compact`."""
        return list(dict.fromkeys(page for table in self.tables.values() for page in table))

    def compact(self) -> None:
        """Number the used pages again, in the order of sequences."""
        order = self.order()
        place = {page: i for i, page in enumerate(order)}
        for table in self.tables.values():
            table[:] = [place[page] for page in table]
        self.users = [self.users[page] for page in order] + [0] * (len(self.users) - len(order))
        self._free = list(range(len(order), len(self.users)))
        heapify(self._free)
