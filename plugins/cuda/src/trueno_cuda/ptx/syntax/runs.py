"""Runs of plain instructions, with the labels and places in the source between them: most of every text.

Three ways lead through a statement.  The first cuts the text at its semicolons, a piece at its commas, and looks names
and operands up by their text.  What no look-up knows, a regular expression may match.  All else, and all that is wrong,
`Statements` reads token by token.  The three accept the same text and give the same tree.
"""

import re
from typing import Any

from trueno_cuda.ptx.syntax.declarations import DECLARED, Declarations
from trueno_cuda.ptx.syntax.operands import BLANKS, GAP, LONGEST, PIECES
from trueno_cuda.ptx.syntax.tree import Guarded, Instruction, Label, Operand, Plain, Symbol
from trueno_cuda.ptx.syntax.types import PRED, TYPES

BLANK = r"[ \t\r\n]*+(?://[^\n]*\n[ \t\r\n]*+)*+"
"""Blanks and whole comments; possessive, as what is left to go back to would take a hundred bytes for each."""
PLAIN = re.compile(BLANK + r"(?:@(!?)([%\w$]+)[ \t]+)?([a-z][\w.]*(?:::[\w.]+)*)(?:[ \t]+([^;/\"@():]*))?;", re.ASCII)
"""An instruction: negation, guard, name with modifiers, operands."""
BETWEEN = re.compile(
    BLANK
    + r"""(?:([A-Za-z_$%][\w$.]*)[ \t]*:(?=[ \t\r\n])(?=AHEAD)
    |\.loc[ \t]+(\d{1,10})[ \t]+(\d{1,10})(?!\d)(?:[ \t]+(\d{1,10})(?!\d))?([^\n]*)
    |\.reg[ \t]+\.(\w+)[ \t]+([%A-Za-z_$][\w$]*)(?:<(\d{1,9})>)?;
    |\.param[ \t]+\.(\w+)[ \t]+([A-Za-z_$][\w$]*);
    |\.pragma[ \t]+"[^"\\\n]*";)?""".replace("\n    ", "").replace(
        "AHEAD", BLANK + r"(?:[a-z@$%}]|\.loc\b|\.pragma\b)"
    ),
    re.ASCII,
)
"""A label before an instruction, a place in the source, registers, a parameter of a call, a pragma, or comments."""
CALL = re.compile(
    BLANK + rf"(call(?:\.uni)?){GAP}(?:(?<=[ \t\r\n])|(?=\())(?:\(([^();:/\"@]*)\){GAP},{GAP})?"
    rf"([A-Za-z_$%][\w$]*){GAP}(?:,{GAP}\(([^();:/\"@]*)\){GAP})?;",
    re.ASCII,
)
"""A call: results, the function, arguments."""
INLINED = re.compile(r"\binlined_at[ \t]+(\d{1,10})[ \t]+(\d{1,10})[ \t]+(\d{1,10})(?!\d)", re.ASCII)
NAME = re.compile(r"[a-z][\w.]*(?:::[\w.]+)*", re.ASCII)
ODD_BLANKS = "\v\f\x1c\x1d\x1e\x1f\x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(
    map(chr, range(0x2000, 0x200B))
)
"""What `str.split` takes for a blank, and PTX does not."""
LISTED: Any = PIECES
"""The pattern again: its type leaves out `scanner`, which matches piece after piece."""
SLOW = {"brx", "call"}
FEW, MANY = 1 << 9, 1 << 16
"""Characters that are cut at a time: few at first, since what comes may be anything, then twice as many each time."""
Place = tuple[int, int, int]
"""File, line and column."""


class Names(dict[str, tuple[str, tuple[str, ...]]]):
    """Opcode and modifiers by the text of both, but for instructions that are read by their tokens."""

    def __missing__(self, words: str) -> tuple[str, tuple[str, ...]]:
        opcode, *mods = words.split(".")
        if opcode in SLOW or not NAME.fullmatch(words):
            raise KeyError(words)
        self[words] = opcode, tuple(mods)
        return self[words]


