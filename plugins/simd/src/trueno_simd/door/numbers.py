"""An entry's numbers: float parameters and their rules, operands that are numbers, the floating-point environment."""

import ast
import platform
import struct
from typing import Final

from trueno_simd.door.frame import Frame
from trueno_simd.llvm.environment import ARM, FPCR, MXCSR, MXCSR_MODES, X86

_COMPARISONS: Final[dict[type, str]] = {
    ast.LtE: "ole", ast.Lt: "olt", ast.GtE: "oge", ast.Gt: "ogt", ast.Eq: "oeq", ast.NotEq: "une",
}  # fmt: skip
LARGEST_SINGLE: Final = "0x47EFFFFFE0000000"
"""The largest float32, as a double."""


class Unprintable(Exception):
    """A rule that is no comparison of parameters and numbers: ops with it keep their Python functions."""


def environment(frame: Frame, machine: str = platform.machine()) -> None:
    """The thread rounds to nearest and keeps subnormals: what Numba's wrapper of a kernel sees to otherwise."""
    f = frame.f
    if machine.lower() in X86:
        control = f.slot("i32")
        f.do(f"call void @llvm.x86.sse.stmxcsr(ptr {control})")
        modes = f(f"and i32 {f.load('i32', control)}, {MXCSR_MODES}")
        f.require(f.same("i32", modes, MXCSR), "slow")
    elif machine.lower() in ARM:
        f.require(f.same("i64", f("call i64 @llvm.aarch64.get.fpcr()"), FPCR), "slow")
    else:
        raise Unprintable(f"the floating-point environment of {machine} is not known")


def declarations(machine: str = platform.machine()) -> str:
    """The declarations of what `environment`, `enter` and `leave` call."""
    if machine.lower() in X86:
        return "declare void @llvm.x86.sse.stmxcsr(ptr)\ndeclare void @llvm.x86.sse.ldmxcsr(ptr)\n"
    return "declare i64 @llvm.aarch64.get.fpcr()\ndeclare void @llvm.aarch64.set.fpcr(i64)\n"


def enter(frame: Frame, machine: str = platform.machine()) -> str:
    """Set the default environment where the thread has another, as Numba's wrapper does; what `leave` restores."""
    f = frame.f
    kept, other, further = f.slot("i64", "0"), f.label("other"), f.label("on")
    if machine.lower() in X86:
        default = f.slot("i32", str(MXCSR))
        f.do(f"call void @llvm.x86.sse.stmxcsr(ptr {kept})")
        f.branch(_default(frame, kept, machine), further, other, likely=True)
        f.place(other)
        f.do(f"call void @llvm.x86.sse.ldmxcsr(ptr {default})")
    elif machine.lower() in ARM:
        f.store("i64", f("call i64 @llvm.aarch64.get.fpcr()"), kept)
        f.branch(_default(frame, kept, machine), further, other, likely=True)
        f.place(other)
        f.do(f"call void @llvm.aarch64.set.fpcr(i64 {FPCR})")
    else:
        raise Unprintable(f"the floating-point environment of {machine} is not known")
    f.goto(further)
    f.place(further)
    return kept


def leave(frame: Frame, kept: str, machine: str = platform.machine()) -> None:
    """Restore the environment that `enter` kept."""
    f = frame.f
    other, further = f.label("other"), f.label("on")
    f.branch(_default(frame, kept, machine), further, other, likely=True)
    f.place(other)
    if machine.lower() in X86:
        f.do(f"call void @llvm.x86.sse.ldmxcsr(ptr {kept})")
    else:
        f.do(f"call void @llvm.aarch64.set.fpcr(i64 {f.load('i64', kept)})")
    f.goto(further)
    f.place(further)


def _default(frame: Frame, kept: str, machine: str) -> str:
    """Whether the environment that was kept is the default one."""
    f = frame.f
    if machine.lower() in X86:
        return f.same("i32", f(f"and i32 {f.load('i32', kept)}, {MXCSR_MODES}"), MXCSR)
    return f.same("i64", f.load("i64", kept), FPCR)


