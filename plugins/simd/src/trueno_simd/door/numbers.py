"""An entry's numbers: float parameters and their rules, and operands that are numbers."""

import ast
import struct
from typing import Final

from trueno_simd.door.frame import Frame
from trueno_simd.door.text import Unprintable

_COMPARISONS: Final[dict[type, str]] = {
    ast.LtE: "ole", ast.Lt: "olt", ast.GtE: "oge", ast.Gt: "ogt", ast.Eq: "oeq", ast.NotEq: "une",
}  # fmt: skip
LARGEST_SINGLE: Final = "0x47EFFFFFE0000000"
"""The largest float32, as a double."""


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
