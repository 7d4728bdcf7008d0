"""The builder's record of accesses to shared memory, so that a missing barrier is an error and not a wrong number.

It sees arrays and stages of arrays, and of their elements what follows from the thread's index and the conditions
around an access (`elements`): enough for a tree of sums, or for a thread that reads back what it wrote itself.  Where
it is not clear that two accesses keep apart, they meet.  It cannot see into stages chosen at run time; the emulator
can.
"""

from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple, Protocol

from trueno_cuda.ptx.errors import BuildError


class Uniformity(IntEnum):
    """Over which threads a value is the same.  A barrier must be reached by all that it waits for."""

    LANE = 0
    WARP = 1
    BLOCK = 2


class Region(NamedTuple):
    """An array, or one stage of it.  per: whether a block shares it or each warp has its own, hence which barrier."""

    array: str
    stage: str
    per: str

    def __str__(self) -> str:
        return self.array + (f"[{self.stage}]" if self.stage else "")

    @property
    def fixed(self) -> bool:
        """Whether the next iteration of a loop accesses the same memory with it."""
        return not self.stage.startswith("%")

    @property
    def barrier(self) -> str:
        return "k.sync_warp()" if self.per == "warp" else "k.sync()"


class Spot(Protocol):
    """The elements that an access touches, in each thread: `elements.Place`."""

    def apart(self, other: "Spot", later: bool) -> bool:
        """Whether no element is accessed here by one thread and there by another; later: in another turn of a loop."""


MANY = 32
"""Places of a region that are told apart; beyond, an access is of all of it."""


class Accesses(dict[Region, "set[Spot | None]"]):
    """Where regions are accessed; None is anywhere."""

    def note(self, region: Region, spot: Spot | None) -> None:
        spots = self.setdefault(region, set())
        if None not in spots:
            spots.add(spot)
            if spot is None or len(spots) > MANY:
                self[region] = {None}

    def meet(self, region: Region, spot: Spot | None, later: bool = False) -> bool:
        """Whether another thread may access the same element here as there."""
        return any(mine is None or spot is None or not mine.apart(spot, later) for mine in self.get(region, ()))

    def meet_any(self, region: Region, next_turn: "Accesses") -> bool:
        """Whether an access of the next turn of a loop may meet one of these."""
        return any(self.meet(region, spot, later=True) for spot in next_turn[region])

    def add(self, other: "Accesses") -> None:
        for region, spots in other.items():
            for spot in spots:
                self.note(region, spot)

    def copy(self) -> "Accesses":
        return Accesses({region: set(spots) for region, spots in self.items()})

    def without(self, per: str) -> "Accesses":
        return Accesses({region: spots for region, spots in self.items() if region.per != per})


@dataclass(slots=True)
class Pending:
    """Accesses that no barrier has ordered yet.  groups: asynchronous copies, oldest first; open: not yet committed.

    waited: whether this thread has waited for the previous grid, on every path to here.
    """

    reads: Accesses = field(default_factory=Accesses)
    writes: Accesses = field(default_factory=Accesses)
    groups: list[set[Region]] = field(default_factory=list)
    open: set[Region] = field(default_factory=set)
    waited: bool = False

    def copy(self) -> "Pending":
        groups = [set(g) for g in self.groups]
        return Pending(self.reads.copy(), self.writes.copy(), groups, set(self.open), self.waited)

    def join(self, other: "Pending") -> None:
        """Either of two paths was taken."""
        self.waited &= other.waited
        self.reads.add(other.reads)
        self.writes.add(other.writes)
        self.open |= other.open
        short = max(len(self.groups), len(other.groups))
        mine = [set[Region]() for _ in range(short - len(self.groups))] + self.groups
        theirs = [set[Region]() for _ in range(short - len(other.groups))] + other.groups
        self.groups = [a | b for a, b in zip(mine, theirs, strict=True)]

    @property
    def arriving(self) -> set[Region]:
        return self.open.union(*self.groups)

    def read(self, region: Region, spot: Spot | None = None) -> None:
        if region in self.arriving:
            raise BuildError(
                f"shared memory {region} is read while cp.async still writes it: k.async_commit(), k.async_wait(0), "
                f"then {region.barrier}"
            )
        if self.writes.meet(region, spot):
            raise BuildError(f"shared memory {region} is read after a write with no {region.barrier} between")
        self.reads.note(region, spot)

    def write(self, region: Region, spot: Spot | None = None) -> None:
        if self.reads.meet(region, spot):
            raise BuildError(
                f"shared memory {region} is written after a read with no {region.barrier} between: load, say "
                f"{region.barrier}, then store (k.block_sum(x) and its like reduce without it); an element that "
                f'several threads change takes an atomic: {region.array}.reduce("add", i, v)'
            )
        self.writes.note(region, spot)

    def copy_async(self, region: Region, spot: Spot | None = None) -> None:
        self.write(region, spot)
        del self.writes[region]
        self.open.add(region)

    def commit(self) -> None:
        self.groups.append(self.open)
        self.open = set()

    def wait(self, newest: int) -> None:
        """All but the newest groups have landed, for the thread that waited; the others need a barrier."""
        landed = self.groups[: max(len(self.groups) - newest, 0)]
        self.groups = self.groups[len(landed) :]
        for region in set[Region]().union(*landed):
            self.writes.note(region, None)

    def sync(self, per: str) -> None:
        """A barrier of the block, or of the `warp`."""
        warp = per == "warp"
        self.reads = self.reads.without("warp") if warp else Accesses()
        self.writes = self.writes.without("warp") if warp else Accesses()

    def loop_edge(self, head: "Pending") -> None:
        """The next iteration begins: pending accesses meet those of the body before its first barrier."""
        for region in sorted(r for r in {*head.writes, *head.arriving} if r.fixed and r in self.reads):
            if region in head.arriving or self.reads.meet_any(region, head.writes):
                raise BuildError(
                    f"shared memory {region} is read at the end of the loop's body and written at its start: the next "
                    f"iteration overwrites what others still read; end the body with {region.barrier}"
                )
        for region in sorted(r for r in head.reads if r.fixed and r in {*self.writes, *self.arriving}):
            if region in self.arriving or self.writes.meet_any(region, head.reads):
                raise BuildError(
                    f"shared memory {region} is written at the end of the loop's body and read at its start: "
                    f"end the body with {region.barrier}"
                )


