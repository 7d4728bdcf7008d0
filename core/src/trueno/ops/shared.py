"""Several ops that read one operand, as one op: what a batch asks a backend for where products have one input."""

from dataclasses import dataclass
from typing import Any

from trueno.formats.table import Format
from trueno.ops.op import Op

TOKENS = ("rope", "rope", "kv_cache_scatter", "kv_cache_scatter")
"""Members of a `SharedOp` that brings new tokens into a cache: of queries, of keys, into the keys, into the values."""
Source = tuple[str, int]
"""`("operand", i)`: an operand of the whole; `("result", i)`: the only result of an earlier member."""


@dataclass(frozen=True, slots=True)
class Member:
    """One of the ops: a structured one of the table, or a `FusedOp`; its static parameters, and where operands are."""

    op: Op
    static: tuple[tuple[str, Any], ...]
    sources: tuple[Source, ...]


@dataclass(frozen=True, kw_only=True)
class SharedOp(Op):
    """Structured ops that read the same operand, the first of the whole: products of one kind, or `TOKENS`.

    Products may read the result of a norm, which is then the first member and has that operand.

    members: in order; each may read the result of an earlier one.  kept: member and number of each result of the whole;
    other results are nowhere stored.  Parameters are those of the members, one after the other.
    """

    members: tuple[Member, ...]
    kept: tuple[tuple[int, int], ...]

    @property
    def table_op(self) -> Op:
        return next(m.op for m in self.members if m.op.structured).table_op

    def blocks(self, static: dict[str, Any]) -> Format | None:
        """The format of the first member that has blocks; others may have others."""
        first = next((m for m in self.members if m.op.quantized), self.members[0])
        return first.op.blocks(dict(first.static))
