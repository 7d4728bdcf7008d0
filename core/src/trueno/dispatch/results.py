"""The rules for `out=` that hold wherever a call runs."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from trueno.errors import OutError
from trueno.ops.op import Op
from trueno.ops.signature import ArraySpec

Shape = tuple[int, ...]


def listed(op: Op, out: Any) -> list[Any]:
    """The user's arrays, one for each result; OutError if there are more or fewer."""
    count = len(op.signature.outputs)
    outs = list(out) if isinstance(out, (tuple, list)) and count > 1 else [out]
    if len(outs) != count:
        raise OutError(f"{op.name}: out has {len(outs)} array{'s' * (len(outs) != 1)}, but there are {count} results")
    return outs


def check_fit(op: Op, spec: ArraySpec, array: Any, shape: Shape, dtype: np.dtype[Any]) -> None:
    """Raise OutError for an array whose shape or dtype differs from the result's."""
    if tuple(array.shape) != shape or np.dtype(array.dtype) != dtype:
        actual = f"{np.dtype(array.dtype)} of shape {tuple(array.shape)}"
        raise OutError(f"{op.name}: out for {spec.name} is {actual}, but the result is {dtype} of shape {shape}")


def check_apart(op: Op, outs: Sequence[Any], share: Callable[[Any, Any], bool]) -> None:
    """Raise OutError if two results would share memory."""
    if any(share(a, b) for i, a in enumerate(outs) for b in outs[:i]):
        raise OutError(f"{op.name}: two results share the memory of out; give an array for each")
