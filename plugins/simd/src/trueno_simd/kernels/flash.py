"""The rows of a flash tile: scores become exponentials, and join the sums of what the row saw before.

A row's state is two numbers, the largest score so far and the sum of exponentials, both of scores times log₂ e.  The
exponential is of numbers up to 0 alone: 2ⁿ from the bits of x + 1.5 · 2²³, and 2^r, |r| ≤ 1/2, as its Taylor
polynomial, whose next term is less than a rounding.
"""

import math
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic
from trueno.backend import ieee

from trueno_simd.kernels.gather import scaled_row
from trueno_simd.kernels.tile import VECTOR_BYTES
from trueno_simd.llvm import vectors
from trueno_simd.llvm.jit import inner, outer
from trueno_simd.llvm.vectors import Vector, absolute, choose, write

LN2, LOG2_E = math.log(2), 1 / math.log(2)
MOST_NUMBERS = 1024
"""Settings of attention that are remembered."""
TANH = (-1 / 3, 2 / 15, -17 / 315, 62 / 2835)


def _fma(kind: Vector) -> Any:
    @intrinsic
    def fma(_: Any, a: Any, b: Any, c: Any) -> Any:
        def emit(context: Any, builder: Any, sig: Any, values: Any) -> Any:
            floats = values[0].type
            return vectors.call(builder, f"llvm.fmuladd.{vectors.suffix(floats)}", floats, values)

        return kind(kind, kind, kind), emit

    return fma


def _folded(kind: Vector, join: Any) -> Any:
    """A function vector -> one number: `join(builder, a, b)` of halves, again and again."""

    @intrinsic
    def fold(_: Any, x: Any) -> Any:
        def emit(context: Any, builder: Any, sig: Any, values: Any) -> Any:
            value, count = values[0], kind.count
            while count > 1:
                count //= 2
                index = ir.VectorType(ir.IntType(32), count)
                low, high = (ir.Constant(index, [i + start for i in range(count)]) for start in (0, count))
                nothing = ir.Constant(value.type, ir.Undefined)
                value = join(
                    builder, builder.shuffle_vector(value, nothing, low), builder.shuffle_vector(value, nothing, high)
                )
            return builder.extract_element(value, ir.Constant(ir.IntType(32), 0))

        return kind.element(kind), emit

    return fold


def _larger(builder: Any, a: Any, b: Any) -> Any:
    return builder.select(builder.fcmp_ordered(">", a, b), a, b)


def _sum(builder: Any, a: Any, b: Any) -> Any:
    return builder.fadd(a, b)


class Rows(NamedTuple):
    """Functions of one row of numbers; `sink` begins one that has seen a sink, `bias` caps scores and adds a mask."""

    begin: Any
    sink: Any
    bias: Any
    join: Any
    meet: Any
    finish: Any


