"""Accesses of different warps to the same word of shared memory with no barrier on some way between them.

Both addresses must be known for each thread up to unknowns that they share, and no instruction on the way may change
one of those; anything else is not reported.
"""

from bisect import bisect_left
from collections.abc import Hashable, Iterator
from dataclasses import dataclass

import numpy as np

from trueno_cuda.ptx.analyze.access import Access
from trueno_cuda.ptx.analyze.effects import waits
from trueno_cuda.ptx.analyze.entry import Entry
from trueno_cuda.ptx.analyze.graph import OUT
from trueno_cuda.ptx.analyze.values import Atom, Form
from trueno_cuda.ptx.syntax.tree import Register
from trueno_cuda.ptx.syntax.types import Array

MOST = 20000
"""Pairs of accesses that are compared in one entry."""
STEPS = 700_000
"""Instructions that the searches of one entry pass: kernels that people write need a quarter at most."""
Facts = tuple[tuple[int, bool], ...]
"""Predicates, each with the value that a way has passed."""
STATES = 4000
"""Places that one search visits, with what it knows of predicates there."""


@dataclass(frozen=True)
class Race:
    """first, second: in the order in which a thread comes to them.  threads: two that meet."""

    first: Access
    second: Access
    threads: tuple[int, int]


def races(entry: Entry) -> Iterator[Race]:
    """Pairs of which one writes: the first race of each pair of instructions.

    Where the block is not known, only pairs that race in a small block too: what differs may be the block's size.
    """
    found = list(_races(entry))
    if found and entry.assumed:
        small = {(race.first.at, race.second.at) for race in _races(entry.small)}
        found = [race for race in found if (race.first.at, race.second.at) in small]
    yield from found


def _races(entry: Entry) -> Iterator[Race]:
    effort = Effort()
    yield from _pairs(entry, effort)
    if effort.spent:
        entry.cut.add("missing-barrier")


def _pairs(entry: Entry, effort: "Effort") -> Iterator[Race]:
    if entry.threads > 32:
        yield from _scattered(entry, effort)
    shared = [a for a in entry.accesses if a.space == "shared" and a.bytes and not a.ordered and a.kind != "atomic"]
    if not any(a.writes for a in shared):
        return
    arrays = {a.at: array(a.form) for a in shared}
    by_site: dict[int, list[Access]] = {}
    for a in shared:
        by_site.setdefault(a.at, []).append(a)
    stores = {at: some for at, ones in by_site.items() if (some := [a for a in ones if a.writes])}
    for first in shared:
        if _words(entry, first) is None:
            continue
        ways = Ways(entry, first, effort)
        others = by_site if first.writes else stores
        for second in (a for at in ways.ahead() if at in others for a in others[at]):
            if arrays[first.at] != arrays[second.at]:
                continue
            effort.pairs -= 1
            if effort.spent:
                return
            threads, warp = meet(entry, first, second, apart=1, effort=effort), False
            if threads is not None and threads[0] // 32 == threads[1] // 32:
                inside, threads = threads, meet(entry, first, second, effort=effort)
                warp = threads is None and not entry.assumed
                threads = inside if warp else threads
            threads = threads or halved(entry, first, second)
            if threads is not None and ways.lead(second, warp):
                yield Race(first, second, threads)


def _together(entry: Entry, at: int) -> bool:
    """Whether the lanes of a warp meet at an instruction."""
    return "sync" in entry.code[at].mods or waits(entry.code[at]) == "warp"


def _scattered(entry: Entry, effort: "Effort") -> Iterator[Race]:
    """Plain accesses of an array that atomics change at places which data decide: other threads' places too."""
    atomics = {
        a.at: a for a in entry.accesses if a.kind == "atomic" and a.space == "shared" and _words(entry, a) is None
    }
    plain = {a.at: a for a in entry.accesses if a.space == "shared" and a.kind in ("load", "store") and not a.ordered}
    names = {a.at: array(a.form) for a in (*atomics.values(), *plain.values())} if atomics else {}
    for first in (*atomics.values(), *plain.values()) if atomics else ():
        name = names[first.at]
        others = plain if first.at in atomics else atomics
        ways = Ways(entry, first, effort)
        for at in ways.ahead() if name is not None and not effort.spent else ():
            second = others.get(at)
            if second is None or names[second.at] != name:
                continue
            one = first if first.at in plain else second
            active, certain = entry.runs(one.at)
            if certain and active[32:].any() and active[:32].any() and ways.lead(second):
                yield Race(first, second, (0, 32))


