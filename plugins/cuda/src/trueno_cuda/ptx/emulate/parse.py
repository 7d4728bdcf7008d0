"""PTX text to a tree: directives, declarations, nested scopes, labels, predicated instructions, calls.

Names are resolved here: a register or variable belongs to the scope that declares it, so the tree holds objects
and no names except those of labels and functions.
"""

from trueno_cuda.ptx.emulate.declarations import SPACES, Declarations
from trueno_cuda.ptx.emulate.errors import PtxError, no_other_errors
from trueno_cuda.ptx.emulate.lexer import DEPTH
from trueno_cuda.ptx.emulate.operands import LONGEST, Scope
from trueno_cuda.ptx.emulate.syntax import (
    Function,
    Instruction,
    Label,
    Operand,
    Program,
    Symbol,
    Variable,
)
from trueno_cuda.ptx.emulate.types import PRED

LINKAGE = (".visible", ".extern", ".weak", ".common")
SHAPES = {".maxntid": (1, 2, 3), ".reqntid": (1, 2, 3), ".reqnctapercluster": (1, 2, 3), ".minnctapersm": (1,),
          ".maxnctapersm": (1,), ".maxnreg": (1,), ".maxclusterrank": (1,), ".explicitcluster": (0,),
          ".noreturn": (0,), ".abi_preserve": (1,)}  # fmt: skip
"""Directives of a function, and how many numbers they have."""


