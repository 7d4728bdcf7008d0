"""The rules for operands that hold wherever a call runs: on the host, on a device, in a batch.

They determine the float dtype of a call, the dtypes that an operand may have, and, once per call, where operands live.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from trueno.discovery import registry
from trueno.discovery.entry import Entry
from trueno.discovery.protocol import Backend
from trueno.dispatch.half import FLOATS, TAKEN, is_float, is_half
from trueno.dispatch.transfer import device_of, unwrap
from trueno.errors import DeviceError, DtypeError
from trueno.ops.op import Op
from trueno.ops.signature import ArraySpec

Shape = tuple[int, ...]
Dtype = np.dtype[Any]


def is_number(x: Any) -> bool:
    """Whether `x` is a real number of Python or NumPy, including bfloat16, and not a truth value."""
    if isinstance(x, (float, int, np.floating, np.integer)):
        return not isinstance(x, bool)
    return isinstance(x, np.generic) and is_half(x.dtype)


def float_dtype(op: Op, named: Sequence[tuple[str, Dtype]]) -> Dtype | None:
    """The float dtype of a call, from its operands' names and dtypes; None if no operand determines it.

    DtypeError for two dtypes, and for a product with blocks in any dtype other than float32.
    """
    for name, dtype in named:
        if dtype != named[0][1]:
            mismatch = f"{name} is {dtype}, but {named[0][0]} is {named[0][1]}"
            raise DtypeError(f"{op.name}: {mismatch}; convert one of them to the other's dtype")
    if op.quantized and named and named[0][1] != np.float32:
        needs = f"{'ops on caches' if op.caches else 'blocks'} require float32: convert it with .astype(numpy.float32)"
        raise DtypeError(f"{op.name}: {named[0][0]} is {named[0][1]}; {needs}, a tensor with .float()")
    return named[0][1] if named else np.dtype(np.float32) if op.single else None


def check_dtype(op: Op, spec: ArraySpec, dtype: Dtype, where: str) -> None:
    """DtypeError for an operand that a call cannot convert: an array of a device, or a batch's handle.

    where: "on a device", or "in a batch", which does not accept 16-bit floats.
    """
    if spec.type:
        right = dtype == spec.holds(dtype)
        remedy = (
            f"indices {where} are int64"
            if spec.index
            else f"bytes are uint8 {where}"
            if not spec.blocks
            else f"blocks are bytes {where}, uint8: give {'Pages' if spec.cache else 'a QuantizedMatrix'}"
        )
    else:
        right = dtype.type in FLOATS if where == "in a batch" else is_float(dtype)
        batched = f"float32 or float64 are accepted {where}; widen it, or call the op itself"
        remedy = batched if where == "in a batch" else TAKEN
    if not right:
        raise DtypeError(f"{op.name}: {spec.name} is {dtype}; {remedy}")


@dataclass(frozen=True, slots=True)
class OnDevice:
    """The operands of a call on a device: the arrays themselves, and numbers.

    there: whether each operand is an array of that device.  dtype: the float dtype of the call.
    """

    entry: Entry
    backend: Backend
    arrays: tuple[Any, ...]
    there: tuple[bool, ...]
    shapes: tuple[Shape, ...]
    dtype: Dtype


def on_device(op: Op, operands: tuple[Any, ...]) -> OnDevice | None:
    """The operands, if they live on a device; None if all are on the host.

    DeviceError for arrays in two places; numbers go anywhere.
    """
    entries = [device_of(x) for x in operands]
    first = next((i for i, entry in enumerate(entries) if entry is not None), None)
    if first is None:
        return None
    entry, owner = entries[first], op.operands[first]
    assert entry is not None
    for name, other, x in zip(op.operands, entries, operands, strict=True):
        if other is not entry and not is_number(x):
            where = f"on {other.name}" if other is not None else "on the host"
            remedy = f"trueno.to({name}, {entry.name!r}), or trueno.numpy({owner})"
            raise DeviceError(f"{op.name}: {name} is {where}, but {owner} is on {entry.name}; move one: {remedy}")
    return settled(op, entry, tuple(map(unwrap, operands)), tuple(other is entry for other in entries))


def settled(op: Op, entry: Entry, arrays: tuple[Any, ...], there: tuple[bool, ...]) -> OnDevice:
    """Operands that are known to be on the device or numbers; DtypeError for a dtype that a device does not accept."""
    named = []
    for spec, x, own in zip(op.signature.inputs, arrays, there, strict=True):
        if own:
            check_dtype(op, spec, np.dtype(x.dtype), "on a device")
            if not spec.type:
                named.append((spec.name, np.dtype(x.dtype)))
    dtype = float_dtype(op, named)
    if dtype is None:
        raise DtypeError(f"{op.name}: no operand determines the float dtype of the result; give an array of floats")
    shapes = tuple(tuple(x.shape) if own else () for x, own in zip(arrays, there, strict=True))
    return OnDevice(entry, registry.load(entry.name), arrays, there, shapes, dtype)
