"""What is quoted of timings is computed right.  No test asserts a time."""

from itertools import count
from math import isnan

import pytest

from benchmarks import timing
from benchmarks.timing import OURS, Budget, Comparison, bind, compare, fastest, geometric_mean, median, merge, race


def test_bind_calls_with_these_arguments():
    seen = []
    thunk = bind(lambda *a, **k: seen.append((a, k)) or 7, 1, "two", out=3)
    assert thunk() == 7
    assert seen == [((1, "two"), {"out": 3})]


def test_geometric_mean():
    assert geometric_mean([2.0, 8.0]) == pytest.approx(4.0)
    assert geometric_mean([0.5, 2.0]) == pytest.approx(1.0)
    assert isnan(geometric_mean([]))


def test_median():
    assert median([3.0, 1.0, 2.0]) == 2.0
    assert isnan(median(()))


def test_the_ratio_is_the_median_of_the_runs_of_the_better_peer_over_ours():
    runs = [
        {OURS: 1.0, "numpy": 2.0, "torch": 5.0},
        {OURS: 2.0, "numpy": 9.0, "torch": 6.0},
        {OURS: 1.0, "numpy": 8.0, "torch": 7.0},
    ]
    comparison = merge(runs)
    assert comparison.ratios == [2.0, 3.0, 7.0]
    assert comparison.ratio == 3.0
    assert comparison.seconds == {OURS: 1.0, "numpy": 2.0, "torch": 5.0}
    assert comparison.peer == "numpy"


def test_without_peers_there_is_no_ratio():
    assert merge([{OURS: 1.0}]) == Comparison({OURS: 1.0})


def test_the_fastest_of_each_over_all_runs():
    assert fastest([{OURS: 1.0, "numpy": 4.0}, {OURS: 2.0, "numpy": 3.0}]) == {OURS: 1.0, "numpy": 3.0}


def test_all_take_turns_and_the_minimum_of_each_is_kept(monkeypatch):
    order, clock = [], count(1)

    def turn(call, times, seconds):
        order.append(call())
        return 1.0 / next(clock), False

    monkeypatch.setattr(timing, "turn", turn)
    monkeypatch.setattr(timing, "once", lambda call, times=1: 1.0)
    (best,) = race({OURS: lambda: OURS, "numpy": lambda: "numpy"}, Budget(rounds=3, runs=1))
    assert order == [OURS, "numpy", "numpy", OURS, OURS, "numpy"]  # each goes first in turn
    assert best == {OURS: 1 / 5, "numpy": 1 / 6}


def test_a_hopeless_peer_leaves_each_run_after_its_trial_and_ours_never(monkeypatch):
    cost = {"ours": 50.0, "good": 1.0, "bad": 10.0}
    called = dict.fromkeys(cost, 0)

    def turn(call, times, seconds):
        called[call()] += 1
        return cost[call()], False

    monkeypatch.setattr(timing, "turn", turn)
    monkeypatch.setattr(timing, "once", lambda call, times=1: 1.0)
    calls = {OURS: lambda: "ours", "numpy": lambda: "good", "torch": lambda: "bad"}
    runs = race(calls, Budget(rounds=10, seconds=60.0, runs=2))
    assert called == {"ours": 20, "good": 20, "bad": 2 * timing.TRIAL}
    assert [run["torch"] for run in runs] == [10.0, 10.0]


def test_a_run_ends_with_its_rounds_or_its_seconds():
    calls = count()
    race({OURS: lambda: next(calls)}, Budget(rounds=10**9, seconds=0.0, turn=0.0, runs=1))
    assert next(calls) > 0  # one round, however little time there is


def test_compare_runs_as_often_as_asked():
    comparison = compare({OURS: lambda: None, "numpy": lambda: None}, Budget(rounds=1, seconds=1.0, turn=0.0, runs=3))
    assert len(comparison.ratios) == 3
    assert comparison.ratio > 0


def test_garbage_collection_is_as_before_afterwards():
    import gc

    assert gc.isenabled()
    race({OURS: lambda: None}, Budget(rounds=1, turn=0.0, runs=1))
    assert gc.isenabled()