def array(form: Form) -> str | None:
    """The shared variable that an address lies in."""
    names = [a[2] for a, c in form.terms if a[:2] == ("var", "shared") and c == 1]
    return names[0] if len(names) == 1 else None


@dataclass
class Effort:
    """What the comparisons of one entry may still cost: a text that was made to be slow gets fewer of them.

    pairs: accesses that are compared.  steps: instructions that searches pass, and places that comparisons look at.
    """

    pairs: int = MOST
    steps: int = STEPS

    @property
    def spent(self) -> bool:
        return self.pairs < 0 or self.steps < 0


class Ways:
    """The ways that a thread may take behind an access.  effort: what following them takes from."""

    def __init__(self, entry: Entry, first: Access, effort: Effort) -> None:
        self.entry, self.first, self.effort = entry, first, effort
        self._reached: dict[tuple[frozenset[int], bool], set[int]] = {}
        self._kept: dict[tuple[Hashable, int], frozenset[int]] = {}

    def ahead(self) -> list[int]:
        """Accesses that the thread may come to before it comes to a barrier."""
        entry, graph, start = self.entry, self.entry.graph, self.first.at + 1
        result: list[int] = []
        reached: set[int] = set()
        todo = [(graph.block_of[self.first.at], start)]
        while todo and not self.effort.spent:
            n, start = todo.pop()
            places = entry.landmarks[n]
            self.effort.steps -= 1
            for k in range(bisect_left(places, start), len(places)):
                if entry.synchronizes(places[k]) and entry.code[places[k]].guard is None:
                    break
                result.append(places[k])
            else:
                for t in graph.blocks[n].successors:
                    if t != OUT and t not in reached:
                        reached.add(t)
                        todo.append((t, graph.blocks[t].start))
        self.effort.steps -= len(result)
        return result

    def lead(self, second: Access, warp: bool = False) -> bool:
        """Whether one leads to another access and has no barrier, changes nothing that both addresses share, and takes
        no branch against a predicate that it has passed before.  warp: and has nothing that a warp executes together.
        """
        scattered = "atomic" in (self.first.kind, second.kind) or halved(self.entry, self.first, second) is not None
        kept = frozenset[int]() if scattered else self._shared(second)
        if (kept, warp) not in self._reached:
            self._reached[kept, warp] = self._reach(kept, warp)
        return second.at in self._reached[kept, warp]

    def _shared(self, second: Access) -> frozenset[int]:
        """The registers that this access's address and another one are computed from."""
        key = second.form.terms, _home_of(self.entry, second)
        if key not in self._kept:
            self._kept[key] = frozenset(changed_by(self.entry, self.first, second))
        return self._kept[key]

    def _reach(self, kept: frozenset[int], warp: bool) -> set[int]:
        """The instructions on such ways, and those that end them."""
        entry, graph, writes = self.entry, self.entry.graph, self.entry.flow.writes
        result: set[int] = set()
        todo: list[tuple[int, int, Facts]] = [(graph.block_of[self.first.at], self.first.at + 1, ())]
        reached: set[tuple[int, Facts]] = set()
        while todo and len(reached) <= STATES and not self.effort.spent:
            n, start, facts = todo.pop()
            block = graph.blocks[n]
            at = start
            for at in range(start, block.end):
                result.add(at)
                if entry.synchronizes(at) or not kept.isdisjoint(writes[at]) or (warp and _together(entry, at)):
                    break
                if facts and writes[at]:
                    facts = tuple(f for f in facts if f[0] not in writes[at])
            else:
                todo += self._next(n, facts, reached)
            self.effort.steps -= at - start + 1
        return result

    def _next(self, n: int, facts: Facts, reached: set[tuple[int, Facts]]) -> Iterator[tuple[int, int, Facts]]:
        """Where a way goes on behind a block, with the predicates that are known there, if it did not before."""
        graph = self.entry.graph
        block, last = graph.blocks[n], graph.last(n)
        guard = last.guard if last.opcode in ("bra", "ret", "exit") else None
        for k, t in enumerate(block.successors):
            if t == OUT:
                continue
            now = facts
            if guard is not None and len(block.successors) == 2:
                value = (k == 0) != last.negated
                if (guard.index, not value) in facts:
                    continue
                if (guard.index, value) not in facts:
                    now = tuple(sorted((*facts, (guard.index, value))))[:6]
            if (t, now) not in reached:
                reached.add((t, now))
                yield t, graph.blocks[t].start, now


