"""The table of structured kernels, and what some of them say beside their rates.

Each kernel's module adds its factories to `KERNELS`, with their rates in float32 on one core.  A product that takes an
epilogue is in `PRODUCTS` as well.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from trueno.backend import Call, KernelTable

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


PRODUCTS: dict[str, Product] = {}


def _epilogue(call: Call) -> str | None:
    """Why no kernel finishes this product; None if one does."""
    head, program = call.op.head, call.op.epilogue.program(call.op.kinds)  # type: ignore[attr-defined]
    if head.name not in PRODUCTS:
        return f"{head.name} takes no epilogue"
    if call.rank > MOST_AXES:
        return f"{call.rank} axes are more than {MOST_AXES}"
    if head.params or any(program.nodes[o].type != "T" for o in program.outputs):
        return "only numbers come out of an epilogue, and its product has no parameters"
    return None


KERNELS = KernelTable("float32", "float64", epilogue=_epilogue)


def in_callers_environment(factory: F) -> F:
    """Mark a factory whose kernels run foreign code in the caller's floating-point environment."""
    factory.own_environment = False  # type: ignore[attr-defined]
    return factory


def own_environment(call: Call) -> bool:
    """Whether the kernel of a key sees to its floating-point environment itself, as all that we compile do."""
    return getattr(KERNELS[call.op.table_op.name].factory, "own_environment", True)
