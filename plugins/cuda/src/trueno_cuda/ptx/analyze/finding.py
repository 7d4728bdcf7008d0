"""What a rule is, and what it reports."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from trueno_cuda.ptx.analyze.entry import Entry
from trueno_cuda.ptx.syntax.tree import Program

SEVERITIES = ("low", "medium", "high", "critical")
CONFIDENCES = ("medium", "high", "certain")
Found = tuple[int, str]
"""The instruction that a rule reports, and the sentence about it."""


@dataclass(frozen=True)
class Rule:
    """id: as users write it.  sentence: what it finds.  fix: what to do.  bad, good: bodies of kernels that have it and
    do not, or whole texts.  performance: whether it finds waste and no bug.  strict: whether only those who ask for all
    findings get its own.  whole: finds it in a text, by line.
    """

    id: str
    severity: str
    confidence: str
    sentence: str
    why: str
    fix: str
    bad: str
    good: str
    check: Callable[[Entry], Iterator[Found]]
    performance: bool = False
    strict: bool = False
    whole: Callable[[Program], Iterator[tuple[int, str]]] | None = None


@dataclass(frozen=True)
class Finding:
    """One report.  line, column: from 1.  source: the line of the source that a `.loc` names."""

    rule: str
    severity: str
    confidence: str
    entry: str
    line: int
    column: int
    message: str
    fix: str
    text: str = ""
    source: str = ""

    @property
    def grave(self) -> bool:
        """Whether it fails a check that is not strict."""
        return self.severity in ("high", "critical")
