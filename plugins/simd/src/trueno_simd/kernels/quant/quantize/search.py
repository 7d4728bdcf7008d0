"""ggml's searches for the scale of a group of numbers, for 16 groups in lockstep, one a lane.

Each lane does what the C code does for one group: the same tries, the same order of float32 sums, every operation
rounded, so scales come out bit for bit.  The numbers of a batch lie transposed: element i of all 16 groups side by
side, at x + 64 i; likewise their weights.  What only some lanes do is done by all and chosen by a mask.

A search also answers what its codes come of (`factor`, `base`), so that they are computed once more afterwards in the
elements' order instead of being kept; factor 0 stands for a group whose codes are all 0.

Floor: 15 vector operations an element and try for the sums of an affine search and 6 for its error, 12 for a symmetric
one, 36 for one in a table; see `kernel` for how close they come.
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from trueno_simd.kernels.quant.quantize.store import compact
from trueno_simd.llvm.jit import exact
from trueno_simd.llvm.vectors import Vector, absolute, any_, bits, choose, filled, reader, write

F32 = types.float32
LANES = 16
FLOATS, INTS = Vector(F32, LANES), Vector(types.int32, LANES)
load, spread, as_ints, as_floats = reader(FLOATS), filled(FLOATS), bits(INTS), bits(FLOATS)

MAGIC = np.float32(12582912)  # 1.5 * 2^23
ZERO, ONE = np.float32(0), np.float32(1)
TINY = np.float32(1e-15)  # a group of smaller numbers counts as zeros


@exact
def rounded(v, low, high):
    """The nearest even integer of each lane between two bounds, as float.

    Also for lanes that hold no such thing it is what ggml makes of their bits.
    """
    u = as_floats((as_ints(v + MAGIC) & 0x7FFFFF) | 0x4B000000)
    least, most = MAGIC + low, MAGIC + high
    u = choose(u < least, least, u)
    return choose(u > most, most, u) - MAGIC


@exact
def bytes_of(code):
    """A whole number as C's uint8 keeps it."""
    return as_floats(((as_ints(code + MAGIC)) & 0xFF) | 0x4B000000) - np.float32(8388608)


@exact
def signed_most(x, n):
    """(magnitude, number) of the first number of the largest magnitude."""
    most, size = spread(ZERO), spread(ZERO)
    for i in range(n):
        v = load(x + 64 * i)
        a = absolute(v)
        most, size = choose(a > size, v, most), choose(a > size, a, size)
    return size, most


def affine(n: int, top: int, first: float, step: float, tries: int, absolute_error: bool) -> Any:
    """(x, w, codes) -> scale, least, factor, base: least squares for x = scale * code + least, codes 0 ... top.

    `tries` + 1 factors (first + step * i + top) / (most - least) are tried; of each come codes, of these by least
    squares scale and least, and of these the weighted error, which must be smaller than the best one yet.  `codes` is
    room for a batch.
    """
    first_, step_, top_ = np.float32(first), np.float32(step), np.float32(top)

    @exact
    def error(x, w, codes, scale, least):
        compact()
        total = spread(ZERO)
        for i in range(n):
            off = scale * load(codes + 64 * i) + least - load(x + 64 * i)
            total = total + load(w + 64 * i) * (absolute(off) if absolute_error else off * off)
        return total

    @exact
    def search(x, w, codes):
        compact()
        v, weight = load(x), load(w)
        least, most, sum_w, sum_x = v, v, weight, weight * v
        for i in range(1, n):
            v, weight = load(x + 64 * i), load(w + 64 * i)
            least, most = choose(v < least, v, least), choose(v > most, v, most)
            sum_w, sum_x = sum_w + weight, sum_x + weight * v
        least = choose(least > ZERO, ZERO, least)
        flat = most <= least
        factor = top_ / (most - least)
        scale, base = ONE / factor, least
        for i in range(n):
            write(codes + 64 * i, rounded(factor * (load(x + 64 * i) - least), ZERO, top_))
        best = error(x, w, codes, scale, least)
        for t in range(tries + 1):
            trial = (first_ + step_ * np.float32(t) + top_) / (most - least)
            sum_l, sum_l2, sum_xl = spread(ZERO), spread(ZERO), spread(ZERO)
            for i in range(n):
                v = load(x + 64 * i)
                code = rounded(trial * (v - least), ZERO, top_)
                write(codes + 64 * i, code)
                weighted = load(w + 64 * i) * code
                sum_l, sum_l2, sum_xl = sum_l + weighted, sum_l2 + weighted * code, sum_xl + weighted * v
            d = sum_w * sum_l2 - sum_l * sum_l
            a = (sum_w * sum_xl - sum_x * sum_l) / d
            b = (sum_l2 * sum_x - sum_l * sum_xl) / d
            a, b = choose(b > ZERO, sum_xl / sum_l2, a), choose(b > ZERO, ZERO, b)
            off = error(x, w, codes, a, b)
            better = (d > ZERO) & (off < best)
            best, scale = choose(better, off, best), choose(better, a, scale)
            factor, base = choose(better, trial, factor), choose(better, least, base)
            least = choose(better, b, least)  # and the next try starts from there
        return choose(flat, ZERO, scale), least, choose(flat, ZERO, factor), base

    return search