# ---- addresses ----------------------------------------------------------------------------------


def _words(entry: Entry, access: Access) -> dict[Atom | None, Array] | None:
    return entry.block_lanes.split(access.form)


def _home(entry: Entry, register: int) -> int | None:
    """The head of the innermost loop that advances a register."""
    loops = entry.graph.loops
    blocks = [entry.graph.block_of[s] for s in entry.flow.definitions[register]]
    return min([loops.inner[n] for n in blocks if n in loops.inner], key=loops.size, default=None)


def _first(entry: Entry, access: Access, other: Access) -> Form:
    """The address in the first round of the loops that hold this access and not the other."""
    form = access.form
    for atom, coefficient in access.form.terms:
        if atom[0] == "count":
            home, loops, block_of = _home(entry, atom[1]), entry.graph.loops, entry.graph.block_of
            if home is not None and loops.has(home, block_of[access.at]) and not loops.has(home, block_of[other.at]):
                form = form.add(Form(0, frozenset({(atom, coefficient)})), -1)
    return form


def _common(entry: Entry, first: Access, second: Access) -> Form:
    a, b = _first(entry, first, second), _first(entry, second, first)
    return Form(0, a.terms | b.terms)


def _registers(terms: frozenset[tuple[Atom, int]]) -> Iterator[int]:
    """The registers that atoms are made of."""
    for atom, _ in terms:
        if atom[0] in ("value", "count"):
            yield atom[1]
        elif atom[0] == "op":
            for form in atom[2:]:
                yield from _registers(form.terms)


def changed_by(entry: Entry, first: Access, second: Access) -> set[int]:
    """The registers that both addresses are computed from: a way that writes one of them compares different places."""
    return set(_registers(_common(entry, first, second).terms))


def meet(
    entry: Entry, first: Access, second: Access, apart: int = 32, effort: Effort | None = None
) -> tuple[int, int] | None:
    """Two threads that access the same word, if both instructions are certain to reach them.

    apart: 32 for threads of different warps, 1 for different threads, 0 for any.  effort: what comparing takes from.
    """
    # Two pairs of accesses at the same distance, under the same conditions, meet in the same threads.
    grain = max(min(first.bytes, second.bytes, 4), 1)
    apart_by = first.form.const % grain, second.form.const - first.form.const, apart
    alike = apart_by, _place(entry, first), _place(entry, second)
    if alike not in entry.meetings:
        entry.meetings[alike] = _compare(entry, first, second, apart, effort)
    return entry.meetings[alike]


def _place(entry: Entry, access: Access) -> int:
    """A number for what tells, but for a constant, where an access goes in which threads."""
    if (access.at, access.space) not in entry.places:
        active, certain = entry.runs(access.at)
        where = access.form.terms, access.bytes, access.lanes, _home_of(entry, access), active.tobytes(), certain
        entry.places[access.at, access.space] = entry.alike.setdefault(where, len(entry.alike))
    return entry.places[access.at, access.space]


def _home_of(entry: Entry, access: Access) -> int:
    """The block of an access, where its address counts rounds of a loop."""
    counts = any(atom[0] == "count" for atom, _ in access.form.terms)
    return entry.graph.block_of[access.at] if counts else -1


