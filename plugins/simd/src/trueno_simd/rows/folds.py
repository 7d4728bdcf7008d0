"""Fold steps: the instructions that may be reassociated, and only those.

`reassoc` sits on the one add of a sum, so that LLVM may keep many partial sums in lanes; on a whole
function it would also rewrite Cody-Waite reductions and compensated sums.  `llvm.maximum` propagates NaN
and vectorizes; a compare and select does not (510 µs instead of 43 for a million floats).  Where a row with
a NaN may give anything, `greatest` and `smallest` spare the test for NaN, which is two of three instructions.
"""

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from trueno_simd.llvm import bits
from trueno_simd.llvm.jit import inner


def _reassociable(name: str) -> Any:
    def typed(_: Any, a: Any, b: Any) -> Any:
        def emit(_: Any, builder: Any, __: Any, values: Any) -> Any:
            return getattr(builder, name)(*values, flags=("reassoc", "nsz", "contract"))

        return a(a, b), emit

    return intrinsic(typed)


def _extreme(name: str, *flags: str) -> Any:
    def typed(_: Any, a: Any, b: Any) -> Any:
        def emit(context: Any, builder: Any, _: Any, values: Any) -> Any:
            t = context.get_value_type(a)
            f = builder.module.declare_intrinsic(name, [t], ir.FunctionType(t, [t, t]))
            return builder.call(f, values, fastmath=("nsz", *flags))

        return a(a, b), emit

    return intrinsic(typed)


radd = _reassociable("fadd")
rmul = _reassociable("fmul")
maximum = _extreme("llvm.maximum")
minimum = _extreme("llvm.minimum")
greatest = _extreme("llvm.maximum", "nnan")  # poison where an argument is NaN
smallest = _extreme("llvm.minimum", "nnan")


@intrinsic
def least(_: Any, a: Any, b: Any) -> Any:
    """The smaller of two signed integers."""

    def emit(_: Any, builder: Any, __: Any, values: Any) -> Any:
        return builder.select(builder.icmp_signed("<", *values), *values)

    return a(a, b), emit


@intrinsic
def either(_: Any, a: Any, b: Any) -> Any:
    """Or of two truth values, both computed."""

    def emit(_: Any, builder: Any, __: Any, values: Any) -> Any:
        return builder.or_(*values)

    return types.boolean(a, b), emit


@intrinsic
def both(_: Any, a: Any, b: Any) -> Any:
    """And of two truth values, both computed."""

    def emit(_: Any, builder: Any, __: Any, values: Any) -> Any:
        return builder.and_(*values)

    return types.boolean(a, b), emit


@intrinsic
def invert(_: Any, a: Any) -> Any:
    """Not."""

    def emit(_: Any, builder: Any, __: Any, values: Any) -> Any:
        return builder.not_(values[0])

    return types.boolean(a), emit


@inner
def join(high, low, part):  # type: ignore[no-untyped-def]
    """Add a float64 partial sum to a running two-float sum: exact but for the last bits of `low`."""
    total = bits.add(high, part)
    back = bits.sub(total, high)
    error = bits.add(bits.sub(high, bits.sub(total, back)), bits.sub(part, back))
    return total, bits.add(low, error)


@inner
def joined(high, low):  # type: ignore[no-untyped-def]
    """Value of a two-float sum; its low part is NaN once the high part is infinite."""
    total = high + low
    return bits.select(total == total, total, high)
