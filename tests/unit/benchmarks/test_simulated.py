"""The table of what was simulated beside what was measured, and what the costs of a cluster are taken from."""

import pytest

from benchmarks import simulated
from benchmarks.simulated import Line


def test_the_table_has_a_row_per_graph_and_cluster():
    lines = [Line("exp, sum", 4, 12, 2.0, 1.5, "compute", 0.02), Line("exp, sum", 1, 12, 4.0, 4.4, "compute", 0.0)]
    head, first, second = simulated.table(lines).splitlines()
    assert head.split() == ["graph", "workers", "tasks", "measured", "simulated", "ratio", "limited", "by", "others"]
    assert first.split() == ["exp,", "sum", "1", "12", "4", "s", "4.4", "s", "1.10", "compute", "0%"]
    assert second.split()[-3:] == ["0.75", "compute", "2%"]


def test_costs_are_differences_of_graphs(monkeypatch):
    pytest.importorskip("dask", reason="Dask is not installed: pip install 'trueno[dask]'")
    calls = []

    def tiny(client, count):
        """A scheduler of 2 ms per task, 1 ms before the first one, and 0.5 s per graph; a worker of 3 ms."""
        calls.append(count)
        tasks = count * 8 / 7
        return 0.5 + tasks * 1e-3, 0.7 + tasks * 3e-3, 0.1 + tasks * 3e-3

    monkeypatch.setattr(simulated, "_tiny", tiny)
    scheduler, worker = simulated.overheads(None, 2, 0.0)
    assert (scheduler.task_s, scheduler.graph_s) == (pytest.approx(2e-3), pytest.approx(1e-3))
    assert scheduler.start_s == pytest.approx(0.5) and worker == pytest.approx(3e-3)
    assert calls.count(simulated.MANY) == 2
