"""How fast an op is, from the figures that `benchmarks.speed` draws; read here without what measures them."""

import json
from functools import cache
from pathlib import Path

RESULTS = Path(__file__).parents[2] / "benchmarks/results"
GROUPS = ("elementwise", "reductions", "rows")
SHAPES = ("1 024", "100 000", "1 000 000", "16 000 000", "4096×1024")
"""Those of a complete file."""
SHOWN = ("1 024", "1 000 000")


@cache
def kept() -> dict[str, dict[str, dict[str, float]]]:
    """By CPU, shape and op: the time of the better of NumPy and PyTorch over ours, from the newest complete file."""
    newest = {}
    for path in sorted(RESULTS.glob("*.json")):
        figures = json.loads(path.read_text("utf-8"))
        cells: dict[str, dict[str, float]] = {shape: {} for shape in SHAPES}
        for record in figures["records"]:
            if record["group"] in GROUPS and record["shape"] in cells and record["value"] is not None:
                cells[record["shape"]][record["name"]] = record["value"]
        if all(cells.values()):
            newest[figures["machine"]["cpu"]] = cells
    return newest


def sentence(name: str) -> str:
    """The figures of an op at two sizes on each CPU; empty if it was not measured at both."""
    parts = []
    for cpu, cells in kept().items():
        found = [_ratio(cells[shape], name) for shape in SHOWN]
        if None not in found:
            parts.append(f"{' and '.join(f'{ratio:.2g}×' for ratio in found)} on {cpu}")
    if not parts:
        return ""
    return (
        f"{', '.join(parts)}, against the better of NumPy and PyTorch with {' and '.join(SHOWN)} elements "
        "([measured](../../how-to/how-fast.md) with two threads)"
    )


def _ratio(cells: dict[str, float], name: str) -> float | None:
    """That of an op, with its first choice of a parameter."""
    return next((ratio for one, ratio in cells.items() if one.replace(",", " ").split()[0] == name), None)
