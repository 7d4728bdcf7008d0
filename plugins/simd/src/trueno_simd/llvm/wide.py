"""AVX-512's own functions: written once for a whole register, called with one number, vectorized by LLVM.

A function in AVX-512's own instructions (exponent and mantissa of a float, a table in a register, a product with 2ⁿ)
cannot be written for one number.  So `wide` gives LLVM a scalar function with vector functions beside it, which LLVM
finds by the attribute `vector-function-abi-variant` (the way in which vector math libraries are bound).  The vectorizer
puts a call of the vector function into the loop, and `trueno_simd.llvm.linking` inlines it after that: the loop is
straight code with several vectors in flight.

Every width runs the same instructions on a whole register, and so does the scalar function: the result for a number
depends neither on its position nor on the length of the array.
"""

from collections.abc import Callable, Sequence
from inspect import signature
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from trueno_simd.llvm.rare import CONVENTION

INDEX = ir.IntType(32)
NEAREST_EVEN = ir.Constant(INDEX, 4)  # the rounding that MXCSR says, which is this one (`trueno_simd.llvm.environment`)
ABSOLUTE, NOT_NEGATIVE = 0b0111, 0b1011  # `vgetmant`: in [3/4, 3/2), of |x|; NaN for what is negative
LOG_EDGES = 0x03530421  # `vfixupimm`: -Inf at 0, Inf at Inf, NaN for NaN and for what is negative
RSQRT_EDGES = 0x03830621  # ±Inf at ±0, 0 at Inf, NaN for NaN and for what is negative
ROOT_EDGES = 0x03530121  # ±0 at ±0, Inf at Inf, the same NaN
EXACT = ("arcp",)  # never contracted (`trueno_simd.llvm.bits`)


