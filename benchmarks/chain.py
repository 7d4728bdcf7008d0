"""`python -m benchmarks.chain`: time and memory traffic of elementwise chains, drawn for the guide to batches."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import trueno

from benchmarks.rows.batch import BACKEND, CHAIN
from benchmarks.timing import Budget, fastest, race

N = 16_000_000
PATH = Path(__file__).parents[1] / "docs" / "how-to" / "chain-length.svg"
WIDTH, HEIGHT, LEFT, TOP, GAP = 300, 190, 46, 34, 76
COLOURS = {"single calls": "#c0504d", "batch": "#2e75b6"}
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


def chart(title: str, points: Points, left: int) -> list[str]:
    """One chart: a line a way, against the number of ops."""
    most = max(map(max, points.values())) * 1.05
    bottom = TOP + HEIGHT

    def at(i: int, value: float) -> tuple[float, float]:
        return left + WIDTH * i / (len(CHAIN) - 1), bottom - HEIGHT * value / most

    lines = [f'<text x="{left}" y="{TOP - 14}" font-weight="bold">{title}</text>']
    lines += [f'<path d="M{left} {TOP}V{bottom}H{left + WIDTH}" fill="none" stroke="#888"/>']
    for part in (0.0, 0.5, 1.0):
        y = bottom - HEIGHT * part
        lines.append(f'<text x="{left - 6}" y="{y + 4:.0f}" text-anchor="end">{most * part:.3g}</text>')
    for i in range(len(CHAIN)):
        lines.append(f'<text x="{at(i, 0)[0]:.0f}" y="{bottom + 16}" text-anchor="middle">{i + 1}</text>')
    for name, values in points.items():
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in (at(i, v) for i, v in enumerate(values)))
        lines.append(f'<polyline points="{path}" fill="none" stroke="{COLOURS[name]}" stroke-width="2"/>')
        x, y = at(len(values) - 1, values[-1])
        lines.append(f'<text x="{x:.0f}" y="{y - 7:.0f}" text-anchor="end" fill="{COLOURS[name]}">{name}</text>')
    return lines


def drawing(times: Points, bytes_: Points) -> str:
    """The whole picture."""
    whole = 2 * (LEFT + WIDTH) + GAP
    second = LEFT + WIDTH + GAP
    box = f'viewBox="0 0 {whole} {TOP + HEIGHT + 44}" font-family="sans-serif" font-size="11" role="img"'
    lines = [f'<svg xmlns="http://www.w3.org/2000/svg" {box}>']
    lines += ['<rect width="100%" height="100%" fill="white"/>']
    lines += chart("milliseconds", times, LEFT) + chart("megabytes read and written", bytes_, second)
    for left in (LEFT, second):
        middle, under = left + WIDTH / 2, TOP + HEIGHT + 34
        lines.append(f'<text x="{middle:.0f}" y="{under}" text-anchor="middle">ops in the chain</text>')
    return "\n".join([*lines, "</svg>\n"])


def main() -> None:
    """Measure, say the figures, and draw."""
    times, bytes_ = measure(int(sys.argv[1]) if len(sys.argv) > 1 else N)
    for i in range(len(CHAIN)):
        print(i + 1, *(f"{name}: {times[name][i]:.2f} ms, {bytes_[name][i]:.0f} MB;" for name in COLOURS))
    PATH.write_text(drawing(times, bytes_), "utf-8")


if __name__ == "__main__":
    main()
