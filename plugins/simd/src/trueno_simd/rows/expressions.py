"""Each node kind in Numba's Python: one line per element function, one row per fold."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from trueno.backend import TABLE

FUNCTIONS = (
    *("rsqrt", "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "log1p_unit"),
    *("tanh", "erf", "sin", "cos", "atan"),
)
"""Element functions of `trueno_simd.rows.float32` and `float64`, of one argument."""
IDIOMS = {"float32": ("tan", "asin", "acos"), "float64": ("tan",)}
"""Ops whose whole body is one function there, although its parts have functions too: it is faster and more accurate."""

EXPRESSIONS: dict[str, str] = {
    "neg": "-{0}",
    "abs": "absolute({0})",
    "add": "{0} + {1}",
    "sub": "{0} - {1}",
    "mul": "{0} * {1}",
    "div": "{0} / {1}",
    "maximum": "maximum({0}, {1})",
    "minimum": "minimum({0}, {1})",
    "copysign": "copysign({0}, {1})",
    "fma": "fma({0}, {1}, {2})",
    "floor": "floor({0})",
    "ceil": "ceil({0})",
    "trunc": "trunc({0})",
    "rint": "rint({0})",
    "lt": "{0} < {1}",
    "le": "{0} <= {1}",
    "gt": "{0} > {1}",
    "ge": "{0} >= {1}",
    "eq": "{0} == {1}",
    "ne": "{0} != {1}",
    "and": "both({0}, {1})",
    "or": "either({0}, {1})",
    "not": "invert({0})",
    "isnan": "{0} != {0}",
    "isinf": "absolute({0}) == INF",
    "where": "select({0}, {1}, {2})",
    "sqrt": "sqrt({0})",
    "cast": "T({0})",
    "position": "i",
    **{name: name + "({0})" for name in FUNCTIONS},
    "pow": "pow({0}, {1})",
}


def expression(nodes: Sequence[Any], i: int, name: Callable[[int], str], dtype: str) -> str:
    """The text of node `i`, from the names of its arguments; the whole body of some ops becomes one function."""
    node = nodes[i]
    for op in IDIOMS[dtype]:
        pattern = TABLE[op].program()
        x = matched(pattern.nodes, pattern.outputs[0], nodes, i)
        if x is not None:
            return f"{op}({name(x)})"
    return EXPRESSIONS[node.kind].format(*map(name, node.args))


def matched(pattern: Sequence[Any], p: int, nodes: Sequence[Any], i: int) -> int | None:
    """The node in the place of the pattern's operand, if nodes up to `i` compute what the pattern does up to `p`."""
    operand: int | None = None
    pairs = [(p, i)]
    while pairs:
        p, i = pairs.pop()
        if pattern[p].kind == "leaf":
            if operand not in (None, i):
                return None
            operand = i
        elif (pattern[p].kind, pattern[p].value) != (nodes[i].kind, nodes[i].value):
            return None
        else:
            pairs += zip(pattern[p].args, nodes[i].args, strict=True)
    return operand


class FoldText(NamedTuple):
    """How a fold is printed.

    start, step: the accumulator of one block, in the program's type.  state: initial values of what a
    pass carries from block to block; `join` takes a block's result {q} (of the block at `lo`) into the
    state {a}, {b}, and also a later chunk's state into an earlier one's, {qa} and {qb}.  result: the fold's
    value, from the state.
    """

    start: str
    step: str
    state: tuple[str, ...]
    types: tuple[str, ...]
    join: str
    merge: str
    result: str


def fold_text(kind: str, dtype: str, numbers: bool = False) -> FoldText:
    """The row of fold `kind` for programs of `dtype`; `numbers` where a row with a NaN may give anything."""
    wide = dtype == "float32"  # then float64 partial sums are exact enough; else two floats carry them
    if kind in ("sum", "fsum"):
        step = "radd({s}, {v})" if kind == "sum" or not wide else "radd({s}, float64({v}))"
        start = "T(0)" if kind == "sum" or not wide else "0.0"
        if kind == "fsum" and not wide:
            return FoldText("0.0, 0.0", "join(*{s}, {v})", ("0.0", "0.0"), ("float64", "float64"),
                            "{a}, {b} = join({a}, {b} + {q}[1], {q}[0])",
                            "{a}, {b} = join({a}, {b} + {qb}, {qa})", "T(joined({a}, {b}))")  # fmt: skip
        if wide:
            return FoldText(start, step, ("0.0",), ("float64",), "{a} += float64({q})", "{a} += {qa}", "T({a})")
        return FoldText(start, step, ("0.0", "0.0"), ("float64", "float64"), "{a}, {b} = join({a}, {b}, {q})",
                        "{a}, {b} = join({a}, {b} + {qb}, {qa})", "joined({a}, {b})")  # fmt: skip
    if kind == "prod":
        return FoldText(
            "T(1)", "rmul({s}, {v})", ("1.0",), ("float64",), "{a} *= float64({q})", "{a} *= {qa}", "T({a})"
        )
    if kind in ("max", "min"):
        far = "-INF" if kind == "max" else "INF"
        pick = {"max": ("maximum", "greatest"), "min": ("minimum", "smallest")}[kind][numbers]
        return FoldText(far, pick + "({s}, {v})", (far,), ("T",), "{a} = " + pick + "({a}, {q})",
                        "{a} = " + pick + "({a}, {qa})", "{a}")  # fmt: skip
    if kind in ("any", "all"):
        start, pick = ("False", "either") if kind == "any" else ("True", "both")
        return FoldText(start, pick + "({s}, {v})", (start,), ("int64",), "{a} = " + pick + "({a}, {q})",
                        "{a} = " + pick + "({a}, {qa} != 0)", "{a}")  # fmt: skip
    if kind in ("argmax", "argmin"):
        far, pick, better = ("-INF", "maximum", ">") if kind == "argmax" else ("INF", "minimum", "<")
        test = "if {new} " + better + " {a} or ({new} != {new} and {a} == {a}):\n    {a}, {b} = {new}, {at}"
        return FoldText(far, pick + "({s}, {v})", (far, "0"), ("T", "int64"),
                        test.replace("{new}", "{q}").replace("{at}", "lo"),
                        test.replace("{new}", "{qa}").replace("{at}", "{qb}"), "{b}")  # fmt: skip
    raise KeyError(kind)
