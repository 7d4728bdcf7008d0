"""PTX text to a tree: directives, declarations, nested scopes, labels, predicated instructions, calls.

Names are resolved here: a register or variable belongs to the scope that declares it, so the tree holds objects
and no names except those of labels and functions.
"""

import re

from trueno_cuda.ptx.syntax.declarations import DECLARED, SPACES
from trueno_cuda.ptx.syntax.errors import PtxError, no_other_errors
from trueno_cuda.ptx.syntax.operands import Scope
from trueno_cuda.ptx.syntax.runs import BLANK
from trueno_cuda.ptx.syntax.statements import LINKAGE, Statements
from trueno_cuda.ptx.syntax.tree import Function, Instruction, Program, Symbol, Variable
from trueno_cuda.ptx.syntax.types import PRED, TYPES

SHAPES = {".maxntid": (1, 2, 3), ".reqntid": (1, 2, 3), ".reqnctapercluster": (1, 2, 3), ".minnctapersm": (1,),
          ".maxnctapersm": (1,), ".maxnreg": (1,), ".maxclusterrank": (1,), ".explicitcluster": (0,),
          ".noreturn": (0,), ".abi_preserve": (1,)}  # fmt: skip
"""Directives of a function, and how many numbers they have."""


PARAMETER = re.compile(
    BLANK + r"\.param[ \t]+\.(\w+)[ \t]+"
    r"(\.ptr[ \t]+(?:\.(?:global|const|shared|local)[ \t]+)?(?:\.align[ \t]+(?:1|2|4|8|16|32|64|128|256)[ \t]+)?)?"
    r"([A-Za-z_$%][\w$]*)[ \t\r\n]*(,|(?=\)))",
    re.ASCII,
)
"""`.param .u64 .ptr .global .align 16 x,`: type, pointer, name, comma."""


ENTRY = re.compile(BLANK + r"(?:\.visible[ \t\r\n]+)?\.entry(?=[ \t\r\n])")
"""What most functions begin with."""
BRANCHES = {"bra", "brx"}


class Parser(Statements):
    def __init__(self, text: str, tolerant: bool = False) -> None:
        super().__init__(text, tolerant)
        self.outermost = self.scope

    # ---- the module -----------------------------------------------------------------------------

    def parse(self) -> Program:
        at = self.at
        while True:
            start = at.rest()
            try:
                if at.here.kind == "end":
                    break
                self.directive()
            except PtxError as error:
                self.recover(error, start)
        for name, error in self.functions_named:
            if name not in self.program.functions:
                self.refuse(error)
        if self.program.version == (0, 0):
            self.refuse(PtxError("no .version: is this PTX?"))
        return self.program

    def recover(self, error: PtxError, start: int) -> None:
        """Go on behind a statement that cannot be read: at its semicolon, or the brace that closes it."""
        self.refuse(error)
        self.at.jump(start)
        self.at.depth = 0
        self.scope = self.outermost
        self.function = None
        self.skip()

    def directive(self) -> None:
        """One directive or definition of the module."""
        at = self.at
        named = ENTRY.match(at.text, at.rest())
        if named is not None:
            at.jump(named.end())
            self.function_definition(entry=True)
            return
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
            self.program.address_size = at.integer()
            if self.program.address_size != 64 and not self.tolerant:
                raise at.error("only .address_size 64 is emulated")
        elif word in (".entry", ".func") or word in LINKAGE or word in SPACES:
            self.definition()
        elif not self.ignored():
            raise at.error(f"unexpected {word!r} outside a function")

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
        more = True
        while True:
            match = PARAMETER.match(at.text, at.rest()) if more else None
            if match is not None and match[1] in DECLARED and match[1] != PRED.name:
                kind = TYPES[match[1]]
                params.append(Variable(match[3], "param", kind, kind.bytes, kind.bytes, pointer=match[2] is not None))
                at.jump(match.end())
                more = match[4] == ","
                continue
            if not (more and params) and at.take(")"):
                return params
            if not more:
                at.expect(",")
            more = False
            if not entry and at.take(".reg"):
                kind = self.type()
                params.append(Variable(at.word(), "reg", kind, kind.bytes, kind.bytes))
            else:
                at.expect(".param")
                params.append(self.variable("param"))
                if entry and not params[-1].size:
                    raise at.error(f"parameter {params[-1].name!r} has no size")

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
        self.outermost = self.scope
        self.scope = Scope(self.scope, self)
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
        branches = [item for item in function.body if item.opcode in BRANCHES]
        if not branches:
            return
        labels = {item.name for item in function.body if not item.opcode}
        for item in branches:
            assert isinstance(item, Instruction)
            for target in [*item.targets, *(o.name for o in item.operands if isinstance(o, Symbol))]:
                if target not in labels:
                    name = target.split("#")[0]
                    self.refuse(PtxError(f"no label {name!r} in {function.name}", item.line, item.text))


def parse(text: str, tolerant: bool = False) -> Program:
    """The tree of a PTX text; raises PtxError naming line and text.

    tolerant: read any producer's text: what cannot be read is kept as a problem, and no name has to be declared.
    """
    with no_other_errors():
        parser = Parser(text, tolerant)
        try:
            return parser.parse()
        except PtxError:
            parser.at.check()  # a character that starts no token explains more than the statement that it ended
            raise
        finally:
            del parser.scope, parser.outermost  # which hold the parser: so all of it is gone with its last user