class Words:
    """The instructions of one function, on 16 float32 or 8 float64 (or their bits, as integers)."""

    def __init__(self, builder: Any, kind: Any) -> None:
        single = kind == types.float32
        self.builder, self.kind = builder, kind
        self.count = 16 if single else 8
        self.suffix, self.lane = ("ps", np.float32) if single else ("pd", np.float64)
        self.scalar, self.integer = (ir.FloatType(), ir.IntType(32)) if single else (ir.DoubleType(), ir.IntType(64))
        self.floats, self.integers = ir.VectorType(self.scalar, self.count), ir.VectorType(self.integer, self.count)
        self.sign = -1 << (self.integer.width - 1)
        self.every = ir.Constant(ir.IntType(self.count), -1)
        self.unused = ir.Constant(self.floats, ir.Undefined)

    def number(self, value: float) -> Any:
        return self.table([value] * self.count)

    def table(self, values: Sequence[float]) -> Any:
        return ir.Constant(self.floats, [float(self.lane(v)) for v in values])

    def whole(self, value: int) -> Any:
        return ir.Constant(self.integers, [value] * self.count)

    def call(self, name: str, result: Any, *arguments: Any) -> Any:
        kind = ir.FunctionType(result, [argument.type for argument in arguments])
        return self.builder.call(cgutils.get_or_insert_function(self.builder.module, kind, name), arguments)

    # ---- arithmetic, each step rounded once

    def add(self, a: Any, b: Any) -> Any:
        return self.builder.fadd(a, b, flags=EXACT)

    def sub(self, a: Any, b: Any) -> Any:
        return self.builder.fsub(a, b, flags=EXACT)

    def mul(self, a: Any, b: Any) -> Any:
        return self.builder.fmul(a, b, flags=EXACT)

    def negative(self, a: Any) -> Any:
        return self.builder.fneg(a)

    def fma(self, a: Any, b: Any, c: Any) -> Any:
        """a · b + c."""
        return self.call(f"llvm.fma.v{self.count}f{self.integer.width}", self.floats, a, b, c)

    def polynomial(self, x: Any, *coefficients: Any) -> Any:
        """c₀ + c₁x + …, by Horner's rule; a coefficient is a number, or a vector."""
        terms = [c if isinstance(c, ir.Value) else self.number(c) for c in coefficients]
        value = terms.pop()
        while terms:
            value = self.fma(value, x, terms.pop())
        return value

    def absolute(self, x: Any) -> Any:
        return self.call(f"llvm.fabs.v{self.count}f{self.integer.width}", self.floats, x)

    def copysign(self, x: Any, sign: Any) -> Any:
        return self.call(f"llvm.copysign.v{self.count}f{self.integer.width}", self.floats, x, sign)

    def select(self, mask: Any, a: Any, b: Any) -> Any:
        """a where the mask is set, else b."""
        return self.builder.select(mask, a, b)

    def compare(self, a: Any, word: str, b: Any) -> Any:
        """A mask; false where one is NaN."""
        return self.builder.fcmp_ordered(word, a, b if isinstance(b, ir.Value) else self.number(b))

    def at_most(self, bound: float, x: Any) -> Any:
        """x, or the bound if x is above it; a NaN stays."""
        top = self.number(bound)
        return self.select(self.compare(top, "<", x), top, x)

    def at_least(self, bound: float, x: Any) -> Any:
        low = self.number(bound)
        return self.select(self.compare(low, ">", x), low, x)

    # ---- bits

    def bits(self, x: Any) -> Any:
        return self.builder.bitcast(x, self.integers)

    def from_bits(self, n: Any) -> Any:
        return self.builder.bitcast(n, self.floats)

    def shifted(self, n: Any, by: int) -> Any:
        """The integers n · 2^by, or ⌊n / 2^-by⌋ of what is not negative."""
        return self.builder.shl(n, self.whole(by)) if by > 0 else self.builder.lshr(n, self.whole(-by))

    def flip_sign(self, x: Any, signs: Any) -> Any:
        """x, negated where the top bit of the integer `signs` is set."""
        return self.from_bits(self.builder.xor(self.bits(x), self.builder.and_(signs, self.whole(self.sign))))

    # ---- AVX-512's own

    def exponent(self, x: Any) -> Any:
        """⌊log₂|x|⌋ as a float, right for subnormals; -Inf at 0, Inf at ±Inf (`vgetexp`)."""
        return self._masked("getexp", x)

    def mantissa(self, x: Any, sign: int) -> Any:
        """x without its exponent, 1 for 0 and Inf (`vgetmant`); `sign` is `ABSOLUTE` or `NOT_NEGATIVE`."""
        return self._masked("getmant", x, ir.Constant(INDEX, sign))

    def parts(self, x: Any, sign: int) -> tuple[Any, Any]:
        """(e, m) of |x| = 2^e m, 3/4 <= m < 3/2; `sign` as for `mantissa`."""
        m, e, one = self.mantissa(x, sign), self.exponent(x), self.number(1)
        return self.select(self.compare(m, "<", one), self.add(e, one), e), m

    def scaled(self, x: Any, n: Any) -> Any:
        """x · 2^⌊n⌋, rounded once (`vscalef`)."""
        name = f"llvm.x86.avx512.mask.scalef.{self.suffix}.512"
        return self.call(name, self.floats, x, n, self.unused, self.every, NEAREST_EVEN)

    def rest(self, x: Any) -> Any:
        """x less the nearest integer; 0 at ±Inf (`vreduce`)."""
        return self._masked("reduce", x, ir.Constant(INDEX, 0))

    def repaired(self, y: Any, x: Any, edges: int) -> Any:
        """y, or what `edges` says for the class of x, four bits for each (`vfixupimm`)."""
        name = f"llvm.x86.avx512.mask.fixupimm.{self.suffix}.512"
        return self.call(name, self.floats, y, x, self.whole(edges), ir.Constant(INDEX, 0), self.every, NEAREST_EVEN)

    def _masked(self, name: str, *arguments: Any) -> Any:
        rest = (self.unused, self.every, NEAREST_EVEN)
        return self.call(f"llvm.x86.avx512.mask.{name}.{self.suffix}.512", self.floats, *arguments, *rest)

    def reciprocal_root(self, x: Any) -> Any:
        """1 / √x to 14 digits, right for subnormals (`vrsqrt14`)."""
        return self.call(f"llvm.x86.avx512.rsqrt14.{self.suffix}.512", self.floats, x, self.unused, self.every)

    def root(self, x: Any) -> Any:
        """√x by the hardware."""
        return self.call(f"llvm.sqrt.v{self.count}f{self.integer.width}", self.floats, x)

    def is_class(self, x: Any, classes: int) -> Any:
        """Whether x is of one of the classes that the bits of `classes` say (`vfpclass`)."""
        mask = ir.VectorType(ir.IntType(1), self.count)
        return self.call(f"llvm.x86.avx512.fpclass.{self.suffix}.512", mask, x, ir.Constant(INDEX, classes))

    def unless_any(self, mask: Any, y: Any, name: str, body: "Body", *x: Any) -> Any:
        """y; if any lane of the mask is set, body(words, *x) in its place: a call behind a branch."""
        module, kind = self.builder.module, ir.FunctionType(self.floats, [self.floats] * len(x))
        if name not in module.globals:
            function = ir.Function(module, kind, name)
            function.linkage, function.calling_convention = "weak_odr", CONVENTION
            for word in ("nounwind", "willreturn", "memory(none)", "noinline", "cold"):
                set.add(function.attributes, word)
            builder = ir.IRBuilder(function.append_basic_block())
            builder.ret(body(Words(builder, self.kind), *function.args))
        before = self.builder.block
        any_lane = self.builder.icmp_unsigned("!=", self.builder.bitcast(mask, self.every.type), self.every.type(0))
        with self.builder.if_then(any_lane, likely=False):
            other, inside = self.builder.call(module.get_global(name), x, cconv=CONVENTION), self.builder.block
        result = self.builder.phi(self.floats)
        result.add_incoming(y, before)
        result.add_incoming(other, inside)
        return result

    def lookup(self, values: Sequence[float], index: Any) -> Any:
        """The entry of a table of one register, or two, that the low bits of `index` say (`vpermps`, `vpermi2ps`)."""
        if len(values) == self.count:
            name = f"llvm.x86.avx512.permvar.{'s' if self.suffix == 'ps' else 'd'}f.512"
            return self.call(name, self.floats, self.table(values), index)
        low, high = self.table(values[: self.count]), self.table(values[self.count :])
        return self.call(f"llvm.x86.avx512.vpermi2var.{self.suffix}.512", self.floats, low, index, high)


