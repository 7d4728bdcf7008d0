"""What the rows of CUDA time, and how: kernels alone, copies, PyTorch's and pyptx's calls on the same memory."""

from collections.abc import Callable
from typing import Any

import numpy as np
import trueno
from trueno.discovery import registry
from trueno.dispatch.call import request

from benchmarks.compare import Record
from benchmarks.inputs import values
from benchmarks.peers import pyptx
from benchmarks.rows import Cell, Plan
from benchmarks.timing import Thunk

NAME = "cuda"
ROUNDS, CALLS = 7, 5


def cell(group: str, name: str, shape: str, measure: Callable[[], Record]) -> Cell:
    """A cell of one record, which is empty where there is no GPU."""

    def measured() -> list[Record]:
        if not trueno.backends()[NAME].available:
            return [Record(group, name, shape)]
        record = measure()
        record.group, record.name, record.shape = group, name, shape
        return [record]

    return Cell(group, name, shape, measured)


def nmse(got: Any, exact: Any) -> float:
    """The mean square of the error, relative to that of what is exact."""
    return float(((got - exact) ** 2).sum() / (exact.astype(np.float64) ** 2).sum())


def seconds(calls: dict[str, Thunk], plan: Plan, times: int = CALLS) -> dict[str, float]:
    """Of one call of each, on the GPU: the best of rounds in which they take turns."""
    from cupy.cuda import Event, get_current_stream, get_elapsed_time

    best = dict.fromkeys(calls, float("inf"))
    for call in calls.values():
        call()
    for _ in range(3 if plan.quick else ROUNDS):
        for name, call in calls.items():
            start, end = Event(), Event()
            start.record()
            for _ in range(times):
                call()
            end.record()
            get_current_stream().synchronize()
            end.synchronize()
            best[name] = min(best[name], get_elapsed_time(start, end) * 1e-3 / times)
    return best


def there(shape: tuple[int, ...], seed: int = 0) -> Any:
    """Numbers on the GPU; large arrays repeat a part, as it is the kernels that are measured and not the link."""
    part = values(("uniform", -1.0, 1.0), (min(int(np.prod(shape)), 1 << 24),), seed)
    whole = np.resize(part, shape)
    return trueno.to(whole, NAME)


def bare(op: Any, operands: tuple[Any, ...], out: Any = None, **given: Any) -> Thunk:
    """The kernel alone, writing into the same result: Python's part is another row's."""
    backend: Any = registry.load(NAME)
    out = op(*operands, **given) if out is None else out
    kernel = backend.kernel(request(op.op, operands, {p.name: given.get(p.name, p.default) for p in op.op.params}))
    floats = [float(given.get(p.name, p.default)) for p in op.op.params if p.symbolic]
    return lambda: kernel(*operands, *floats, out)


def copied(nbytes: int) -> Thunk:
    """A copy that moves so many bytes, read and written together."""
    backend: Any = registry.load(NAME)
    a, b = (backend.empty((nbytes // 2,), np.dtype(np.uint8)) for _ in range(2))
    return lambda: backend.copy(a, b)


def by_torch(name: str, operands: tuple[Any, ...]) -> dict[str, Thunk]:
    """PyTorch's call on the same memory."""
    try:
        import torch
        import torch.nn.functional as F
    except ImportError:
        return {}
    torch.backends.cuda.matmul.allow_tf32 = False
    x, *rest = (torch.from_dlpack(a) for a in operands)
    out = torch.empty_like(x)
    calls: dict[str, Thunk] = {
        "add": lambda: torch.add(x, rest[0], out=out),
        "relu": lambda: torch.clamp_min(x, 0, out=out),
        "gelu": lambda: torch.ops.aten.gelu.out(x, approximate="none", out=out),
        "softmax": lambda: torch.softmax(x, -1),
        "layer_norm": lambda: F.layer_norm(x, x.shape[-1:], *rest),
        "rms_norm": lambda: F.rms_norm(x, x.shape[-1:], *rest),
        "sum": lambda: torch.sum(x, -1),
        "argmax": lambda: torch.argmax(x, -1),
        "matmul": lambda: torch.matmul(x, rest[0], out=out),
    }
    return {"torch": calls[name]}


def by_pyptx(way: Callable[..., Thunk | None], *operands: Any) -> dict[str, Thunk]:
    """pyptx's call on the same memory, where it is installed."""
    try:
        import torch
    except ImportError:
        return {}
    call = way(*(x if isinstance(x, torch.Tensor) else torch.from_dlpack(x) for x in operands))
    return {} if call is None else {pyptx.NAME: call}
