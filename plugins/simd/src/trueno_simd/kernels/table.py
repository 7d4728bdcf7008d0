"""The table of structured kernels, and what some of them say beside their rates.

Each kernel's module adds its factories to `KERNELS`, with their rates in float32 on one core.  A product that takes an
epilogue is in `PRODUCTS` as well.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from trueno.backend import INTERLEAVED, Call, KernelTable, Reject

F = TypeVar("F", bound=Callable[..., Any])

BLOCKS = ("float32",)
"""Dtypes of kernels of quantized matrices: blocks go with float32."""
MOST_AXES = 4
"""Axes of a product with an epilogue: each number of them is a kernel of its own."""


@dataclass(frozen=True, slots=True)
class Product:
    """What an epilogue needs of a product; the functions are compiled code's.

    fits: whether operands and result agree.  run: multiplies by the function at an address, and finishes the result.
    axes: of operands and result, 0 for those of the call.  address: for a dtype's name, compiled code's function that
    gives that address.
    """

    fits: Any
    run: Any
    axes: tuple[int, int, int]
    address: Callable[[str], Callable[[], int]]


NARROW = "bfloat16 is no faster here; use q8 or f32"


def not_rounded(call: Call) -> Reject | None:
    """Why no kernel multiplies blocks with such activations; None if one does."""
    return Reject("unsupported_op", NARROW) if dict(call.static).get("activations") == "bf16" else None


PRODUCTS: dict[str, Product] = {}


QUANTIZED = "quant_matvec"
"""The product of blocks that takes an epilogue, and shares its vector with others."""


def _epilogue(call: Call) -> str | None:
    """Why no kernel finishes this product; None if one does."""
    head, program = call.op.head, call.op.epilogue.program(call.op.kinds)  # type: ignore[attr-defined]
    if head.name == QUANTIZED:
        return _member(call.op, dict(call.static))
    if head.name not in PRODUCTS:
        return f"{head.name} takes no epilogue"
    if call.dtype.name not in ("float32", "float64"):
        return f"an epilogue computes in float32 or float64, not {call.dtype}"
    if call.rank > MOST_AXES:
        return f"{call.rank} axes are more than {MOST_AXES}"
    if head.params or any(program.nodes[o].type != "T" for o in program.outputs):
        return "only numbers come out of an epilogue, and its product has no parameters"
    return None


def _member(op: Any, static: dict[str, Any]) -> str | None:
    """Why no kernel computes this product of blocks, with what follows it; None if one does."""
    if op.table_op.name != QUANTIZED:
        return f"{op.table_op.name} takes no epilogue, and shares no operand"
    if static["activations"] == "bf16":
        return NARROW
    if static["activations"] != "q8" and static["format"] in INTERLEAVED:
        return "interleaved rows are multiplied with 8-bit activations"
    if op is op.table_op:
        return None
    program = op.epilogue.program(op.kinds)
    if set(op.kinds) - {"e", "u"} or any(program.nodes[o].type != "T" for o in program.outputs):
        return "only numbers come out of an epilogue, element by element"
    return None


def _shared(call: Call) -> str | None:
    """Why no kernel runs these products of one operand; None if one does."""
    return next((why for m in call.op.members if (why := _member(m.op, dict(m.static)))), None)  # type: ignore[attr-defined]


KERNELS = KernelTable("float32", "float64", epilogue=_epilogue, shared=_shared)


def in_callers_environment(factory: F) -> F:
    """Mark a factory whose kernels run foreign code in the caller's floating-point environment."""
    factory.own_environment = False  # type: ignore[attr-defined]
    return factory


def own_environment(call: Call) -> bool:
    """Whether the kernel of a key sees to its floating-point environment itself, as all that we compile do."""
    return getattr(KERNELS[call.op.table_op.name].factory, "own_environment", True)
