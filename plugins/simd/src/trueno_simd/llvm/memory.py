"""Memory as kernels see it: a pointer, a position, and the number of the array it belongs to.

A load or store names its array's slot, and LLVM is told (`alias.scope`, `noalias`) that different slots do
not overlap.  That is what kernels check at entry, except that a result may be *exactly* an operand: every
element is then read before it is written, in the same iteration, so the promise does no harm, and one
kernel serves both cases at full speed.  Without it LLVM falls to a scalar loop in place (6 times slower, and
sums would lose their lanes).  Nothing here wraps negative positions, which Numba's own indexing does.
"""

from typing import Any

from llvmlite import ir
from numba import int64, types
from numba.core import cgutils
from numba.extending import intrinsic

from trueno_simd.llvm.jit import inner

SLOTS = 64


@intrinsic
def pointer(_: Any, array: Any) -> Any:
    """The address of an array's first element, typed."""
    if not isinstance(array, types.Array):
        return None

    def emit(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        return context.make_array(signature.args[0])(context, builder, values[0]).data

    return types.CPointer(array.dtype)(array), emit


@intrinsic
def address(_: Any, array: Any) -> Any:
    """The address of an array's first element, as a number."""

    def emit(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, values[0]).data
        return builder.ptrtoint(data, ir.IntType(64))

    return int64(array), emit


@intrinsic
def load(_: Any, base: Any, i: Any, slot: Any) -> Any:
    """The element at position `i` of the array in `slot`."""
    if not isinstance(slot, types.IntegerLiteral):
        return None

    def emit(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        value = builder.load(builder.gep(values[0], [values[1]], inbounds=True))
        _scope(builder.module, value, slot.literal_value)
        return context.data_model_manager[base.dtype].from_data(builder, value)

    return base.dtype(base, i, slot), emit


@intrinsic
def store(_: Any, base: Any, i: Any, value: Any, slot: Any) -> Any:
    """Put an element at position `i` of the array in `slot`."""
    if not isinstance(slot, types.IntegerLiteral):
        return None

    def emit(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        converted = context.cast(builder, values[2], signature.args[2], base.dtype)
        data = context.data_model_manager[base.dtype].as_data(builder, converted)
        instruction = builder.store(data, builder.gep(values[0], [values[1]], inbounds=True))
        _scope(builder.module, instruction, slot.literal_value)
        return context.get_dummy_value()

    return types.void(base, i, value, slot), emit


def _scope(module: Any, instruction: Any, slot: int) -> None:
    domain = module.add_metadata([ir.MetaDataString(module, "trueno")])
    scopes = [module.add_metadata([ir.MetaDataString(module, f"slot {k}"), domain]) for k in range(SLOTS)]
    instruction.set_metadata("alias.scope", module.add_metadata([scopes[slot]]))
    instruction.set_metadata("noalias", module.add_metadata(scopes[:slot] + scopes[slot + 1 :]))


def stack(kind: Any, count: int) -> Any:
    """A function for compiled code that gives `count` elements of the calling function's frame."""

    @intrinsic
    def reserve(_: Any) -> Any:
        def emit(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            with builder.goto_entry_block():
                return cgutils.alloca_once(builder, context.get_data_type(kind), size=count)

        return types.CPointer(kind)(), emit

    return reserve


@inner
def apart(a, b):  # type: ignore[no-untyped-def]
    """Whether two C-contiguous arrays share no byte."""
    p, q = address(a), address(b)
    return p + a.size * a.itemsize <= q or q + b.size * b.itemsize <= p


@inner
def apart_or_same(a, b):  # type: ignore[no-untyped-def]
    """Whether two C-contiguous arrays share no byte, or every byte."""
    return (address(a) == address(b) and a.size == b.size) or apart(a, b)
