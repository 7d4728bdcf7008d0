"""The regret of choosing with a GPU: every cell runs, on a device that pretends to be one; and what is out of time."""

import pytest
from anomaly.conftest import cache, fake, packages, plugins
from trueno.select import calibration

from benchmarks import targets
from benchmarks.rows import CALIBRATION, Plan, groups, regret_gpu, text

__all__ = ["cache", "fake", "packages", "plugins"]
PLAN = Plan.short((1_000, 200_000))


@pytest.fixture
def cells(fake, monkeypatch):
    monkeypatch.setattr(regret_gpu, "CALIBRATION_S", 0.1)
    monkeypatch.setattr(regret_gpu, "CELL_S", 0.0)
    monkeypatch.setattr(regret_gpu, "OPS", ("add", "sum", "rms_norm", "matvec", "matmul"))
    yield list(groups()["regret"](PLAN))
    calibration.forget()


def test_every_cell_has_its_figure(cells):
    first, *rest = cells
    assert first.name == CALIBRATION and first.measure() == []
    assert {row.backend for row in calibration.load().values()} == {"fake", "reference", "scalar"}
    records = [r for cell in rest for r in cell.measure()]
    assert [(r.name, r.shape) for r in records] == [(c.name, c.shape) for c in rest]
    assert len({(c.name, c.shape) for c in rest}) == len(rest) == 20
    for r in records:
        assert not r.problem and r.value >= 1, r
        assert {"trueno", "fake", "scalar"} <= r.seconds.keys()
        if r.name.endswith(regret_gpu.THERE):
            assert r.seconds["trueno"] == r.seconds["fake"], "compute follows data"
    small = [r for r in records if r.shape == text((1_000,)) and r.name.endswith(regret_gpu.HOST)]
    assert small and all(r.seconds["trueno"] != r.seconds["fake"] for r in small)
    measured = {v.row: v for v in targets.verdicts(records) if v.row.startswith("regret")}
    assert len(measured) == 6 and sum(v.ok is not None for v in measured.values()) == 4


def test_cells_that_come_too_late_say_so(cells, monkeypatch):
    monkeypatch.setattr(regret_gpu, "DEADLINE_S", -1.0)
    cells[0].measure()
    for cell in cells[1:]:
        (record,) = cell.measure()
        assert record.value is None and "left out" in record.problem


def test_without_a_gpu_the_others_are_measured(plugins):
    plugins(TRUENO_FORCE_CPU="1")
    listed = list(groups()["regret"](PLAN))
    assert [c.name for c in listed].count(CALIBRATION) == 1
    for cell in listed:
        if cell.name.endswith((regret_gpu.HOST, regret_gpu.THERE)):
            (record,) = cell.measure()
            assert record.value is None and not record.problem
