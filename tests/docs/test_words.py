"""Phrases that stop a reader: the sources, the docs and the docstrings of tests have none (CONTRIBUTING, "Style")."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
GAP = r'(?:\s|["#]|f(?="))+'
"""Between two words: blanks, or a line's end with the marks of a comment or of two string literals."""


class Phrase(NamedTuple):
    """A pattern, in which `~` is the gap between two words; what to write instead; and why."""

    pattern: str
    better: str
    why: str


PHRASES = [
    Phrase(r"\b[Hh]ang(?:s|ing)?~on\b", "depend on", "results depend on their inputs"),
    Phrase(r"(?<!\x7e)\b[Nn]obody\b", "no caller, no kernel, no other thread", "name what is meant"),
    Phrase(r"\b[Ss]omebody\b", "the caller, another thread, another user", "name what is meant"),
    Phrase(r"\b[Ww]hoever\b", "the caller, the process that", "name what is meant"),
    Phrase(
        r"\b(?:of|to|says|those|through)~whom\b|\b[Ww]hom~(?:it|they|the|ours|a)\b", "which", "no program is a person"
    ),
    Phrase(
        r"(?<![Tt]here\s)\b(?:is|are|was|were)~none\b(?!~(?:of|left|at|here)\b)",
        "is not one, has none, is invalid",
        "say what it is not",
    ),
    Phrase(
        r"(?<!here\s)\b(?:is|are)~no~(?:whole~number|multiple|power~of|number|name|path|text|file|array|error|Value|"
        r"predicate|integer|index|op|function|backend|type|shape|block|format|Python|TOML|JSON|UTF-8)\b",
        "is not a",
        "a fact about one thing needs `is not`",
    ),
    Phrase(r"\b[Aa]new\b", "again", "made anew: made again, rebuilt"),
    Phrase(r"\bin~silence\b", "silently", "it qualifies the verb"),
    Phrase(r"\bunasked\b", "automatically", "the term of the field"),
    Phrase(r"\bheed(?:s|ed)?\b", "use, ignore", "a matrix is used or ignored"),
    Phrase(r"\bfor~ever\b", "forever", "one word"),
    Phrase(r"\bat~home\b", "on the host", "memory is the host's or a device's"),
    Phrase(r"\b(?:bring\w*|brought)~(?:\w+~)?home\b", "copy to the host", "memory is the host's or a device's"),
    Phrase(r"\b(?:come|comes|came|coming)~home\b", "are copied to the host", "memory is the host's or a device's"),
    Phrase(r"\bas~(?:it|they)~lies?\b", "without a copy, in its layout", "arrays have a layout"),
    Phrase(r"\b[Mm]end(?:s|ed|ing)?\b", "fix, repair", "software is fixed"),
    Phrase(r"\b(?:refus\w+|says?|said|told)~(?:\w+~){0,2}in~words\b", "with a message", "errors have messages"),
    Phrase(r"\bwithout~a~word\b", "without a message, silently", "errors have messages"),
    Phrase(r"\bprocess(?:es)?~of~(?:its|their)~own\b", "child process", "the term of the field"),
    Phrase(r"\bwhat~(?:it|they)~(?:is|are|was|were)~given\b", "its arguments, its input", "name what is passed"),
    Phrase(
        r"(?:^|(?<=[.:;]\s)|(?<=[.:;]\s\s)|(?<=\"\"\"))Who~(?!am\b|are\b|is\b)[^?.\n]*\.",
        "A caller that",
        "`Who` asks a question",
    ),
    Phrase(r"\bas~[\w']+~(?:has|have)~it\b", "as in, as defined by", "a standard defines"),
    Phrase(r"\bplays?~(?:a~GPU|one|it|this)\b", "emulates", "the term of the field"),
    Phrase(r"\b(?:can|cannot|could|may|to)~be~had\b", "be obtained, be repeated", "say how"),
    Phrase(
        r"\b(?:a|one|each)~(?:kernel|row|op|file|process|thread|call|core|line)~a~(?:kernel|row|op|file|core|line)\b",
        "one per",
        "rates are per",
    ),
    Phrase(r"\b[Bb]egins?~(?:anew|again~from)\b", "start again, is cleared", "caches are cleared"),
    Phrase(r"\bthe~other~way~round\b", "reversed, transposed", "say which order or layout"),
    Phrase(r"\bis~told~(?:nothing|of|that)\b", "gets, receives", "calls pass arguments"),
    Phrase(
        r"\bDESIGN~\d|\bFEATURES~A?\d|\bspeed~specification\b",
        "the fact itself",
        "no such document is in the repository",
    ),
]


