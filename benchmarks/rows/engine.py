"""The example engine against llama.cpp on the same file: tokens of random models in the shapes of Qwen2.5, Q4_K_M.

decode: one token after 512, with its logits.  prefill: 512 tokens, and the logits after the last.  llama.cpp runs with
its defaults: weights rearranged when they are loaded, attention by tiles, a cache in float16.

Without a peer: what a recorded step takes beyond its kernels, and how much faster a prompt is than its tokens alone.
"""

from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from tempfile import gettempdir
from time import perf_counter
from typing import Any

import numpy as np

from benchmarks.compare import Record
from benchmarks.floors import peak
from benchmarks.peers import llama
from benchmarks.rows import Cell, Plan
from benchmarks.rows.quant import THREADS, counted
from benchmarks.timing import OURS, Comparison, Thunk, compare, fastest, race
from examples.qwen2.checkpoint import Checkpoint
from examples.qwen2.model import Model, Sampling
from examples.qwen2.synthesize import synthesize

SHAPES, WHAT, TOKENS, STEPS = ("0.5b", "1.5b"), ("decode", "prefill"), 512, 200
LLAMA = "llama.cpp"
BEYOND, BEYOND_S = "a decode step beyond its kernels", 60e-6
WARM = "kernels left out"
PROMPT, TOGETHER = "prefill against its tokens one by one", 8.2
CLOSE = 3e-3  # mean square difference of logits: each quantizes its activations to 8 bits
Array = np.ndarray[Any, Any]


def cells(plan: Plan) -> Iterator[Cell]:
    for shape in SHAPES[:1] if plan.quick else SHAPES:
        for what in WHAT:
            for threads in THREADS:
                yield Cell("engine", what, text(shape, threads), partial(_measured, what, shape, threads, plan))
    for threads in THREADS:
        yield Cell("engine", BEYOND, text("0.5b", threads), partial(_beyond, "0.5b", threads))
        yield Cell("engine", PROMPT, text("0.5b", threads), partial(_together, "0.5b", threads, plan))


def text(shape: str, threads: int) -> str:
    return f"{shape}, {threads} thread{'s' * (threads > 1)}"


@cache
def _model(shape: str) -> tuple[Path, Model]:
    """A file in the folder for temporary files, which later runs find there, and our model of it."""
    path = Path(gettempdir()) / f"trueno-benchmark-{shape}.gguf"
    if not path.exists():
        synthesize(str(path), shape)
    return path, Model(Checkpoint(str(path)))


def _ours(what: str, model: Model, prompt: list[int]) -> Callable[[], Array]:
    """The call that computes all tokens at once, or one token after them."""
    kept = model.cache(2 * TOKENS)
    model.prefill(prompt, kept)

    def token() -> Array:
        kept.length = TOKENS
        return model.decode(prompt[:1], [kept])

    def whole() -> Array:
        kept.length = 0
        return model.prefill(prompt, kept)

    return token if what == "decode" else whole


_alone: dict[tuple[str, str], float] = {}
"""Seconds of llama.cpp on one thread: where two take longer, another process has a CPU, and there is no ratio."""


def _measured(what: str, shape: str, threads: int, plan: Plan) -> list[Record]:
    path, model = _model(shape)
    prompt = np.random.default_rng(0).integers(model.config.vocabulary, size=TOKENS).tolist()
    ours = _ours(what, model, prompt)

    calls: dict[str, Thunk] = {OURS: ours}
    with counted(threads):
        ours()
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


def _beyond(shape: str, threads: int) -> list[Record]:
    """The lower quartile, over drawn tokens, of a step's time less that inside of the sequence of its kernels.

    Between tokens the weights pass through the caches, and what Python needs is fetched again.  Beside it, as `WARM`:
    the same with kernels left out.
    """
    _, model = _model(shape)
    with counted(threads):
        cache, numbers = model.cache(2 * TOKENS), np.zeros((STEPS, 1), np.float32)
        model.prefill([1], cache)
        list(model.draws([1], [cache], Sampling(), numbers[:3]))  # the third runs as all later ones do
        sequence = model.step.batch._replay._recorded  # type: ignore[union-attr]
        kernels, spent = sequence._run, [0.0]

        def timed(first: int, last: int) -> int:
            start = perf_counter()
            at: int = kernels(first, last)
            spent[0] += perf_counter() - start
            return at

        def quartile(run: Callable[[int, int], int]) -> float:
            sequence._run, taken, cache.length = run, [], 1
            tokens, start = model.draws([1], [cache], Sampling(), numbers), perf_counter()
            spent[0] = 0.0
            for _ in tokens:
                now = perf_counter()
                taken.append(now - start - spent[0])
                spent[0], start = 0.0, perf_counter()
            return sorted(taken)[STEPS // 4]

        seconds = {OURS: quartile(timed), WARM: quartile(lambda _, last: last)}
        sequence._run = kernels
    return [Record("engine", BEYOND, text(shape, threads), "s", seconds[OURS], seconds=seconds)]


def _together(shape: str, threads: int, plan: Plan) -> list[Record]:
    """How many times faster 512 tokens are as a prompt than one by one, and what bounds each.

    The bound of a prompt is arithmetic, unless its products run at less than a quarter of the rate of a product of
    float32 matrices: then it is not compute that it waits for.
    """
    path, model = _model(shape)
    prompt = np.random.default_rng(0).integers(model.config.vocabulary, size=TOKENS).tolist()
    with counted(threads):
        calls = {name: _ours(name, model, prompt) for name in WHAT}
        seconds = fastest(race(calls, plan.budget, tuple(calls)))
    c = model.config
    layer = c.width * (2 * c.heads + 2 * c.kv_heads) * c.head + 3 * c.width * c.feed
    rate = 2 * TOKENS * c.layers * layer / seconds["prefill"]
    read = path.stat().st_size / seconds["decode"]
    bound = "flops" if rate > peak(threads) / 4 else ""
    about = f"a prompt multiplies at {rate / 1e9:.0f} Gop/s, where float32's peak is {peak(threads) / 1e9:.0f}; "
    about += f"a token reads {read / 1e9:.1f} GB/s"
    value = TOKENS * seconds["decode"] / seconds["prefill"]
    return [Record("engine", PROMPT, text(shape, threads), "×", value, about, seconds=seconds, limit=bound)]
