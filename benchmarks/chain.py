"""`python -m benchmarks.chain`: time and memory traffic of elementwise chains, drawn for the guide to batches."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import trueno

from benchmarks.charts import BLUE, GUIDES, RED, chart
from benchmarks.rows.batch import BACKEND, CHAIN
from benchmarks.timing import Budget, fastest, race

N = 16_000_000
PATH = GUIDES / "chain-length.svg"
COLOURS = {"single calls": RED, "batch": BLUE}
Points = dict[str, list[float]]


def measure(n: int) -> tuple[Points, Points]:
    """Milliseconds and megabytes of chains of 1 to 8 ops."""
    x = np.random.default_rng(0).random(n, np.float32)
    y, out = x[::-1].copy(), [np.empty_like(x), np.empty_like(x)]
    times: Points = {name: [] for name in COLOURS}
    bytes_: Points = {name: [] for name in COLOURS}
    for length in range(1, len(CHAIN) + 1):
        chain = CHAIN[:length]
        with trueno.use(BACKEND), trueno.Batch() as b:
            h, hy = b.upload(x), b.upload(y)
            for name, more in chain:
                h = getattr(b, name)(h, *(hy if m == "y" else m for m in more))
            b.execute()
            calls = [(getattr(trueno, name), tuple(y if m == "y" else m for m in more)) for name, more in chain]

            def single(calls: Any = calls) -> None:
                value = x
                for i, (function, more) in enumerate(calls):
                    value = function(value, *more, out=out[i % 2])

            best = fastest(race({"single calls": single, "batch": b.execute}, Budget(12, 2.0, 1e-3, 1), tuple(COLOURS)))
        for name, seconds in best.items():
            times[name].append(seconds * 1e3)
        seconds_operands = [more.count("y") for _, more in chain]
        bytes_["single calls"].append((2 * length + sum(seconds_operands)) * x.nbytes / 1e6)
        bytes_["batch"].append((2 + any(seconds_operands)) * x.nbytes / 1e6)
    return times, bytes_


def draw(times: Points, bytes_: Points, path: Path = PATH) -> None:
    """The whole picture: both against the number of ops."""
    facts = "; ".join(
        f"{name}, {what}: {' '.join(f'{value:.3g}' for value in points[name])}"
        for what, points in (("ms", times), ("MB", bytes_))
        for name in COLOURS
    )
    with chart(path, (8.4, 2.9), facts, columns=2) as axes:
        for ax, title, points in zip(
            axes, ("milliseconds", "megabytes read and written"), (times, bytes_), strict=True
        ):
            ax.set(title=title, xlabel="ops in the chain", xticks=range(1, len(CHAIN) + 1))
            for name, values in points.items():
                ax.plot(range(1, len(values) + 1), values, color=COLOURS[name], linewidth=2)
                ax.annotate(name, (len(values), values[-1]), (0, 6), textcoords="offset points", ha="right",
                            color=COLOURS[name])  # fmt: skip
            ax.set_ylim(0, max(map(max, points.values())) * 1.15)


def main() -> None:
    """Measure, say the figures, and draw."""
    times, bytes_ = measure(int(sys.argv[1]) if len(sys.argv) > 1 else N)
    for i in range(len(CHAIN)):
        print(i + 1, *(f"{name}: {times[name][i]:.2f} ms, {bytes_[name][i]:.0f} MB;" for name in COLOURS))
    draw(times, bytes_)


if __name__ == "__main__":
    main()
