"""Each element kind of a row program in PTX: `EXPRESSIONS[kind](k, *args)` emits it and gives its value.

Arguments are values of the program's float, f32 or f64, or predicates for truth values; but for functions of one
argument, some of them may be Python numbers.  `cast` takes the type it gives, too.

`add`, `sub` and `mul` name no rounding mode, so ptxas may contract a product and a sum into one fma, which rounds once
where the program rounds twice: the judge allows both.  What must not be contracted says so (`add.rn`), as all of the
elementary functions do.
"""

from collections.abc import Callable
from math import inf, nan

from trueno_cuda.ptx import Builder, Type, Value, f32, f64, pred
from trueno_cuda.ptx.values import Number
from trueno_cuda.rows import (
    elementary32,
    elementary32_power,
    elementary32_trig,
    elementary64,
    elementary64_power,
    elementary64_trig,
)

Argument = Value | Number
Expression = Callable[..., Value]


def _type(*args: Argument) -> Type:
    """The program's float, by the arguments."""
    return next(a.type for a in args if isinstance(a, Value) and a.type is not pred)


def _contractible(name: str) -> Expression:
    return lambda k, x, y: k.apply(name, x, y, rnd="")


def _instruction(name: str) -> Expression:
    return lambda k, *args: k.apply(name, *args)


def _extreme(name: str) -> Expression:
    """min or max, where NaN wins: one instruction of f32 from sm_80 on."""

    def emit(k: Builder, x: Argument, y: Argument) -> Value:
        if _type(x, y) is f32 and k.target.number >= 80:
            return k.apply(name, x, y, nan=True)
        return k.select(k.compare("nan", x, y), nan, k.apply(name, x, y))

    return emit


def _comparison(name: str) -> Expression:
    return lambda k, x, y: k.compare(name, x, y)


def _not_equal(k: Builder, x: Argument, y: Argument) -> Value:
    return k.compare("neu" if _type(x, y).kind == "f" else "ne", x, y)


def truth(k: Builder, x: Value) -> Value:
    """A predicate; of a number, whether it is not zero, which NaN is not."""
    return x if x.type is pred else _not_equal(k, x, 0.0)


def _where(k: Builder, condition: Value, x: Argument, y: Argument) -> Value:
    c = truth(k, condition)
    if isinstance(x, Value) and x.type is pred:
        return (c & x) | (~c & truth(k, y))
    return k.select(c, x, y)


def cast(k: Builder, x: Value, kind: Type) -> Value:
    """A truth value (1 or 0), an integer or a float as `kind`, rounded to nearest."""
    return k.select(x, k.const(kind, 1.0), 0.0) if x.type is pred else x.to(kind)


def _by_type(single: Expression, double: Expression) -> Expression:
    def emit(k: Builder, *args: Argument) -> Value:
        kind = _type(*args)
        values = [a if isinstance(a, Value) else k.const(kind, a) for a in args]
        return {f32: single, f64: double}[kind](k, *values)

    return emit


SINGLE: dict[str, Expression] = {
    **elementary32.FUNCTIONS,
    "sin": elementary32_trig.sin,
    "cos": elementary32_trig.cos,
    "pow": elementary32_power.pow,
}
DOUBLE: dict[str, Expression] = {
    **elementary64.FUNCTIONS,
    "sin": elementary64_trig.sin,
    "cos": elementary64_trig.cos,
    "atan": elementary64_trig.atan,
    "pow": elementary64_power.pow,
}

EXPRESSIONS: dict[str, Expression] = {
    **{kind: _instruction(kind) for kind in ("neg", "abs", "floor", "ceil", "trunc", "div", "fma", "sqrt")},
    "rint": _instruction("round"),
    **{kind: _contractible(kind) for kind in ("add", "sub", "mul")},
    "maximum": _extreme("max"),
    "minimum": _extreme("min"),
    "copysign": lambda k, x, sign: k.copysign(x, sign),
    **{kind: _comparison(kind) for kind in ("lt", "le", "gt", "ge", "eq")},
    "ne": _not_equal,
    "and": lambda k, a, b: truth(k, a) & truth(k, b),
    "or": lambda k, a, b: truth(k, a) | truth(k, b),
    "not": lambda k, a: ~truth(k, a),
    "isnan": lambda k, x: k.compare("nan", x, x),
    "isinf": lambda k, x: k.compare("eq", abs(x), inf),
    "where": _where,
    "cast": cast,
    **{kind: _by_type(function, DOUBLE[kind]) for kind, function in SINGLE.items()},
}
