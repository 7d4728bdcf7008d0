"""The probes move and compute what they say, and a cell's floor follows from its bytes and flops."""

import numpy as np
import pytest
from seeds import fresh_seed
from trueno.ops import TABLE

from benchmarks import compare, floors


@pytest.fixture
def figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with 10 bytes a second for one thread and 100 flops a second, twice as much for two."""
    monkeypatch.setattr(floors, "bandwidth", lambda traffic, size, team: 10.0 * team)
    monkeypatch.setattr(floors, "_peak", lambda chains, team: 100.0 * team)


@pytest.mark.parametrize("past_caches", ["", "_past_caches"])
@pytest.mark.parametrize("traffic", ["copy", "add"])
def test_a_probe_writes_the_sum_of_what_it_reads(traffic: str, past_caches: str) -> None:
    reads, _ = floors.TRAFFIC[traffic]
    n = 3 * floors.STEP
    arrays = [floors._aligned(n) for _ in range(reads + 1)]
    rng = np.random.default_rng(fresh_seed())
    for x in arrays[:-1]:
        x[:] = rng.integers(-99, 100, n)
    arrays[-1].fill(np.nan)
    floors._functions()[traffic + past_caches](*(x.ctypes.data for x in arrays), n, 2)
    np.testing.assert_array_equal(arrays[-1], sum(arrays[:-1]))


def test_arrays_of_probes_are_aligned() -> None:
    assert all(floors._aligned(n).ctypes.data % 64 == 0 and floors._aligned(n).size == n for n in (64, 640, 6400))


def test_figures_of_this_machine_are_speeds() -> None:
    assert 1e9 < floors.peak(1) < 1e13
    for traffic in floors.TRAFFIC:
        assert 1e8 < floors.bandwidth(traffic, 3 * 4096, 1) < 1e13


def test_the_longer_of_two_times_is_the_floor(figures: None) -> None:
    assert floors.floor(4000, 4000, 0, 2) == floors.Floor(800.0, "bytes")
    assert floors.floor(4000, 4000, 1e6, 2) == floors.Floor(1e4, "flops")


def test_small_calls_have_the_floor_of_one_thread(figures: None) -> None:
    bytes_ = 4 * floors.PARALLEL
    assert floors.floor(bytes_ - 4, bytes_ - 4, 0, 2).seconds == pytest.approx((2 * bytes_ - 8) / 10)
    assert floors.floor(bytes_, bytes_, 0, 2).seconds == pytest.approx(2 * bytes_ / 20)


@pytest.mark.parametrize(
    ("reads", "writes", "traffic"),
    [(100, 0, "read"), (1000, 4, "read"), (100, 100, "copy"), (100, 200, "copy"), (200, 100, "add")],
)
def test_the_traffic_of_a_cell(reads: int, writes: int, traffic: str) -> None:
    assert floors._traffic(reads, writes) == traffic


def test_the_bytes_and_flops_of_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[int, int, float, int]] = []
    monkeypatch.setattr(compare, "floor", lambda *facts: calls.append(facts))
    x, square = np.zeros((3, 8), "f"), np.zeros((8, 8), "f")
    compare.floor_of(TABLE["add"], (x, x), x, 2)
    compare.floor_of(TABLE["matmul"], (square, square), square, 1)
    table, indices = np.zeros((1000, 8), "f"), np.zeros(5, "i8")
    compare.floor_of(TABLE["embedding_lookup"], (table, indices), np.zeros((5, 8), "f"), 1)
    assert calls[:2] == [(192, 96, 24.0, 2), (512, 256, 2 * 8**3, 1)]
    assert calls[2][:2] == (160 + 40, 160), "of a table, only the rows that are looked up"


def test_a_probe_that_is_disturbed_at_first_runs_long_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    starts = iter([3.0])  # another process has the CPU; later, a start takes 2 µs
    monkeypatch.setattr(floors, "_race", lambda works, times: next(starts, 2e-6) + 1e-9 * times)
    assert floors._seconds([lambda times: None]) == pytest.approx(1e-9, rel=0.01)