class Parser(Declarations):
    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.scopes = 0  # how many braces were opened: makes labels unique
        self.written: tuple[int, int] | None = None  # file and line that the last .loc gave

    # ---- the module -----------------------------------------------------------------------------

    def parse(self) -> Program:
        at = self.at
        while at.here.kind != "end":
            word = at.here.text
            if word == ".version":
                at.next()
                major, dot, minor = at.here.text.partition(".")
                if not (major.isdigit() and dot and minor.isdigit() and len(major) + len(minor) < 9):
                    raise at.error(f"expected a version such as 8.0, found {at.here.text!r}")
                at.next()
                self.program.version = int(major), int(minor)
            elif word == ".target":
                at.next()
                names = [at.word()]
                while at.take(","):
                    names.append(at.word())
                self.program.target = tuple(names)
            elif word == ".address_size":
                at.next()
                if at.integer() != 64:
                    raise at.error("only .address_size 64 is emulated")
            elif word in (".entry", ".func") or word in LINKAGE or word in SPACES:
                self.definition()
            elif not self.ignored():
                raise at.error(f"unexpected {word!r} outside a function")
        for name, error in self.functions_named:
            if name not in self.program.functions:
                raise error
        if self.program.version == (0, 0):
            raise PtxError("no .version: is this PTX?")
        return self.program

    def ignored(self) -> bool:
        """Step over a directive that has no meaning here."""
        at = self.at
        word = at.here.text
        if word in (".file", ".loc"):
            at.next()
            first = at.at
            at.skip_line()
            self.position(word, [t.text for t in at.tokens[first : at.at]])
        elif word == ".pragma":
            at.skip_past(";")
        elif word == ".section":
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
            self.written = int(said[0]), int(said[1])

    def definition(self) -> None:
        at = self.at
        extern = False
        while at.here.text in LINKAGE:
            extern |= at.next().text == ".extern"
        if at.here.text in (".entry", ".func"):
            self.function_definition(at.next().text == ".entry")
        else:
            self.program.variables += self.declaration(extern)

    # ---- functions ------------------------------------------------------------------------------

    def parameters(self, entry: bool) -> list[Variable]:
        at = self.at
        params: list[Variable] = []
        if not at.take("("):
            return params
        while not at.take(")"):
            if params:
                at.expect(",")
            if not entry and at.take(".reg"):
                kind = self.type()
                params.append(Variable(at.word(), "reg", kind, kind.bytes, kind.bytes))
            else:
                at.expect(".param")
                params.append(self.variable("param"))
                if entry and not params[-1].size:
                    raise at.error(f"parameter {params[-1].name!r} has no size")
        return params

    def function_definition(self, entry: bool) -> None:
        at = self.at
        line = at.here.line
        results = [] if entry else self.parameters(entry)
        name = at.word()
        function = Function(name, entry, results=results, line=line)
        function.params = self.parameters(entry)
        while at.here.text in SHAPES or at.here.text == ".pragma":
            if self.ignored():
                continue
            directive = at.next().text
            sizes = []
            while at.here.kind == "number":
                sizes.append(at.integer(1))
                if not at.take(","):
                    break
            if len(sizes) not in SHAPES[directive]:
                raise at.error(f"{directive} with {len(sizes)} numbers")
            function.directives[directive[1:]] = tuple(sizes)
        if at.take(";"):
            self.program.functions.setdefault(name, function)
            return
        function.defined = True
        existing = self.program.functions.get(name)
        if existing is not None and existing.defined:
            raise at.error(f"function {name!r} is defined twice")
        self.program.functions[name] = function
        self.function = function
        self.written = None
        self.scope = Scope(self.scope)
        for var in results + function.params:
            if var.space == "reg":
                register = self.new_register(var.name, var.type)
                self.scope.registers[var.name] = register
            else:
                self.declare(var)
        at.expect("{")
        self.block()
        assert self.scope.outer is not None
        self.scope = self.scope.outer
        self.function = None
        self.resolve(function)

    def resolve(self, function: Function) -> None:
        """Every branch must name a label of its function."""
        labels = {item.name for item in function.body if isinstance(item, Label)}
        for item in function.body:
            if isinstance(item, Instruction) and item.opcode in ("bra", "brx"):
                for target in [*item.targets, *(o.name for o in item.operands if isinstance(o, Symbol))]:
                    if target not in labels:
                        raise PtxError(f"no label {target.split('#')[0]!r} in {function.name}", item.line, item.text)

    def block(self) -> None:
        """Statements up to the closing brace; labels are known in the whole scope, as branches go forward."""
        at = self.at
        assert self.function is not None
        self.scopes += 1
        self.labels_ahead()
        while not at.take("}"):
            word = at.here.text
            if at.here.kind == "end":
                raise at.error(f"{self.function.name}: a brace is not closed")
            if word == "{":
                at.next()
                self.scope = Scope(self.scope)
                with at.nested():
                    self.block()
                assert self.scope.outer is not None
                self.scope = self.scope.outer
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
            elif at.tokens[at.at + 1].text == ":" and at.here.kind == "word":
                self.label()
            else:
                self.instruction()

    def labels_ahead(self) -> None:
        """Name this scope's labels (not those of inner braces), made unique by the scope's number."""
        at, depth, place = self.at, 0, self.at.at
        while at.tokens[place].kind != "end":
            text = at.tokens[place].text
            if text == "{":
                depth += 1
                if at.depth + depth > DEPTH:
                    raise PtxError(f"braces within each other more than {DEPTH} deep", at.tokens[place].line, text)
            elif text == "}":
                if depth == 0:
                    return
                depth -= 1
            elif depth == 0 and at.tokens[place + 1].text == ":" and at.tokens[place].kind == "word":
                if text in self.scope.labels:
                    raise PtxError(f"label {text!r} is defined twice", at.tokens[place].line, text)
                self.scope.labels[text] = f"{text}#{self.scopes}"
            place += 1

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
        self.function.body.append(Label(self.scope.labels[name], line))

    def registers(self) -> None:
        at = self.at
        at.expect(".reg")
        kind = self.type()
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

    # ---- instructions ---------------------------------------------------------------------------

    def instruction(self) -> None:
        at = self.at
        first, line = at.at, at.here.line
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
            instruction = Instruction(opcode, mods, operands, line, at.source(first), guard, negated, arguments)
        else:
            while at.here.text != ";" or operands:
                if at.here.text == "}" or at.here.kind == "end":
                    raise at.error("expected ';' before this")
                operands.append(self.operand())
                if not at.take(","):
                    break
            at.expect(";")
            instruction = Instruction(opcode, mods, operands, line, at.source(first), guard, negated)
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
        self.function.body.append(instruction)


def parse(text: str) -> Program:
    """The tree of a PTX text; raises PtxError naming line and text."""
    with no_other_errors():
        return Parser(text).parse()