def parameters(frame: Frame) -> None:
    """Each float parameter as a double: its default, or an exact float or int; then the rules about them."""
    f = frame.f
    slots = []
    for i, (_, required) in enumerate(frame.kind.parameters):
        into = f.slot("double")
        value, given, absent, done = f.load("ptr", frame.values[i]), f.label("given"), f.label("absent"), f.label("on")
        f.branch(f.null(value), "slow" if required else absent, given)
        if not required:
            f.place(absent)
            f.store("double", frame.fact("defaults", i, "double"), into)
            f.goto(done)
        f.place(given)
        number(frame, value, into, done, ("float",))
        slots.append(into)
    frame.numbers = [f.load("double", into) for into in slots]
    for rule in frame.kind.rules:
        f.require(_condition(frame, rule), "slow")


def operands(frame: Frame) -> None:
    """Each operand that is a number, in a cell of the call's dtype; beyond the range of float32 it is not taken."""
    f = frame.f
    for i, (x, kind) in enumerate(zip(frame.operands, frame.kinds, strict=True)):
        if kind != "u":
            continue
        into, done = f.slot("double"), f.label("number")
        number(frame, x, into, done, ("float", "float32", "float64"))
        value, cell = f.load("double", into), f.slot("i64")
        double, single, stored = f.label("double"), f.label("single"), f.label("stored")
        f.branch(f.same("i64", f.load("i64", frame.wide), 1), double, single)
        f.place(double)
        f.store("double", value, cell)
        f.goto(stored)
        f.place(single)
        within = f(f"fcmp ole double {f(f'call double @llvm.fabs.f64(double {value})')}, {LARGEST_SINGLE}")
        f.require(within, "slow")  # neither is a NaN or an infinity
        f.store("float", f(f"fptrunc double {value} to float"), cell)
        f.goto(stored)
        f.place(stored)
        frame.cells[i] = cell


def number(frame: Frame, value: str, into: str, done: str, classes: tuple[str, ...]) -> None:
    """Store the number that an object of exactly one of these classes, or an int, is, and place `done`."""
    f = frame.f
    kind = frame.part(value, "type")
    for name in classes:
        yes, no = f.label("is"), f.label("else")
        f.branch(f.same("ptr", kind, frame.word(name)), yes, no)
        f.place(yes)
        if name == "float32":
            number = f(f"fpext float {frame.part(value, 'number', 'float')} to double")
        else:
            number = frame.part(value, "number", "double")
        f.store("double", number, into)
        f.goto(done)
        f.place(no)
    whole, unclear = f.label("int"), f.label("unclear")
    f.branch(f.same("ptr", kind, frame.word("int")), whole, "slow")
    f.place(whole)
    number = frame.call("double", "int_as_double", f"ptr {value}")
    f.store("double", number, into)
    f.branch(f(f"fcmp oeq double {number}, -1.0"), unclear, done)
    f.place(unclear)  # −1 itself, or an int beyond the range of a double
    f.branch(f.null(frame.call("ptr", "error_occurred")), done, "clear")
    f.place(done)


def _condition(frame: Frame, rule: str) -> str:
    """A rule such as `p0 <= p1`; a NaN satisfies none, as in Python."""
    node = ast.parse(rule, mode="eval").body
    if not isinstance(node, ast.Compare) or len(node.ops) != 1 or type(node.ops[0]) not in _COMPARISONS:
        raise Unprintable(f"the rule {rule}")
    comparison = _COMPARISONS[type(node.ops[0])]
    left, right = (_operand(frame, side) for side in (node.left, node.comparators[0]))
    return frame.f(f"fcmp {comparison} double {left}, {right}")


def _operand(frame: Frame, node: ast.expr) -> str:
    if isinstance(node, ast.Name):
        return frame.numbers[int(node.id.removeprefix("p"))]
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        return f"0x{struct.unpack('<Q', struct.pack('<d', node.value))[0]:016X}"
    raise Unprintable(f"the rule's part {ast.unparse(node)}")
