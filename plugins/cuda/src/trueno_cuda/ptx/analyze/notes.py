"""What limits a report: statements that were not read, instructions that PTX does not have, comments without effect."""

from collections.abc import Iterable
from typing import Any

from trueno.errors import suggestion

from trueno_cuda.ptx.analyze.check import Excused, allowances
from trueno_cuda.ptx.analyze.effects import OPCODES
from trueno_cuda.ptx.analyze.entry import Entry
from trueno_cuda.ptx.analyze.rules import RULES
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


def idle(program: Program, rules: Iterable[str], used: Excused) -> list[dict[str, Any]]:
    """Comments that excuse nothing, and why, by line.  rules: those that were asked for; used: excused findings."""
    reasons = []
    for comment in allowances(program):
        known = [name for name in comment.rules if name in RULES]
        strange = [name for name in comment.rules if name not in RULES]
        reasons += [(comment.at, f"no rule is called {name!r}{suggestion(name, RULES)}") for name in strange]
        if known and not comment.reason:
            words = f"allow({', '.join(known)}) has no reason, so it excuses nothing"
            reasons.append((comment.at, words))
        elif comment.reason:
            without = [name for name in known if name in rules and (comment.line, name) not in used]
            reasons += [(comment.at, f"allow({name}) excuses nothing: line {comment.line} has no such finding")
                        for name in without]  # fmt: skip
    return _listed(reasons)


def _listed(reasons: list[tuple[int, str]]) -> list[dict[str, Any]]:
    return [{"line": line, "message": message} for line, message in sorted(reasons)]
