"""Tracing: an op's body runs once with symbols, and its operations become the program.

`Builder` keeps nodes unique (hash-consing) and applies the rewrites that hold for every value,
NaN and Inf included: constants fold, `x*1` and `x/1` vanish, `x**2` is `x*x`, `x/c` is `x*(1/c)` only
for a power of two, `x != x` is `isnan(x)` (shader compilers fold the former away).
`Symbol` carries the operators, and raises for everything that Python would otherwise decide at trace time.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from trueno.programs.program import ELEMENTS, FOLDS, LEAF_SPACE, SPACES, Node, Program, Space

COMMUTATIVE = frozenset({"add", "mul", "maximum", "minimum", "eq", "ne", "and", "or"})
FOLDABLE: dict[str, Callable[..., float]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "neg": lambda a: -a,
    "abs": abs,
    "div": lambda a, b: a / b,
    "sqrt": math.sqrt,
    "rsqrt": lambda a: 1 / math.sqrt(a),
    "exp": math.exp,
    "log": math.log,
}


class Builder:
    """Collects the nodes of one program."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self._index: dict[tuple[Node, str], int] = {}

    def add(self, node: Node) -> int:
        key = (node, str(node.value))  # 0.0 == -0.0, but they are two constants
        if key not in self._index:
            self._index[key] = len(self.nodes)
            self.nodes.append(node)
        return self._index[key]

    def const(self, value: float) -> int:
        return self.add(Node("const", (), float(value), "u", "T"))

    def constant(self, i: int) -> float | None:
        node = self.nodes[i]
        return node.value if node.kind == "const" else None  # type: ignore[return-value]

    def element(self, kind: str, *args: int) -> int:
        values = [self.constant(a) for a in args]
        if kind in FOLDABLE and all(v is not None for v in values):
            try:
                return self.const(FOLDABLE[kind](*values))
            except (ArithmeticError, ValueError):  # log(0), 1/0: left to the kernel's IEEE arithmetic
                pass
        if kind == "ne" and args[0] == args[1]:
            return self.element("isnan", args[0])
        if kind in ("mul", "div") and values[1] == 1.0:
            return args[0]
        if kind == "mul" and values[0] == 1.0:
            return args[1]
        if kind == "div" and (c := values[1]) and math.isfinite(c) and abs(math.frexp(c)[0]) == 0.5:
            return self.element("mul", args[0], self.const(1 / c))
        if kind == "pow" and values[1] == 2.0:
            return self.element("mul", args[0], args[0])
        if kind in COMMUTATIVE:
            args = tuple(sorted(args))
        space = max((self.nodes[a].space for a in args), key=SPACES.index)
        return self.add(Node(kind, args, None, space, ELEMENTS[kind].result))

    def fold(self, kind: str, arg: int, value: str | None = None) -> int:
        if self.nodes[arg].space != "e":
            raise TypeError(f"{kind} folds an element value; this one is one value per row already")
        return self.add(Node(kind, (arg,), value, "r", FOLDS[kind].result))


def _operator(kind: str, *, swapped: bool = False) -> Callable[["Symbol", Any], "Symbol"]:
    def method(self: "Symbol", other: Any) -> "Symbol":
        if not isinstance(other, (Symbol, int, float)):
            return NotImplemented  # type: ignore[no-any-return]
        pair = (self.lift(other), self.index) if swapped else (self.index, self.lift(other))
        return Symbol(self.builder, self.builder.element(kind, *pair))

    return method


def _unary(kind: str) -> Callable[["Symbol"], "Symbol"]:
    def method(self: "Symbol") -> "Symbol":
        return Symbol(self.builder, self.builder.element(kind, self.index))

    return method


def _refuse(what: str, remedy: str) -> Callable[..., NoReturn]:
    def method(self: "Symbol", *_: Any) -> NoReturn:
        raise TypeError(f"{what} of a symbol: the value is not known while the op is traced; {remedy}")

    return method


class Symbol:
    """A value of the program under construction, as the body sees it."""

    __slots__ = ("builder", "index")
    __array_ufunc__ = None  # np.float64(2) * symbol must reach __rmul__, not make an object array
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, builder: Builder, index: int) -> None:
        self.builder = builder
        self.index = index

    def lift(self, other: Any) -> int:
        """Index of another symbol, or of a number as a constant."""
        if isinstance(other, Symbol):
            return other.index
        if isinstance(other, (int, float)) and not isinstance(other, bool):
            return self.builder.const(other)
        raise TypeError(f"an op's body computes with symbols and numbers, not with {other!r}")

    def fold(self, kind: str, value: str | None = None) -> "Symbol":
        return Symbol(self.builder, self.builder.fold(kind, self.index, value))

    def __repr__(self) -> str:
        return f"<{self.builder.nodes[self.index]}>"

    __add__, __radd__ = _operator("add"), _operator("add", swapped=True)
    __sub__, __rsub__ = _operator("sub"), _operator("sub", swapped=True)
    __mul__, __rmul__ = _operator("mul"), _operator("mul", swapped=True)
    __truediv__, __rtruediv__ = _operator("div"), _operator("div", swapped=True)
    __pow__, __rpow__ = _operator("pow"), _operator("pow", swapped=True)
    __lt__, __le__, __gt__, __ge__ = _operator("lt"), _operator("le"), _operator("gt"), _operator("ge")
    __eq__, __ne__ = _operator("eq"), _operator("ne")  # type: ignore[assignment]
    __and__, __or__ = _operator("and"), _operator("or")
    __neg__, __abs__, __invert__ = _unary("neg"), _unary("abs"), _unary("not")
    __bool__ = _refuse("the truth", "choose with where(c, a, b)")
    __iter__ = _refuse("iteration", "fold with trueno.programs.language's sum, max, …")
    __len__ = _refuse("the length", "use count(x)")
    __index__ = _refuse("an index", "a position is a symbol too")
    __float__ = _refuse("a float", "keep it symbolic")


def trace(
    body: Callable[..., Any],
    operands: Sequence[tuple[str, str]],
    params: Sequence[str],
    static: dict[str, Any],
) -> Program:
    """Run `body` once with symbols.

    `operands` are (name, kind letter); `params` become symbolic floats, `static` values steer Python.
    """
    builder = Builder()
    arguments: dict[str, Any] = {}
    for name, kind in operands:
        space: Space = LEAF_SPACE[kind]
        arguments[name] = Symbol(builder, builder.add(Node("leaf", (), name, space, "T")))
    for name in params:
        arguments[name] = Symbol(builder, builder.add(Node("param", (), name, "u", "T")))
    result = body(**arguments, **static)
    results = result if isinstance(result, tuple) else (result,)
    outputs = [r.index if isinstance(r, Symbol) else builder.const(r) for r in results]
    return prune(Program(tuple(builder.nodes), tuple(outputs), tuple(operands), tuple(params)))


def prune(program: Program) -> Program:
    """Drop what no output needs and renumber; leaves of unused operands go too."""
    keep = sorted(program.live(program.outputs))
    new = {old: i for i, old in enumerate(keep)}
    nodes = tuple(
        Node(n.kind, tuple(new[a] for a in n.args), n.value, n.space, n.type) for n in (program.nodes[i] for i in keep)
    )
    return Program(nodes, tuple(new[o] for o in program.outputs), program.operands, program.params)
