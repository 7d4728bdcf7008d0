"""The statements of a function: declarations, labels, predicated instructions, calls, nested scopes.

Most of a text is plain instructions.  One regular expression finds such a statement and its operands are looked up
by their text; everything else, and everything wrong, is read token by token, so that both ways accept the same text.
"""

import re

from trueno_cuda.ptx.syntax.declarations import SPACES, Declarations
from trueno_cuda.ptx.syntax.errors import PtxError
from trueno_cuda.ptx.syntax.operands import LONGEST, PIECES, Scope
from trueno_cuda.ptx.syntax.tokens import DEPTH
from trueno_cuda.ptx.syntax.tree import Instruction, Label, Operand, Symbol
from trueno_cuda.ptx.syntax.types import PRED

LINKAGE = (".visible", ".extern", ".weak", ".common")
PLAIN = re.compile(r"(?:@(!?)([%\w$]+)[ \t]+)?([a-z]\w*(?:\.\w+(?:::\w+)*)*)(?:[ \t]+([^;/\"@!|():]*))?;", re.ASCII)
"""An instruction: negation, guard, name with modifiers, operands."""
POSITION = re.compile(r"\.loc[ \t]+(\d{1,10})[ \t]+(\d{1,10})(?!\d)(?:[ \t]+(\d{1,10})(?!\d))?([^\n]*)", re.ASCII)
INLINED = re.compile(r"\binlined_at[ \t]+(\d{1,10})[ \t]+(\d{1,10})[ \t]+(\d{1,10})(?!\d)", re.ASCII)
LABELS = re.compile(r"//[^\n]*|/\*.*?(?:\*/|\Z)|\"(?:[^\"\\]|\\.)*\"|\{|\}|:", re.DOTALL)
"""What matters to a search for labels: all else is stepped over."""
SKIPPED = re.compile(r"//[^\n]*|/\*.*?(?:\*/|\Z)|\"(?:[^\"\\]|\\.)*\"|\{|\}|;", re.DOTALL)
SLOW = {"brx", "call"}
Place = tuple[int, int, int]
"""File, line and column."""
SECTION = re.compile(r"[^{}\"/]*\{[^{}\"/]*\}")


