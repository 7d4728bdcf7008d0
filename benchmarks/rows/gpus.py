"""Several GPUs of one host: messages between them, and the example engine with its weights shared.

NCCL called directly is the peer of messages on arrays: the same communicator's calls without ours around.  A message
inside a batch is one of many in a recording that is replayed.  The engine's figures are over those of one of these
GPUs, in the same process.
"""

from collections.abc import Callable, Iterator
from functools import cache, partial
from math import inf
from time import perf_counter
from typing import Any

import numpy as np
import trueno
from trueno.discovery import registry

from benchmarks.compare import Record
from benchmarks.rows import Cell, Plan, engine_cuda
from benchmarks.timing import OURS
from examples.qwen2.checkpoint import Checkpoint
from examples.qwen2.model import Model, Sampling
from examples.qwen2.parallel import Parallel

GROUP, NCCL = "gpus", "NCCL called directly"
LARGE, SMALL = 256 << 20, 16 << 10
"""Bytes of a message on arrays, and inside a batch."""
MESSAGES, TURNS = 100, 7
REDUCE, INSIDE = "all_reduce of 256 MiB", "all_reduce of 16 KiB in a batch"
DECODE, PREFILL = "decode after 512", "prefill of 2048"
CONTEXT, PROMPT, TOKENS = 512, 2048, 64


def names() -> list[str]:
    """The GPUs that are used: two or four."""
    found = trueno.backends().get("cuda")
    count = len(found.devices) if found is not None and found.available else 0
    return [f"cuda:{i}" for i in range(4 if count >= 4 else 2 if count >= 2 else 0)]


def cells(plan: Plan) -> Iterator[Cell]:
    shape = "1.5b" if plan.quick else "7b"
    measures: dict[tuple[str, str], Callable[[], Record]] = {
        (REDUCE, ""): _reduce,
        (INSIDE, ""): _inside,
        (DECODE, shape): partial(_engine, shape, _decoded),
        (PREFILL, shape): partial(_engine, shape, _prefilled),
    }
    for (name, model), measure in measures.items():
        where = f"{model} on {len(names()) or 'several'} GPUs".strip()

        def measured(name: str = name, where: str = where, measure: Callable[[], Record] = measure) -> list[Record]:
            if not names():
                return [Record(GROUP, name, where)]
            record = measure()
            record.group, record.name, record.shape = GROUP, name, where
            return [record]

        yield Cell(GROUP, name, where, measured)


@cache
def _communicator() -> Any:
    from trueno_cuda.nccl import Communicator

    return Communicator(*names())


def _wait() -> None:
    for name in names():
        registry.load(registry.named(name)).synchronize()


def _best(runs: dict[str, Callable[[], Any]], turns: int = TURNS) -> dict[str, float]:
    """The least seconds of each, in turns."""
    best = dict.fromkeys(runs, inf)
    for run in runs.values():
        run()
    _wait()
    for _ in range(turns):
        for who, run in runs.items():
            start = perf_counter()
            run()
            _wait()
            best[who] = min(best[who], perf_counter() - start)
    return best


def _reduce() -> Record:
    links = _communicator()
    parts = [np.full(LARGE // 4, i + 1, np.float32) for i in range(len(links))]
    arrays = [trueno.to(x, name) for x, name in zip(parts, links.devices, strict=True)]
    (first, *_) = links.all_reduce(arrays)
    problem = "" if trueno.numpy(first)[::997].tolist() == [sum(range(1, len(links) + 1))] * len(parts[0][::997]) else (
        "the sum is wrong")  # fmt: skip
    results = [trueno.to(x, name) for x, name in zip(parts, links.devices, strict=True)]
    ours = [trueno.to(x, name) for x, name in zip(parts, links.devices, strict=True)]
    best = _best({OURS: lambda: links.all_reduce(arrays, out=ours), NCCL: lambda: _directly(links, arrays, results)})
    nbytes = 2 * (len(links) - 1) / len(links) * LARGE
    return Record("", "", "", "bytes", nbytes / best[OURS], NCCL, [best[NCCL] / best[OURS]], best, problem=problem)


def _directly(links: Any, arrays: Any, results: Any) -> None:
    """CuPy's NCCL, with the communicators that `links` has."""
    from cupy.cuda import nccl  # type: ignore[import-not-found]

    own = links._links
    nccl.groupStart()
    for gpu, one, x, y in zip(own.gpus, own._communicators, arrays, results, strict=True):
        one.allReduce(x.data.ptr, y.data.ptr, x.size, 7, 0, gpu.stream())
    nccl.groupEnd()


def _inside() -> Record:
    links = _communicator()
    batches = [trueno.Batch(name) for name in links.devices]
    handles = [b.upload(np.ones(SMALL // 4, np.float32)) for b in batches]
    for _ in range(MESSAGES):
        handles = links.all_reduce(handles)

    def run() -> None:
        for batch in batches:
            batch.execute(wait=False)

    links.execute(batches)  # kernels are loaded
    best = _best({OURS: run}, 3 * TURNS)
    wanted, got = float(len(links)) ** MESSAGES, batches[-1].read(handles[-1])[0]
    problem = "" if got == np.float32(min(wanted, np.inf)) else f"the sum is {got}"
    return Record("", "", "", "s", best[OURS] / MESSAGES, seconds=best, problem=problem)


@cache
def _models(shape: str) -> dict[str, Any]:
    path = str(engine_cuda._file(shape))
    return {"one": Model(Checkpoint(path), names()[0]), OURS: Parallel(Checkpoint(path), names())}


def _engine(shape: str, measure: Callable[[Any], tuple[float, Any]]) -> Record:
    measured = {who: measure(model) for who, model in _models(shape).items()}
    seconds = {who: each[0] for who, each in measured.items()}
    one, ours = (measured[who][1] for who in ("one", OURS))
    error = float(((ours - one) ** 2).mean() / (one**2).mean())
    problem = "" if error < 1e-2 else f"the logits differ from one GPU's by an NMSE of {error:.1e}"  # NaN is not below
    ratio = seconds["one"] / seconds[OURS]
    return Record("", "", "", value=ratio, peer=f"one GPU, NMSE {error:.0e}", ratios=[ratio], seconds=seconds,
                  problem=problem)  # fmt: skip


def _decoded(model: Any) -> tuple[float, Any]:
    """Seconds of a token, and the logits after the first."""
    cache = model.cache(CONTEXT + TOKENS + 8)
    tokens = np.random.default_rng(0).integers(model.config.vocabulary, size=CONTEXT)
    model.prefill(tokens, cache)
    logits = model.decode([1], [cache])
    best = inf
    for _ in range(1 + TURNS):
        cache.length = CONTEXT
        start = perf_counter()
        for _ in model.draws([1], [cache], Sampling(), np.zeros((TOKENS, 1))):
            pass
        best = min(best, (perf_counter() - start) / TOKENS)
    return best, logits


def _prefilled(model: Any) -> tuple[float, Any]:
    """Seconds of a prompt, and its last logits."""
    tokens = np.random.default_rng(0).integers(model.config.vocabulary, size=PROMPT)
    before, best = model.cache(PROMPT, 2), inf
    for _ in range(1 + TURNS):
        cache = before.fork()
        start = perf_counter()
        logits = model.prefill(tokens, cache)
        best = min(best, perf_counter() - start)
        cache.release()
    return best, logits
