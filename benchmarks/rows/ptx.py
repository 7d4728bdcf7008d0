"""Reading and judging PTX on one core: megabytes of text a second for the parser, seconds an entry for all rules.

The texts are the CUDA backend's own kernels, one of each, and what nvcc, Triton, Numba and tinygrad print for the
kernels of the tests' corpus.  `pattern` is the time of one regular expression that only cuts the same text into
blanks, words and marks.
"""

import re
from collections.abc import Iterator
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path

from benchmarks.compare import Record
from benchmarks.rows import Cell, Plan
from benchmarks.timing import OURS, Thunk, fastest, race

PARSED, JUDGED = 10e6, 20e-3
"""Bytes a second, and seconds an entry: a thousand entries in twenty seconds."""
CORPUS = Path(__file__).parents[2] / "tests" / "corpus"
PRODUCERS = {
    "nvcc": ("compiled/*.ptx",),
    "Triton": ("foreign/triton/*.ptx",),
    "Numba": ("foreign/numba/*.ptx",),
    "tinygrad": ("foreign/tinygrad/*.ptx",),
}
OWN = "trueno"
ALL = "all"
FEW = 2  # texts of a producer, where it must be quick
PATTERN = re.compile(r"\s+|[.%]?[\w$.:]+|.", re.ASCII | re.DOTALL)


def cells(plan: Plan) -> Iterator[Cell]:
    if find_spec("trueno_cuda") is None:
        return
    for producer in (*PRODUCERS, OWN, ALL):
        yield Cell("ptx", "parse", producer, partial(_parse, producer, plan))
    for producer in (*PRODUCERS, OWN):
        yield Cell("ptx", "judge", producer, partial(_judge, producer, plan))


@cache
def texts(producer: str, quick: bool) -> list[str]:
    """What a producer prints; of all of them together."""
    if producer == ALL:
        return [text for one in (*PRODUCERS, OWN) for text in texts(one, quick)]
    if producer == OWN:
        from trueno_cuda.catalogue import registry

        entries = list(registry.catalogue().values())[: FEW if quick else None]
        return [kernel.text for e in entries for kernel in registry.build(e, registry.usual(e), e.variants[0])]
    paths = sorted(path for pattern in PRODUCERS[producer] for path in CORPUS.glob(pattern))
    return [path.read_text("utf-8") for path in paths[: FEW if quick else None]]


def _parse(producer: str, plan: Plan) -> list[Record]:
    from trueno_cuda.ptx.syntax.parse import parse
    from trueno_cuda.ptx.syntax.tokens import tokens

    given = texts(producer, plan.quick)
    size = sum(map(len, given))
    lost = [text for text in given if "".join(token.text for token in tokens(text)) != text]
    problem = "the tokens are not the text" if lost else ""
    calls: dict[str, Thunk] = {
        OURS: lambda: [parse(text, tolerant=True) for text in given],
        "pattern": lambda: [PATTERN.findall(text) for text in given],
    }
    seconds = fastest(race(calls, plan.budget, tuple(calls)))
    return [Record("ptx", "parse", producer, "MB/s", size / seconds[OURS] / 1e6, seconds=seconds, problem=problem)]


def _judge(producer: str, plan: Plan) -> list[Record]:
    from trueno_cuda.ptx.analyze.launch import Launch
    from trueno_cuda.ptx.analyze.report import analysis
    from trueno_cuda.ptx.analyze.rules import RULES

    given = texts(producer, plan.quick)

    def judge() -> int:
        made = (analysis("x.ptx", text, Launch(), RULES, "sm_90", real=False) for text in given)
        return sum(len(one.record["entries"]) for one in made)

    count = judge()
    seconds = fastest(race({OURS: judge}, plan.budget))
    return [Record("ptx", "judge", producer, "s", seconds[OURS] / count, seconds=seconds)]
