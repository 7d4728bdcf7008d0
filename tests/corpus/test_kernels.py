"""The correct kernels are correct: they compile, and give NumPy's results without a finding of the emulator."""

import random

import pytest
from seeds import fresh_seed
from trueno_cuda.ptx.emulate import Module

from . import sources
from .foreign import FOLDER
from .launches import load, run, wrong
from .origins import launched
from .sources import COMPILED, KEPT, OPTIONS, Build
from .statements import alone, entries
from .traps import traps

WITHOUT_LAUNCH = {"sum_of_arrays"}
"""It takes a table of pointers, which no caller of the emulator can make."""
LARGE = {("ampere", "debug"), ("types", "debug")}
"""Builds with half a megabyte of library functions: they compile, and the emulator needs minutes for them."""

needs_nvcc = pytest.mark.skipif(sources.compiler() is None, reason="nvcc is not installed")


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    """Another in each run; pytest shows it when a test fails."""
    number = fresh_seed()
    print(f"seed {number} of {request.node.name}")
    return number


def test_there_are_many():
    kernels = {key for key in load() if key[0] in sources.names()}
    assert len(kernels) >= 100 and len({source for source, _ in kernels}) == len(sources.names())
    assert len(traps()) >= 60 and len(OPTIONS) == 5


@needs_nvcc
@pytest.mark.parametrize("source", sources.names())
def test_a_build_is_right(source: str, seed: int):
    """One architecture and one set of options, others in each run; `python -m tests.corpus compile` makes all."""
    build = random.Random(seed).choice([b for b in sources.builds() if b.source == source])
    print(build)
    text = sources.compiled(build)
    found = entries(text)
    assert [entry.name for entry in found] == Module(text).names, "the statements find the entries of the parser"
    for entry in found if (build.source, build.options) not in LARGE else ():
        one = launched(build.source, entry.name)
        if one is None:
            assert entry.name in WITHOUT_LAUNCH
            continue
        outcome, work = run(alone(text, entry.name), entry.name, one, seed)
        assert outcome.clean, (entry.name, outcome)
        assert not wrong(work), (entry.name, wrong(work))


@needs_nvcc
def test_every_launch_has_a_kernel():
    launches = {one.make.__name__: one for (source, _), one in load().items() if source == "control"}
    text = sources.compiled(Build("control", "sm_80", "plain"))
    names = {entry.name for entry in entries(text)}
    assert names - WITHOUT_LAUNCH == set(launches)


@pytest.mark.parametrize("source", KEPT)
def test_a_text_of_the_repository_is_right(source: str, seed: int):
    text = (COMPILED / f"{source}.ptx").read_text("ascii")
    names = {entry.name for entry in entries(text)}
    assert names == {one.entry for (stem, _), one in load().items() if stem == source}
    for name in sorted(names):
        outcome, work = run(alone(text, name), name, launched(source, name), seed)
        assert outcome.clean and not wrong(work), (name, outcome, wrong(work))


def test_the_repository_holds_few_texts():
    sizes = {path: path.stat().st_size for path in COMPILED.parent.rglob("*.ptx")}
    foreign = sum(size for path, size in sizes.items() if FOLDER in path.parents)
    assert sum(sizes.values()) - foreign < 300_000, "compile at test time what is not needed without nvcc"
    assert foreign < 700_000, "other producers' texts are kept, since no test installs them: keep the telling ones"


@pytest.mark.parametrize("trap", traps(), ids=lambda trap: trap.name)
def test_a_trap_is_right(trap, seed: int):
    """It runs without a finding, and says in whole sentences why it is right."""
    outcome, _ = run(trap.text, trap.launch.entry, trap.launch, seed)
    assert outcome.clean, outcome
    assert trap.why.endswith(".") and len(trap.why) > 40 and trap.silent


def test_a_wrong_result_is_seen(seed: int):
    text = (COMPILED / "scans.ptx").read_text("ascii")
    spoiled = alone(text, "scan_warps").replace("shfl.sync.up", "shfl.sync.down")
    outcome, work = run(spoiled, "scan_warps", launched("scans", "scan_warps"), seed)
    assert not outcome.refused and wrong(work).startswith("argument 1 is")
