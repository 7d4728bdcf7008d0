"""The kernel of an op's row program, as text: what golden files and `trueno_simd.rows.rowprogram` print."""

from typing import Any

from trueno.backend import Op, lower, with_flags

from trueno_simd.llvm import isa
from trueno_simd.rows.columns import ColumnPrinter
from trueno_simd.rows.next_row import NextRowPrinter
from trueno_simd.rows.printer import Lines
from trueno_simd.rows.short_rows import TilePrinter
from trueno_simd.rows.variant import Variant
from trueno_simd.rows.work import piece


class RowPrinter(NextRowPrinter):
    """Prints one plan in all its schedules."""

    def tiles(self) -> Lines:
        return [TilePrinter(self.plan, self.dtype, self.block, self.variant).tile()] if self.tiled else []


def printed(
    op: Op,
    dtype: str,
    layout: str,
    rank: int,
    static: tuple[tuple[str, Any], ...] = (),
    parallel: bool = False,
    guarded: bool = False,
    block: int | None = None,
    stream: int = 0,
) -> str:
    """Source of the module that holds one kernel.

    rank: 1 for one row, 2 for rows, 3 for rows that lie across memory (`trueno_simd.rows.columns`).
    block: elements of a block, the ISA level's unless given.  stream: elements from which on results bypass the caches.
    """
    program = op.program(layout, **dict(static))
    results = len(program.outputs)
    worth = piece(program, int(dtype.removeprefix("float")) // 8, rank)  # without guards: they change no result
    if guarded:
        program = with_flags(program)
    plan = lower(program, "memory" if parallel and rank == 1 else "cache")
    flags = tuple(range(results, len(program.outputs)))
    says = next(iter((op.doc or "").splitlines()), "")  # nothing under `python -OO`
    title = f"{op.name}: {op.signature.text}, operands {layout}, {dtype}.  {says}".rstrip()
    variant = Variant(rank, parallel, flags, title, worth, stream)
    printer = ColumnPrinter if rank == 3 else RowPrinter
    return printer(plan, dtype, block or isa.block(dtype), variant).text()
