"""Which printed kernels use registers of 512 bits on AVX-512 CPUs for which LLVM prefers 256, which are Intel's.

Twice as many lanes make what computes faster: 100 000 elements of exp took 0.6 of the time on such a CPU, max 0.65.
What only moves memory gets slower, add by 19 %, relu by 17 %: a NumPy array is rarely aligned to 64 bytes, and then
every access of that width touches two cache lines, which stores pay for most.
"""

from trueno.backend import Lowering, Pass

from trueno_simd.rows.expressions import FUNCTIONS

FUNCTION = 8
"""The work of an element function, in plain instructions: the shortest takes 10."""
WORK_PER_STORE = 8
"""Instructions for each array that a pass writes, from which on registers of 512 bits pay."""


def computes(plan: Lowering) -> bool:
    """Whether a pass of the plan computes enough for what it stores, or only reads."""
    return any(work(plan, pass_) >= WORK_PER_STORE * len(pass_.stores) for pass_ in plan.passes)


def work(plan: Lowering, pass_: Pass) -> int:
    """Instructions per element, roughly."""
    kinds = [plan.program.nodes[i].kind for i in (*pass_.body, *pass_.folds)]
    return sum(FUNCTION if kind in (*FUNCTIONS, "pow", "sqrt") else 1 for kind in kinds)
