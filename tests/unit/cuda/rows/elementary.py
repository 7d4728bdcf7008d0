"""Kernels of one element kind each, what they should give, and how far off a result is."""

import math
from functools import cache
from typing import Any

import numpy as np
import pytest
from trueno.programs.evaluate import ELEMENT_FUNCTIONS
from trueno.programs.program import ELEMENTS
from trueno_cuda.ptx import Kernel, Type, Value, f32, f64, kernel, pred, ptr, u32
from trueno_cuda.ptx.emulate import Module, load
from trueno_cuda.rows.expressions import EXPRESSIONS

Array = np.ndarray[Any, Any]
DTYPES = {f32: np.dtype(np.float32), f64: np.dtype(np.float64)}
BITS = {f32: np.uint32, f64: np.uint64}
THREADS = 256


@cache
def element(kind: str, dtype: Type, arch: str = "sm_80") -> Kernel:
    """out[i] = kind(a[i], …); a truth value is stored as 1 or 0, and a truth value is wanted as "not zero"."""

    def body(k: Any, *pointers: Any) -> None:
        *operands, out, n = pointers
        i = k.ctaid * THREADS + k.tid
        with k.when(i < n):
            value = EXPRESSIONS[kind](k, *(p.load(i) for p in operands))
            out.store(i, EXPRESSIONS["cast"](k, value, dtype) if value.type is pred else value)

    pointers = ptr(dtype)

    def one(k: Any, a: pointers, out: pointers, n: u32) -> None:
        body(k, a, out, n)

    def two(k: Any, a: pointers, b: pointers, out: pointers, n: u32) -> None:
        body(k, a, b, out, n)

    def three(k: Any, a: pointers, b: pointers, c: pointers, out: pointers, n: u32) -> None:
        body(k, a, b, c, out, n)

    function = (one, two, three)[ELEMENTS[kind].arity - 1]
    function.__name__ = f"element_{kind}_{dtype}"
    return kernel(threads=THREADS)(function).build(arch=arch)


def run(made: Kernel, *operands: Array, fresh: bool = False) -> Array:
    """The kernel's result on the emulator.  fresh: compiled again, while instructions mean something else."""
    out = np.full_like(operands[0], 12345)
    module = Module(made.text) if fresh else load(made.text)
    report = module.launch(made.name, -(-out.size // THREADS), THREADS, [*operands, out, out.size], traffic=False)
    assert not report.findings, report
    return out


def exact(kind: str, *operands: Array) -> tuple[Array, Array]:
    """What the function is, as a float64 and what that lacks: of float32 in float64, of float64 by mpmath."""
    if operands[0].dtype == np.float32:
        with np.errstate(all="ignore"):
            value = ELEMENT_FUNCTIONS[kind](*(x.astype(np.float64) for x in operands))
        return value, np.zeros_like(value)
    mpmath = pytest.importorskip("mpmath", reason="needs mpmath")
    functions = {
        "exp2": lambda x: mpmath.power(2, x), "log2": lambda x: mpmath.log(x, 2), "log10": mpmath.log10,
        "log1p_unit": mpmath.log1p, "rsqrt": lambda x: 1 / mpmath.sqrt(x), "pow": mpmath.power,
    }  # fmt: skip
    function = functions.get(kind) or getattr(mpmath, kind)
    with np.errstate(all="ignore"):
        value = ELEMENT_FUNCTIONS[kind](*operands)  # at NaN, Inf, 0 and where the result is one of these
    low = np.zeros_like(value)
    with mpmath.workprec(180):
        for i, given in enumerate(zip(*(x.tolist() for x in operands), strict=True)):
            if np.isnan(value[i]) or not all(map(math.isfinite, given)) or 0.0 in given:
                continue
            if kind in ("exp", "exp2", "expm1") and abs(given[0]) > 1e5:
                continue
            number = function(*map(mpmath.mpf, given))
            if isinstance(number, mpmath.mpf):
                value[i] = float(number)
                low[i] = float(number - value[i]) if math.isfinite(value[i]) else 0.0
    return value, low


def ulps(got: Array, value: Array, low: Array) -> Array:
    """|got - (value + low)| in units of the last place of the exact number, Inf being the number after the largest.

    A NaN, or the sign of a zero, that is wrong is infinitely so.
    """
    info = np.finfo(got.dtype)
    least, digits, top = int(info.minexp) - int(info.nmant), int(info.nmant) + 1, int(info.maxexp)
    with np.errstate(all="ignore"):
        _, exponent = np.frexp(np.abs(value))
        exponent = np.where(np.isinf(value), top + 1, np.where(value == 0, least, exponent))
        step = np.ldexp(1.0, np.clip(exponent - digits, least, top + 1 - digits))
        error = np.abs((got.astype(np.float64) - value) - low) / step
        halves = [np.where(np.isinf(x), np.copysign(np.ldexp(1.0, top - 1), x), x * 0.5) for x in (got, value)]
        error = np.where(np.isinf(got) | np.isinf(value), np.abs(halves[0] - halves[1]) / (step * 0.5), error)
        same = np.isinf(got) & (got == value.astype(got.dtype)) | (np.isnan(got) & np.isnan(value))
        error = np.where(same, 0.0, np.where(np.isnan(got) != np.isnan(value), np.inf, error))
    wrong = (got == 0) & (value == 0) & (np.signbit(got) != np.signbit(value))
    return np.where(wrong, np.inf, error)


def random_bits(rng: np.random.Generator, dtype: Type, count: int) -> Array:
    """Any float, NaN and Inf and subnormals among them."""
    bits = BITS[dtype]
    return rng.integers(0, np.iinfo(bits).max, count, bits, endpoint=True).view(DTYPES[dtype])


def around(values: list[float], dtype: Type, steps: int = 3) -> Array:
    """Each value, its neighbours on both sides, and their negatives."""
    kind = DTYPES[dtype]
    signed = np.dtype(f"i{kind.itemsize}")
    top = np.array([np.inf], kind).view(signed)[0]
    centre = np.array(values, kind).view(signed)[:, None] + np.arange(-steps, steps + 1, dtype=signed)
    x = np.clip(centre, 0, top).astype(signed).view(kind).ravel()
    return np.concatenate([x, -x])


__all__ = ["DTYPES", "Array", "Value", "around", "element", "exact", "random_bits", "run", "ulps"]
