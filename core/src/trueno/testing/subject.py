"""The judged backend, and how arrays reach it: NumPy's directly, or moved to its own type."""

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from trueno.discovery import registry
from trueno.discovery.manifest import Manifest
from trueno.discovery.protocol import Backend, Call, Reject
from trueno.ops.op import Op
from trueno.testing.case import Case, keywords
from trueno.testing.expected import split
from trueno.testing.halves import computing

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Subject:
    """One loaded backend.  `foreign`: its kernels take arrays of its own type."""

    name: str
    backend: Backend
    manifest: Manifest | None
    foreign: bool

    def give(self, x: Array) -> Any:
        """The array as its kernels take it."""
        return self.backend.to_device(x) if self.foreign else x

    def take(self, x: Any) -> Array:
        """An array of its kernels as NumPy's."""
        return self.backend.to_host(x) if self.foreign else x

    def call(self, case: Case, layout: str = "", *, guarded: bool = False) -> Call:
        """The key of a case of one row or of rows; `layout` as declared unless given."""
        op = case.op
        if op.structured:
            rank, sizes = np.ndim(case.operands[0]), tuple(np.size(x).bit_length() for x in case.operands)
        elif op.over is None:
            whole = np.broadcast_shapes(*map(np.shape, case.operands))
            rank, sizes = len(whole), (prod(whole).bit_length(),)
        else:
            rank, sizes = max(map(np.ndim, case.operands)), (max(map(np.size, case.operands)).bit_length(),)
        static = tuple(split(op, case.kwargs)[1].items())
        residency = self.name if self.foreign else "host"
        return Call(op, case.dtype, layout or op.layout, rank, sizes, static, residency, guarded)


def subject(name: str) -> Subject:
    """The backend called `name`, loaded; BackendUnavailable with its reason where it cannot run."""
    backend = registry.load(name)
    manifest = registry.entries()[name].manifest
    return Subject(name, backend, manifest, manifest is not None and manifest.foreign)


def rejected(op: Op, backend: str, dtype: npt.DTypeLike, parameters: dict[str, Any] | None = None) -> Reject | None:
    """Why the backend takes no call of this op in this dtype, with these parameters (None: with any); None if it does.

    For 16-bit floats in the dtype to which the core widens them.
    """
    if op.single and np.dtype(dtype) != np.float32:
        return Reject("unsupported_dtype", "ops on blocks and bytes take float32")
    first = None
    loaded, rank = registry.load(backend), max(len(op.signature.inputs[0].dims), 1)
    sizes = (5,) * (len(op.operands) if op.structured else 1)
    for kwargs in keywords(op) if parameters is None else [parameters]:
        static = tuple(split(op, kwargs)[1].items())
        reject = loaded.supports(Call(op, computing(dtype), op.layout, rank, sizes, static))
        if reject is None:
            return None
        first = first or reject
    return first
