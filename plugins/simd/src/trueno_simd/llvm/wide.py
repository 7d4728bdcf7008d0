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
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

INDEX = ir.IntType(32)
NEAREST_EVEN = ir.Constant(INDEX, 4)  # the rounding that MXCSR says, which is this one (`trueno_simd.llvm.environment`)
EXACT = ("arcp",)  # never contracted (`trueno_simd.llvm.bits`)


class Words:
    """The instructions of one function, on 16 float32 or 8 float64 (or their bits, as integers)."""

    def __init__(self, builder: Any, kind: Any) -> None:
        single = kind == types.float32
        self.builder = builder
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

    def at_most(self, bound: float, x: Any) -> Any:
        """x, or the bound if x is above it; a NaN stays."""
        top = self.number(bound)
        return self.builder.select(self.builder.fcmp_ordered("<", top, x), top, x)

    def at_least(self, bound: float, x: Any) -> Any:
        low = self.number(bound)
        return self.builder.select(self.builder.fcmp_ordered(">", low, x), low, x)

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

    def mantissa(self, x: Any, imm: int) -> Any:
        """x without its exponent (`vgetmant`); `imm` is the instruction's."""
        return self._masked("getmant", x, ir.Constant(INDEX, imm))

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

    def lookup(self, values: Sequence[float], index: Any) -> Any:
        """The entry of a table of one register, or two, that the low bits of `index` say (`vpermps`, `vpermi2ps`)."""
        if len(values) == self.count:
            name = f"llvm.x86.avx512.permvar.{'s' if self.suffix == 'ps' else 'd'}f.512"
            return self.call(name, self.floats, self.table(values), index)
        low, high = self.table(values[: self.count]), self.table(values[self.count :])
        return self.call(f"llvm.x86.avx512.vpermi2var.{self.suffix}.512", self.floats, low, index, high)


Body = Callable[[Words, Any], Any]


def wide(kind: Any) -> Callable[[Body], Any]:
    """The decorator of a body, which becomes a function of one number of type `kind`."""

    def decorate(body: Body) -> Any:
        return _function(f"trueno_simd_{kind.name}_{body.__name__}", kind, body)

    return decorate


def _function(symbol: str, kind: Any, body: Body) -> Any:
    lanes = 16 if kind == types.float32 else 8
    widths = [n for n in (2, 4, 8, 16) if n <= lanes]

    def define(module: Any, name: str, type_: Any, *attributes: str) -> tuple[Any, Any]:
        function = ir.Function(module, ir.FunctionType(type_, [type_]), name)
        function.linkage = "weak_odr"  # nothing names a vector function until LLVM does
        for word in ("nounwind", "willreturn", "memory(none)", *attributes):
            set.add(function.attributes, word)  # llvmlite's own `add` knows an older list of words
        return function, ir.IRBuilder(function.append_basic_block())

    def build(module: Any) -> Any:
        names = ",".join(f"_ZGV_LLVM_N{n}v_{symbol}({symbol}_{n})" for n in widths)
        lane = Words(None, kind).scalar
        scalar, builder = define(module, symbol, lane, "noinline", f'"vector-function-abi-variant"="{names}"')
        words, zero = Words(builder, kind), ir.Constant(INDEX, 0)
        x = builder.insert_element(words.number(0), scalar.args[0], zero)
        builder.ret(builder.extract_element(body(words, x), zero))
        for n in widths:
            vector, builder = define(module, f"{symbol}_{n}", ir.VectorType(lane, n), "alwaysinline")
            words = Words(builder, kind)
            builder.ret(resized(builder, body(words, resized(builder, vector.args[0], lanes)), n))
        return scalar

    def typed(_: Any, x: Any) -> Any:
        if x != kind:
            return None

        def emit(context: Any, builder: Any, _: Any, values: Any) -> Any:
            module = builder.module
            return builder.call(module.globals.get(symbol) or build(module), values)

        return x(x), emit

    return intrinsic(typed)


def resized(builder: Any, x: Any, count: int) -> Any:
    """A vector cut, or filled up with zeros."""
    if x.type.count == count:
        return x
    order = [min(i, x.type.count) for i in range(count)]  # past its lanes: of the other vector
    mask = ir.Constant(ir.VectorType(INDEX, count), order)
    return builder.shuffle_vector(x, ir.Constant(x.type, None), mask)
