"""Operations on one float that Python lacks: its bits, a select, an add that may not be contracted.

Every function is generic: float32 goes with int32, float64 with int64, and the two arguments of a
binary one have the same type.  Each is one LLVM instruction (or intrinsic) that has a packed form at
every ISA level, except `fma`, `ldexp` and `rint`: without `FMA`, `AVX512` or `RINT` they become a libm
call a lane, so choose by these constants (Numba drops the branch not taken).

Integer instructions are here because Numba widens int32 arithmetic to int64, which halves the lanes.
"""

import functools
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from trueno_simd.llvm.isa import level
from trueno_simd.llvm.jit import inner

LEVEL = level()
AVX512 = LEVEL == "avx512"
FMA = LEVEL in ("avx2", "avx512", "neon")
RINT = LEVEL != "sse2"

PAIRS = {
    types.float32: types.int32,
    types.float64: types.int64,
    types.int32: types.float32,
    types.int64: types.float64,
}


def _bitcast(source: tuple[Any, ...]) -> Any:
    def typed(_: Any, x: Any) -> Any:
        if x not in source:
            return None
        to = PAIRS[x]

        def emit(context: Any, builder: Any, _: Any, values: Any) -> Any:
            return builder.bitcast(values[0], context.get_value_type(to))

        return to(x), emit

    return intrinsic(typed)


def _binary(name: str, **flags: Any) -> Any:
    """One instruction on two values of one type."""

    def typed(_: Any, a: Any, b: Any) -> Any:
        if a != b or a not in PAIRS:
            return None

        def emit(_: Any, builder: Any, __: Any, values: Any) -> Any:
            return getattr(builder, name)(*values, **flags)

        return a(a, b), emit

    return intrinsic(typed)


def _llvm(name: str, count: int) -> Any:
    """An LLVM intrinsic on `count` floats of one type."""

    def emitter(a: Any) -> Any:
        def emit(context: Any, builder: Any, _: Any, values: Any) -> Any:
            t = context.get_value_type(a)
            f = builder.module.declare_intrinsic(name, [t], ir.FunctionType(t, [t] * count))
            return builder.call(f, values)

        return emit

    def one(_: Any, a: Any) -> Any:
        return (a(a), emitter(a)) if a in types.real_domain else None

    def two(_: Any, a: Any, b: Any) -> Any:
        return (a(a, b), emitter(a)) if a == b and a in types.real_domain else None

    def three(_: Any, a: Any, b: Any, c: Any) -> Any:
        return (a(a, b, c), emitter(a)) if a == b == c and a in types.real_domain else None

    return intrinsic((one, two, three)[count - 1])


to_bits = _bitcast((types.float32, types.float64))  # float -> int of the same width
from_bits = _bitcast((types.int32, types.int64))  # int -> float of the same width

# Never contracted, which exact tricks (two-sum, splitting) need.  Numba adds the function's flags to every
# instruction that has none; `arcp` says nothing about these three and keeps it away.
add = _binary("fadd", flags=("arcp",))
sub = _binary("fsub", flags=("arcp",))
mul = _binary("fmul", flags=("arcp",))

iadd = _binary("add")
isub = _binary("sub")
iand = _binary("and_")
ior = _binary("or_")
ixor = _binary("xor")
shl = _binary("shl")
shr = _binary("ashr")  # keeps the sign; int64 has no packed form below AVX-512: prefer `ushr` there
ushr = _binary("lshr")

absolute = _llvm("llvm.fabs", 1)
sqrt = _llvm("llvm.sqrt", 1)
rint = _llvm("llvm.rint", 1)  # needs RINT; `nearest` does not
copysign = _llvm("llvm.copysign", 2)
floor = _llvm("llvm.floor", 1)  # these three are libm calls below AVX
ceil = _llvm("llvm.ceil", 1)
trunc = _llvm("llvm.trunc", 1)
fma = _llvm("llvm.fma", 3)  # needs FMA
muladd = _llvm("llvm.fmuladd", 3)  # fused where that is cheap


@intrinsic  # type: ignore[untyped-decorator]
def select(_: Any, condition: Any, a: Any, b: Any) -> Any:
    """`a if condition else b`, both computed."""
    if a != b or condition != types.boolean:
        return None

    def emit(_: Any, builder: Any, __: Any, values: Any) -> Any:
        return builder.select(*values)

    return a(condition, a, b), emit


