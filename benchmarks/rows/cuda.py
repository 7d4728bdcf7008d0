"""CUDA on one GPU: kernels against a copy of the same bytes, products against cuBLAS, and what a launch costs the host.

Seconds of kernels lie between two events of the GPU around several calls; so do those of the copy, which takes turns.
A figure for memory is the share of that copy's bandwidth; cuBLAS and PyTorch are called through PyTorch, TF32 off.
pyptx takes part where it is installed (`benchmarks.peers.pyptx`).
"""

from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import module_from_spec, spec_from_file_location
from math import erf, sqrt
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import trueno
from trueno.discovery import registry

from benchmarks.compare import Record
from benchmarks.inputs import values
from benchmarks.peers import pyptx
from benchmarks.rows import Cell, Plan, text
from benchmarks.rows.cuda_calls import NAME, ROUNDS, bare, by_pyptx, by_torch, copied, seconds, there
from benchmarks.timing import OURS, Thunk

Array = np.ndarray[Any, Any]
LENGTH, ALL, FEW = 1 << 28, 1 << 30, 1 << 10
"""Elements of the elementwise rows, of whole reductions, and of what only the host's part is measured with."""
ROWS = ((4096, 4096), (8192, 8192), (32768, 8192))
VOCABULARIES = ((1000, 50257), (8192, 151936))
"""Shapes of logits: long rows, and those of the first shape begin at any element."""
SIDES = (4096, 8192)
SMALL = ((16, 4096, 4096), (128, 4096, 4096), (333, 777, 555))
"""Products that fill no GPU: rows of a, elements of a row, columns of b."""
CLOSE, ROUNDED = 1e-4, 2.0**-8
"""Of the largest value; of a result that is rounded to bfloat16."""
LAUNCHES = 100
PLANNED, CALLED, REPLAYED = "launch through plan", "launch through the op", "a kernel of a replayed batch"
BURST = 256
"""Launches before the host waits: fewer than the driver's queue holds, or the host would be timed waiting for it."""
CHAIN, FEW_ROWS = "relu scale add", "small matmul bfloat16, our PTX"
TUTORIAL, EXAMPLE = "the tutorial's fused kernel", Path(__file__).parents[2] / "examples" / "07_a_kernel.py"


def _normalized(x: Array, eps: float) -> Array:
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + eps)


def _softmax(x: Array) -> Array:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


MEANING: dict[str, Callable[..., Array]] = {
    "relu": lambda x: np.maximum(x, 0),
    "gelu": lambda x: 0.5 * x * (1 + np.vectorize(erf)(x / sqrt(2))),
    "softmax": _softmax,
    "layer_norm": lambda x, w, b: _normalized(x - x.mean(-1, keepdims=True), 1e-5) * w + b,
    "rms_norm": lambda x, w: _normalized(x, 1e-6) * w,
}
"""In float64."""


def cells(plan: Plan) -> Iterator[Cell]:
    most = 1 << 20 if plan.quick else LENGTH
    for name in ("add", "relu", "gelu", CHAIN):
        yield _cell(name, (most,), partial(_elements, name), plan)
    for shape in ((64, 4096),) if plan.quick else ROWS:
        for name in ("softmax", "layer_norm", "rms_norm"):
            yield _cell(name, shape, partial(_rows, name), plan)
    for shape in () if plan.quick else VOCABULARIES:
        for name in ("softmax", "rms_norm"):
            yield _cell(name, shape, partial(_rows, name), plan)
    yield _cell(TUTORIAL, (64, 1024) if plan.quick else (32768, 4096), _tutorial, plan)
    for name in ("sum", "argmax"):
        yield _cell(name, (1 << 20 if plan.quick else ALL,), partial(_read, name), plan)
    yield _cell("argmax", (64, 4096) if plan.quick else ROWS[1], partial(_read, "argmax"), plan)
    for side in (256,) if plan.quick else SIDES:
        yield _cell("matmul", (side, side), _product, plan)
        yield _cell("matmul, our PTX", (side, side), _ours_alone, plan)
        yield _cell("matmul bfloat16, our PTX", (side, side), _halves, plan)
    for shape in () if plan.quick else SMALL:
        yield _cell(FEW_ROWS, shape, _small, plan)
    for name in ("gelu", "softmax"):
        yield _cell(f"{name} bfloat16", (64, 4096) if plan.quick else ROWS[1], partial(_narrow, name), plan)
    for name in (PLANNED, CALLED, REPLAYED):
        yield _cell(name, (FEW,), partial(_host, name), plan)


