"""The example engine on one GPU: tokens a second of random models in Qwen2.5's shapes, Q4_K_M, greedy tokens.

A decode step is recorded, draws its tokens and feeds them to itself; the host reads them behind.  A figure is the best
of some turns of `TOKENS` tokens each, after `context` tokens, for all sequences together.  Prefill computes a prompt
and its last logits.  The cache is in float16, activations have 8 bits in decoding, and bfloat16 in prompts.

llama.cpp's figures (`THEIRS`) were measured on an H200 on 2026-11-22: llama-cpp-python 0.3.36 with CUDA graphs, the
better one with and without flash attention, synthetic files of the same shapes.  It does not run here.
"""

import subprocess
import sys
from collections import deque
from collections.abc import Iterator
from functools import cache, partial
from pathlib import Path
from statistics import median
from tempfile import gettempdir
from time import perf_counter
from typing import Any

import numpy as np
from trueno.discovery import registry

from benchmarks.compare import Record
from benchmarks.rows import Cell, Plan
from benchmarks.rows.cuda_calls import NAME, cell, nmse
from benchmarks.timing import OURS
from examples.qwen2.checkpoint import Checkpoint
from examples.qwen2.model import Model, Sampling
from examples.qwen2.synthesize import synthesize

GROUP = "engine_cuda"
TOKENS, TURNS, LLAMA = 128, 3, "llama.cpp, measured 2026-11-22"
DECODE, PREFILL = "decode", "prefill"
SPEEDS: dict[tuple[str, str, int, int], tuple[float, float]] = {  # shape, what, tokens, sequences: target, llama.cpp's
    ("7b", DECODE, 512, 1): (580, 277), ("7b", DECODE, 4096, 1): (540, 261), ("7b", DECODE, 512, 2): (1100, 490),
    ("7b", DECODE, 512, 4): (1900, 725), ("7b", DECODE, 512, 8): (3000, 971), ("7b", DECODE, 512, 16): (5000, 2112),
    ("7b", DECODE, 512, 32): (8000, 3261), ("7b", PREFILL, 512, 1): (28000, 9995),
    ("7b", PREFILL, 2048, 1): (36000, 10266), ("7b", PREFILL, 4096, 1): (36000, 0),
    ("1.5b", DECODE, 512, 1): (1200, 556), ("1.5b", DECODE, 512, 8): (6500, 2259),
    ("1.5b", PREFILL, 2048, 1): (90000, 30435),
}  # fmt: skip
TOGETHER, HOST, GAP, LOAD = "prefill against its tokens one by one", "host's part of a token", "gap between tokens", (
    "load to first token in a child process, kernels and file cached")  # fmt: skip
TOGETHER_TIMES, HOST_S, GAP_S, LOAD_S = 8.2, 15e-6, 5e-6, 3.0
LOGITS, ERROR, COMPARED = "error of logits, {} activations", "nmse", 24
FLOATS, EIGHT_BITS = LOGITS.format("float"), LOGITS.format("8-bit")
ERRORS = {(FLOATS, "small"): 1e-6, (EIGHT_BITS, "small"): 3e-4, (EIGHT_BITS, "7b"): 3e-4}
"""NMSE of the logits of `COMPARED` tokens, at most: "small" against float64, 7B against float activations."""
FIRST = """
import sys
from time import perf_counter
from examples.qwen2.checkpoint import Checkpoint
from examples.qwen2.model import Model, Sampling
from examples.qwen2.text import continuations
start = perf_counter()
model = Model(Checkpoint(sys.argv[1]), sys.argv[2])
loaded = perf_counter()
next(continuations(model, list(range(16)), 2, Sampling(), 0))
print(loaded - start, perf_counter() - start)
"""


def title(what: str, tokens: int, sequences: int) -> str:
    if what == PREFILL:
        return f"prefill of {tokens}"
    return f"decode after {tokens}" + (f", {sequences} sequences" if sequences > 1 else "")


def cells(plan: Plan) -> Iterator[Cell]:
    for (shape, what, tokens, sequences), (_, theirs) in SPEEDS.items():
        if not plan.quick or shape != "7b":
            measure = partial(_speed, shape, what, tokens, sequences, theirs)
            yield cell(GROUP, title(what, tokens, sequences), shape, measure)
    for name, shape in ERRORS:
        if not plan.quick or shape != "7b":
            yield cell(GROUP, name, shape, partial(_error, name, shape))
    shape = "1.5b" if plan.quick else "7b"
    for name, measure in ((TOGETHER, _together), (HOST, _host), (GAP, _gap), (LOAD, _load)):
        yield cell(GROUP, name, shape, partial(measure, shape))


def _file(shape: str) -> Path:
    """In the folder for temporary files, where later runs find it."""
    path = Path(gettempdir()) / f"trueno-benchmark-{shape}.gguf"
    if not path.exists():
        synthesize(str(path), shape)
    return path


@cache
def _model(shape: str) -> Model:
    return Model(Checkpoint(str(_file(shape))), NAME)


def _tokens(model: Model, count: int) -> Any:
    return np.random.default_rng(0).integers(model.config.vocabulary, size=count)


def _caches(model: Model, context: int, sequences: int) -> list[Any]:
    """Forks of one sequence with so many tokens, and room for those of a turn."""
    before = model.cache(context + TOKENS + 8, sequences)
    model.prefill(_tokens(model, context), before)
    return [before, *(before.fork() for _ in range(sequences - 1))]