@intrinsic  # type: ignore[untyped-decorator]
def ldexp(_: Any, x: Any, n: Any) -> Any:
    """x · 2ⁿ for an int32 n, rounded once.  Needs AVX512 (`vscalef`); `scale` does not."""
    if x not in types.real_domain or n != types.int32:
        return None

    def emit(context: Any, builder: Any, _: Any, values: Any) -> Any:
        t, i = context.get_value_type(x), ir.IntType(32)
        f = builder.module.declare_intrinsic("llvm.ldexp", [t, i], ir.FunctionType(t, [t, i]))
        return builder.call(f, values)

    return x(x, n), emit


@intrinsic  # type: ignore[untyped-decorator]
def narrow(_: Any, n: Any) -> Any:
    """The low 32 bits of an int64."""
    if n != types.int64:
        return None

    def emit(_: Any, builder: Any, __: Any, values: Any) -> Any:
        return builder.trunc(values[0], ir.IntType(32))

    return types.int32(n), emit


@intrinsic  # type: ignore[untyped-decorator]
def widen(_: Any, n: Any) -> Any:
    """An int32 as int64."""
    if n != types.int32:
        return None

    def emit(_: Any, builder: Any, __: Any, values: Any) -> Any:
        return builder.sext(values[0], ir.IntType(64))

    return types.int64(n), emit


@inner
def two_sum(a: Any, b: Any) -> Any:
    """(s, e) with s = fl(a + b) and s + e = a + b exactly (Knuth)."""
    s = add(a, b)
    t = sub(s, a)
    return s, add(sub(a, sub(s, t)), sub(b, t))


@inner
def fast_two_sum(a: Any, b: Any) -> Any:
    """The same for |a| >= |b| (Dekker)."""
    s = add(a, b)
    return s, sub(b, sub(s, a))


@intrinsic  # type: ignore[untyped-decorator]
def high(_: Any, x: Any) -> Any:
    """x with its low digits cleared: 12 of 24 stay, or 26 of 53, so that products of two are exact."""
    if x not in types.real_domain:
        return None
    width, low = (32, 12) if x == types.float32 else (64, 27)

    def emit(_: Any, builder: Any, __: Any, values: Any) -> Any:
        i = ir.IntType(width)
        kept = builder.and_(builder.bitcast(values[0], i), ir.Constant(i, -1 << low))
        return builder.bitcast(kept, values[0].type)

    return x(x), emit


@inner
def two_product(a: Any, b: Any) -> Any:
    """(p, e) with p = fl(a · b) and p + e = a · b exactly (Dekker, Veltkamp), short of over- and underflow."""
    p = mul(a, b)
    if FMA:
        return p, fma(a, b, -p)
    x = high(a)
    y = high(b)
    u = sub(a, x)
    v = sub(b, y)
    return p, add(add(add(sub(mul(x, y), p), mul(x, v)), mul(u, y)), mul(u, v))


def polynomial(*coefficients: float, chains: int = 1) -> Any:
    """x ↦ c₀ + c₁x + c₂x² + …, by Horner's rule; each step is fused where that is cheap.

    `chains=2` evaluates even and odd powers separately: one more product, half the latency.  It pays in long functions
    (pow: 170 instructions per vector), where few other vectors fit into the reorder buffer.
    """

    def typed(_: Any, x: Any) -> Any:
        if x not in types.real_domain:
            return None

        def emit(context: Any, builder: Any, _: Any, values: Any) -> Any:
            t = context.get_value_type(x)

            def step(value: Any, factor: Any, term: Any) -> Any:
                product = builder.fmul(value, factor, flags=("contract",))
                return builder.fadd(product, term, flags=("contract",))

            def horner(terms: Any, factor: Any) -> Any:
                last, *others = [ir.Constant(t, c) for c in reversed(terms)]
                return functools.reduce(lambda value, term: step(value, factor, term), others, last)

            if chains == 1:
                return horner(coefficients, values[0])
            square = builder.fmul(values[0], values[0], flags=("contract",))
            return step(horner(coefficients[1::2], square), values[0], horner(coefficients[::2], square))

        return x(x), emit

    return intrinsic(typed)
