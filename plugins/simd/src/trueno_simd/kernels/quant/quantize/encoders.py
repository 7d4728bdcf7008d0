"""The table of encoders: each is added where it is defined, with the formats that it is for."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Make = Callable[[str, bool], Any]
"""`make(format, weighted)`: the compiled piece of a region that encodes some blocks."""


@dataclass(frozen=True, slots=True)
class Encoder:
    """How a format is encoded, with an importance matrix or without one.

    searches: for a scale, which takes ten times as long.  by_row: weights depend on the whole row, so a chunk has whole
    rows.
    """

    make: Make
    searches: bool
    by_row: bool


ENCODERS: dict[tuple[str, bool], Encoder] = {}
"""By format, and whether an importance matrix weights the errors."""


def encodes(
    *formats: str, weighted: tuple[bool, ...] = (False, True), searches: bool = True, by_row: bool = False
) -> Callable[[Make], Make]:
    """Decorate the maker of encoders of these formats; `weighted`: without an importance matrix, with one, or both."""

    def added(make: Make) -> Make:
        for format in formats:
            for matrix in weighted:
                ENCODERS[format, matrix] = Encoder(make, searches, by_row)
        return make

    return added