Body = Callable[..., Any]


def wide(kind: Any) -> Callable[[Body], Any]:
    """The decorator of body(words, x) or body(words, x, y), which becomes a function of numbers of type `kind`."""

    def decorate(body: Body) -> Any:
        return _function(f"trueno_simd_{kind.name}_{body.__name__}", kind, body)

    return decorate


def _function(symbol: str, kind: Any, body: Body) -> Any:
    lanes = 16 if kind == types.float32 else 8
    widths = [n for n in (2, 4, 8, 16) if n <= lanes]
    arity = len(signature(body).parameters) - 1

    def define(module: Any, name: str, type_: Any, *attributes: str) -> tuple[Any, Any]:
        function = ir.Function(module, ir.FunctionType(type_, [type_] * arity), name)
        function.linkage = "weak_odr"  # nothing names a vector function until LLVM does
        for word in ("nounwind", "willreturn", "memory(none)", *attributes):
            set.add(function.attributes, word)  # llvmlite's own `add` knows an older list of words
        return function, ir.IRBuilder(function.append_basic_block())

    def build(module: Any) -> Any:
        names = ",".join(f"_ZGV_LLVM_N{n}{'v' * arity}_{symbol}({symbol}_{n})" for n in widths)
        lane = Words(None, kind).scalar
        scalar, builder = define(module, symbol, lane, "noinline", f'"vector-function-abi-variant"="{names}"')
        words, first = Words(builder, kind), ir.Constant(INDEX, 0)
        x = [builder.insert_element(words.number(0), argument, first) for argument in scalar.args]
        builder.ret(builder.extract_element(body(words, *x), first))
        for n in widths:
            vector, builder = define(module, f"{symbol}_{n}", ir.VectorType(lane, n), "alwaysinline")
            x = [resized(builder, argument, lanes) for argument in vector.args]
            builder.ret(resized(builder, body(Words(builder, kind), *x), n))
        return scalar

    def emit(context: Any, builder: Any, _: Any, values: Any) -> Any:
        module = builder.module
        return builder.call(module.globals.get(symbol) or build(module), values)

    def one(_: Any, x: Any) -> Any:
        return (kind(kind), emit) if x == kind else None

    def two(_: Any, x: Any, y: Any) -> Any:
        return (kind(kind, kind), emit) if x == y == kind else None

    return intrinsic((one, two)[arity - 1])


def resized(builder: Any, x: Any, count: int) -> Any:
    """A vector cut, or filled up with zeros."""
    if x.type.count == count:
        return x
    order = [min(i, x.type.count) for i in range(count)]  # past its lanes: of the other vector
    mask = ir.Constant(ir.VectorType(INDEX, count), order)
    return builder.shuffle_vector(x, ir.Constant(x.type, None), mask)
