"""What registers hold, as sums: a constant, and multiples of thread indices, parameters, addresses and loop counters.

A `Form` is const + Σ coefficient · atom.  An atom is a tuple whose first item says what it is:

    ("special", "tid.x")        a special register
    ("param", name, offset)     a word of an entry's parameters
    ("var", space, name)        the address of a variable
    ("generic", "shared")       what cvta adds to an address of shared memory
    ("count", register)         how far a loop has advanced a register
    ("op", name, forms…)        a function of other forms, such as a mask of a thread's index
    ("value", register, site)   anything else; site: the instruction that writes it, −1 if several do

Sums ignore that registers wrap around.
"""

from typing import Any, NamedTuple

from trueno_cuda.ptx.analyze.dataflow import Dataflow
from trueno_cuda.ptx.analyze.effects import element
from trueno_cuda.ptx.analyze.graph import Graph
from trueno_cuda.ptx.analyze.launch import Launch
from trueno_cuda.ptx.syntax.tree import (
    Address,
    Function,
    Immediate,
    Instruction,
    Operand,
    Register,
    Special,
    Symbol,
    Variable,
)
from trueno_cuda.ptx.syntax.types import TYPES

Atom = tuple[Any, ...]
MOST = 12
"""Terms of a form; longer sums are an atom of their own."""
DEEP, LARGE = 6, 64
"""Functions within functions, and how many there are in all: what is deeper and larger is an atom of its own."""
POSITIVE = {"tid", "ntid", "ctaid", "nctaid", "laneid", "warpid", "nwarpid", "smid"}
"""Special registers that are never negative."""


class Form(NamedTuple):
    const: int
    terms: frozenset[tuple[Atom, int]] = frozenset()

    def add(self, other: "Form", factor: int = 1) -> "Form":
        if not other.terms:
            return Form(self.const + factor * other.const, self.terms)
        sums = dict(self.terms)
        for atom, coefficient in other.terms:
            sums[atom] = sums.get(atom, 0) + factor * coefficient
        return Form(self.const + factor * other.const, frozenset((a, c) for a, c in sums.items() if c))

    def scaled(self, factor: int) -> "Form":
        return Form(self.const * factor, frozenset((a, c * factor) for a, c in self.terms) if factor else frozenset())

    @property
    def constant(self) -> bool:
        return not self.terms


def atom(*items: Any) -> Form:
    return Form(0, frozenset({(items, 1)}))


