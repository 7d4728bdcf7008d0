"""The statements of a function, by their tokens: declarations, labels, predicated instructions, calls, nested scopes.

`Runs` reads most of them; what is left comes here, and so does everything wrong.
"""

import re
import string

from trueno_cuda.ptx.syntax.declarations import SPACES
from trueno_cuda.ptx.syntax.errors import PtxError
from trueno_cuda.ptx.syntax.operands import BLANKS, Scope
from trueno_cuda.ptx.syntax.runs import Runs
from trueno_cuda.ptx.syntax.tokens import DEPTH, STRING
from trueno_cuda.ptx.syntax.tree import Instruction, Label, Operand, Symbol
from trueno_cuda.ptx.syntax.types import PRED

LINKAGE = (".visible", ".extern", ".weak", ".common")
STEPPED = rf"//[^\n]*+|/\*.*?(?:\*/|\Z)|{STRING}"
LABELS = re.compile(rf"{STEPPED}|\{{[%\w, ]*+\}}|\{{|\}}|:", re.DOTALL)
"""What matters to a search for labels: all else is stepped over, vectors of registers too."""
SKIPPED = re.compile(rf"{STEPPED}|\{{|\}}|;", re.DOTALL)
ACCESSES = {"ld", "ldu", "st", "atom", "red", "prefetch", "prefetchu"}
"""Opcodes that may write `array[3]` without brackets around it."""
LETTERS = string.ascii_letters + string.digits + "_$%."
USUAL = 100
"""Characters that a name and the blanks behind it seldom exceed."""
EMPTY = re.compile(r"[; \t\r\n]++")
SECTION = re.compile(r"[^{}\"/]*\{[^{}\"/]*\}")


class Statements(Runs):
    """Reads the body of a function."""

    def __init__(self, text: str, tolerant: bool = False) -> None:
        super().__init__(text, tolerant)
        self.scopes = 0  # how many braces were opened: makes labels unique

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
            self.run()
            start = at.rest()
            if at.text[start : start + 1] not in "{}." and self.plain():
                continue
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
        """Read one instruction of a usual form; False, and nothing read, if the tokens have to tell."""
        at = self.at
        at.jump(at.rest())  # a problem is of this line
        end = self.matched(at.at)
        if end == at.at:
            return False
        at.jump(end)
        return True

    def statement(self) -> None:
        """One statement of a function, by its tokens."""
        at = self.at
        assert self.function is not None
        word = at.here.text
        if word == "{":
            at.next()
            outer = self.scope
            self.scope = Scope(outer, self)
            with at.nested(DEPTH):
                self.block()
            self.scope = outer
        elif word == ".reg":
            self.registers()
        elif word in SPACES or word in LINKAGE:
            extern = word in LINKAGE and at.next().text == ".extern"
            self.function.variables += self.declaration(extern)
        elif word == ";":
            empty = EMPTY.match(at.text, at.here.start)
            at.jump(empty.end() if empty else at.here.start + 1)
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
        self.scope.known.forget()
        while True:
            name = at.word()
            if at.take("<"):
                if name in self.scope.ranges:
                    raise at.error(f"registers {name!r} are declared twice")
                count = at.integer(0)
                at.expect(">")
                self.new_range(name, count, kind)
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
            self.accesses = opcode in ACCESSES
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
    size = USUAL
    while True:
        near = text[max(end - size, 0) : end].rstrip(BLANKS)
        word = near[len(near.rstrip(LETTERS)) :]
        if len(word) < len(near) or size >= end:
            return word
        size *= 8
