"""Declared variables: their space, type, alignment, dimensions and initial values, and the memory that they need."""

import re

from trueno_cuda.ptx.syntax.errors import PtxError, Refusal
from trueno_cuda.ptx.syntax.limits import too_many
from trueno_cuda.ptx.syntax.operands import Operands, signed
from trueno_cuda.ptx.syntax.tree import Symbol, Variable
from trueno_cuda.ptx.syntax.types import PRED, TYPES, Type, constant, opaque

SPACES = (".global", ".const", ".shared", ".local", ".param")
DECLARED = {name for name, kind in TYPES.items() if kind.kind == "p" or name == f"{kind.kind}{kind.bits}"} | {"f16x2"}
"""Types that registers and variables may have."""
NUMBER = r"[ \t\r\n]*+(?:0|[1-9]\d{0,18}+)[ \t\r\n]*+"
NUMBERS = re.compile(rf"\{{({NUMBER}(?:,{NUMBER})*+)\}}", re.ASCII)
"""Initial values that are numbers without a sign."""
MODULE_SPACES = (".global", ".const", ".shared")


class Declarations(Operands):
    """Reads declarations into the current scope."""

    def __init__(self, text: str, tolerant: bool = False) -> None:
        super().__init__(text, tolerant)
        self.room: dict[str, int] = {}  # bytes declared, by space
        self.functions_named: list[tuple[str, PtxError]] = []  # by initial values, with the error where there is none

    def type(self) -> Type:
        word = self.at.word()
        if word[1:] not in DECLARED:
            if self.tolerant and word[0] == ".":
                return opaque(word[1:])
            raise self.at.error(
                f"{word!r} is an instruction's type alone" if word[1:] in TYPES else f"unknown type {word!r}"
            )
        return TYPES[word[1:]]

    def variable(self, space: str) -> Variable:
        """`.align 8 .b8 name[16]` after its space; for parameters also `.ptr .global .align 16`."""
        at = self.at
        align, vector, kind, pointer = 0, 1, None, False
        while at.here.text.startswith("."):
            word = at.here.text
            if word == ".align":
                at.next()
                amount = at.integer(1)
                if amount & (amount - 1) or amount >> 31:
                    raise at.error(f".align {amount} is not a power of two below 2³¹")
                align = align if pointer else amount
            elif word in (".v2", ".v4"):
                vector = int(at.next().text[2:])
            elif word == ".ptr":
                at.next()
                pointer = True
            elif word in SPACES or word in (".attribute",):
                at.next()
                if at.take("("):
                    at.skip_past(")")
            else:
                kind = self.type()
                if kind is PRED:
                    raise at.error("only registers are predicates")
        if kind is None:
            raise at.error("a declaration without a type")
        var = Variable(at.word(), space, kind, kind.bytes * vector, align or kind.bytes * vector, pointer=pointer)
        self.dimensions(var)
        if at.take("="):
            if space not in ("global", "const"):
                raise at.error(f".{space} memory has no initial values")
            self.initial(var)
        return var

    def dimensions(self, var: Variable) -> None:
        """`[4][16]` behind a variable's name; `[]` leaves its size open."""
        at = self.at
        var.element = var.size
        while at.take("["):
            var.array = True
            count = 0 if at.here.text == "]" else at.integer(1)
            var.size = min(var.size * count, 1 << 64)  # which is too many all the same
            at.expect("]")
        wrong = too_many(var.space, var.size)
        if wrong and not self.tolerant:
            raise at.error(f"{var.name}: {wrong}")

    def initial(self, var: Variable) -> None:
        at = self.at
        numbers = NUMBERS.match(at.text, at.rest())
        values = list(map(int, numbers[1].split(","))) if numbers and var.type.kind in "usb" else []
        if numbers and values and max(values) >> (var.type.bits - 1) == 0:
            at.jump(numbers.end())
            var.init += values
            if var.array and var.size == 0:
                var.size = len(var.init) * var.type.bytes
        elif at.take("{"):
            first = True
            while not at.take("}"):
                if not first:
                    at.expect(",")
                first = False
                with at.nested():
                    self.initial(var)
            if var.array and var.size == 0:
                var.size = len(var.init) * var.type.bytes
        elif at.here.kind == "word":
            name = at.word()
            if name == "generic":
                at.expect("(")
                name = at.word()
                at.expect(")")
            target = self.find_variable(name)
            if target is not None and target.space not in ("global", "const"):
                raise at.error(f"{name!r} has no address before the kernel runs: it is .{target.space}")
            if var.type.bits != 64:
                raise at.error(f"an address has 64 bits, .{var.type.name} has {var.type.bits}")
            if target is None:  # a function's address: only what calls through it cannot be emulated
                self.functions_named.append((name, at.error(f"{name!r} is not declared")))
            var.init.append(Symbol(name, target, signed(at.integer()) if at.take("+") else 0))
        else:
            value = at.literal()
            try:
                constant(value, var.type)
            except Refusal as error:
                raise at.error(str(error)) from None
            var.init.append(value)
        if var.size and len(var.init) * var.type.bytes > var.size:
            raise at.error(f"{var.name} has {var.size // var.type.bytes} elements, and more initial values")

    def declaration(self, extern: bool = False) -> list[Variable]:
        """`.shared .align 4 .b8 a[64], b[8];` — declared in the current scope."""
        at = self.at
        if at.here.text not in (SPACES if self.function else MODULE_SPACES):
            raise at.error(f"{at.here.text or 'the end'} where a variable's space should stand")
        space = at.word()[1:]
        variables = []
        first = self.variable(space)
        variables.append(first)
        while at.take(","):
            more = Variable(at.word(), space, first.type, first.type.bytes, first.align)
            self.dimensions(more)
            variables.append(more)
        at.expect(";")
        for var in variables:
            var.extern = extern
            self.declare(var)
        self.room[space] = self.room.get(space, 0) + sum(var.size for var in variables)
        wrong = too_many(space, self.room[space]) if space in ("global", "const") else ""
        if wrong and not self.tolerant:
            raise at.error(wrong)
        return variables

    def passed(self, name: str, kind: Type) -> None:
        """`.param .b64 param0;` in a function: what a call passes."""
        assert self.function is not None
        var = Variable(name, "param", kind, kind.bytes, kind.bytes, element=kind.bytes)
        self.scope.variables[name] = var
        self.scope.known.forget()
        self.function.variables.append(var)
        self.room["param"] = self.room.get("param", 0) + var.size

    def declare(self, var: Variable) -> None:
        """Make a variable known in the current scope."""
        existing = self.scope.variables.setdefault(var.name, var)
        if existing is not var and not existing.extern:
            raise self.at.error(f"variable {var.name!r} is declared twice")
        self.scope.variables[var.name] = var
        self.scope.known.forget()