class Values:
    """The form of every register that is written once, or that a loop advances by steps."""

    def __init__(self, function: Function, graph: Graph, flow: Dataflow, launch: Launch) -> None:
        self.function, self.graph, self.flow, self.launch = function, graph, flow, launch
        self.forms: dict[int, Form] = {}  # of a register, whichever of its writes reaches a read
        self.written: dict[tuple[int, int], Form] = {}  # by register and the instruction that writes it
        self.steps: dict[int, Form] = {}  # of a register that a loop advances, the step
        self.entry_params = {id(p) for p in function.params} if function.entry else set()
        self.depths: dict[Atom, tuple[int, int]] = {}  # of a function: those within it, along a way and in all
        for n in graph.order:
            for at in range(graph.blocks[n].start, graph.blocks[n].end):
                for index in flow.writes[at]:
                    if graph.code[at].guard is not None:
                        form = atom("value", index, at)
                    else:
                        form = self._result(graph.code[at], index, at)
                    self.written[index, at] = form
                    if index not in self.forms:
                        self.forms[index] = self._define(index, at, form)

    # ---- registers ------------------------------------------------------------------------------

    def _define(self, index: int, at: int, form: Form) -> Form:
        if len(self.flow.definitions[index]) == 1:
            return form
        return self._counted(index, at, form) or atom("value", index, -1)

    def _counted(self, index: int, at: int, start: Form) -> Form | None:
        """A register that is set once and then advanced by the same step: its first value, and a counter."""
        code = self.graph.code
        if any(code[s].guard is not None for s in self.flow.definitions[index]):
            return None
        first, steps = [], []
        for site in self.flow.definitions[index]:
            step = self._step(index, site) if self._again(site, at) else None
            if step is None:
                first.append(site)
            else:
                steps.append(step)
        if len(first) != 1 or first[0] != at or not steps or len(set(steps)) != 1:
            return None
        self.steps[index] = steps[0]
        return start.add(atom("count", index))

    def _again(self, site: int, first: int) -> bool:
        """Whether an instruction is in a loop that another one is not in."""
        loops, block_of = self.graph.loops, self.graph.block_of
        head = loops.inner.get(block_of[site])  # the loops around it have all the blocks of this one
        return head is not None and not loops.has(head, block_of[first])

    def _step(self, index: int, site: int) -> Form | None:
        """The step, where an instruction advances a register: directly, or through copies of it."""
        register, total = index, Form(0)
        for _ in range(4):
            ins = self.graph.code[site]
            if ins.guard is not None or len(ins.operands) < 2 or not isinstance(ins.operands[0], Register):
                return None
            name, sources = ins.opcode, ins.operands[1:]
            if name in ("add", "sub") and len(sources) == 2 and _whole(ins) and "cc" not in ins.mods:
                a, b = sources
                if name == "add" and not isinstance(a, Register):
                    a, b = b, a
                if not isinstance(a, Register):
                    return None
                if isinstance(b, Register) and name == "add" and b.index == register:
                    a, b = b, a
                if not isinstance(b, Immediate | Register) or (isinstance(b, Immediate) and isinstance(b.value, float)):
                    return None
                amount = self._signed(b, ins) if isinstance(b, Immediate) else self.forms.get(b.index)
                if amount is None:
                    return None
                total = total.add(amount, 1 if name == "add" else -1)
                source = a.index
            elif name == "mov" and len(sources) == 1 and isinstance(sources[0], Register):
                source = sources[0].index
            else:
                return None
            if source == register:
                return total if total != Form(0) else None
            site = self.flow.only(source)
            if site < 0:
                return None
        return None

    def register(self, index: int, at: int = -1) -> Form:
        """What a register holds before an instruction; at −1, whichever write reaches it."""
        sites = self.flow.definitions[index]
        if len(sites) > 1 and at >= 0:
            site = self.flow.sole(index, at)
            if site >= 0 and (index, site) in self.written:
                return self.written[index, site]
        return self.forms.get(index) or atom("value", index, -1)

    # ---- operands -------------------------------------------------------------------------------

    def operand(self, operand: Operand, ins: Instruction | None = None, at: int = -1) -> Form | None:
        """A form of an operand; None for what is not a whole number."""
        if isinstance(operand, Register):
            return self.register(operand.index, at)
        if isinstance(operand, Immediate):
            return None if isinstance(operand.value, float) else self._signed(operand, ins)
        if isinstance(operand, Special):
            known = self.launch.special(operand.name)
            return Form(known) if known is not None else atom("special", operand.name)
        if isinstance(operand, Symbol) and operand.variable is not None:
            return self.variable(operand.variable).add(Form(operand.offset))
        return None

    def variable(self, variable: Variable) -> Form:
        return atom("var", variable.space, variable.name)

    def address(self, operand: Address, at: int = -1) -> Form:
        if isinstance(operand.base, Register):
            return self.register(operand.base.index, at).add(Form(operand.offset))
        if isinstance(operand.base, Variable):
            return self.variable(operand.base).add(Form(operand.offset))
        return Form(operand.offset)

    @staticmethod
    def _signed(operand: Immediate, ins: Instruction | None) -> Form:
        value = int(operand.value)
        if ins is not None and 1 << 31 <= value < 1 << 32 and any(m in ("s32", "u32", "b32") for m in ins.mods):
            value -= 1 << 32
        return Form(value - (1 << 64) if value >= 1 << 63 else value)

    # ---- instructions ---------------------------------------------------------------------------

    def _result(self, ins: Instruction, index: int, at: int) -> Form:
        unknown = atom("value", index, at)
        if not ins.operands or not isinstance(ins.operands[0], Register) or ins.unread:
            return unknown
        if ins.opcode == "ld":
            return self._loaded(ins) or unknown
        if ins.opcode == "selp" and _whole(ins):
            chosen = self._chosen(ins, at)
            return unknown if chosen is None else self.operand(chosen, ins, at) or unknown
        if ins.opcode not in KNOWN or not _whole(ins):
            return unknown
        sources = [self.operand(o, ins, at) for o in ins.operands[1:]]
        if None in sources or not sources:
            return unknown
        form = self._function(ins, [s for s in sources if s is not None])
        return unknown if form is None or len(form.terms) > MOST else form

    def _loaded(self, ins: Instruction) -> Form | None:
        """ld.param of an entry's parameter: its value where the launch gives it."""
        place = ins.operands[1]
        if "param" not in ins.mods and "param::entry" not in ins.mods:
            return None
        if not isinstance(place, Address) or not isinstance(place.base, Variable) or not _whole(ins):
            return None
        if id(place.base) not in self.entry_params:
            return None
        known = self.launch.params.get(place.base.name)
        if known is not None and place.offset == 0:
            return Form(known)
        return atom("param", place.base.name, place.offset)

    def _function(self, ins: Instruction, sources: list[Form]) -> Form | None:
        name, mods = ins.opcode, ins.mods
        a = sources[0]
        b = sources[1] if len(sources) > 1 else Form(0)
        if name == "mov":
            return a
        if name == "cvt":
            return a if _keeps(ins) else None
        if name == "cvta":
            if "shared" in mods or "shared::cta" in mods:
                return a.add(atom("generic", "shared"), -1 if "to" in mods else 1)
            return a
        if name == "neg":
            return a.scaled(-1)
        if name == "not":
            return a.scaled(-1).add(Form(-1))
        if name == "bfe":
            return self._field(ins, sources)
        if name == "shr" and (kind := TYPES[element(ins)]).kind != "s":
            return self._nested(f"lsr{kind.bits}", a, b) if kind.bits >= 32 else None
        if name in ("add", "sub") and "cc" not in mods:
            return a.add(b, 1 if name == "add" else -1)
        if name == "mul" and "hi" not in mods:
            return self._product(a, b)
        if name == "mad" and "hi" not in mods and "cc" not in mods and len(sources) == 3:
            product = self._product(a, b)
            return None if product is None else product.add(sources[2])
        if name == "shl" and b.constant and 0 <= b.const < 64:
            return a.scaled(1 << b.const)
        if name in ("and", "or", "xor", "shr", "rem", "div", "min", "max"):
            if "cc" in mods:
                return None
            return self._nested(name, a, b)
        return None

    def _chosen(self, ins: Instruction, at: int) -> Operand | None:
        """Which operand `selp` takes, where its predicate compares with 0 what is never negative."""
        flag = ins.operands[3] if len(ins.operands) == 4 else None
        site = self.flow.only(flag.index) if isinstance(flag, Register) else -1
        test = self.graph.code[site] if site >= 0 else None
        if test is None or test.opcode != "setp" or len(test.operands) != 3 or len(test.mods) != 2:
            return None
        a, b = (self.operand(o, test, site) for o in test.operands[1:])
        if a is None or b != Form(0) or test.mods not in (("lt", "s32"), ("lt", "s64"), ("ge", "s32"), ("ge", "s64")):
            return None
        return ins.operands[1 + (test.mods[0] == "lt")] if self.positive(a) else None

    def positive(self, form: Form) -> bool:
        """Whether a form is sure not to be negative: sums and products of indices and sizes."""
        return form.const >= 0 and all(c > 0 and self._positive(a) for a, c in form.terms)

    def _positive(self, one: Atom) -> bool:
        if one[0] == "special":
            return one[1].partition(".")[0] in POSITIVE
        if one[0] != "op":
            return False
        signs = [self.positive(form) for form in one[2:]]
        return any(signs) if one[1] == "and" else all(signs)

    def _field(self, ins: Instruction, sources: list[Form]) -> Form | None:
        """Some bits of a number: a shift and a mask, and their highest bit is the sign where it has one."""
        if (
            ins.mods not in (("u32",), ("s32",))
            or len(sources) != 3
            or not (sources[1].constant and sources[2].constant)
        ):
            return None
        start, length = sources[1].const, sources[2].const
        if not (0 <= start < 32 and 0 < length < 32):
            return None
        moved = self._nested("lsr32", sources[0], sources[1]) if start else sources[0]
        field = None if moved is None else self._nested("and", moved, Form((1 << length) - 1))
        if field is None or ins.mods == ("u32",):
            return field
        half = 1 << (length - 1)
        swapped = self._nested("xor", field, Form(half))
        return None if swapped is None else swapped.add(Form(-half))

    def _product(self, a: Form, b: Form) -> Form | None:
        if a.constant:
            return b.scaled(a.const)
        if b.constant:
            return a.scaled(b.const)
        return self._nested("mul", a, b)

    def _nested(self, name: str, a: Form, b: Form) -> Form | None:
        if a.constant and b.constant:
            return Form(constant(name, a.const, b.const)) if constant(name, a.const, b.const) is not None else None  # type: ignore[arg-type]
        sign = b.const in (-1 << 31, 1 << 31, -1 << 63) if name == "and" else b.const in (31, 63)
        if sign and b.constant and name in ("and", "shr", "lsr32", "lsr64") and self.positive(a):
            return Form(0)
        inner = [self.depths.get(x, (0, 0)) for form in (a, b) for x, _ in form.terms]
        depth, size = 1 + max([d for d, _ in inner], default=0), 1 + sum(s for _, s in inner)
        if depth > DEEP and size > LARGE:
            return None
        nested = ("op", name, a, b)
        self.depths[nested] = depth, size
        return Form(0, frozenset({(nested, 1)}))


