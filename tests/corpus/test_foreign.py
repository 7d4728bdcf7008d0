"""What Triton, Numba and tinygrad printed is correct, and the rules of `trueno ptx` are silent on it."""

import pytest
from seeds import fresh_seed

from .foreign import FOLDER, HEAD, Foreign, foreign, producers
from .launches import run, wrong
from .measure import correct
from .ours import analyzer


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    number = fresh_seed()
    print(f"seed {number} of {request.node.name}")
    return number


def test_there_are_many():
    kernels = {(one.name.partition("/")[0], one.kernel) for one in foreign()}
    assert producers() == ["numba", "tinygrad", "triton"]
    assert all(sum(made == producer for made, _ in kernels) >= 8 for producer in producers())
    assert sum(path.stat().st_size for path in FOLDER.glob("*/*")) < 2_000_000


@pytest.mark.parametrize("one", foreign(), ids=lambda one: one.name)
def test_a_foreign_kernel_is_right(one: Foreign, seed: int):
    """It runs without a finding of the emulator, and gives NumPy's result where `results` has one."""
    outcome, work = run(one.text, one.launch.entry, one.launch, seed)
    assert outcome.clean, outcome
    assert not wrong(work), wrong(work)


@pytest.mark.parametrize("one", foreign(), ids=lambda one: one.name)
def test_a_foreign_kernel_is_silent(one: Foreign):
    """With the block of its launch, and without."""
    assert HEAD.match(one.text)
    for launches in ({one.launch.entry: one.launch}, {}):
        row = correct(analyzer, one.name, one.text, launches)
        assert row.entries == 1 and not row.loud
