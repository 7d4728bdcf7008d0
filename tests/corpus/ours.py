"""The rules of `trueno ptx` as an analyzer: `… measure --analyzer tests.corpus.ours:analyzer`."""

from collections.abc import Iterator

from trueno_cuda.ptx.analyze.check import check, check_whole
from trueno_cuda.ptx.analyze.entry import Entry
from trueno_cuda.ptx.analyze.finding import Finding
from trueno_cuda.ptx.analyze.launch import Launch, Size
from trueno_cuda.ptx.syntax.parse import parse

from .measure import Case


def analyzer(case: Case) -> Iterator[Finding]:
    """All rules, with the block and the grid of each entry whose launch is known."""
    program = parse(case.text, tolerant=True)
    yield from check_whole(program)
    for function in program.functions.values():
        if function.defined:
            known = case.launches.get(function.name)
            launch = Launch(_three(known.block), _three(known.grid)) if known else Launch()
            yield from check(Entry(program, function, launch))


def _three(size: int | tuple[int, ...]) -> Size:
    x, y, z = (*(size if isinstance(size, tuple) else (size,)), 1, 1)[:3]
    return int(x), int(y), int(z)
