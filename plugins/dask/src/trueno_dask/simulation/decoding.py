"""Tokens per second of a model whose matrices several GPUs share: each reads its part, and sums are exchanged."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from trueno.errors import ParameterError
from trueno.showing import Shown
from trueno.text import columns, duration

from trueno_dask.simulation.cluster import Link, checked, whole

SUMS = 2
"""All-reduces per layer: after attention and after the feed-forward part."""


@dataclass(frozen=True, slots=True)
class Shared:
    """A decode step on several GPUs; times in seconds.  memory, link, launches: its parts, one after another."""

    gpus: int
    memory: float
    link: float
    launches: float

    @property
    def seconds(self) -> float:
        """Of a step."""
        return self.memory + self.link + self.launches

    @property
    def tokens_per_s(self) -> float:
        """Of one sequence."""
        return 1 / self.seconds

    @property
    def bound(self) -> str:
        """What takes most of the step: memory, link or launches."""
        return max(("memory", "link", "launches"), key=lambda name: getattr(self, name))


@dataclass(frozen=True, slots=True, repr=False)
class Decoding(Shown):
    """A line for each number of GPUs; `print` it for a table."""

    lines: tuple[Shared, ...]

    def json(self) -> list[dict[str, Any]]:
        """As data that JSON can hold."""
        names = ("gpus", "tokens_per_s", "seconds", "memory", "link", "launches", "bound")
        return [{name: getattr(line, name) for name in names} for line in self.lines]

    def __str__(self) -> str:
        head = ("GPUs", "tokens per second", "a step", "memory", "link", "launches", "bound")
        rows = [
            (str(x.gpus), f"{x.tokens_per_s:.4g}", *map(duration, (x.seconds, x.memory, x.link, x.launches)), x.bound)
            for x in self.lines
        ]
        return "\n".join(columns([head, *rows], right=(0, 1, 2, 3, 4, 5)))


def tensor_parallel(
    nbytes: float, layers: int, *, bandwidth: float, reduced: float, link: Link, launches: int = 0,
    launch_s: float = 0.0, gpus: Iterable[int] = (1, 2, 4, 8),
) -> Decoding:  # fmt: skip
    """Predict the decode step of one sequence where each GPU has an equal part of every matrix.

    nbytes: of weights and cache that a token reads.  bandwidth: bytes per second that one GPU's kernels reach, as
    measured, not the memory's peak.  reduced: bytes of an all-reduce, of which each layer has two; one takes the link's
    latency and `reduced / link.bandwidth`.  launches, launch_s: of a step, and seconds of each that no kernel hides.
    Nothing overlaps, and memory alone is divided by the number of GPUs.  ParameterError for values out of range.
    """
    for what, value in (("nbytes", nbytes), ("bandwidth", bandwidth)):
        checked(f"tensor_parallel: {what}", value, above=True)
    for what, value in (("reduced", reduced), ("launches", launches), ("launch_s", launch_s)):
        checked(f"tensor_parallel: {what}", value)
    whole("tensor_parallel: layers", layers)
    if not isinstance(link, Link):
        raise ParameterError(f"tensor_parallel: link is {link!r}; give trueno_dask.Link(bandwidth, latency)")
    counts = tuple(gpus) if isinstance(gpus, Iterable) else (gpus,)
    for count in counts:
        whole("tensor_parallel: gpus", count)
    exchange = SUMS * layers * (link.latency + reduced / link.bandwidth)
    return Decoding(
        tuple(
            Shared(n, nbytes / (n * bandwidth), exchange if n > 1 else 0.0, float(launches * launch_s)) for n in counts
        )
    )
