"""What limits a report: statements that were not read, and instructions that PTX does not have."""

from collections.abc import Iterable
from typing import Any

from trueno_cuda.ptx.analyze.effects import OPCODES
from trueno_cuda.ptx.analyze.entry import Entry
from trueno_cuda.ptx.syntax.tree import Program


def unread(program: Program, entries: Iterable[Entry]) -> list[dict[str, Any]]:
    """Statements that are not understood, by line: those that the parser skips, and those that lack operands."""
    reasons = [(problem.line, problem.message) for problem in program.problems]
    reported = {line for line, _ in reasons}
    for entry in entries:
        reasons += [
            (ins.line, f"{ins.name} lacks operands") for ins in entry.code if ins.unread and ins.line not in reported
        ]
    return _listed(reasons)


def unknown(entries: Iterable[Entry]) -> list[dict[str, Any]]:
    """Instructions whose opcode PTX does not have, by line."""
    return _listed(
        [(ins.line, ins.text) for e in entries for ins in e.code if ins.opcode not in OPCODES and not ins.unread]
    )


def _listed(reasons: list[tuple[int, str]]) -> list[dict[str, Any]]:
    return [{"line": line, "message": message} for line, message in sorted(reasons)]