def symmetric(n: int, half: int) -> Any:
    """(x, w) -> scale, factor: x = scale * code, codes -half ... half - 1; 19 factors around -half / most are tried."""
    low, high, half_, tenth = np.float32(-half), np.float32(half - 1), np.float32(half), np.float32(0.1)

    @exact
    def sums(x, w, factor):
        compact()
        lx, l2 = spread(ZERO), spread(ZERO)
        for i in range(n):
            v, weight = load(x + 64 * i), load(w + 64 * i)
            code = rounded(factor * v, low, high)
            lx, l2 = lx + weight * v * code, l2 + weight * code * code
        return lx, l2

    @exact
    def search(x, w):
        compact()
        size, most = signed_most(x, n)
        zero = size < TINY
        factor = -half_ / most
        lx, l2 = sums(x, w, factor)
        scale = choose(l2 != ZERO, lx / l2, ZERO)
        best = scale * lx
        for t in range(-9, 10):
            if t != 0:
                trial = -(half_ + tenth * np.float32(t)) / most
                lx, l2 = sums(x, w, trial)
                better = (l2 > ZERO) & (lx * lx > best * l2)
                candidate = lx / l2
                scale, factor = choose(better, candidate, scale), choose(better, trial, factor)
                best = choose(better, candidate * lx, best)
        return choose(zero, ZERO, scale), choose(zero, ZERO, factor)

    return search


def descent(n: int, half: int) -> Any:
    """(x, codes) -> scale: x = scale * code, by up to five rounds of one code after the other; q3_k.

    The codes are left in `codes`, as float, from 0 on.
    """
    low, high, half_ = np.float32(-half), np.float32(half - 1), np.float32(half)

    @exact
    def search(x, codes):
        compact()
        size, most = signed_most(x, n)
        zero = size < TINY
        factor = -half_ / most
        lx, l2 = spread(ZERO), spread(ZERO)
        for i in range(n):
            v = load(x + 64 * i)
            code = rounded(factor * v, low, high)
            write(codes + 64 * i, code)
            lx, l2 = lx + v * v * v * code, l2 + v * v * code * code
        for _ in range(5):
            changed = zero & (size > size)
            for i in range(n):
                v, code = load(x + 64 * i), load(codes + 64 * i)
                w = v * v
                x1, l1 = lx - w * v * code, l2 - w * code * code
                new = rounded(v * l1 / x1, low, high)
                able = (x1 > ZERO) & (new != code)
                x1, l1 = x1 + w * v * new, l1 + w * new * new
                better = able & (l1 > ZERO) & (x1 * x1 * l2 > lx * lx * l1)
                write(codes + 64 * i, choose(better, new, code))
                lx, l2 = choose(better, x1, lx), choose(better, l1, l2)
                changed = changed | better
            if not any_(changed):
                break
        for i in range(n):
            write(codes + 64 * i, choose(zero, ZERO, load(codes + 64 * i) + half_))
        return choose(zero, ZERO, choose(l2 > ZERO, lx / l2, ZERO))

    return search


