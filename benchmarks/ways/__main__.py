"""`python -m benchmarks.ways`: a decode step of a language model on one GPU, its launches issued in three ways.

    python -m benchmarks.ways                                   # Qwen2.5 7B's shape, one sequence after 512 tokens
    python -m benchmarks.ways --shape 1.5b --context 4096 --json figures.json

All ways run the same kernels on the same arrays: the model is random, in the shape of `rows.engine_cuda`, and its step
is recorded once per way.  Attention normally joins shares in clusters, where that is faster; a cluster cannot be part
of a persistent kernel, so the three ways do without, and the step as Trueno ships it stands below them.  Recordings are
replayed in turns, without the host's part of a token, and each keeps its best turn.  Run it on a GPU that does nothing
else, or the persistent kernel may spin until it traps (`fold`).

The exit status is 1 if the logits of the three ways differ in a bit, and where there is no GPU.
"""

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from time import perf_counter
from typing import Any, Final

import numpy as np
import trueno
from trueno.discovery import registry
from trueno.dispatch import state

from benchmarks.rows import engine_cuda
from benchmarks.ways.collect import EARLY, PERSISTENT, PLAIN, Collector, Issued, collecting, without_clusters

SHAPES: Final = ("7b", "1.5b")
SHIPPED: Final = "early, as shipped"
TURNS, REPLAYS, WARM = 5, 40, 3


@dataclass
class Contestant:
    """A step that was recorded in one way.

    step: the model's, which keeps the arrays and kernels of the recording.  seconds: of its best turn, for one replay.
    """

    way: str
    step: Any
    recording: Any
    logits: np.ndarray[Any, Any]
    issued: Issued
    seconds: float = float("inf")


def recorded(collector: Collector, name: str, way: str, model: Any, caches: list[Any], context: int) -> Contestant:
    """Record the model's step again, in one way; RuntimeError if that fails."""
    collector.way, model.step = way, None
    engine_cuda._turn(model, caches, context, 8)  # the second token records
    logits = model.decode(engine_cuda._tokens(model, len(caches)), caches)
    for cache in caches:
        cache.length = context
    recording = model.step.batch._replay._recorded
    if recording is None:
        raise RuntimeError(f"the step was not recorded ({name})") from collector.error
    return Contestant(name, model.step, recording, logits, collector.issued)


def race(contestants: Sequence[Contestant]) -> None:
    """Replay in turns."""
    for _ in range(TURNS):
        for one in contestants:
            for _ in range(WARM):
                one.recording.replay()
            engine_cuda._wait()
            start = perf_counter()
            for _ in range(REPLAYS):
                one.recording.replay()
            engine_cuda._wait()
            one.seconds = min(one.seconds, (perf_counter() - start) / REPLAYS)


def measured(shape: str, context: int) -> tuple[list[Contestant], dict[str, int]]:
    """The contestants, and what the driver made of the largest persistent kernel."""
    device: Any = registry.load(engine_cuda.NAME).device  # type: ignore[attr-defined]
    with collecting(device) as collector:
        model = engine_cuda._model(shape)
        caches = engine_cuda._caches(model, context, 1)
        with without_clusters():
            ways = (PLAIN, EARLY, PERSISTENT)
            contestants = [recorded(collector, way, way, model, caches, context) for way in ways]
        state.forget_plans()  # so that attention is planned again
        contestants.append(recorded(collector, SHIPPED, EARLY, model, caches, context))
        race(contestants)
        figures = [device.figures(kernel) for kernel in collector.kernels.values()]
    return contestants, max(figures, key=lambda f: f["registers"], default={})


def difference(one: Contestant, other: Contestant) -> str:
    """How the logits of two contestants compare, in words."""
    if one.logits.tobytes() == other.logits.tobytes():
        return "the same bits"
    return f"off by {np.abs(one.logits.astype(np.float64) - other.logits).max():.3g} at most"


def lines(contestants: Sequence[Contestant], figures: dict[str, int]) -> list[str]:
    """The table, and what became of the launches in the persistent way."""
    first = contestants[0]
    text = [f"{'way':20} {'launches':>8} {'us a step':>10} {'tokens/s':>9}   logits against {first.way}"]
    text += [
        f"{one.way:20} {one.issued.graph:8} {one.seconds * 1e6:10.1f} {1 / one.seconds:9.1f}   {difference(one, first)}"
        for one in contestants
    ]
    issued = next(one.issued for one in contestants if one.way == PERSISTENT)
    driver = ", ".join(f"{name} {value}" for name, value in figures.items())
    text += ["", f"{issued.folded} of {issued.launches} launches are part of {len(issued.segments)} persistent ones"]
    text += [f"the largest persistent kernel: {driver}"] if driver else []
    text += [f"{count:4} stay: {reason}" for reason, count in issued.stayed.most_common()]
    return text


def kept(contestants: Sequence[Contestant], figures: dict[str, int], about: dict[str, Any]) -> dict[str, Any]:
    """All of it, for a file."""
    rows = [
        {"way": one.way, "launches": one.issued.graph, "seconds": one.seconds, "tokens_per_second": 1 / one.seconds,
         "logits": difference(one, contestants[0]), "segments": one.issued.segments, "stayed": one.issued.stayed}
        for one in contestants
    ]  # fmt: skip
    return about | {"ways": rows, "persistent_kernel": figures}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print the table, keep the figures; 1 if logits of the three ways differ."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ways", description="Three ways to run a decode step.")
    parser.add_argument("--shape", choices=SHAPES, default=SHAPES[0], help="of the model (default 7b)")
    parser.add_argument("--context", type=int, default=512, help="tokens before the step (default 512)")
    parser.add_argument("--json", metavar="FILE", type=Path, help="write the figures here, too")
    args = parser.parse_args(arguments)
    backend = trueno.backends()[engine_cuda.NAME]
    if not backend.available:
        raise SystemExit(f"ways: the ways are those of a CUDA device, and there is none here ({backend.reason})")
    contestants, figures = measured(args.shape, args.context)
    gpu = backend.devices[0].name if backend.devices else engine_cuda.NAME
    print(
        f"{args.shape}, one sequence after {args.context} tokens on {gpu}, best of {TURNS} turns of {REPLAYS} replays"
    )
    print("\n".join(lines(contestants, figures)))
    if args.json:
        about = {"date": date.today().isoformat(), "gpu": gpu, "shape": args.shape, "context": args.context}
        args.json.write_text(json.dumps(kept(contestants, figures, about), indent=2) + "\n", "utf-8")
    compared = [one.logits.tobytes() for one in contestants if one.way != SHIPPED]
    return int(len(set(compared)) != 1)


if __name__ == "__main__":
    raise SystemExit(main())
