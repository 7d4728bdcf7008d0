"""`python -m benchmarks.formats`: what each block format loses of normal numbers, drawn for a guide."""

from math import log10
from pathlib import Path

import numpy as np
import trueno
from trueno.formats import FORMATS, WEIGHTS

ROWS, COLUMNS, SEED = 32, 2048, 0
PATH = Path(__file__).parents[1] / "docs" / "how-to" / "format-error.svg"
WIDTH, HEIGHT, LEFT, TOP, BITS = 640, 380, 58, 30, (2.0, 9.0)
MOST, LEAST = 0.5, 0.003
COLOURS = {32: "#c0504d", 256: "#2e75b6"}
LABELS = {"q4_0": (7, -4), "iq4_nl": (8, 8), "q4_k": (5, 16), "iq4_xs": (-7, 4), "q5_0": (7, -3), "mxfp4": (7, -4)}
"""Where a name stands beside its point, for those that would lie on others; negative: to the left."""


def errors() -> dict[str, float]:
    """Root of the mean square of what each format makes wrong of N(0, 1)."""
    x = np.random.default_rng(SEED).standard_normal((ROWS, COLUMNS), np.float32)
    decoded = ((name, trueno.dequantize(trueno.quantize(x, name))) for name in WEIGHTS)
    return {name: float(np.sqrt(np.square(y - x, dtype=np.float64).mean())) for name, y in decoded}


def at(bits: float, error: float) -> tuple[float, float]:
    """Where a point lies: bits to the right, the logarithm of the error upwards."""
    across = (bits - BITS[0]) / (BITS[1] - BITS[0])
    return LEFT + WIDTH * across, TOP + HEIGHT * log10(MOST / error) / log10(MOST / LEAST)


def drawing(found: dict[str, float]) -> str:
    """The whole picture."""
    bottom = TOP + HEIGHT
    box = f'viewBox="0 0 {LEFT + WIDTH + 40} {bottom + 46}" font-family="sans-serif" font-size="12" role="img"'
    lines = [f'<svg xmlns="http://www.w3.org/2000/svg" {box}>', '<rect width="100%" height="100%" fill="white"/>']
    lines += [f'<path d="M{LEFT} {TOP}V{bottom}H{LEFT + WIDTH}" fill="none" stroke="#888"/>']
    lines += [f'<text x="{LEFT}" y="{TOP - 12}" font-weight="bold">error (root mean square) of N(0, 1)</text>']
    for error in (0.5, 0.2, 0.1, 0.05, 0.02, 0.01, 0.005):
        y = at(BITS[0], error)[1]
        lines.append(f'<path d="M{LEFT} {y:.1f}h{WIDTH}" stroke="#eee"/>')
        lines.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{error:g}</text>')
    for bits in range(int(BITS[0]), int(BITS[1]) + 1):
        lines.append(f'<text x="{at(bits, MOST)[0]:.1f}" y="{bottom + 17}" text-anchor="middle">{bits}</text>')
    lines.append(f'<text x="{LEFT + WIDTH / 2:.0f}" y="{bottom + 36}" text-anchor="middle">bits an element</text>')
    ends = (at(BITS[0], 2 ** -BITS[0]), at(-np.log2(LEAST), LEAST))
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in ends)
    lines.append(f'<polyline points="{path}" fill="none" stroke="#aaa" stroke-dasharray="5 4"/>')
    x, y = at(5.6, 2**-5.6)
    lines.append(
        f'<text x="{x - 8:.1f}" y="{y + 12:.1f}" text-anchor="end" fill="#888">2⁻ᵇⁱᵗˢ: the least possible</text>'
    )
    for name, error in found.items():
        x, y = at(FORMATS[name].bits, error)
        dx, dy = LABELS.get(name, (7, 4))
        colour, side = COLOURS[FORMATS[name].elements], "start" if dx > 0 else "end"
        lines.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{colour}"/>')
        lines.append(f'<text x="{x + dx:.1f}" y="{y + dy:.1f}" text-anchor="{side}" fill="{colour}">{name}</text>')
    for i, (elements, colour) in enumerate(COLOURS.items()):
        y, x = TOP + 14 + 18 * i, LEFT + WIDTH - 130
        lines.append(f'<circle cx="{x}" cy="{y}" r="4" fill="{colour}"/>')
        lines.append(f'<text x="{x + 9}" y="{y + 4}" fill="{colour}">blocks of {elements}</text>')
    return "\n".join([*lines, "</svg>\n"])


def main() -> None:
    """Say the figures, and draw."""
    found = errors()
    for name, error in found.items():
        print(f"| `{name}` | {FORMATS[name].elements} | {FORMATS[name].bits:g} | {error:#.2g} |")
    PATH.write_text(drawing(found), "utf-8")


if __name__ == "__main__":
    main()
