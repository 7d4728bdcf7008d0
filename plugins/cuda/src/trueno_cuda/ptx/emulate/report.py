"""The report of a launch: findings, counts of instructions, bytes and flops, coalescing and bank conflicts."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from trueno_cuda.ptx.emulate.findings import ERROR


@dataclass
class Finding:
    """One thing that a kernel does wrong, with the first lane that did it and how often it was seen.

    kind: an id of `findings.KINDS`.  severity: "error", or "risk" where the hardware copes.
    line, text: of the PTX; source: the line that it was written from, as `add.py:12`, where the PTX says so.
    """

    kind: str
    line: int
    text: str
    message: str
    block: tuple[int, int, int] = (0, 0, 0)
    warp: int = 0
    lane: int = 0
    address: int | None = None
    array: str | None = None
    severity: str = ERROR
    count: int = 1
    thread: tuple[int, int, int] = (0, 0, 0)
    source: str = ""

    def __str__(self) -> str:
        where = f"block {self.block}, thread {self.thread} (warp {self.warp}, lane {self.lane})"
        often = f", seen {self.count} times" if self.count > 1 else ""
        line = f"{self.source}, " if self.source else ""
        return (
            f"{self.severity}: {self.kind}: {self.message}; {where}{often}; "
            f"{line}line {self.line} of the PTX: {self.text}"
        )


@dataclass
class Coalescing:
    """Global traffic of one instruction: a request is one warp's access, a sector 32 bytes of memory.

    ideal: sectors that the bytes asked for would fill; requests are sampled where there are very many.
    """

    line: int
    text: str
    requests: int = 0
    sectors: int = 0
    ideal: int = 0

    @property
    def sectors_per_request(self) -> float:
        return self.sectors / max(self.requests, 1)

    @property
    def efficiency(self) -> float:
        return self.ideal / max(self.sectors, 1)


@dataclass
class BankConflicts:
    """Shared traffic of one instruction.  wavefronts: passes over the 32 banks; ideal: without conflicts."""

    line: int
    text: str
    requests: int = 0
    wavefronts: int = 0
    ideal: int = 0

    @property
    def ways(self) -> float:
        """How many times longer than without conflicts: 1.0 means none."""
        return self.wavefronts / max(self.ideal, 1)

    @property
    def conflicts(self) -> int:
        return self.wavefronts - self.ideal


@dataclass
class Report:
    """The record of one launch.

    instructions: lane-instructions by opcode.  warp_instructions: issued to warps, by opcode.  bytes: moved by space
    and direction ("global read", …).  flops: by kind ("f32", "f32 mma", …).  steps: NumPy rounds.
    coalescing and bank_conflicts: by PTX line and text.  completed: false after a deadlock or a trap.
    """

    kernel: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    findings: list[Finding] = field(default_factory=list)
    instructions: dict[str, int] = field(default_factory=dict)
    warp_instructions: dict[str, int] = field(default_factory=dict)
    bytes: dict[str, int] = field(default_factory=dict)
    flops: dict[str, int] = field(default_factory=dict)
    coalescing: dict[tuple[int, str], Coalescing] = field(default_factory=dict)
    bank_conflicts: dict[tuple[int, str], BankConflicts] = field(default_factory=dict)
    steps: int = 0
    seconds: float = 0.0
    completed: bool = True
    notes: list[str] = field(default_factory=list)
    _seen: dict[tuple[str, int, str], Finding] = field(default_factory=dict, repr=False)

    def add(self, finding: Finding) -> None:
        """Keep the first finding of a kind and instruction, and count the others."""
        first = self._seen.setdefault((finding.kind, finding.line, finding.text), finding)
        if first is finding:
            self.findings.append(finding)
        else:
            first.count += finding.count

    @property
    def errors(self) -> list[Finding]:
        """Findings without mere risks."""
        return [f for f in self.findings if f.severity == ERROR]

    def lines(self, counts: bool = True) -> Iterator[str]:
        """What happened, and with `counts` what was counted: instructions, bytes, flops, sectors, conflicts."""
        size = "x".join(map(str, self.grid)) + " blocks of " + "x".join(map(str, self.block))
        state = "" if self.completed else ", NOT COMPLETED"
        yield f"{self.kernel}: {size}, {self.steps} steps in {self.seconds * 1e3:.1f} ms{state}"
        for finding in self.findings:
            yield f"  {finding}"
        if counts:
            yield from self._counts()
        for note in self.notes:
            yield f"  note: {note}"
        if not self.findings:
            yield "  no findings"

    def _counts(self) -> Iterator[str]:
        total = sum(self.instructions.values())
        most = sorted(self.instructions.items(), key=lambda item: -item[1])[:8]
        yield f"  instructions: {total:,} of lanes: " + ", ".join(f"{name} {count:,}" for name, count in most)
        if self.bytes:
            yield "  bytes: " + ", ".join(f"{name} {count:,}" for name, count in self.bytes.items())
        if self.flops:
            yield "  flops: " + ", ".join(f"{name} {count:,}" for name, count in self.flops.items())
        for access in self.coalescing.values():
            yield (
                f"  line {access.line}: {access.text}: {access.sectors_per_request:.2f} sectors a request, "
                f"{access.efficiency:.0%} used"
            )
        for shared in self.bank_conflicts.values():
            if shared.conflicts:
                yield f"  line {shared.line}: {shared.text}: {shared.ways:.2f}-way bank conflict"

    def __str__(self) -> str:
        """All lines; of a launch that went wrong the findings alone, which counts would bury."""
        return "\n".join(self.lines(counts=not self.findings))