def _cell(name: str, shape: tuple[int, ...], measure: Callable[[tuple[int, ...], Plan], Record], plan: Plan) -> Cell:
    def measured() -> list[Record]:
        if not trueno.backends()[NAME].available:
            return [Record(NAME, name, text(shape), family=NAME)]
        record = measure(shape, plan)
        record.name = name
        return [record]

    return Cell(NAME, name, text(shape), measured)


def _checked(got: Any, wanted: Array, close: float = CLOSE) -> str:
    actual = trueno.numpy(got)[: len(wanted)].astype(np.float64)
    return "" if np.abs(actual - wanted).max() <= close * np.abs(wanted).max() else "its result is wrong"


def _share(found: dict[str, float], shape: tuple[int, ...], peer: str, problem: str = "") -> Record:
    """How much of the peer's speed ours has."""
    ratio = found[peer] / found[OURS]
    return Record(NAME, "", text(shape), "×", ratio, peer, [ratio], found, NAME, problem)


# ---- memory


def _elements(name: str, shape: tuple[int, ...], plan: Plan) -> Record:
    x, y = there(shape), there(shape, 1)
    arrays = {"add": 3, "relu": 2, "gelu": 2, CHAIN: 3}[name]
    hx, hy = (trueno.numpy(a)[:4096].astype(np.float64) for a in (x, y))
    if name == CHAIN:
        with trueno.Batch(NAME) as b:
            h = b.add(b.scale(b.relu(b.upload(x)), 2.0), b.upload(y))
            b.execute()
            problem = _checked(b.read(h), np.maximum(hx, 0) * 2 + hy)
            kernel, args = b._replay._calls[0]
            timings = seconds({OURS: lambda: kernel(*args), "copy": copied(arrays * x.nbytes)}, plan)
        return _share(timings, shape, "copy", problem)
    op = getattr(trueno, name)
    operands = (x, y) if name == "add" else (x,)
    keywords = {"approximate": "none"} if name == "gelu" else {}
    run = bare(op, operands, **keywords)
    wanted = hx + hy if name == "add" else MEANING[name](hx)
    timings = seconds({OURS: run, "copy": copied(arrays * x.nbytes), **by_torch(name, operands)}, plan)
    return _share(timings, shape, "copy", _checked(op(*operands, **keywords), wanted))


def _rows(name: str, shape: tuple[int, ...], plan: Plan) -> Record:
    x, op = there(shape), getattr(trueno, name)
    weights = [there(shape[1:], 2 + i) for i in range(len(op.op.operands) - 1)]
    calls = {OURS: bare(op, (x, *weights)), "copy": copied(2 * x.nbytes), **by_torch(name, (x, *weights))}
    if name == "rms_norm":
        calls |= by_pyptx(pyptx.rms_norm, x, *weights)
    timings = seconds(calls, plan)
    few = [trueno.numpy(a).astype(np.float64) for a in weights]
    wanted = MEANING[name](trueno.numpy(x)[:8].astype(np.float64), *few)
    return _share(timings, shape, "copy", _checked(op(x, *weights), wanted))


def _tutorial(shape: tuple[int, ...], plan: Plan) -> Record:
    """h = x + r and its rms norm, as the page "Write a kernel" ends."""
    from trueno_cuda import prepared

    spec = spec_from_file_location("a_kernel", EXAMPLE)
    assert spec is not None and spec.loader is not None
    example = module_from_spec(spec)
    spec.loader.exec_module(example)
    x, r, w = there(shape), there(shape, 1), there(shape[1:], 2)
    h, y = there(shape), there(shape)
    launch = prepared(example.add_norm.build(N=shape[1]), shape[0])
    timings = seconds({OURS: lambda: launch(x, r, w, h, y, 1e-6), "copy": copied(4 * x.nbytes)}, plan)
    total = trueno.numpy(x)[:8].astype(np.float64) + trueno.numpy(r)[:8]
    problem = _checked(h, total) or _checked(y, _normalized(total, 1e-6) * trueno.numpy(w))
    return _share(timings, shape, "copy", problem)