class Runs(Declarations):
    """Reads plain instructions, many at a time."""

    def __init__(self, text: str, tolerant: bool = False) -> None:
        super().__init__(text, tolerant)
        self.names = Names()
        self.cuts = not any(map(text.__contains__, ODD_BLANKS))  # whether the first way may be taken
        self.written: tuple[int, int] | None = None  # file and line that the last .loc gave
        self.outer: dict[Place, Place] = {}  # of places in inlined functions, the outermost one that calls

    def run(self) -> None:
        """Read instructions of a usual form, and what stands between them, up to what is neither."""
        assert self.function is not None
        at, lines, names, known = self.at, self.at.lines, self.names, self.scope.known
        text, append, find = at.text, self.function.body.append, known.__getitem__
        start, size = at.rest(), FEW
        pieces: list[str] = []  # of the text from `start` on, the first one last
        self.running = True
        while self.cuts:
            if not pieces:
                pieces = text[start : start + size].split(";")[-2::-1]  # the last one may go on
                size = min(2 * size, MANY)
                if not pieces:
                    break
            piece = pieces.pop()
            parts = piece.split(", ")
            words = parts[0].split()
            try:
                if len(words) == 2:
                    name, parts[0] = words
                    opcode, mods = names[name]
                    append(Plain(opcode, mods, list(map(find, parts)), lines, start, self.written))
                elif len(words) == 3 and words[0][0] == "@":
                    flag, name, parts[0] = words
                    negated = flag[1] == "!"
                    guard = find(flag[1 + negated :])
                    if guard.type is not PRED:  # type: ignore[union-attr]
                        raise KeyError(flag)
                    opcode, mods = names[name]
                    append(Guarded(opcode, mods, list(map(find, parts)), lines, start, guard, negated, self.written))
                else:
                    (name,) = words if len(parts) == 1 else ()
                    opcode, mods = names[name]
                    append(Plain(opcode, mods, [], lines, start, self.written))
                start += len(piece) + 1
            except (LookupError, AttributeError, ValueError):
                end = start + len(piece)
                after = self.between(start)
                if after == start:
                    after = self.matched(start)
                    if after == start:
                        break
                start = after
                if start <= end:
                    pieces.append(text[start:end])
                elif start > end + 1:
                    pieces, size = [], FEW
        self.running = False
        at.jump(start)

    def between(self, start: int) -> int:
        """Read comments, labels, places in the source and ranges of registers: the offset behind them."""
        assert self.function is not None
        text, lines, scope = self.at.text, self.at.lines, self.scope
        while True:
            match = BETWEEN.match(text, start)
            assert match is not None
            label, file, line, column, rest, kind, stem, count, held, passed = match.groups()
            if label is not None:
                if label not in scope.labels:
                    return start
                self.function.body.append(Label(scope.labels[label], lines.line(match.start(1))))
            elif file is not None:
                self.locate((int(file), int(line), int(column or 0)), rest)
            elif kind is not None:
                if kind not in DECLARED or stem in (scope.registers if count is None else scope.ranges):
                    return start
                scope.known.clear()
                if count is None:
                    scope.registers[stem] = self.new_register(stem, TYPES[kind])
                else:
                    scope.ranges[stem] = int(count), TYPES[kind]
            elif held is not None:
                if held not in DECLARED or held == PRED.name or passed in scope.variables:
                    return start
                self.passed(passed, TYPES[held])
            elif match.end() == start:
                return start
            start = match.end()

    def matched(self, start: int) -> int:
        """Read one instruction by the regular expression: the offset behind it, or the same if it does not match."""
        match = PLAIN.match(self.at.text, start)
        if match is None:
            return self.call(start)
        negated, guarded, words, listed = match.groups()
        guard = self.find_register(guarded) if guarded else None
        if guarded and (guard is None or guard.type is not PRED):
            return start
        operands: list[Operand] = []
        try:
            opcode, mods = self.names[words]
            if listed:
                pieces = [one.groups() for one in iter(LISTED.scanner(listed).match, None)]  # up to what is no operand
                if "," in pieces[-1][1] or sum(len(piece) + len(mark) for piece, mark in pieces) != len(listed):
                    return start
                operands = [self.scope.known[piece] for piece, _ in pieces]
        except LookupError:
            return start
        begin = match.start(1) - 1 if guarded else match.start(3)
        assert self.function is not None
        self.function.body.append(
            Guarded(opcode, mods, operands, self.at.lines, begin, guard, negated == "!", self.written)
        )
        return match.end()

    def call(self, start: int) -> int:
        """Read a call without a guard by the regular expression: the offset behind it, or the same."""
        text = self.at.text
        match = CALL.match(text, start)
        if match is None:
            return start
        word, results, name, passed = match.groups()
        known = self.scope.known
        lists: list[list[Operand]] = []
        try:
            for listed in (results, passed):
                pieces = [piece.strip(BLANKS) for piece in listed.split(",")] if listed and listed.strip(BLANKS) else []
                lists.append([known[piece] for piece in pieces])
        except LookupError:
            return start
        begin = match.start(1)
        self.called = name
        shown = " ".join(text[begin : match.end()].split()).rstrip("; ")
        mods = ("uni",) if word == "call.uni" else ()
        assert self.function is not None
        self.function.body.append(
            Instruction("call", mods, [Symbol(name)], self.at.lines.line(begin), shown,
                        arguments=(lists[0], lists[1]), written=self.written, start=begin)
        )  # fmt: skip
        return match.end()

    def position(self, word: str, said: list[str]) -> None:
        """Note what `.file 1 "add.py"` and `.loc 1 12 0` say about the source."""
        if len(said) < 2 or not said[0].isdigit() or len(said[0]) > LONGEST:
            return
        if word == ".file":
            self.program.files[int(said[0])] = said[1].strip('"')
        elif said[1].isdigit() and len(said[1]) <= LONGEST:
            column = said[2] if len(said) > 2 and said[2].isdigit() and len(said[2]) <= LONGEST else "0"
            self.locate((int(said[0]), int(said[1]), int(column)), " ".join(said[2:]))

    def locate(self, place: Place, rest: str) -> None:
        """Note the place of a `.loc`; of code that was inlined, the outermost place that it was inlined at."""
        match = INLINED.search(rest) if rest else None
        if match is None:
            self.outer.pop(place, None)
            self.written = place[:2]
            return
        caller = int(match[1]), int(match[2]), int(match[3])
        outermost = self.outer[place] = self.outer.get(caller, caller)
        self.written = outermost[:2]
