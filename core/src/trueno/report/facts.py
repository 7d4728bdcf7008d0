"""What a report holds: plain records, which the command measures and the page shows."""

from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class Point:
    """One op at one size: seconds per call of each backend that ran it, beside the selector's choice.

    elements: of the largest operand or result.  flops, bytes: of one call; bytes of operands read and results written.
    predicted: seconds by the selector's model.  left_out: why a backend has no time.
    """

    op: str
    family: str
    dtype: str
    elements: int
    shapes: list[tuple[int, ...]]
    flops: float
    bytes: float
    seconds: dict[str, float]
    chosen: str
    by: str = ""
    predicted: dict[str, float] = field(default_factory=dict)
    numpy: float | None = None
    left_out: dict[str, str] = field(default_factory=dict)

    @property
    def best(self) -> str:
        """The fastest backend."""
        return min(self.seconds, key=self.seconds.__getitem__)

    @property
    def time(self) -> float:
        """Seconds of the chosen backend, or of the fastest if the chosen one was not timed."""
        return self.seconds.get(self.chosen, self.seconds[self.best])

    @property
    def regret(self) -> float:
        """How much longer the chosen backend takes than the fastest, as a share of the fastest; 0 if it is that."""
        return self.time / self.seconds[self.best] - 1


@dataclass(slots=True)
class Judged:
    """How far one op's results on one backend are from float64.

    worst: the largest error as a share of what is allowed there.  error, bound: of the element with the largest error,
    in units in the last place of the right value; None where the op's bound is not one per element.
    """

    op: str
    backend: str
    dtype: str
    ok: bool
    worst: float
    error: float | None = None
    bound: float | None = None
    why: str = ""


@dataclass(slots=True)
class Roof:
    """What the machine can do at most, as measured here: bytes or flops per second, and how."""

    name: str
    kind: str
    rate: float
    how: str


SHORT = {"float32": "f32", "float64": "f64", "float16": "f16", "bfloat16": "bf16"}
"""Short names of the dtypes of a matrix, in its order."""
SIGNS = {"yes": "●", "widened": "◐"}
"""Of a cell of the matrix; `·` for a combination that no kernel takes."""
Matrix = dict[str, dict[str, dict[str, str]]]
"""By op, backend and dtype: `yes`, `widened` (the core computes in float32 and rounds), or why not."""


@dataclass(slots=True)
class Report:
    """All of it.

    backends: their `name`, and what each `says`: its device, or why it cannot run.  crossover: the ops whose curves are
    drawn.  notes: what could not be measured, and why.
    """

    title: str
    machine: dict[str, str]
    backends: list[dict[str, str]]
    roofs: list[Roof] = field(default_factory=list)
    points: list[Point] = field(default_factory=list)
    crossover: list[str] = field(default_factory=list)
    judged: list[Judged] = field(default_factory=list)
    matrix: Matrix = field(default_factory=dict)
    calibration: str = ""
    speeds: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def main(self) -> list[Point]:
        """Of each op the point that the roofline and the table show: the one with most elements."""
        largest: dict[str, Point] = {}
        for point in self.points:
            if point.op not in largest or point.elements >= largest[point.op].elements:
                largest[point.op] = point
        return list(largest.values())

    def curves(self) -> dict[str, list[Point]]:
        """The points of each op of `crossover`, by elements; only of ops that have two or more."""
        curves = {
            name: sorted((p for p in self.points if p.op == name), key=lambda p: p.elements) for name in self.crossover
        }
        return {name: points for name, points in curves.items() if len(points) > 1}

    def roof(self, point: Point) -> float:
        """The fewest seconds that the roofs allow for a call of this point; 0 if they say nothing."""
        flops = max((r.rate for r in self.roofs if r.kind == "flops"), default=0.0)
        memory = max((r.rate for r in self.roofs if r.kind == "bytes"), default=0.0)
        return max(point.flops / flops if flops else 0.0, point.bytes / memory if memory else 0.0)
