"""The builder's record of accesses to shared memory, so that a missing barrier is an error and not a wrong number.

It sees arrays and stages of arrays, not elements: a thread that reads back only what it wrote itself must still say
`k.sync()`, or keep the value in a register.  It cannot see into stages chosen at run time; the emulator can.
"""

from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

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


@dataclass(slots=True)
class Pending:
    """Accesses that no barrier has ordered yet.  groups: asynchronous copies, oldest first; open: not yet committed.

    waited: whether this thread has waited for the previous grid, on every path to here.
    """

    reads: set[Region] = field(default_factory=set)
    writes: set[Region] = field(default_factory=set)
    groups: list[set[Region]] = field(default_factory=list)
    open: set[Region] = field(default_factory=set)
    waited: bool = False

    def copy(self) -> "Pending":
        return Pending(set(self.reads), set(self.writes), [set(g) for g in self.groups], set(self.open), self.waited)

    def join(self, other: "Pending") -> None:
        """Either of two paths was taken."""
        self.waited &= other.waited
        self.reads |= other.reads
        self.writes |= other.writes
        self.open |= other.open
        short = max(len(self.groups), len(other.groups))
        mine = [set[Region]() for _ in range(short - len(self.groups))] + self.groups
        theirs = [set[Region]() for _ in range(short - len(other.groups))] + other.groups
        self.groups = [a | b for a, b in zip(mine, theirs, strict=True)]

    @property
    def arriving(self) -> set[Region]:
        return self.open.union(*self.groups)

    def read(self, region: Region) -> None:
        if region in self.arriving:
            raise BuildError(
                f"shared memory {region} is read while cp.async still writes it: k.async_commit(), k.async_wait(0), "
                f"then {region.barrier}"
            )
        if region in self.writes:
            raise BuildError(f"shared memory {region} is read after a write with no {region.barrier} between")
        self.reads.add(region)

    def write(self, region: Region) -> None:
        if region in self.reads:
            raise BuildError(
                f"shared memory {region} is written after a read with no {region.barrier} between: load, say "
                f"{region.barrier}, then store (k.block_sum(x) and its like reduce without it); an element that "
                f'several threads change takes an atomic: {region.array}.reduce("add", i, v)'
            )
        self.writes.add(region)

    def copy_async(self, region: Region) -> None:
        self.write(region)
        self.writes.discard(region)
        self.open.add(region)

    def commit(self) -> None:
        self.groups.append(self.open)
        self.open = set()

    def wait(self, newest: int) -> None:
        """All but the newest groups have landed, for the thread that waited; the others need a barrier."""
        landed = self.groups[: max(len(self.groups) - newest, 0)]
        self.groups = self.groups[len(landed) :]
        self.writes = self.writes.union(*landed)

    def sync(self, per: str) -> None:
        """A barrier of the block, or of the `warp`."""
        if per == "warp":
            self.reads = {r for r in self.reads if r.per != "warp"}
            self.writes = {r for r in self.writes if r.per != "warp"}
        else:
            self.reads.clear()
            self.writes.clear()

    def loop_edge(self, head: "Pending") -> None:
        """The next iteration begins: pending accesses meet those of the body before its first barrier."""
        for region in sorted(r for r in head.writes | head.arriving if r.fixed and r in self.reads):
            raise BuildError(
                f"shared memory {region} is read at the end of the loop's body and written at its start: the next "
                f"iteration overwrites what others still read; end the body with {region.barrier}"
            )
        for region in sorted(r for r in head.reads if r.fixed and r in self.writes | self.arriving):
            raise BuildError(
                f"shared memory {region} is written at the end of the loop's body and read at its start: "
                f"end the body with {region.barrier}"
            )


@dataclass(slots=True, eq=False)
class Scope:
    """A branch or a loop's body: code that is entered as a whole.

    uniformity: over which threads the decision to enter is the same.  head: of a loop, the accesses before its first
    barrier; heading: whose barriers have not come yet.  barrier: what it makes wait, `block` or `warp`.
    """

    kind: str
    uniformity: Uniformity = Uniformity.BLOCK
    repeats: bool = False
    head: Pending = field(default_factory=Pending)
    heading: set[str] = field(default_factory=lambda: {"block", "warp"})
    barrier: str = ""

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

    def touch(self, how: str, region: Region) -> None:
        """An access: `read`, `write` or `copy_async`; or by the asynchronous proxy, `fetch` and `fill`."""
        if how == "fetch" and region in self.unfenced:
            raise BuildError(
                f"shared memory {region} is read by a bulk copy or wgmma after an ordinary store: "
                f"the threads that stored say k.fence('async'), then {region.barrier}"
            )
        if how == "write":
            self.unfenced.add(region)
        how = {"fetch": "read", "fill": "write"}.get(how, how)
        getattr(self.pending, how)(region)
        for scope in reversed(self.scopes):
            if region.per not in scope.heading:
                break
            if scope.repeats:
                {"read": scope.head.reads, "write": scope.head.writes, "copy_async": scope.head.open}[how].add(region)

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
