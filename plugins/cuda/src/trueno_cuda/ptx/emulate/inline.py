"""Calls of device functions, expanded in place: each call gets its own registers and labels.

PTX passes arguments in `.param` variables of the caller; the callee's own names for them become those variables.
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import count

from trueno_cuda.ptx.emulate.errors import UnknownInstruction
from trueno_cuda.ptx.syntax.errors import PtxError
from trueno_cuda.ptx.syntax.tree import (
    Address,
    Function,
    Instruction,
    Label,
    Not,
    Operand,
    Pair,
    Program,
    Register,
    Symbol,
    Variable,
    Vector,
)

DEPTH = 64
"""Calls within each other."""
MOST = 1_000_000
"""Instructions of an entry with those of all calls in place: a few functions that call each other make any number."""
SILENT = {"vprintf"}  # of the run-time library: prints on a device, nothing here
ABORTS = {"__assertfail", "__assert_fail"}


def inlined(program: Program, entry: Function) -> Function:
    """A copy of an entry without calls; its registers and variables are all that it can reach."""
    copy = Function(entry.name, True, entry.params, [], list(entry.registers), list(entry.variables), [],
                    entry.directives, entry.line, True)  # fmt: skip
    _measure(program, entry, (entry.name,), {})
    copy.body = _expand(program, copy, entry.body, count())
    return copy


def _measure(program: Program, function: Function, trail: tuple[str, ...], known: dict[str, int]) -> int:
    """Instructions of a function with its calls in place; raises PtxError where there is no end, or a late one."""
    size = 0
    for item in function.body:
        callee = None
        if isinstance(item, Instruction) and item.opcode == "call" and isinstance(item.operands[0], Symbol):
            callee = program.functions.get(item.operands[0].name)
        if not isinstance(item, Instruction) or callee is None:
            size += 1
            continue
        name = callee.name
        if name in trail:
            raise UnknownInstruction(f"{name} calls itself, which the emulator cannot expand", item.line, item.text)
        if len(trail) > DEPTH:
            raise PtxError(f"calls within each other more than {DEPTH} deep", item.line, item.text)
        if name not in known:
            known[name] = _measure(program, callee, (*trail, name), known)
        size += known[name]
        if size > MOST:
            raise PtxError(f"more than {MOST} instructions with all calls in place", item.line, item.text)
    return size


def _expand(
    program: Program, made: Function, body: list[Instruction | Label], numbers: Iterator[int]
) -> list[Instruction | Label]:
    """The body with its calls in place; numbers: one for each call, because a function without registers adds none."""
    out: list[Instruction | Label] = []
    for item in body:
        if isinstance(item, Instruction) and item.opcode == "call":
            out += _call(program, made, item, numbers)
        else:
            out.append(item)
    return out


def _call(program: Program, made: Function, ins: Instruction, numbers: Iterator[int]) -> list[Instruction | Label]:
    target = ins.operands[0]
    assert isinstance(target, Symbol) and ins.arguments is not None
    name = target.name
    if name in SILENT:
        return []
    if name in ABORTS:
        return [Instruction("trap", (), [], ins.line, ins.text, ins.guard, ins.negated)]
    if name.startswith("%"):
        raise UnknownInstruction("calls through a register are not emulated", ins.line, ins.text)
    callee = program.functions.get(name)
    if callee is None or not callee.defined:
        raise UnknownInstruction(f"{name} is not defined in this text", ins.line, ins.text)
    results, arguments = ins.arguments
    if len(results) != len(callee.results) or len(arguments) != len(callee.params):
        raise PtxError(f"{name} takes {len(callee.params)} arguments and gives {len(callee.results)} results",
                       ins.line, ins.text)  # fmt: skip
    serial = len(made.registers)
    registers = {id(r): Register(r.name, r.type, serial + k) for k, r in enumerate(callee.registers)}
    made.registers += registers.values()
    variables: dict[int, Variable] = {}
    before: list[Instruction | Label] = []
    after: list[Instruction | Label] = []
    for formal, actual in (*zip(callee.params, arguments, strict=True), *zip(callee.results, results, strict=True)):
        if isinstance(actual, Symbol) and actual.variable is not None and formal.space == "param":
            variables[id(formal)] = actual.variable
        elif formal.space == "reg":
            inner = next(registers[id(r)] for r in callee.registers if r.name == formal.name)
            move = ("b" + str(formal.type.bits),) if formal.type.bits > 1 else ("pred",)
            if any(formal is p for p in callee.params):
                before.append(Instruction("mov", move, [inner, actual], ins.line, ins.text))
            else:
                after.append(Instruction("mov", move, [actual, inner], ins.line, ins.text))
        else:
            raise UnknownInstruction("an argument that the emulator cannot pass", ins.line, ins.text)
    for var in callee.variables:
        if var not in made.variables:
            made.variables.append(var)
    tag = f"@{next(numbers)}"
    end = f"end of {name}{tag}"

    def operand(o: Operand) -> Operand:
        if isinstance(o, Register):
            return registers[id(o)]
        if isinstance(o, Symbol):
            if o.variable is not None:
                return replace(o, variable=variables.get(id(o.variable), o.variable))
            return replace(o, name=o.name + tag) if o.name not in program.functions else o
        if isinstance(o, Address):
            base = o.base
            if isinstance(base, Register):
                base = registers[id(base)]
            elif base is not None:
                base = variables.get(id(base), base)
            return Address(base, o.offset, tuple(operand(r) for r in o.rest))
        if isinstance(o, Vector):
            return Vector(tuple(operand(i) for i in o.items))
        if isinstance(o, Pair):
            return Pair(operand(o.first), operand(o.second))
        return Not(operand(o.operand)) if isinstance(o, Not) else o

    copied: list[Instruction | Label] = []
    for item in callee.body:
        if isinstance(item, Label):
            copied.append(Label(item.name + tag, item.line))
            continue
        guard = None if item.guard is None else registers[id(item.guard)]
        if item.opcode == "ret":
            copied.append(Instruction("bra", (), [Symbol(end)], item.line, item.text, guard, item.negated))
            continue
        passed = item.arguments and tuple([operand(o) for o in side] for side in item.arguments)
        copied.append(
            Instruction(item.opcode, item.mods, [operand(o) for o in item.operands], item.line, item.text, guard,
                        item.negated, passed, tuple(t + tag for t in item.targets), item.written)  # type: ignore[arg-type]
        )  # fmt: skip
    skip: list[Instruction | Label] = []
    if ins.guard is not None:
        skip = [Instruction("bra", (), [Symbol(end)], ins.line, ins.text, ins.guard, not ins.negated)]
    return [*skip, *before, *_expand(program, made, copied, numbers), *after, Label(end, ins.line)]
