"""`python -m benchmarks.formats`: what each block format loses of normal numbers, drawn for a guide."""

from pathlib import Path

import numpy as np
import trueno
from trueno.formats import FORMATS, WEIGHTS

from benchmarks.charts import BLUE, GUIDES, RED, chart

ROWS, COLUMNS, SEED = 32, 2048, 0
PATH = GUIDES / "format-error.svg"
BITS, MOST, LEAST = (2.0, 9.0), 0.5, 0.003
TICKS = (0.5, 0.2, 0.1, 0.05, 0.02, 0.01, 0.005)
COLOURS = {32: RED, 256: BLUE}
LABELS = {
    "q4_0": (6, 3),
    "iq4_nl": (6, -8),
    "q4_k": (4, -14),
    "iq4_xs": (-6, -4),
    "q5_0": (6, 2),
    "q5_k": (4, -13),
    "mxfp4": (6, 3),
}
"""Where a name stands beside its point, for those that would lie on others; negative: to the left."""


def errors() -> dict[str, float]:
    """Root of the mean square of what each format makes wrong of N(0, 1)."""
    x = np.random.default_rng(SEED).standard_normal((ROWS, COLUMNS), np.float32)
    decoded = ((name, trueno.dequantize(trueno.quantize(x, name))) for name in WEIGHTS)
    return {name: float(np.sqrt(np.square(y - x, dtype=np.float64).mean())) for name, y in decoded}


def facts(errors: dict[str, float]) -> str:
    """Each format's bits an element and error, in words."""
    return "; ".join(f"{name} {FORMATS[name].bits:g} {error:.2g}" for name, error in errors.items())


def draw(errors: dict[str, float], path: Path = PATH) -> None:
    """The whole picture: bits to the right, the logarithm of the error upwards."""
    with chart(path, (7.4, 4.7), facts(errors)) as (ax,):
        ax.set(title="error (root mean square) of N(0, 1)", xlabel="bits an element", xlim=BITS)
        ax.set_yscale("log")
        ax.set(ylim=(LEAST, MOST))
        ax.set_yticks(TICKS, [f"{error:g}" for error in TICKS])
        ax.set_yticks([], minor=True)
        ax.grid(axis="y", color="#eeeeee")
        ax.plot((BITS[0], -np.log2(LEAST)), (2 ** -BITS[0], LEAST), "--", color="#aaaaaa", linewidth=1)
        ax.annotate("2⁻ᵇⁱᵗˢ: the least possible", (5.6, 2**-5.6), (-6, -10), textcoords="offset points", ha="right",
                    color="#888888")  # fmt: skip
        for elements, colour in COLOURS.items():
            names = [name for name in errors if FORMATS[name].elements == elements]
            ax.scatter([FORMATS[n].bits for n in names], [errors[n] for n in names], color=colour, zorder=3,
                       label=f"blocks of {elements}")  # fmt: skip
            for name in names:
                dx, dy = LABELS.get(name, (6, -3))
                ax.annotate(name, (FORMATS[name].bits, errors[name]), (dx, dy), textcoords="offset points",
                            ha="left" if dx > 0 else "right", color=colour)  # fmt: skip
        ax.legend(frameon=False)


def main() -> None:
    """Say the figures, and draw."""
    format_errors = errors()
    for name, error in format_errors.items():
        print(f"| `{name}` | {FORMATS[name].elements} | {FORMATS[name].bits:g} | {error:#.2g} |")
    draw(format_errors)


if __name__ == "__main__":
    main()
