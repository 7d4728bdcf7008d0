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
COMMA = re.compile(r", (?![^{}]{0,2000}\})")
"""A comma that is not inside the braces of a vector; of a longer one the regular expressions tell."""
SLOW = {"brx", "call"}
FEW, MANY = 1 << 9, 1 << 16
"""Characters that are cut at a time: few at first, since what comes may be anything, then twice as many each time."""
FORMS = 4096
"""Names that are kept from text to text; compilers write some hundreds."""
Place = tuple[int, int, int]
"""File, line and column."""


class Names(dict[str, tuple[str, tuple[str, ...]]]):
    """Opcode and modifiers by the text of both, but for instructions that are read by their tokens."""

    def __missing__(self, words: str) -> tuple[str, tuple[str, ...]]:
        opcode, *mods = words.split(".")
        if opcode in SLOW or not NAME.fullmatch(words):
            raise KeyError(words)
        if len(self) == FORMS:
            self.clear()
        self[words] = opcode, tuple(mods)
        return self[words]


NAMES = Names()


class Runs(Declarations):
    """Reads plain instructions, many at a time."""

    def __init__(self, text: str, tolerant: bool = False) -> None:
        super().__init__(text, tolerant)
        self.names = NAMES
        self.cuts = not any(map(text.__contains__, ODD_BLANKS))  # whether the first way may be taken
        self.written: tuple[int, int] | None = None  # file and line that the last .loc gave
        self.outer: dict[Place, Place] = {}  # of places in inlined functions, the outermost one that calls

    def run(self) -> None:
        """Read instructions of a usual form, and what stands between them, up to what is neither."""
        assert self.function is not None
        at, lines = self.at, self.at.lines
        text, append = at.text, self.function.body.append
        form, find = self.names.get, self.scope.known.__getitem__
        start, size, written = at.rest(), FEW, self.written
        pieces: list[str] = []  # of the text from `start` on, the first one last
        self.running = True
        while self.cuts:
            if not pieces:
                pieces = text[start : start + size].split(";")[-2::-1]  # the last one may go on
                size = min(2 * size, MANY)
                if not pieces:
                    break
            piece = pieces.pop()
            try:
                name, listed = piece.split(None, 1)
                known = form(name)
                if known is not None:
                    opcode, mods = known
                    parts = COMMA.split(listed) if "{" in listed else listed.split(", ")
                    append(Plain(opcode, mods, list(map(find, parts)), lines, start, written))
                    start += len(piece) + 1
                else:
                    rest = self.first(start, piece, name, listed)
                    written = self.written
                    if rest:
                        pieces.append(rest)
                        start += len(piece) - len(rest)
                    else:
                        start += len(piece) + 1
            except (LookupError, AttributeError, ValueError):
                end = start + len(piece)
                after = self.between(start)
                written = self.written
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

    def first(self, start: int, piece: str, name: str, listed: str) -> str:
        """Read what a piece begins with, if its first word is not a known name: the rest of the piece, "" for none.

        It is a guarded instruction, a label, a place in the source, or a new name, which is noted and left.
        name, listed: the first word and what is behind it.  Raises LookupError, ValueError, AttributeError for others.
        """
        assert self.function is not None
        if name[0] == "@":
            return self.guarded(start, name, listed)
        if len(listed) > FEW:
            raise KeyError(
                name
            )  # each rest is a copy, and of a hundred labels in a row the regular expression makes none
        if name[-1] == ":":
            if listed[0] == "/" or (listed[0] == "." and listed[:4] != ".loc"):
                raise KeyError(name)  # a directive may belong to the label
            label = self.scope.labels[name[:-1]]
            self.function.body.append(Label(label, self.at.lines.line(self.at.text.index(name, start))))
            return listed
        if name == ".loc":
            place, _, rest = listed.partition("\n")
            numbers = place.split()
            file, line, column = map(int, numbers)
            if not (
                place.isascii() and all(map(str.isdecimal, numbers)) and max(map(len, numbers)) <= LONGEST and rest
            ):
                raise ValueError(place)
            self.locate((file, line, column), "")
            return rest
        self.names[name]
        return piece

    def guarded(self, start: int, flag: str, rest: str) -> str:
        """Read `@%p1 bra END`, all of a piece: what is left of it, nothing."""
        assert self.function is not None
        find = self.scope.known.__getitem__
        negated = flag[1] == "!"
        guard = find(flag[1 + negated :])
        if guard.type is not PRED:  # type: ignore[union-attr]
            raise KeyError(flag)
        name, *listed = rest.split(None, 1)
        opcode, mods = self.names[name]
        parts = COMMA.split(listed[0]) if listed else []
        operands = list(map(find, parts))
        self.function.body.append(
            Guarded(opcode, mods, operands, self.at.lines, start, guard, negated, self.written)  # type: ignore[arg-type]
        )
        return ""

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
                scope.known.forget()
                if count is None:
                    scope.registers[stem] = self.new_register(stem, TYPES[kind])
                else:
                    self.new_range(stem, int(count), TYPES[kind])
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
