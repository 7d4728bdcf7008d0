"""Damaged PTX: the parser and the analyzer read it, or say what is wrong with it, quickly and in little memory.

Of each text, its tokens joined are the text; the tolerant parser raises nothing and names places that are there; the
strict one, if it takes the text, gives the same tree as the tolerant one.  Of a share the three ways through a
statement are compared, and the rules run.  Of a smaller share the memory is measured.

`python -m tests.hostile.ptx_texts --count 1000000 --seed 7` runs many, `--case NUMBER` shows one.
"""

import random
import re
import signal
import sys
import tracemalloc
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import NamedTuple
from unittest import mock

from trueno_cuda.ptx.analyze.launch import Launch
from trueno_cuda.ptx.analyze.page import html
from trueno_cuda.ptx.analyze.report import analysis
from trueno_cuda.ptx.analyze.rules import RULES
from trueno_cuda.ptx.syntax import declarations, runs
from trueno_cuda.ptx.syntax.errors import InternalError, PtxError
from trueno_cuda.ptx.syntax.parse import parse
from trueno_cuda.ptx.syntax.tokens import tokens
from trueno_cuda.ptx.syntax.tree import Label, Program

from . import many
from .ptx_damage import damaged, pump, words

COMPARED, JUDGED, MEASURED, PUMPED = 0.1, 0.03, 0.01, 0.001
"""The shares of texts that are read in all ways, given to the rules, measured, and long."""
SECONDS = 2.0
"""Of this process's time, which no text may take."""
TIMES, SLACK = 50, 1 << 19
"""Bytes of memory for each byte of the text that is parsed, and for any text."""
NEVER = re.compile(r"(?!)")
LAUNCHES = (None, (256, 1, 1), (16, 16, 1), (7, 1, 1), (32, 1, 1))


class Case(NamedTuple):
    """number: `case` gives this one for it again.  text: as the analyzer decodes a file's bytes."""

    number: int
    text: str
    compared: bool
    judged: bool
    measured: bool


def case(number: int) -> Case:
    """The case of a number."""
    rng = random.Random(number)
    raw = damaged(rng)
    pumped = rng.random() < PUMPED
    if pumped:
        raw = pump(rng, raw)
    compared, judged, measured = (rng.random() < share for share in (COMPARED, JUDGED, MEASURED))
    return Case(number, raw.decode("utf-8", "replace"), compared and not pumped, judged, measured or pumped)


def run(one: Case) -> str:
    """Read a text in every way; what the strict parser made of it in a word.  Raises bugs alone."""
    with limited(SECONDS):
        assert "".join(token.text for token in tokens(one.text)) == one.text
    with limited(SECONDS):
        program = parse(one.text, tolerant=True)
        places(program)
    outcome, tree = "read", []
    with limited(SECONDS):
        try:
            tree = shown(parse(one.text))
        except InternalError:
            raise
        except PtxError:
            outcome = "refused"
    if outcome == "read":
        assert tree == shown(program), "the tolerant parser gives another tree"
    if one.compared:
        compare(one.text)
    if one.judged:
        judge(one)
    if one.measured:
        measure(one.text)
    return outcome


def places(program: Program) -> None:
    """Whether each statement stands where the tree says."""
    text, lines = program.lines.text, program.lines
    assert len(lines.starts) == text.count("\n") + 1
    for function in program.functions.values():
        for item in function.body:
            if not isinstance(item, Label):
                assert 0 <= item.start < len(text) and text[item.start] not in " \t\r\n"
                assert item.line == lines.line(item.start) and item.text
    for problem in program.problems:
        assert problem.line <= len(lines.starts)


def shown(program: Program) -> list[object]:
    """Everything of a program's functions that a reader sees."""

    def plain(value: object) -> str:
        return re.sub(r" object at 0x\w+", "", repr(value))

    result: list[object] = []
    for function in program.functions.values():
        result.append((function.name, len(function.registers), function.directives, plain(function.variables)))
        for item in function.body:
            if isinstance(item, Label):
                result.append((item.name, item.line))
            else:
                operands = plain((item.operands, item.guard, item.arguments))
                result.append(
                    (item.name, item.negated, item.line, item.text, item.start, item.targets, item.written, operands)
                )
    return result


def compare(text: str) -> None:
    """Whether the ways through a statement take the same texts, and give the same tree."""
    results = []
    for cut, matched in ((True, True), (False, True), (False, False)):
        with ExitStack() as patches:
            if not cut:
                patches.enter_context(mock.patch.object(runs, "ODD_BLANKS", [""]))  # every text has the empty one
            if not matched:
                for place, name in ((runs, "PLAIN"), (runs, "CALL"), (declarations, "NUMBERS")):
                    patches.enter_context(mock.patch.object(place, name, NEVER))
            patches.enter_context(limited(SECONDS))
            try:
                results.append(shown(parse(text)))
            except InternalError:
                raise
            except PtxError as error:
                results.append([str(error)])
    assert results[0] == results[1] == results[2], results


def judge(one: Case) -> None:
    """Run every rule, and draw the page."""
    rng = random.Random(one.number)
    with limited(SECONDS), suppress(PtxError):
        try:
            made = analysis("x.ptx", one.text, Launch(rng.choice(LAUNCHES)), RULES, "sm_90", real=False)
            assert html([made]).endswith("</html>\n")
        except InternalError as error:
            raise AssertionError("an internal error") from error


def measure(text: str) -> None:
    """Whether parsing keeps to its memory."""
    tracemalloc.start()
    try:
        parse(text, tolerant=True)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak <= TIMES * len(text) + SLACK, f"{peak} bytes for a text of {len(text)}"


@contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Raise TimeoutError where what stands inside takes more of this process's time."""

    def late(*_: object) -> None:
        raise TimeoutError(f"more than {seconds} s")

    before = signal.signal(signal.SIGVTALRM, late)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


if __name__ == "__main__":
    sys.exit(many.main("ptx_texts", __doc__ or "", case, run, words))
