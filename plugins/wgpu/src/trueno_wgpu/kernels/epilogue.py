"""What follows a product, spliced into its store: an elementwise row program, as the printer prints it.

The program's first operand is the value that is about to be stored; the others are bound beside, and read by row, by
column, by element or once, as their kinds say.  Its safe functions read `u.zero`, `u.inf` and `u.nan`, which stand at
the end of a product's uniforms, before the parameters.
"""

import re
import struct
from functools import lru_cache
from math import inf, nan

from trueno.backend import Call, FusedOp, Program

from trueno_wgpu.kernels.store import Epilogue
from trueno_wgpu.rows.prelude import prelude
from trueno_wgpu.rows.printer import Printer
from trueno_wgpu.rows.source import is_flat, planned, title

HEADS = {"matmul": 4, "batched_matmul": 4, "matvec": 4, "vecmat": 4, "quant_matvec": 3}
"""Products that take one, and arrays that it reads at most: with their own, and the status word, any device binds them.
"""
PLACES = {"e": "at", "w": "column", "r": "row", "u": "0"}


def refusal(call: Call) -> str | None:
    """Why a product does not take in what follows it; None if it does."""
    op: FusedOp = call.op
    head = op.head
    if head.name not in HEADS or head.symbolic:
        return f"{head.name} takes no epilogue"
    program = op.epilogue.program(op.kinds)
    reason = _reason(program, op.kinds, HEADS[head.name])
    return f"{op.name}: {reason}" if reason else None


def _reason(program: Program, kinds: str, most: int) -> str:
    if not is_flat(program) or any(n.kind in ("count", "position") for n in program.nodes):
        return "an epilogue knows one element, and neither its row nor its place"
    if len(program.outputs) > 1 or program.nodes[program.outputs[0]].type != "T":
        return "an epilogue gives one number"
    if len(kinds) - 1 > most:
        return f"{len(kinds) - 1} arrays beside a product; a shader binds {most}"
    return ""


class _Spliced(Printer):
    """Prints the body of one function."""

    def bind(self, slot: int, write: bool = False) -> str:
        return f"beside{slot - 1}"

    def function(self) -> str:
        pass_ = self.plan.passes[0]
        lines = [*self.preamble(), *self.row_leaves("row")]
        product = next(iter(self.kinds))
        for i, source in pass_.loads:
            assert isinstance(source, str)
            place = PLACES[self.kinds[source]]
            lines.append(f"let v{i} = {'made' if source == product else f'{self.bind(self.slots[source])}[{place}]'};")
        lines += self.row_ops(pass_.before)
        lines += [f"let v{i} = {self.expression(i)};" for i in pass_.body]
        lines.append(f"return {self.name(self.program.outputs[0])};")
        head = "fn epilogue(made: f32, row: u32, column: u32, at: u32) -> f32 {"
        return "\n".join([head, *(f"    {line}" for line in lines), "}"])


@lru_cache(maxsize=1024)
def spliced(op: FusedOp) -> Epilogue:
    """The epilogue of an op that a batch made."""
    printer = _Spliced(planned(op.epilogue.program(op.kinds)), title(op, op.kinds))
    body = printer.function()
    constants = printer.constants()
    text = "\n\n".join(filter(None, [prelude("\n".join([*constants, body])), "\n".join(constants), body]))
    numbers = len(printer.program.params)
    return Epilogue(re.sub(r"\bu\.", "sizes.", text) + "\n", len(op.kinds) - 1, numbers)


def numbers(params: tuple[float, ...]) -> bytes:
    """What an epilogue's uniforms hold."""
    return struct.pack(f"<I{2 + len(params)}f", 0, inf, nan, *params)