def _compare(entry: Entry, first: Access, second: Access, apart: int, effort: Effort | None) -> tuple[int, int] | None:
    """As `meet`."""
    lanes = entry.block_lanes
    one, other = _first(entry, first, second), _first(entry, second, first)
    a, b = lanes.split(one), lanes.split(other)
    if a is None or b is None or a.keys() != b.keys():
        return None
    (low, high), (least, most) = lanes.span(one), lanes.span(other)
    if low >= most + second.bytes or least >= high + first.bytes:
        return None
    for key in a:
        if key is None or a[key] is b[key] is lanes.one:
            continue
        if (a[key] != a[key][0]).any() or (b[key] != a[key][0]).any():
            return None
    active, certain = entry.runs(first.at)
    others, sure = entry.runs(second.at)
    if not (certain and sure):
        return None
    grain = min(first.bytes, second.bytes, 4)
    if grain <= 0:
        return None
    linear = lanes.linear
    active, others = active & (linear % 32 < first.lanes), others & (linear % 32 < second.lanes)
    mine = _spread(a[None][active], linear[active], first.bytes, grain)
    theirs = _spread(b[None][others], linear[others], second.bytes, grain)
    if effort is not None:
        effort.steps -= len(mine[0]) + len(theirs[0])
    return _meeting(*mine, *theirs, apart)


def _meeting(mine: Array, owners: Array, theirs: Array, readers: Array, apart: int) -> tuple[int, int] | None:
    """Two threads, of those that own words and those that read some, at the same word; apart: as for `meet`."""
    order = np.argsort(mine, kind="stable")
    mine, owners = mine[order], owners[order]
    begin, end = np.searchsorted(mine, theirs, "left"), np.searchsorted(mine, theirs, "right")
    for k in np.flatnonzero(end > begin).tolist():
        for at in {int(begin[k]), int(end[k]) - 1}:
            if not apart or owners[at] // apart != readers[k] // apart:
                return int(owners[at]), int(readers[k])
    return None


def halved(entry: Entry, first: Access, second: Access) -> tuple[int, int] | None:
    """Two threads that meet in the next round of a reduction that halves its distance: one writes s[t], and another
    then reads s[t + d/2] with no barrier between.

    The read lies behind the write by a multiple of a register that the loop around both shifts to the right.
    """
    if first.kind != "store" or second.kind != "load" or first.bytes != second.bytes or second.at > first.at:
        return None
    if first.form.const != second.form.const:
        return None
    apart = second.form.add(first.form, -1)
    if len(apart.terms) != 1:
        return None
    ((atom, count),) = apart.terms
    if atom[0] != "value" or count != first.bytes:
        return None
    around = entry.graph.loops.common(entry.graph.block_of[first.at], entry.graph.block_of[second.at])
    if around is None or not _halves(entry, atom[1], around):
        return None
    own = entry.block_lanes.split(first.form)
    if own is None or not (own[None][1:] != own[None][:-1]).all():
        return None
    active, _ = entry.runs(first.at)
    many = active[32:].any() and not any(entry.code[at].opcode == "bar" for at in _between(entry, around))
    return (32, 0) if many else None


def _between(entry: Entry, head: int) -> Iterator[int]:
    """The instructions of a loop."""
    for n in entry.graph.loops.body(head):
        yield from range(entry.graph.blocks[n].start, entry.graph.blocks[n].end)


def _halves(entry: Entry, register: int, head: int) -> bool:
    """Whether a loop shifts a register to the right, itself or through a copy."""
    graph, flow = entry.graph, entry.flow
    for site in flow.definitions[register]:
        if not graph.loops.has(head, graph.block_of[site]):
            continue
        ins = entry.code[site]
        for _ in range(3):
            source = ins.operands[1] if len(ins.operands) > 1 else None
            if ins.opcode == "shr" and isinstance(source, Register):
                signed = flow.only(source.index)  # of a signed number the sign is added before
                return source.index == register or (signed >= 0 and register in flow.reads[signed])
            if ins.opcode != "mov" or not isinstance(source, Register) or flow.only(source.index) < 0:
                break
            ins = entry.code[flow.only(source.index)]
    return False


def _spread(addresses: Array, threads: Array, size: int, grain: int) -> tuple[Array, Array]:
    """The words of each thread's access, and whose they are."""
    steps = np.arange(0, size, grain)
    return (addresses[:, None] + steps).ravel() // grain, np.repeat(threads, len(steps))