def _read(name: str, shape: tuple[int, ...], plan: Plan) -> Record:
    """Against a copy: reading alone may take half its time."""
    x, op = there(shape), getattr(trueno, name)
    timings = seconds({OURS: bare(op, (x,)), "copy": copied(x.nbytes), **by_torch(name, (x,))}, plan)
    host = trueno.numpy(x)
    exact = host.astype(np.float64).sum(-1) if name == "sum" else host.argmax(-1)
    got = trueno.numpy(op(x))
    near = np.abs(got - exact).max() <= CLOSE * max(np.abs(exact).max(), 1e3) if name == "sum" else (got == exact).all()
    return _share(timings, shape, "copy", "" if near else "its result is wrong")


# ---- products


def _product(shape: tuple[int, ...], plan: Plan) -> Record:
    """Whatever the backend chooses."""
    return _multiplied(shape, plan, lambda a, b: bare(trueno.matmul, (a, b)))


def _ours_alone(shape: tuple[int, ...], plan: Plan) -> Record:
    from trueno_cuda.kernels.gemm import matmul

    device: Any = registry.load(NAME).device
    return _multiplied(shape, plan, lambda a, b: matmul.launch(device, a, b, device.empty(shape, a.dtype)))


def _multiplied(shape: tuple[int, ...], plan: Plan, make: Callable[[Any, Any], Thunk]) -> Record:
    a, b = there(shape), there(shape, 1)
    run = make(a, b)
    timings = seconds({OURS: run, **by_torch("matmul", (a, b))}, plan, 3)
    host = trueno.numpy(a)[:64].astype(np.float64) @ trueno.numpy(b).astype(np.float64)
    problem = _checked(trueno.matmul(a, b), host)
    return _share(timings, shape, "torch", problem)


def _halves(shape: tuple[int, ...], plan: Plan) -> Record:
    """bfloat16 of bfloat16 by the op, which never asks cuBLAS for it."""
    import torch

    a, b, c, host, theirs, out = _narrow_operands(*shape, shape[1])
    calls = {OURS: lambda: trueno.matmul(a, b, out=c), "torch": lambda: torch.matmul(*theirs, out=out)}
    if shape[0] % 256 == 0:
        calls |= by_pyptx(pyptx.matmul, *theirs)  # by the second one's rows, which costs the same
    timings = seconds(calls, plan, 3)
    wanted = host[0][:64].astype(np.float64) @ host[1].astype(np.float64)
    return _share(timings, shape, "torch", _checked(c, wanted, ROUNDED))


def _small(shape: tuple[int, ...], plan: Plan) -> Record:
    """Both replayed as graphs of many, as the host takes longer for one than the GPU does."""
    import torch

    a, b, c, host, theirs, out = _narrow_operands(*shape)
    device: Any = registry.load(NAME).device
    run, graph = bare(trueno.matmul, (a, b), c), torch.cuda.CUDAGraph()
    run()
    device.write(np.full(c.shape, np.nan, c.dtype), c)
    torch.matmul(*theirs, out=out)
    with device.recording() as recording:
        for _ in range(LAUNCHES):
            run()
    with torch.cuda.graph(graph):
        for _ in range(LAUNCHES):
            torch.matmul(*theirs, out=out)
    timings = seconds({OURS: recording.replay, "torch": graph.replay}, plan, 3)
    timings = {name: each / LAUNCHES for name, each in timings.items()}
    wanted = host[0].astype(np.float64) @ host[1].astype(np.float64)
    return _share(timings, shape, "torch", _checked(c, wanted, ROUNDED))


