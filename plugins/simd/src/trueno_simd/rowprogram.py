"""From an op's row program to a compiled kernel: guard, lower, print, compile."""

from functools import lru_cache
from hashlib import blake2b
from typing import Any

from trueno.backend import Op, lower, with_flags

from trueno_simd import isa, modules
from trueno_simd.printer import Printer, Variant


def printed(
    op: Op,
    dtype: str,
    layout: str,
    rank: int,
    static: tuple[tuple[str, Any], ...] = (),
    parallel: bool = False,
    guarded: bool = False,
    block: int | None = None,
) -> str:
    """Source of the module that holds one kernel; `block` is the ISA level's unless given."""
    program = op.program(layout, **dict(static))
    results = len(program.outputs)
    if guarded:
        program = with_flags(program)
    plan = lower(program, "memory" if parallel and rank == 1 else "cache")
    flags = tuple(range(results, len(program.outputs)))
    says = next(iter((op.doc or "").splitlines()), "")  # nothing under `python -OO`
    title = f"{op.name}: {op.signature.text}, operands {layout}, {dtype}.  {says}".rstrip()
    return Printer(plan, dtype, block or isa.block(dtype), Variant(rank, parallel, flags, title)).text()


KEPT = 1024
"""Kernels that are found without printing them, which takes a millisecond; the same text is the same kernel again."""


@lru_cache(maxsize=KEPT)
def compiled(
    op: Op, dtype: str, layout: str, rank: int, static: tuple[tuple[str, Any], ...], parallel: bool, guarded: bool
) -> Any:
    """The compiled kernel, from disk where it has been compiled before.

    It stays for the life of the process, its module in `sys.modules` and its code mapped: Numba gives no code back.
    """
    text = printed(op, dtype, layout, rank, static, parallel, guarded)
    digest = blake2b(text.encode(), digest_size=8).hexdigest()
    return modules.module(f"k_{op.name}_{dtype}_{digest}", text).kernel
