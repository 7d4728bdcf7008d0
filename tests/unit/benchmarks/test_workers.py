"""The simulator of many workers, where its answer is known."""

from math import isclose

import pytest

from benchmarks.workers import Facts, limit, makespan


@pytest.mark.parametrize(("chunks", "workers", "rounds"), [(1, 1, 1), (8, 1, 8), (8, 8, 1), (9, 8, 2), (64, 8, 8)])
def test_work_alone(chunks, workers, rounds):
    assert makespan(chunks, [1.0] * workers, Facts(0.0, 2.0, 0.0, 0.0)) == 2.0 * rounds


def test_the_scheduler_alone():
    """64 chunks and 8 + 1 merges, one after the other."""
    assert isclose(makespan(64, [1.0] * 1000, Facts(0.5, 0.0, 0.0, 0.0)), 73 * 0.5)


def test_the_tree_crosses_the_link_at_each_level():
    assert isclose(makespan(512, [1.0] * 512, Facts(0.0, 1.0, 0.25, 0.5)), 1.0 + 3 * 0.75)


def test_a_slow_worker_takes_fewer_chunks():
    facts = Facts(0.0, 1.0, 0.0, 0.0)
    assert makespan(5, [0.25, 1.0], facts) == 4.0  # one of five
    assert makespan(2, [0.25, 1.0], facts) == 4.0 and limit(2, [0.25, 1.0], facts) == "the slowest"


def test_limits():
    assert limit(8000, [1.0] * 1000, Facts(1e-3, 0.1, 1e-4, 1e-3)) == "the graph"
    assert limit(16, [1.0] * 2, Facts(1e-3, 0.1, 1e-4, 1e-3)) == "the work"
    assert limit(8, [1.0] * 8, Facts(1e-5, 1e-3, 1e-5, 1.0)) == "the link"
