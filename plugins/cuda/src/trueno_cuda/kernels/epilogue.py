"""The ops that follow a product, in its registers: an elementwise row program.

The program's first operand is the sum that is about to be stored; the others are read beside it, by element, by row, by
column or once, as their kinds say.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from trueno.backend import FORMATS, TOKENS, Call, FusedOp, Program, SharedOp

from trueno_cuda.ptx import Value
from trueno_cuda.rows.expressions import EXPRESSIONS, cast

HEADS = ("matmul", "batched_matmul", "matvec", "vecmat", "quant_matvec", "quant_matmul")
SHARED = ("quant_matvec", "quant_matmul")
"""Products of one operand that become one call."""


@dataclass(frozen=True, slots=True)
class Epilogue:
    """A program over one sum."""

    program: Program

    @property
    def name(self) -> str:
        return f"then_{self.program.key}"

    @property
    def beside(self) -> str:
        """Kinds of the arrays that it reads."""
        return "".join(kind for _, kind in self.program.operands[1:])

    @property
    def numbers(self) -> int:
        """How many parameters it takes."""
        return len(self.program.params)

    def write(self, k: Any, made: Value, beside: Sequence[Value], numbers: Sequence[Value]) -> Value:
        """The program's result for one element."""
        program, element = self.program, made.type
        operands = dict(zip((name for name, _ in program.operands), (made, *beside), strict=True))
        params = dict(zip(program.params, numbers, strict=True))
        live, values = program.live(program.outputs), dict[int, Value]()
        for i, node in enumerate(program.nodes):
            if i not in live:
                continue
            args = [values[a] for a in node.args]
            match node.kind:
                case "leaf":
                    values[i] = operands[str(node.value)]
                case "param":
                    values[i] = params[str(node.value)]
                case "const":
                    assert node.value is not None
                    values[i] = k.const(element, float(node.value))
                case "cast":
                    values[i] = cast(k, args[0], element)
                case kind:
                    values[i] = EXPRESSIONS[kind](k, *args)
        return values[program.outputs[0]]


def refusal(call: Call) -> str | None:
    """Why a product does not take in what follows it; None if it does."""
    op: FusedOp = call.op
    head = op.head
    if head.name not in HEADS or head.symbolic:
        return f"{head.name} takes no epilogue"
    reason = _reason(op.epilogue.program(op.kinds)) or _slow(head.name, dict(call.static), op.kinds)
    return f"{op.name}: {reason}" if reason else None


def shared_refusal(call: Call) -> str | None:
    """Why no kernel runs several ops of one operand; None if one does."""
    op: SharedOp = call.op
    if tuple(member.op.name for member in op.members) == TOKENS:  # `caches.bring`
        return None
    if op.table_op.name not in SHARED:
        return f"{op.table_op.name}: each of its products is a kernel of its own"
    for member in op.members:
        if isinstance(member.op, FusedOp):
            reason = _reason(member.op.epilogue.program(member.op.kinds))
            reason = reason or _slow(member.op.head.name, dict(member.static), member.op.kinds)
            if reason:
                return f"{member.op.name}: {reason}"
    return None


def normed_refusal(call: Call) -> str | None:
    """Why no kernel normalizes what several products read; None if one does."""
    op: SharedOp = call.op
    (norm, *products), name = op.members, op.table_op.name
    if name not in SHARED or norm.op.name != "rms_norm":
        return f"{norm.op.name}: no kernel of {name} begins with it"
    for static in (dict(member.static) for member in products):
        if static["activations"] != "q8" or not scaled_late(static["format"]):
            return f"{norm.op.name}: only 8 bits with a float32 scale can be multiplied after the sums"
    return shared_refusal(call)


def scaled_late(format: str) -> bool:
    """Whether 8-bit activations for blocks of this format have float32 scales, which carry any factor."""
    return FORMATS[FORMATS[format].activations].fields["d"].nbytes == 4


def _slow(head: str, static: dict[str, Any], kinds: str) -> str:
    """Why an epilogue would take longer than a kernel of its own; empty if it does not.

    On an H200, swiglu of 2048 × 18944 after its product in bfloat16 adds 314 us, and alone takes 106: what is read
    beside a product's numbers comes when nothing is left to hide it behind.
    """
    if head == "quant_matmul" and static.get("activations") == "bf16" and "e" in kinds[1:]:
        return "in bfloat16, reading other elements takes longer there than in a kernel of its own"
    return ""


def _reason(program: Program) -> str:
    flat = not program.folds and all(program.nodes[o].space == "e" for o in program.outputs)
    if not flat or any(n.kind in ("count", "position") for n in program.nodes):
        return "an epilogue knows one element, and neither its row nor its place"
    if len(program.outputs) > 1 or program.nodes[program.outputs[0]].type != "T":
        return "an epilogue gives one number"
    return ""


@lru_cache(maxsize=1024)
def spliced(op: FusedOp) -> Epilogue:
    """The epilogue of an op that a batch made."""
    return Epilogue(op.epilogue.program(op.kinds))
