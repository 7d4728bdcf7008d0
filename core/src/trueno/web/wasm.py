"""A batch for browsers without a GPU: simd's kernels as one WebAssembly module, and where its arrays are in memory."""

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from trueno.batch.graph import Shape
from trueno.batch.record import Batch
from trueno.batch.steps import schedule
from trueno.discovery import registry
from trueno.dispatch import transfer
from trueno.errors import DeviceError, KernelError

BACKEND = "simd"
LINE = 64
MOST = (1 << 32) - (1 << 26)
"""Bytes of arrays that fit into WebAssembly's 32-bit memory beside kernels and scratch."""
APART = "a page's kernels are single ops, and chains of row ops"
Array = np.ndarray[Any, Any]


@dataclass
class Module:
    """code: the module's bytes.  names: of the ops of its steps.  contents: of its memory at the start, by address.

    inputs, outputs: addresses.  feeds: (source, target, bytes), copies that end a run.
    """

    code: bytes
    names: list[str]
    inputs: dict[str, int]
    outputs: dict[str, int]
    contents: dict[int, bytes]
    feeds: list[tuple[int, int, int]]


def module(batch: Batch, given: Mapping[str, int], taken: Mapping[str, int]) -> Module:
    """The module of a batch, whose inputs and outputs are these values by name.

    KernelError for an op that simd has no kernel for, or none that pages can run; DeviceError for arrays of more than
    4 GiB; UnknownBackend or BackendUnavailable without simd.
    """
    backend: Any = registry.load(BACKEND)
    graph = batch._graph
    found = schedule(graph, batch._wanted(), "host", (BACKEND,), APART)
    for step in found.steps:
        if step.call is None:
            why = step.reason or step.entry.reason
            raise KernelError(f"web.export: {step.op.name} has no kernel of WebAssembly here: {why}")
    plan = _Plan(batch, found.buffers.place, found.buffers.sizes)
    calls = [[plan.placed(v, shape) for v, shape in step.reads] for step in found.steps]
    results = [[plan.placed(v, shape) for v, shape in step.makes] for step in found.steps]
    ports = [{name: plan.placed(v, graph.values[v].shape) for name, v in values.items()} for values in (given, taken)]
    feeds = [(plan.placed(made, graph.values[made].shape), plan.placed(v, graph.values[v].shape))
             for v, made in batch._feeds.items()]  # fmt: skip
    if plan.end > MOST:
        raise DeviceError(f"web.export: the arrays take {plan.end} bytes, and WebAssembly's memory ends at 4 GiB")
    with tempfile.TemporaryDirectory(prefix="trueno-web-") as folder:
        path = Path(folder) / "memory"
        path.write_bytes(b"")
        memory: Any = np.memmap(path, np.uint8, "w+", shape=(max(plan.end, LINE),))
        contents = {}
        for at, x in plan.contents(set(given.values())):
            flat = np.ascontiguousarray(x).reshape(-1).view(np.uint8)
            memory[at : at + flat.nbytes] = flat
            if flat.any():
                contents[at] = flat.tobytes()
        steps = [
            (step.call, [*(one.of(memory) for one in reads), *step.params, *(one.of(memory) for one in makes)])
            for step, reads, makes in zip(found.steps, calls, results, strict=True)
        ]
        try:
            code, base = backend.webassembly(steps, memory)
        finally:
            del steps, memory  # Windows removes no file that is mapped
    inputs, outputs = ({name: base + one.at for name, one in named.items()} for named in ports)
    copies = [(base + source.at, base + target.at, target.nbytes) for source, target in feeds]
    return Module(code, [step.op.name for step in found.steps], inputs, outputs,
                  {base + at: data for at, data in contents.items()}, copies)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Placed:
    """An array of the module's memory."""

    at: int
    shape: Shape
    dtype: np.dtype[Any]

    @property
    def nbytes(self) -> int:
        return prod(self.shape) * self.dtype.itemsize

    def of(self, memory: Array) -> Array:
        return np.asarray(memory)[self.at : self.at + self.nbytes].view(self.dtype).reshape(self.shape)


@dataclass
class _Plan:
    """Where uploads and buffers are, each where it is first needed.

    place, sizes: the buffers of results (`trueno.batch.buffers`).  uploads, buffers: their offsets.  end: of all bytes.
    """

    batch: Batch
    place: dict[int, int]
    sizes: tuple[tuple[int, np.dtype[Any]], ...]
    uploads: dict[int, int] = field(default_factory=dict)
    buffers: dict[int, int] = field(default_factory=dict)
    end: int = 0

    def placed(self, v: int, shape: Shape) -> Placed:
        """The array of a value in some shape."""
        values = self.batch._graph.values
        whole = self.batch._graph.whole(v)
        dtype = values[whole].dtype
        if whole in self.place:
            number = self.place[whole]
            count, kind = self.sizes[number]
            return Placed(self._at(self.buffers, number, count * kind.itemsize), shape, dtype)
        upload = whole if values[whole].upload < 0 else values[whole].upload
        return Placed(self._at(self.uploads, upload, values[upload].nbytes), shape, dtype)

    def contents(self, given: set[int]) -> list[tuple[int, Array]]:
        """The offset and the array of each upload that a page does not set."""
        arrays = self.batch._uploads.arrays
        return [(at, transfer.numpy(arrays[v])) for v, at in self.uploads.items() if v not in given]

    def _at(self, known: dict[int, int], number: int, nbytes: int) -> int:
        if number not in known:
            known[number] = self.end
            self.end += -(-nbytes // LINE) * LINE
        return known[number]


__all__ = ["Module", "module"]
