"""The table of encoders: each is added where it is defined, under the name that the format table has for it."""

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
"""By `Format.encoder`, and whether an importance matrix weights the errors."""


def encodes(
    *names: str, weighted: tuple[bool, ...] = (False, True), searches: bool = True, by_row: bool = False
) -> Callable[[Make], Make]:
    """Decorate the maker of the encoders that the format table calls so.

    weighted: without an importance matrix, with one, or both.
    """

    def added(make: Make) -> Make:
        for name in names:
            for matrix in weighted:
                ENCODERS[name, matrix] = Encoder(make, searches, by_row)
        return make

    return added