class Statements(Declarations):
    """Reads the body of a function."""

    def __init__(self, text: str, tolerant: bool = False) -> None:
        super().__init__(text, tolerant)
        self.names: dict[str, tuple[str, tuple[str, ...]]] = {}  # opcode and modifiers by the text of both
        self.scopes = 0  # how many braces were opened: makes labels unique
        self.written: tuple[int, int] | None = None  # file and line that the last .loc gave
        self.outer: dict[Place, Place] = {}  # of places in inlined functions, the outermost one that calls

    def ignored(self) -> bool:
        """Step over a directive that has no meaning here."""
        at = self.at
        word = at.here.text
        if word in (".file", ".loc"):
            at.next()
            self.position(word, at.skip_line())
        elif word == ".pragma":
            at.skip_past(";")
        elif word == ".section":
            whole = SECTION.match(at.text, at.here.start)
            if whole is not None:
                at.jump(whole.end())
                return True
            at.skip_past("{")
            at.skip_past("}")
        elif word == ".alias":
            at.skip_past(";")
        else:
            return False
        return True

    def position(self, word: str, said: list[str]) -> None:
        """Note what `.file 1 "add.py"` and `.loc 1 12 0` say about the source."""
        if len(said) < 2 or not said[0].isdigit() or (max(map(len, said[:2])) > LONGEST and word == ".loc"):
            return
        if word == ".file":
            self.program.files[int(said[0])] = said[1].strip('"')
        elif said[1].isdigit():
            column = said[2] if len(said) > 2 and said[2].isdigit() and len(said[2]) <= LONGEST else "0"
            self.locate((int(said[0]), int(said[1]), int(column)), " ".join(said[2:]))

    def locate(self, place: Place, rest: str) -> None:
        """Note the place of a `.loc`; of code that was inlined, the outermost place that it was inlined at."""
        match = INLINED.search(rest)
        if match is None:
            self.outer.pop(place, None)
            self.written = place[:2]
            return
        caller = int(match[1]), int(match[2]), int(match[3])
        outermost = self.outer[place] = self.outer.get(caller, caller)
        self.written = outermost[:2]

    def skip(self) -> None:
        """Step over a statement without reading it: to its semicolon, or over its braces."""
        at, depth, inside = self.at, 0, self.function is not None
        first = at.rest()
        braced = not inside or at.text[first : first + 1] == "{"
        for match in SKIPPED.finditer(at.text, first):
            if match[0] == "{":
                depth += 1
            elif match[0] == "}":
                if depth == 0 and inside:
                    return at.jump(match.start())
                depth -= 1
                if depth <= 0 and braced:
                    return at.jump(match.end())
            elif match[0] == ";" and depth <= 0:
                return at.jump(match.end())
        return at.jump(len(at.text))

    def block(self) -> None:
        """Statements up to the closing brace; labels are known in the whole scope, as branches go forward."""
        at = self.at
        assert self.function is not None
        self.scopes += 1
        self.labels_ahead()
        scope, depth = self.scope, at.depth
        while True:
            while self.plain():
                pass
            start = at.rest()
            try:
                if at.take("}"):
                    return
                if at.here.kind != "end":
                    self.statement()
                    continue
            except PtxError as error:
                if not self.tolerant:
                    raise
                self.problem(error)
                self.scope, at.depth = scope, depth
                at.jump(start)
                self.unread()
                continue
            raise at.error(f"{self.function.name}: a brace is not closed")

    def plain(self) -> bool:
        """Read an instruction of a usual form at one go; False, and nothing read, if the tokens have to tell."""
        at = self.at
        start = at.rest()
        match = PLAIN.match(at.text, start)
        if match is None:
            match = POSITION.match(at.text, start)
            if match is None:
                return False
            self.locate((int(match[1]), int(match[2]), int(match[3] or 0)), match[4])
            at.jump(match.end())
            return True
        negated, guarded, words, listed = match.groups()
        name = self.names.get(words)
        if name is None:
            first, *rest = words.split(".")
            name = self.names[words] = first, tuple(rest)
        if name[0] in SLOW:
            return False
        guard = None
        if guarded:
            guard = self.find_register(guarded)
            if guard is None or guard.type is not PRED:
                return False
        operands: list[Operand] = []
        if listed:
            pieces = listed.split(",")
            if "[" in listed or "{" in listed:
                pieces = PIECES.findall(listed)
                if sum(map(len, pieces)) + len(pieces) - 1 != len(listed):
                    return False
            known = self.scope.known
            for piece in pieces:
                operand = known.get(piece)
                if operand is None:
                    operand = self.quick(piece)
                    if operand is None:
                        return False
                    known[piece] = operand
                operands.append(operand)
        text = " ".join(match[0].split()).rstrip("; ")
        line = at.lines.line(start)
        assert self.function is not None
        self.function.body.append(
            Instruction(*name, operands, line, text, guard, negated == "!", None, (), self.written, start)
        )
        at.jump(match.end())
        return True

    def statement(self) -> None:
        """One statement of a function, by its tokens."""
        at = self.at
        assert self.function is not None
        word = at.here.text
        if word == "{":
            at.next()
            outer = self.scope
            self.scope = Scope(outer)
            with at.nested():
                self.block()
            self.scope = outer
        elif word == ".reg":
            self.registers()
        elif word in SPACES or word in LINKAGE:
            extern = word in LINKAGE and at.next().text == ".extern"
            self.function.variables += self.declaration(extern)
        elif word == ";":
            at.next()
        elif self.ignored():
            pass
        elif word.startswith(".") and word != ".":
            raise at.error(f"{word} is not emulated")
        elif at.here.kind == "word" and at.second().text == ":":
            self.label()
        else:
            self.instruction()

    def unread(self) -> None:
        """Keep an instruction whose operands cannot be read, with the registers that its text names."""
        at = self.at
        start = at.rest()
        self.skip()
        text = at.text[start : at.at]
        match = re.match(r"(?:@!?\s*[%\w$]+\s+)?([a-z]\w*)([\w.:]*)", text)
        if match is None or self.function is None:
            return
        names = dict.fromkeys(re.findall(r"%[\w$]+", text))
        read: list[Operand] = [register for name in names if (register := self.find_register(name)) is not None]
        mods = tuple(match[2].removeprefix(".").split(".")) if match[2] else ()
        line, shown = at.lines.line(start), " ".join(text.split()).rstrip("; ")
        self.function.body.append(
            Instruction(match[1], mods, read, line, shown, written=self.written, start=start, unread=True)
        )

    def labels_ahead(self) -> None:
        """Name this scope's labels (not those of inner braces), made unique by the scope's number."""
        at, depth = self.at, 0
        text = at.text
        for match in LABELS.finditer(text, at.rest()):
            mark, place = match[0], match.start()
            if mark == "{":
                depth += 1
                if at.depth + depth > DEPTH:
                    raise PtxError(f"braces within each other more than {DEPTH} deep", at.lines.line(place), mark)
            elif mark == "}":
                if depth == 0:
                    return
                depth -= 1
            elif mark == ":" and depth == 0 and ":" not in (text[place - 1], text[place + 1 : place + 2]):
                label = word_before(text, place)
                if label in self.scope.labels:
                    self.refuse(PtxError(f"label {label!r} is defined twice", at.lines.line(place), label))
                self.scope.labels[label] = f"{label}#{self.scopes}"

    def label(self) -> None:
        at = self.at
        line = at.here.line
        name = at.word()
        at.expect(":")
        assert self.function is not None
        if at.here.text == ".branchtargets":
            at.next()
            names = [at.word()]
            while at.take(","):
                names.append(at.word())
            at.expect(";")
            self.scope.labels[f"targets {name}"] = " ".join(names)
            return
        if at.here.text == ".callprototype":
            at.skip_past(";")
            return
        self.function.body.append(Label(self.scope.labels.get(name, name), line))

    def registers(self) -> None:
        at = self.at
        at.expect(".reg")
        kind = self.type()
        if self.tolerant and kind.name in ("v2", "v4"):
            kind = self.type()
        self.scope.known.clear()
        while True:
            name = at.word()
            if at.take("<"):
                if name in self.scope.ranges:
                    raise at.error(f"registers {name!r} are declared twice")
                self.scope.ranges[name] = at.integer(0), kind
                at.expect(">")
            elif name in self.scope.registers:
                raise at.error(f"register {name!r} is declared twice")
            else:
                self.scope.registers[name] = self.new_register(name, kind)
            if not at.take(","):
                break
        at.expect(";")

    def instruction(self) -> None:
        at = self.at
        start, line = at.here.start, at.here.line
        guard, negated = None, False
        if at.take("@"):
            negated = at.take("!")
            guard = self.find_register(at.word())
            if guard is None or guard.type is not PRED:
                raise at.error("a guard must be a declared .pred register")
        words = at.word().split(".")
        opcode, mods = words[0], tuple(words[1:])
        operands: list[Operand] = []
        if opcode == "call":
            arguments = self.call_operands()
            at.expect(";")
            operands.append(Symbol(self.called))
            instruction = Instruction(opcode, mods, operands, line, at.source(start), guard, negated, arguments)
        else:
            while at.here.text != ";" or operands:
                if at.here.text == "}" or at.here.kind == "end":
                    raise at.error("expected ';' before this")
                operands.append(self.operand())
                if not at.take(","):
                    break
            at.expect(";")
            instruction = Instruction(opcode, mods, operands, line, at.source(start), guard, negated)
            if opcode == "brx":
                table = operands.pop() if operands else None
                if not isinstance(table, Symbol):
                    raise PtxError("brx.idx wants the label of a .branchtargets", line, instruction.text)
                names = self.find_label(f"targets {table.name.split('#')[0]}")
                if names is None:
                    raise PtxError(f"no .branchtargets {table.name}", line, instruction.text)
                instruction.targets = tuple(self.find_label(n) or n for n in names.split())
        assert self.function is not None
        instruction.written = self.written
        instruction.start = start
        self.function.body.append(instruction)


def word_before(text: str, end: int) -> str:
    """The name that ends at an offset, or before the blanks there."""
    while end and text[end - 1] in " \t\r\n":
        end -= 1
    start = end
    while start and (text[start - 1].isalnum() or text[start - 1] in "_$%."):
        start -= 1
    return text[start:end]
