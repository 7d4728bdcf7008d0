"""The example engine against llama.cpp on the same file: tokens of random models in the shapes of Qwen2.5, Q4_K_M.

decode: one token after 512, with its logits.  prefill: 512 tokens, and the logits after the last.  llama.cpp runs with
its defaults: weights rearranged when they are loaded, attention by tiles, a cache in float16.
"""

from collections.abc import Iterator
from functools import cache, partial
from pathlib import Path
from tempfile import gettempdir
from typing import Any

import numpy as np

from benchmarks.compare import Record
from benchmarks.peers import llama
from benchmarks.rows import Cell, Plan
from benchmarks.rows.quant import THREADS, counted
from benchmarks.timing import OURS, Comparison, Thunk, compare
from examples.qwen2.cache import Cache
from examples.qwen2.checkpoint import Checkpoint
from examples.qwen2.model import Model
from examples.qwen2.synthesize import synthesize

SHAPES, WHAT, TOKENS = ("0.5b", "1.5b"), ("decode", "prefill"), 512
LLAMA = "llama.cpp"
CLOSE = 3e-3  # mean square difference of logits: each quantizes its activations to 8 bits
Array = np.ndarray[Any, Any]


def cells(plan: Plan) -> Iterator[Cell]:
    for shape in SHAPES[:1] if plan.quick else SHAPES:
        for what in WHAT:
            for threads in THREADS:
                yield Cell("engine", what, text(shape, threads), partial(_measured, what, shape, threads, plan))


def text(shape: str, threads: int) -> str:
    return f"{shape}, {threads} thread{'s' * (threads > 1)}"


@cache
def _model(shape: str) -> tuple[Path, Model]:
    """A file in the folder for temporary files, which later runs find there, and our model of it."""
    path = Path(gettempdir()) / f"trueno-benchmark-{shape}.gguf"
    if not path.exists():
        synthesize(str(path), shape)
    return path, Model(Checkpoint(str(path)))


_alone: dict[tuple[str, str], float] = {}
"""Seconds of llama.cpp on one thread: where two take longer, another process has a CPU, and there is no ratio."""


def _measured(what: str, shape: str, threads: int, plan: Plan) -> list[Record]:
    path, model = _model(shape)
    prompt = np.random.default_rng(0).integers(model.config.vocabulary, size=TOKENS).tolist()
    kept = Cache(model.config)

    def ours() -> Array:
        start = TOKENS if what == "decode" else 0
        kept.length = start
        return model.prefill(prompt[:1] if start else prompt, kept)

    calls: dict[str, Thunk] = {OURS: ours}
    with counted(threads):
        model.prefill(prompt, kept)
        if llama.library() is None:
            return [_record(what, shape, threads, compare(calls, plan.budget))]
        with llama.Engine(str(path), threads, 2 * TOKENS) as engine:
            engine.feed(prompt, every=False)

            def theirs() -> Array:
                engine.truncate(TOKENS if what == "decode" else 0)
                return engine.feed(prompt[:1] if engine.length else prompt, every=False)

            calls[LLAMA] = theirs
            a, b = ours().astype(np.float64), theirs()
            problem = "" if ((a - b) ** 2).sum() <= CLOSE * (b**2).sum() else "the logits disagree with llama.cpp's"
            comparison = compare(calls, plan.budget)
    seconds = comparison.seconds[LLAMA]
    if threads == 1:
        _alone[what, shape] = seconds
    elif seconds > _alone.get((what, shape), np.inf):
        comparison = Comparison(comparison.seconds)
    return [_record(what, shape, threads, comparison, problem)]


def _record(what: str, shape: str, threads: int, comparison: Comparison, problem: str = "") -> Record:
    value = comparison.ratio if comparison.ratios else None
    return Record("engine", what, text(shape, threads), "×", value, comparison.peer, comparison.ratios,
                  comparison.seconds, "", problem)  # fmt: skip