def positive(n: int, top: int) -> Any:
    """(x, w, codes) -> scale: x = scale * code for numbers that are not negative, codes 0 ... top (left in `codes`).

    Nine factors around top / most, then up to five rounds of one code after the other; scales and mins of groups.
    """
    top_, tenth = np.float32(top), np.float32(0.1)
    lowest = np.float32(-(2**22))  # no bound

    @exact
    def search(x, w, codes):
        compact()
        most = spread(ZERO)
        for i in range(n):
            v = load(x + 64 * i)
            most = choose(most > v, most, v)
        zero = most < TINY
        factor = top_ / most
        scale = ONE / factor
        best = spread(ZERO)
        for i in range(n):
            v = load(x + 64 * i)
            code = bytes_of(rounded(factor * v, lowest, -lowest - ONE))
            off = v - scale * code
            best = best + load(w + 64 * i) * off * off
        for t in range(-4, 5):
            if t != 0:
                trial = (tenth * np.float32(t) + top_) / most
                scale = ONE / trial
                total = spread(ZERO)
                for i in range(n):
                    v = load(x + 64 * i)
                    off = v - scale * rounded(trial * v, lowest, top_)
                    total = total + load(w + 64 * i) * off * off
                factor, best = choose(total < best, trial, factor), choose(total < best, total, best)
        lx, l2 = spread(ZERO), spread(ZERO)
        for i in range(n):
            v, weight = load(x + 64 * i), load(w + 64 * i)
            code = rounded(factor * v, lowest, top_)
            write(codes + 64 * i, bytes_of(code))
            lx, l2 = lx + weight * v * code, l2 + weight * code * code
        for _ in range(5):
            changed = zero & (most > most)
            for i in range(n):
                v, weight, code = load(x + 64 * i), load(w + 64 * i), load(codes + 64 * i)
                x1, l1 = lx - weight * v * code, l2 - weight * code * code
                new = rounded(v * l1 / x1, lowest, top_)
                able = (x1 > ZERO) & (l1 > ZERO) & (new != code)
                x1, l1 = x1 + weight * v * new, l1 + weight * new * new
                better = able & (x1 * x1 * l2 > lx * lx * l1)
                write(codes + 64 * i, choose(better, bytes_of(new), code))
                lx, l2 = choose(better, x1, lx), choose(better, l1, l2)
                changed = changed | better
            if not any_(changed):
                break
        for i in range(n):
            write(codes + 64 * i, choose(zero, ZERO, load(codes + 64 * i)))
        return choose(zero, ZERO, choose(l2 > ZERO, lx / l2, ZERO))

    return search


def nearest_value(values: tuple[int, ...], index: bool = False) -> Any:
    """A function vector -> the nearest value of an ascending table, as float, or its place, as int32.

    Of two equally near the upper one; the last for NaN.  Limits between neighbours are exact, so one comparison each.
    """

    @intrinsic
    def choose_(_: Any, v: Any) -> Any:
        def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            kind = ir.VectorType(ir.IntType(32), LANES) if index else args[0].type
            names = list(range(len(values))) if index else [float(value) for value in values]

            def every(of: Any, value: Any) -> Any:
                return ir.Constant(of, [value] * LANES)

            nearest = every(kind, names[-1])
            for i in reversed(range(len(values) - 1)):
                below = builder.fcmp_ordered("<", args[0], every(args[0].type, (values[i] + values[i + 1]) / 2))
                nearest = builder.select(below, every(kind, names[i]), nearest)
            return nearest

        return (INTS if index else FLOATS)(v), emit

    return choose_


def from_table(n: int, values: tuple[int, ...]) -> Any:
    """(x, w) -> scale: x = scale * the nearest of `values`; 15 factors around values[0] / most are tried."""
    nearest, first = nearest_value(values), values[0]
    first_ = np.float32(first)

    @exact
    def sums(x, w, factor):
        compact()
        qx, q2 = spread(ZERO), spread(ZERO)
        for i in range(n):
            v = load(x + 64 * i)
            q = nearest(factor * v)
            weighted = load(w + 64 * i) * q
            qx, q2 = qx + weighted * v, q2 + weighted * q
        return qx, q2

    @exact
    def search(x, w):
        compact()
        size, most = signed_most(x, n)
        qx, q2 = sums(x, w, ONE / ((ZERO - ONE) * most / first_))
        scale = choose(q2 > ZERO, qx / q2, ZERO)
        best = scale * qx
        for t in range(-7, 8):
            qx, q2 = sums(x, w, np.float32(t + first) / most)
            better = (q2 > ZERO) & (qx * qx > best * q2)
            candidate = qx / q2
            scale, best = choose(better, candidate, scale), choose(better, candidate * qx, best)
        return choose(size < TINY, ZERO, scale)

    return search
