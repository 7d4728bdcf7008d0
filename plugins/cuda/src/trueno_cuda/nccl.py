"""Messages between the GPUs of one process: `Communicator("cuda:0", "cuda:1")`, on arrays and inside batches.

On arrays they are NCCL's, through CuPy.  On handles, one in a batch of each GPU, they are recorded: a launch of our own
writes to the other GPUs' memory (`trueno_cuda.kernels.exchange`), so it needs neither NCCL nor the host when batches
are replayed.  `Communicator.execute` runs such batches, each in a thread: they wait for one another, and a kernel that
is loaded at its first launch waits for its GPU.  With `cuda_emulated:0` … the same runs without a GPU.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from importlib import import_module
from itertools import count
from typing import Any, Final

import numpy as np
from trueno.errors import DeviceError, DtypeError, KernelError, OutError, ParameterError, ShapeError

from trueno_cuda.device.launching import opened
from trueno_cuda.kernels.exchange.inboxes import EXCHANGES, SIDE, Exchange
from trueno_cuda.kernels.exchange.launches import PRECISIONS, exchanged_rows, exchanged_sum

EMULATED_SIDE: Final = 1 << 16
OPS: Final = ("sum", "prod", "max", "min")
_numbers = count(1)


class Communicator:
    """Some GPUs of this process that exchange arrays; one array of each GPU, in the order of `devices`, is a message.

    devices: names such as "cuda:0"; side: bytes that a GPU may send at once inside batches, 16 MiB unless told, and
    64 KiB between emulated GPUs, whose launches copy it.
    BackendUnavailable where a GPU is not there, and at the first message on arrays without NCCL.  Not for several
    threads at once.
    """

    def __init__(self, *devices: str, side: int | None = None) -> None:
        if not devices:
            raise ParameterError('Communicator: no device is named; write Communicator("cuda:0", "cuda:1")')
        context = import_module("trueno").device  # the public API: a plugin must not use the registry
        self.devices: tuple[str, ...] = tuple(context(name).name for name in devices)
        if len(set(self.devices)) < len(devices):
            raise ParameterError(f"Communicator: {', '.join(devices)} name a device twice; each takes part once")
        if len({name.partition(":")[0] for name in self.devices}) > 1:
            raise ParameterError(f"Communicator: {', '.join(devices)} are of two backends, which share no memory")
        if side is not None and (isinstance(side, bool) or not isinstance(side, int) or side < 4096):
            raise ParameterError(f"Communicator: side is {side!r}; give bytes, 4096 or more")
        self._gpus = [opened(name) for name in self.devices]
        self.side = (EMULATED_SIDE if self._gpus[0].software else SIDE) if side is None else side // 16 * 16
        self._links: Any = None
        self._threads: ThreadPoolExecutor | None = None
        self._exchange: Exchange | None = None
        self._failed = False

    def __len__(self) -> int:
        return len(self.devices)

    def __repr__(self) -> str:
        return f"<Communicator {', '.join(self.devices)}>"

    # ---- messages -------------------------------------------------------------------------------------

    def all_reduce(self, arrays: Sequence[Any], op: str = "sum", out: Sequence[Any] | None = None, *,
                   precision: str = "f32") -> list[Any]:  # fmt: skip
        """The sum of all arrays, element by element, on each GPU; op: sum, prod, max or min.

        arrays: of one shape and dtype, or handles of float32, whose only op is the sum.  out: arrays to write to, which
        may be `arrays` themselves.
        precision: of what batches send, f32 or bf16.  With bf16, half of the bytes, every part is rounded to bfloat16
        once, and the sum of a large message on three GPUs or more once again: a result is off by at most 2^-8 of the
        sum of the parts' magnitudes, or twice that.  Sums are float32, and all GPUs have the same bits.
        """
        shapes, recorded = self._message("all_reduce", arrays, op), self._recorded("all_reduce", arrays)
        if not isinstance(precision, str) or precision not in PRECISIONS:
            raise ParameterError(f"all_reduce: precision is {precision!r}; it is one of {', '.join(PRECISIONS)}")
        if recorded:
            if op != "sum" or out is not None:
                problem = f"op is {op!r}" if op != "sum" else "out is given"
                raise ParameterError(f"all_reduce: {problem}; batches record sums alone, and allocate their results")
            return self._record(exchanged_sum, arrays, {} if precision == "f32" else {"precision": precision})
        if precision != "f32":
            raise ParameterError(
                f"all_reduce: precision is {precision!r}; arrays are sent as they are, handles rounded"
            )
        results = self._empty(arrays, shapes, out)
        self._transport().all_reduce(arrays, results, op)
        return results

    def all_gather(self, arrays: Sequence[Any], axis: int = 0) -> list[Any]:
        """All arrays behind one another along an axis, on each GPU: of arrays the first one, of handles the last one.

        arrays: of one shape and dtype; handles may differ along that axis.
        """
        recorded = self._recorded("all_gather", arrays)
        shapes = self._message("all_gather", arrays, free=recorded)
        wanted = len(shapes[0]) - 1 if recorded else 0
        if not shapes[0] or axis % len(shapes[0]) != wanted:
            kind = "handles along the last axis, -1" if recorded else "arrays along the first axis, 0"
            raise ParameterError(f"all_gather: axis is {axis} of {len(shapes[0])}; it gathers {kind}")
        if recorded:
            return self._record(exchanged_rows, arrays, {"widths": " ".join(str(s[-1]) for s in shapes)})
        results = self._empty(arrays, [(len(self) * s[0], *s[1:]) for s in shapes])
        self._transport().all_gather(arrays, results)
        return results

    def reduce_scatter(self, arrays: Sequence[Any], op: str = "sum") -> list[Any]:
        """The sum of all arrays, of which each GPU gets its part along the first axis; op: sum, prod, max or min."""
        shapes = self._message("reduce_scatter", arrays, op)
        if not shapes[0] or shapes[0][0] % len(self):
            raise ShapeError(f"reduce_scatter: the first axis of {shapes[0]} is not {len(self)} equal parts")
        self._on_arrays("reduce_scatter", arrays)
        results = self._empty(arrays, [(s[0] // len(self), *s[1:]) for s in shapes])
        self._transport().reduce_scatter(arrays, results, op)
        return results

    def broadcast(self, arrays: Sequence[Any], root: int = 0) -> list[Any]:
        """The array of one GPU, by its place among `devices`, on each; the others' say the shape alone."""
        shapes = self._message("broadcast", arrays)
        if isinstance(root, bool) or not isinstance(root, int) or not 0 <= root < len(self):
            raise ParameterError(f"broadcast: root is {root!r}; it is a place among {len(self)} devices, from 0 on")
        self._on_arrays("broadcast", arrays)
        results = self._empty(arrays, shapes)
        self._transport().broadcast(arrays, results, root)
        return results

    def execute(self, batches: Sequence[Any], *, wait: bool = True) -> None:
        """Execute a batch of each GPU, all at once; wait: as of `Batch.execute`.

        The first error ends it, and the communicator: what the other GPUs have sent is left behind.
        """
        if self._failed:
            raise KernelError(
                "Communicator: a batch failed while the others sent their messages, which would meet later ones; make "
                "a new communicator, and record the batches again"
            )
        if not isinstance(batches, (list, tuple)) or len(batches) != len(self):
            raise ParameterError(f"execute: give a list of {len(self)} batches, one of each device")
        if self._threads is None:
            self._threads = ThreadPoolExecutor(len(self), "trueno-cuda-gpu")
        runs = [self._threads.submit(batch.execute, wait=wait) for batch in batches]
        self._failed = True
        for run in runs:
            run.result()
        self._failed = False

    def close(self) -> None:
        """Wait for all messages, and let go of NCCL; batches that recorded a message stay valid."""
        if self._links is not None:
            self._links.close()
            self._links = None
        if self._threads is not None:
            self._threads.shutdown()
            self._threads = None

    def __enter__(self) -> "Communicator":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---- parts ----------------------------------------------------------------------------------------

    def _message(self, what: str, arrays: Any, op: str = "sum", free: bool = False) -> list[tuple[int, ...]]:
        """The shapes of a message, which is one array a GPU; free: the last axis may differ."""
        if not isinstance(arrays, (list, tuple)) or len(arrays) != len(self):
            got = f"{len(arrays)}" if isinstance(arrays, (list, tuple)) else f"a {type(arrays).__name__}"
            raise ParameterError(f"{what}: {got} was given; give a list of {len(self)} arrays, one of each device")
        if op not in OPS:
            raise ParameterError(f"{what}: op is {op!r}; it is one of {', '.join(OPS)}")
        for i, x in enumerate(arrays):
            if not hasattr(x, "shape") or not hasattr(x, "dtype") or isinstance(x, np.ndarray):
                move = f"trueno.to(x, {self.devices[i]!r})"
                raise DeviceError(
                    f"{what}: array {i} is a {type(x).__name__}, not of {self.devices[i]}; move it: {move}"
                )
        shapes = [tuple(x.shape) for x in arrays]
        if any((s[:-1] if free else s) != (shapes[0][:-1] if free else shapes[0]) for s in shapes):
            raise ShapeError(f"{what}: the arrays have shapes {', '.join(map(str, shapes))}; they must agree")
        if any(x.dtype != arrays[0].dtype for x in arrays):
            raise DtypeError(
                f"{what}: the arrays are {', '.join(str(np.dtype(x.dtype)) for x in arrays)}; of one dtype"
            )
        return shapes

    def _recorded(self, what: str, arrays: Any) -> bool:
        handles = [hasattr(x, "batch") for x in arrays] if isinstance(arrays, (list, tuple)) else []
        if any(handles) and not all(handles):
            raise ParameterError(f"{what}: give arrays, or handles of a batch of each device, not both")
        return any(handles)

    def _on_arrays(self, what: str, arrays: Sequence[Any]) -> None:
        if self._recorded(what, arrays):
            raise ParameterError(f"{what}: batches record all_reduce and all_gather; execute, and pass the arrays")

    def _record(self, op: Any, handles: Sequence[Any], static: dict[str, Any]) -> list[Any]:
        if any(h.dtype != np.float32 for h in handles):
            raise DtypeError(f"Communicator: a handle is {handles[0].dtype}; batches exchange float32 alone")
        if len({0 in h.shape for h in handles}) > 1:
            shapes = ", ".join(str(tuple(h.shape)) for h in handles)
            raise ShapeError(f"Communicator: the handles have shapes {shapes}; all of them have elements, or none")
        if self._exchange is None:
            self._exchange = EXCHANGES[number] = Exchange(number := next(_numbers), self._gpus, self.side // 4)
        exchange, most = self._exchange, max(int(np.prod(h.shape)) for h in handles)
        if most > exchange.capacity:
            raise ParameterError(f"Communicator: {4 * most} bytes of one GPU; make it with side={4 * most} or more")
        static = static | {"group": exchange.number}
        own = replace(op)  # which the batches keep, and so the exchange
        object.__setattr__(own, "exchange", exchange)
        return [h.batch.call(own, h, rank=i, **static) for i, h in enumerate(handles)]

    def _empty(self, arrays: Sequence[Any], shapes: Sequence[tuple[int, ...]], out: Any = None) -> list[Any]:
        """New arrays for the results, or `out`."""
        self._placed("array", arrays)
        if out is None:
            return [g.empty(s, x.dtype) for g, s, x in zip(self._gpus, shapes, arrays, strict=True)]
        if not isinstance(out, (list, tuple)) or len(out) != len(self):
            raise OutError(f"Communicator: out must be a list of {len(self)} arrays, one of each device")
        self._placed("out", out)
        for i, (x, shape) in enumerate(zip(out, shapes, strict=True)):
            if tuple(x.shape) != shape or x.dtype != arrays[0].dtype or not x._c_contiguous:
                problem = f"out {i} is {x.dtype} of shape {tuple(x.shape)}"
                raise OutError(f"Communicator: {problem}; it must be {arrays[0].dtype} of shape {shape}, in C order")
        return list(out)

    def _placed(self, what: str, arrays: Sequence[Any]) -> None:
        """Raise DeviceError for an array that is not where its place in the message says."""
        for i, (gpu, x) in enumerate(zip(self._gpus, arrays, strict=True)):
            there = getattr(getattr(x, "data", None), "device_id", None)
            if there != gpu.number:
                raise DeviceError(f"Communicator: {what} {i} is on GPU {there}, and {self.devices[i]} is its place")

    def _transport(self) -> Any:
        if self._links is None:
            if self._gpus[0].software:
                self._links = Emulated()
            else:
                from trueno_cuda.device.hardware.links import Links  # NCCL takes some seconds to begin

                self._links = Links(self._gpus)
        return self._links


class Emulated:
    """NCCL's messages between emulated GPUs."""

    UFUNCS: Final = {"sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum}

    def all_reduce(self, arrays: Sequence[Any], results: Sequence[Any], op: str) -> None:
        total = self._reduced(arrays, op)
        for result in results:
            result.elements[...] = total

    def all_gather(self, arrays: Sequence[Any], results: Sequence[Any]) -> None:
        whole = np.concatenate([x.elements for x in arrays])
        for result in results:
            result.elements[...] = whole

    def reduce_scatter(self, arrays: Sequence[Any], results: Sequence[Any], op: str) -> None:
        for part, result in zip(np.split(self._reduced(arrays, op), len(results)), results, strict=True):
            result.elements[...] = part

    def broadcast(self, arrays: Sequence[Any], results: Sequence[Any], root: int) -> None:
        for result in results:
            result.elements[...] = arrays[root].elements

    def _reduced(self, arrays: Sequence[Any], op: str) -> Any:
        total = arrays[0].elements
        for x in arrays[1:]:
            total = self.UFUNCS[op](total, x.elements)
        return total

    def close(self) -> None:
        """There is nothing to let go of."""
