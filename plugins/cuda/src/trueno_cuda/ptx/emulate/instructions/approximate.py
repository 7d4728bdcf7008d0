"""Roots, reciprocals and transcendental functions.

The approximate forms are computed in float64 and rounded, so they are closer to the truth than the hardware's, whose
largest errors NVIDIA gives as (PTX ISA 9.0, 9.7.3): rcp, sqrt and rsqrt.approx.f32 1, 1 and 2 ulp; ex2 2 ulp; lg2
2^-22 absolute in (0.5, 2) and 2^-22 relative elsewhere; sin and cos 2^-20.5 absolute in [-π, π]; tanh 2^-11 relative;
div.approx and div.full 2 ulp.  A kernel's tolerance has to allow for them, whatever it gives here.
"""

from collections.abc import Callable

import numpy as np

from trueno_cuda.ptx.emulate import floats
from trueno_cuda.ptx.emulate.compile import Compiler, Step
from trueno_cuda.ptx.emulate.instructions.arithmetic import float_step, half_of, mode_of
from trueno_cuda.ptx.emulate.opcodes import opcode
from trueno_cuda.ptx.syntax.tree import Instruction
from trueno_cuda.ptx.syntax.types import PRED, Array

FUNCTIONS: dict[str, Callable[[Array], Array]] = {
    "rcp": lambda x: 1.0 / x,
    "rsqrt": lambda x: 1.0 / np.sqrt(x),
    "sqrt": np.sqrt,
    "ex2": np.exp2,
    "lg2": np.log2,
    "sin": np.sin,
    "cos": np.cos,
    "tanh": np.tanh,
}
EXACT = {"rn", "rz", "rm", "rp"}


@opcode("rcp sqrt", "2 approx|RND ftz? f32", "2 RND f64", flops=1)
@opcode("rcp", "2 approx ftz f64", flops=1)
@opcode("rsqrt", "2 approx ftz? f32|f64", flops=1)
@opcode("sin cos lg2", "2 approx ftz? f32", flops=1)
@opcode("ex2", "2 approx ftz? f32|bf16|bf16x2", "2 approx f16|f16x2", flops=1)
@opcode("tanh", "2 approx f32|f16|f16x2|bf16|bf16x2", flops=1)
def function(c: Compiler, ins: Instruction) -> Step:
    kind = c.type(ins)
    half = half_of(kind)
    inner = FUNCTIONS[ins.opcode]
    mode = mode_of(ins)
    sources = c.sources(ins, kind)
    if ins.opcode in ("rcp", "sqrt") and EXACT & set(ins.mods):

        def rounded(a: Array) -> Array:
            x = a.astype(np.float64)
            r = inner(x)
            one = np.ones_like(x)
            rest = floats.remainder_sign("div", r, one, x) if ins.opcode == "rcp" else (
                floats.remainder_sign("sqrt", r, x, x)
            )  # fmt: skip
            rest = np.where(np.isfinite(r) & (r != 0), rest, 0)
            if kind.name == "f64":
                return floats.direct(r, rest, mode)
            return floats.narrow(floats.to_odd(r, rest), np.float32, mode)

        return float_step(c, ins, kind, rounded, sources)

    def approximate(a: Array) -> Array:
        return floats.encode(np.asarray(inner(floats.decode(a, half).astype(np.float64))), half)

    return float_step(c, ins, kind, approximate, sources)


@opcode("copysign", "3 f32|f64")
def copysign(c: Compiler, ins: Instruction) -> Step:
    """copysign d, a, b: b's size with a's sign."""
    kind = c.type(ins)
    return c.value(ins, kind, lambda a, b: np.copysign(b, a), *c.sources(ins, kind))


@opcode("testp", "2 finite|infinite|number|notanumber|normal|subnormal f32|f64")
def testp(c: Compiler, ins: Instruction) -> Step:
    kind = c.type(ins)
    tiny = np.finfo(kind.dtype).tiny
    tests: dict[str, Callable[[Array], Array]] = {
        "finite": np.isfinite,
        "infinite": np.isinf,
        "number": lambda a: ~np.isnan(a),
        "notanumber": np.isnan,
        "normal": lambda a: np.isfinite(a) & (np.abs(a) >= tiny),
        "subnormal": lambda a: (np.abs(a) < tiny) & (a != 0),
    }
    test = next(tests[m] for m in ins.mods if m in tests)
    return c.value(ins, PRED, test, *c.sources(ins, kind))
