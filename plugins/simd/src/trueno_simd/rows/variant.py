"""What a printed kernel is made for, beside its program."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Variant:
    """How a kernel is called and scheduled.

    rank: 1 for one row, 2 for rows.  parallel: for sizes that the thread pool pays for.  flags: numbers of the
    outputs that are health flags of a guarded program.  piece: elements that are worth a piece.  stream: elements from
    which on results bypass the caches, 0 where no size does.
    """

    rank: int
    parallel: bool
    flags: tuple[int, ...]
    title: str
    piece: int = 0
    stream: int = 0