def _turn(model: Model, caches: list[Any], context: int, tokens: int = TOKENS) -> float:
    """Seconds of a token, of each sequence."""
    first, numbers = _tokens(model, len(caches)).tolist(), np.zeros((tokens, len(caches)))
    _wait()
    start = perf_counter()
    for _ in model.draws(first, caches, Sampling(), numbers):
        pass
    seconds = perf_counter() - start
    for one in caches:
        one.length = context
    return seconds / tokens


def _wait() -> None:
    registry.load(NAME).synchronize()


@cache
def _decoded(shape: str, context: int, sequences: int) -> float:
    model = _model(shape)
    caches = _caches(model, context, sequences)
    _turn(model, caches, context, 8)
    seconds = min(_turn(model, caches, context) for _ in range(TURNS))
    if not np.isfinite(model.decode(_tokens(model, sequences), caches)).all():
        raise ArithmeticError("its logits are not finite")
    return seconds


@cache
def _prompted(shape: str, tokens: int) -> float:
    model, found = _model(shape), []
    prompt, kept = _tokens(model, tokens), model.cache(tokens)
    for _ in range(2 * TURNS):  # the first ones choose kernels, and fill the places that calls remember
        kept.length = 0
        _wait()
        start = perf_counter()
        model.prefill(prompt, kept)
        found.append(perf_counter() - start)
    return min(found)


def _speed(shape: str, what: str, tokens: int, sequences: int, theirs: float) -> Record:
    """Tokens a second, beside llama.cpp's on the same kind of GPU."""
    seconds = _prompted(shape, tokens) / tokens if what == PREFILL else _decoded(shape, tokens, sequences) / sequences
    found = {OURS: seconds} | ({LLAMA: 1 / theirs} if theirs else {})
    return Record(GROUP, "", "", "tok/s", 1 / seconds, LLAMA if theirs else "", seconds=found)


def _together(shape: str) -> Record:
    together, apart = _prompted(shape, 512), 512 * _decoded(shape, 512, 1)
    return Record(GROUP, "", "", "×", apart / together, "one by one", seconds={OURS: together, "one by one": apart})


def _ready(shape: str) -> tuple[Model, list[Any]]:
    """A model whose step has been recorded for one sequence."""
    model = _model(shape)
    caches = _caches(model, 512, 1)
    _turn(model, caches, 512, 8)
    return model, caches


def _host(shape: str) -> Record:
    """The median of what the host does for a token while the GPU has work: places, launch, and beginning to read."""
    model, (one,) = _ready(shape)
    step: Any = model.step
    behind, spent = deque[Any](), []
    for _ in range(TOKENS):
        start = perf_counter()
        step.places.run([one.number], wait=False)
        behind.append(step.batch.fetch(step.drawn))
        spent.append(perf_counter() - start)
        if len(behind) > 2:
            behind.popleft()()
    return Record(GROUP, "", "", "s", median(spent), seconds={OURS: median(spent)})


def _gap(shape: str) -> Record:
    """A token's time beyond that of bare replays, one after the other: uploads, reads, and waiting for the host.

    From a turn's first token to its last, so that what begins a turn is not shared out among its tokens.
    """
    model, caches = _ready(shape)
    recording: Any = model.step.batch._replay._recorded  # type: ignore[union-attr]
    found = []
    for _ in range(TURNS):
        _wait()
        start = perf_counter()
        for _ in range(TOKENS):
            recording.replay()
        _wait()
        alone = (perf_counter() - start) / TOKENS
        found.append(_steady(model, caches) - alone)
    return Record(GROUP, "", "", "s", median(found), seconds={OURS: median(found)})


def _steady(model: Model, caches: list[Any]) -> float:
    """Seconds from one token to the next, while a turn runs."""
    tokens = model.draws(_tokens(model, 1).tolist(), caches, Sampling(), np.zeros((TOKENS, 1)))
    next(tokens)
    start = perf_counter()
    for _ in tokens:
        pass
    seconds = perf_counter() - start
    caches[0].length = 512
    return seconds / (TOKENS - 1)


def _error(name: str, shape: str) -> Record:
    """Of random tokens, one after the other; of floats with a cache of floats."""
    path = _file(shape)
    if shape == "7b":
        model, exact = _model(shape), Model(Checkpoint(str(path)), NAME, "f32")
        tokens = _tokens(model, COMPARED).tolist()
        wanted = _logits(exact, tokens)
    else:
        from tests.unit.qwen2.oracle import logits  # a forward pass in float64

        given = {"activations": "f32", "cache": "float32"} if name == FLOATS else {}
        model = Model(Checkpoint(str(path)), NAME, **given)
        tokens = _tokens(model, COMPARED).tolist()
        wanted = logits(path, tokens)
    value = nmse(_logits(model, tokens), wanted)
    return Record(GROUP, "", "", ERROR, value, problem="" if np.isfinite(value) else "its logits are not finite")


def _logits(model: Model, tokens: list[int]) -> Any:
    """[tokens, vocabulary] in decode steps."""
    one = model.cache(len(tokens) + 1)
    rows = [model.decode([token], [one])[0] for token in tokens]
    one.release()
    return np.stack(rows)


def _load(shape: str) -> Record:
    """The second process, so that kernels are in the cache on disk, and the file in that of pages."""
    seconds: list[float] = []
    for _ in range(2):
        command = [sys.executable, "-c", FIRST, str(_file(shape)), NAME]
        done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=Path(__file__).parents[2])
        seconds = [float(part) for part in done.stdout.split()]
    loaded, first = seconds
    return Record(GROUP, "", "", "s", first, seconds={OURS: first, "weights alone": loaded})