@dataclass(slots=True, eq=False)
class Scope:
    """A branch or a loop's body: code that is entered as a whole.

    uniformity: over which threads the decision to enter is the same.  condition: the predicate of a branch, and whether
    it holds in it.  head: of a loop, the accesses before its first
    barrier; heading: whose barriers have not come yet.  barrier: what it makes wait, `block` or `warp`.
    """

    kind: str
    uniformity: Uniformity = Uniformity.BLOCK
    repeats: bool = False
    head: Pending = field(default_factory=Pending)
    heading: set[str] = field(default_factory=lambda: {"block", "warp"})
    barrier: str = ""
    condition: tuple[object, bool] | None = None

    def close(self) -> None:
        if self.barrier and self.uniformity < (Uniformity.BLOCK if self.barrier == "block" else Uniformity.WARP):
            raise BuildError(
                f"a {self.kind} that some threads leave earlier than others holds a barrier or collective for the "
                f"whole {self.barrier}: make the condition of leave_if the same for all of them"
            )


class Path:
    """The open scopes, innermost last, and what is pending at this point of the code."""

    def __init__(self) -> None:
        self.scopes = [Scope("kernel")]
        self.pending = Pending()
        self.unfenced: set[Region] = set()  # stored by threads, not yet shown to asynchronous copies and wgmma

    def __contains__(self, scope: object) -> bool:
        return any(b is scope for b in self.scopes)

    @property
    def inner(self) -> Scope:
        return self.scopes[-1]

    def open(self, scope: Scope) -> None:
        self.scopes.append(scope)

    def close(self, scope: Scope) -> None:
        if self.inner is not scope:
            raise BuildError(f"a {scope.kind} was closed while a {self.inner.kind} inside it is open")
        scope.close()
        self.scopes.pop()

    @property
    def conditions(self) -> list[tuple[object, bool]]:
        """The predicates of the branches around this point of the code, and whether they hold."""
        return [scope.condition for scope in self.scopes if scope.condition is not None]

    def touch(self, how: str, region: Region, spot: Spot | None = None) -> None:
        """An access: `read`, `write` or `copy_async`; or by the asynchronous proxy, `fetch` and `fill`."""
        if how == "fetch" and region in self.unfenced:
            raise BuildError(
                f"shared memory {region} is read by a bulk copy or wgmma after an ordinary store: "
                f"the threads that stored say k.fence('async'), then {region.barrier}"
            )
        if how == "write":
            self.unfenced.add(region)
        how = {"fetch": "read", "fill": "write"}.get(how, how)
        getattr(self.pending, how)(region, spot)
        for scope in reversed(self.scopes):
            if region.per not in scope.heading:
                break
            if scope.repeats and how == "copy_async":
                scope.head.open.add(region)
            elif scope.repeats:
                (scope.head.reads if how == "read" else scope.head.writes).note(region, spot)

    def sync(self, per: str) -> None:
        """A barrier of the `block` or of the `warp`.  One inside a branch may not be reached, one in a loop is."""
        self.pending.sync(per)
        for scope in reversed(self.scopes):
            scope.heading -= {"block", "warp"} if per == "block" else {"warp"}
            if "branch" in scope.kind:
                break

    def require(self, uniformity: Uniformity, what: str) -> None:
        """Refuse `what`, which waits for all threads of a block or warp, where not all of them arrive."""
        per = "block" if uniformity is Uniformity.BLOCK else "warp"
        for scope in self.scopes:
            if scope.uniformity < uniformity:
                decided = "each warp" if scope.uniformity is Uniformity.WARP else "each thread"
                raise BuildError(
                    f"{what} waits for the whole {per}, but it stands in a {scope.kind} that is decided for "
                    f"{decided}: some threads never arrive; move it out"
                )
            if scope.barrier != "block":
                scope.barrier = per