def files() -> list[Path]:
    """The files whose words count: sources, benchmarks, docs and tests; decisions stay as they were written."""
    found = [
        *ROOT.glob("*.md"),
        *(p for p in ROOT.glob("docs/**/*.md") if p.parent.name != "adr"),
        *ROOT.glob("docs/*.py"),
        *(p for top in ("core", "plugins", "examples") for p in ROOT.glob(f"{top}/**/*.py")),
        *(p for p in ROOT.glob("benchmarks/**/*") if p.suffix in (".py", ".md") and "results" not in p.parts),
        *ROOT.glob("tests/**/*.py"),
    ]
    return sorted(p for p in found if not {"build", ".venv"} & set(p.relative_to(ROOT).parts) and p != Path(__file__))


def passages(path: Path) -> Iterator[tuple[int, str]]:
    """The parts of a file that are read here, each with its first line: of a test its docstrings."""
    text = path.read_text("utf-8")
    parts = path.relative_to(ROOT).parts
    if parts == ("CHANGELOG.md",):
        text = re.split(r"^## \[\d", text, maxsplit=1, flags=re.M)[0]  # released sections are history
    if parts == ("CONTRIBUTING.md",):
        text = re.sub(r"^\| avoid \| write \|(?:\n\|.*)*", lambda m: "\n" * m[0].count("\n"), text, flags=re.M)
    if parts[0] != "tests":
        yield 1, text
        return
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.body:
            first = node.body[0]
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and ast.get_docstring(node):
                yield first.lineno, f'"""{first.value.value}'


def findings(text: str, line: int = 1) -> list[str]:
    """`line: "phrase": write …, because …` for each phrase in a text that begins at `line`."""
    return [
        f'{line + text[: match.start()].count(chr(10))}: "{" ".join(match[0].split())}": '
        f"write {phrase.better} ({phrase.why})"
        for phrase in PHRASES
        for match in re.finditer(phrase.pattern.replace("~", GAP), text, re.M)
    ]


def test_no_phrase_stops_a_reader():
    read = files()
    assert len(read) > 500
    wrong = [
        f"{path.relative_to(ROOT)}:{finding}"
        for path in read
        for line, text in passages(path)
        for finding in findings(text, line)
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    "text",
    [
        "The plan hangs on shapes.",
        "an array that nobody reads",
        'raise ValueError("x is no "\n    "whole number")',
        "# the call is made\n# anew",
        "ParameterError for what is none",
        "It runs.  Who answers a Reject is asked for the parts.",
        "a kernel a row",
        "The kernels (DESIGN 1).",
        "bring it home with trueno.numpy",
        "rounded as PTX has it",
    ],
)
def test_a_planted_phrase_is_found(text):
    assert len(findings(text)) == 1


@pytest.mark.parametrize(
    "text",
    [
        "There is no file of that name.",
        "It is no longer needed, and there is no need for it.",
        "None of them is none of our business.",
        "Who can read this?  The user's home folder.",
        "bytes of a process; the process of writing; a copy a user made",
        "words in words of 32 bits",
        "the kernel depends on shapes and is not a number",
        "amended; recommend; a newer value",
    ],
)
def test_plain_english_passes(text):
    assert not findings(text)


def test_findings_name_the_line_and_the_remedy():
    (said,) = findings("one\ntwo, which nobody reads\n", line=10)
    assert said.startswith('11: "nobody": write ') and said.endswith("(name what is meant)")