KNOWN = {"mov", "cvt", "cvta", "neg", "add", "sub", "mul", "mad", "shl", "and", "or", "xor", "shr", "rem", "div",
         "min", "max", "not", "bfe"}  # fmt: skip


def constant(name: str, a: int, b: int) -> int | None:
    """A function of two whole numbers, as PTX rounds."""
    if name == "and":
        return a & b
    if name == "or":
        return a | b
    if name == "xor":
        return a ^ b
    if name == "min":
        return min(a, b)
    if name == "max":
        return max(a, b)
    if name == "mul":
        return a * b
    if name == "shr":
        return a >> b if 0 <= b < 64 else None
    if name in ("lsr32", "lsr64"):
        bits = int(name[3:])
        return (a & ((1 << bits) - 1)) >> b if 0 < b < bits else a if b == 0 else None
    if b == 0:
        return None
    quotient = abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
    return quotient if name == "div" else a - quotient * b


def _whole(ins: Instruction) -> bool:
    """Whether an instruction computes whole numbers of at least 16 bits, or moves such."""
    types = [TYPES[m] for m in ins.mods if m in TYPES]
    return bool(types) and all(t.kind in "usb" and t.bits in (16, 32, 64) for t in types)


def _keeps(ins: Instruction) -> bool:
    """Whether a conversion keeps the numbers of indices and addresses: any width but the narrow ones."""
    types = [TYPES[m] for m in ins.mods if m in TYPES]
    return len(types) == 2 and types[0].bits >= 32
