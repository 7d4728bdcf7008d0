"""The architecture for which kernels are built on a GPU."""

from typing import Final

from trueno_cuda.ptx import TARGETS

LEAST: Final = (8, 0)
"""The oldest compute capability that every kernel here runs on: Ampere."""


def arch(capability: tuple[int, int]) -> str:
    """The builder's target for a compute capability: its own, or the newest before it, whose PTX the JIT takes.

    Targets with an `a` run on exactly one capability, so they are chosen for that alone.
    """
    number = capability[0] * 10 + capability[1]
    special = f"sm_{number}a"
    if special in TARGETS:
        return special
    return max((t for t in TARGETS.values() if not t.special and t.number <= number), key=lambda t: t.number).name