def rows(element: Any, like: Any) -> Rows:
    """The functions for numbers of that type."""
    size = element.bitwidth // 8
    lanes = VECTOR_BYTES // size
    floats, words = Vector(element, lanes), Vector(types.int32 if size == 4 else types.int64, lanes)
    mantissa, bias, degree = (23, 127, 7) if size == 4 else (52, 1023, 13)
    magic, least, one_bits = 1.5 * 2.0**mantissa, float(1 - bias), bias << mantissa
    near = 0.25 if size == 4 else 0.02  # where the series of tanh is as good as its quotient
    read, fill = vectors.reader(floats), vectors.filled(floats)
    read_number = vectors.number_reader(element)
    to_bits, from_bits = vectors.bits(words), vectors.bits(floats)
    fill_words, numbered = vectors.filled(words), vectors.constant(words, tuple(range(lanes)))
    fma, largest = _fma(floats), _folded(floats, _larger)
    summed = _folded(floats, _sum)
    terms = tuple(LN2**k / math.factorial(k) for k in range(degree + 1))
    type_ = np.float32 if size == 4 else np.float64
    lowest = np.finfo(type_).min
    t1, t2, t3, t4 = TANH
    c0, c1, c2, c3, c4, c5, c6, c7 = terms[:8]
    c8, c9, c10, c11, c12, c13 = terms[8:] or (0.0,) * 6
    double = size == 8

    @inner
    def power(x):
        """2^x for x ≤ 0, and 0 below the normal numbers; a NaN stays."""
        below = x < least
        c = choose(below, least, x)
        t = c + magic
        r = c - (t - magic)
        if double:
            p = fma(r, fill(c13), fill(c12))
            p = fma(r, p, fill(c11))
            p = fma(r, p, fill(c10))
            p = fma(r, p, fill(c9))
            p = fma(r, p, fill(c8))
            p = fma(r, p, fill(c7))
        else:
            p = fill(c7)
        p = fma(r, p, fill(c6))
        p = fma(r, p, fill(c5))
        p = fma(r, p, fill(c4))
        p = fma(r, p, fill(c3))
        p = fma(r, p, fill(c2))
        p = fma(r, p, fill(c1))
        p = fma(r, p, fill(c0))
        return choose(below, 0.0, p * from_bits((to_bits(t) << mantissa) + one_bits))

    @inner
    def capped(x, cap):
        """cap · tanh x."""
        size_ = absolute(x)
        e = power(size_ * (-2 * LOG2_E))
        far = (1.0 - e) / (1.0 + e)
        z = size_ * size_
        series = size_ + size_ * z * ((((z * t4) + t3) * z + t2) * z + t1)
        y = choose(size_ < near, series, far)
        return choose(x < 0.0, 0.0 - y, y) * cap

    @inner
    def begin(state):
        """A row that has seen nothing."""
        write(state, lowest)
        write(state + size, type_(0.0))

    @inner
    def sink(state, place):
        """A row that has seen a key with this score and the value 0; with −Inf, nothing."""
        score = read_number(place) * LOG2_E
        none = score <= lowest
        write(state, lowest if none else type_(score))
        write(state + size, type_(0.0) if none else type_(1.0))

    @outer
    def bias(scores, count, mask, cap):
        """Scores, capped, and the mask's numbers: −Inf hides."""
        for j in range(0, count, lanes):
            x = read(scores + j * size)
            if cap > 0:
                x = capped(x, cap)
            if j + lanes <= count:
                write(scores + j * size, x + read(mask + j * size) * LOG2_E)
            else:  # nothing behind the mask is read
                write(scores + j * size, x)
                for i in range(j, count):
                    number_ = read_number(scores + i * size) + read_number(mask + i * size) * LOG2_E
                    write(scores + i * size, type_(number_))

    @outer
    def join(scores, first, end, count, state, sums, wide, cap):
        """Scores from `first` to `end` join a row; in their place are their exponentials, and 0 for the others."""
        if end <= first:  # what the row has seen before may be a sink that is NaN
            for j in range(0, count, lanes):
                write(scores + j * size, fill(0.0))
            return
        top = fill(lowest)
        for j in range(0, count, lanes):
            x = read(scores + j * size)
            if cap > 0:
                x = capped(x, cap)
            if j < first or j + lanes > end:
                lane = numbered()
                x = choose((lane >= fill_words(first - j)) & (lane < fill_words(end - j)), x, -np.inf)
                write(scores + j * size, x)
            elif cap > 0:
                write(scores + j * size, x)
            top = choose(x > top, x, top)
        before, most = read_number(state), largest(top)
        most = most if most > before else before
        total = fill(0.0)
        for j in range(0, count, lanes):
            p = power(read(scores + j * size) - most)
            write(scores + j * size, p)
            total = total + p
        sum_ = read_number(state + size)
        if most > before:
            less = power(fill(before - most))
            for c in range(0, wide, lanes):
                write(sums + c * size, read(sums + c * size) * less)
            sum_ = largest(less) * sum_  # every lane is the same
            write(state, most)
        write(state + size, sum_ + summed(total))

    @outer
    def meet(state, sums, other, others, wide):
        """A row joins another's state and sums, which come from a different part of what it sees."""
        a, b = read_number(state), read_number(other)
        most = a if a > b else b
        x, y = power(fill(a - most)), power(fill(b - most))
        for c in range(0, wide, lanes):
            write(sums + c * size, read(sums + c * size) * x + read(others + c * size) * y)
        write(state, most)
        write(state + size, read_number(state + size) * largest(x) + read_number(other + size) * largest(y))

    @inner
    def finish(state, sums, out, e):
        """The row's quotients; 0 if it saw nothing."""
        total = read_number(state + size)
        write(state, type_(0.0) if total == 0 else type_(1.0) / total)
        scaled_row(like, state, sums, out, e)

    return Rows(begin, sink, bias, join, meet, finish)


def numbers_of(q: Any, scale: float, softcap: float) -> Any:
    """What queries are multiplied by, as their own type, in the first two places; the cap of scores in the third.

    The array is shared by calls, none of which writes it.
    """
    return _numbers(q.shape[-1], q.dtype, scale, softcap)


@lru_cache(MOST_NUMBERS)
def _numbers(depth: int, dtype: np.dtype[Any], scale: float, softcap: float) -> Any:
    with ieee():  # Python computes in the environment of its caller
        factor = scale or 1 / math.sqrt(max(depth, 1))
        factor = factor / softcap if softcap else factor * LOG2_E
        numbers = np.zeros(3)
        numbers[:2].view(dtype)[0] = factor
        numbers[2] = softcap * LOG2_E
    return numbers
