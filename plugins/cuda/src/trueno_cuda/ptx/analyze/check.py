"""Runs the rules over a text: findings with their places, without those that the text itself excuses.

A comment `// ptx: allow(rule) why` excuses findings of a rule on its own line, or on the next line where it stands
alone.  Without a reason it excuses nothing.
"""

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import NamedTuple

from trueno_cuda.ptx.analyze.entry import Entry
from trueno_cuda.ptx.analyze.finding import SEVERITIES, Finding
from trueno_cuda.ptx.analyze.rules import RULES, USUAL
from trueno_cuda.ptx.syntax.tree import Program

ALLOW = re.compile(
    r"^(?P<code>(?:(?!//)[^\n])*)//[^\n]*?\bptx:\s*allow\((?P<rules>[\w\s,-]+)\)[ \t]*(?P<why>[^\n]*)$", re.MULTILINE
)
SAME = 5
"""Findings of one rule in one entry that are listed; a count stands for the others."""


class Allowance(NamedTuple):
    """A comment that excuses rules on a line.  at: its own line."""

    at: int
    line: int
    rules: list[str]
    reason: str


Excused = set[tuple[int, str]]
"""Lines and rules of which a comment excused a finding."""


def check(entry: Entry, rules: Iterable[str] | None = None, used: Excused | None = None) -> list[Finding]:
    """What the rules find in an entry, the gravest first.

    rules: by default all but the strict ones.  used: takes what comments excuse.
    """
    program = entry.program
    excused = allowed(program)
    result = []
    for name in USUAL if rules is None else rules:
        rule = RULES[name]
        for at, message in rule.check(entry):
            ins = entry.code[at]
            if name in excused.get(ins.line, ()):
                if used is not None:
                    used.add((ins.line, name))
                continue
            column = program.lines.column(ins.start) if ins.start >= 0 else 1
            source = ""
            if ins.written is not None:
                source = f"{program.files.get(ins.written[0], 'source')}:{ins.written[1]}"
            result.append(
                Finding(name, rule.severity, rule.confidence, entry.name, ins.line, column, message, rule.fix,
                        ins.text, source)
            )  # fmt: skip
    return sorted(result, key=lambda f: (-SEVERITIES.index(f.severity), f.line, f.rule))


def check_whole(program: Program, rules: Iterable[str] | None = None, used: Excused | None = None) -> list[Finding]:
    """What the rules find in a text as a whole.  used: as for `check`."""
    result = []
    excused = allowed(program)
    for name in USUAL if rules is None else rules:
        rule = RULES[name]
        for line, message in rule.whole(program) if rule.whole else ():
            if name in excused.get(line, ()):
                if used is not None:
                    used.add((line, name))
                continue
            result.append(Finding(name, rule.severity, rule.confidence, "", line, 1, message, rule.fix))
    return result


@lru_cache(maxsize=1)
def allowed(program: Program) -> dict[int, set[str]]:
    """The rules that comments excuse, by line: looked for once, not for each entry of a text."""
    result: dict[int, set[str]] = {}
    for one in allowances(program) if "ptx:" in program.lines.text else ():
        if one.reason:
            result.setdefault(one.line, set()).update(one.rules)
    return result


def allowances(program: Program) -> Iterator[Allowance]:
    """The comments that excuse rules, or try to."""
    for match in ALLOW.finditer(program.lines.text):
        at = program.lines.line(match.start(2))
        names = [name.strip() for name in match[2].split(",")]
        yield Allowance(at, at + (not match[1].strip()), names, match[3].strip())