def _narrow_operands(m: int, k: int, n: int) -> tuple[Any, Any, Any, list[Array], list[Any], Any]:
    """a [m, k], b [k, n] and c on the GPU, the same on the host, and PyTorch's, all in bfloat16."""
    import torch
    from ml_dtypes import bfloat16

    device: Any = registry.load(NAME).device
    host = [values(("uniform", -1.0, 1.0), size, i).astype(bfloat16) for i, size in enumerate(((m, k), (k, n)))]
    a, b = map(device.to_device, host)
    theirs = [torch.from_numpy(x.view(np.int16)).cuda().view(torch.bfloat16) for x in host]
    out = torch.empty((m, n), dtype=torch.bfloat16, device="cuda")
    return a, b, device.empty((m, n), a.dtype), host, theirs, out


def _narrow(name: str, shape: tuple[int, ...], plan: Plan) -> Record:
    """An op on bfloat16 against a copy of the same bytes."""
    from ml_dtypes import bfloat16

    device: Any = registry.load(NAME).device
    host = np.resize(values(("uniform", -1.0, 1.0), (1 << 20,), 0).astype(bfloat16), shape)
    x, op, keywords = device.to_device(host), getattr(trueno, name), {"approximate": "none"} if name == "gelu" else {}
    out = op(x, **keywords)
    calls: dict[str, Thunk] = {OURS: lambda: op(x, out=out, **keywords), "copy": copied(2 * x.nbytes)}
    timings = seconds(calls | _torch_narrow(name, host), plan)
    return _share(timings, shape, "copy", _checked(out, MEANING[name](host[:8].astype(np.float64)), ROUNDED))


def _torch_narrow(name: str, host: Array) -> dict[str, Thunk]:
    try:
        import torch
    except ImportError:
        return {}
    x = torch.from_numpy(host.view(np.int16)).cuda().view(torch.bfloat16)
    calls: dict[str, Thunk] = {"gelu": lambda: torch.nn.functional.gelu(x), "softmax": lambda: torch.softmax(x, -1)}
    return {"torch": calls[name]}


# ---- the host's part


def _host(name: str, shape: tuple[int, ...], plan: Plan) -> Record:
    """Seconds of one call, of many that are waited for once; the GPU is done with each before the next."""
    x, y = there(shape), there(shape, 1)
    out = trueno.add(x, y)
    backend: Any = registry.load(NAME)
    if name == REPLAYED:
        return _replayed(x, shape, plan)
    calls = {OURS: bare(trueno.add, (x, y)) if name == PLANNED else lambda: trueno.add(x, y, out=out)}
    if name == CALLED:
        calls |= by_torch("add", (x, y))
        calls |= by_pyptx(pyptx.rms_norm, there((4, 256)), there((256,)))
    best = dict.fromkeys(calls, float("inf"))
    for call in calls.values():
        call()
    for _ in range(3 * ROUNDS):
        for title, call in calls.items():
            backend.synchronize()
            start = perf_counter()
            for _ in range(BURST):
                call()
            best[title] = min(best[title], (perf_counter() - start) / BURST)
            backend.synchronize()
    problem = "" if np.array_equal(trueno.numpy(out), trueno.numpy(x) + trueno.numpy(y)) else "its result is wrong"
    return Record(NAME, name, text(shape), "s", best[OURS], seconds=best, family=NAME, problem=problem)


def _replayed(x: Any, shape: tuple[int, ...], plan: Plan) -> Record:
    """Transposes, which do not fuse."""
    side = int(shape[0] ** 0.5)
    with trueno.Batch(NAME) as b:
        h = b.upload(x.reshape((side, side)))
        for _ in range(LAUNCHES):
            h = b.transpose(h)
        for _ in range(3):
            b.execute()
        best = float("inf")
        for _ in range(ROUNDS * 3):
            start = perf_counter()
            b.execute()
            best = min(best, (perf_counter() - start) / LAUNCHES)
        got, recorded = b.read(h), b._replay._recorded is not None
    problem = "" if np.array_equal(got.reshape(-1), trueno.numpy(x)) else "its result is wrong"
    problem = problem or ("" if recorded else "nothing was recorded")
    return Record(NAME, REPLAYED, text(shape), "s", best, seconds={OURS: best}, family=NAME, problem=problem)
