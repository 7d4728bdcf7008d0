"""Kernels in the languages of other producers of PTX, and what compiles them to `foreign/`.

Each module has the kernels of one producer, and yields what it prints.  They need their producers, which no test does:

    python -m tests.corpus.producers triton --into tests/corpus/foreign
"""

from typing import NamedTuple


class Kernel(NamedTuple):
    """stem: of the file.  sizes: `grid 2 block 64 shared 0`.  args: in the words of a trap's launch."""

    stem: str
    text: str
    sizes: str
    args: str
