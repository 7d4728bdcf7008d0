"""The table of targets: verdicts from records."""

import json
from dataclasses import replace

import trueno
from trueno.ops import TABLE

from benchmarks import report, run
from benchmarks.compare import Record
from benchmarks.rows import Plan, groups
from benchmarks.targets import GEOMEANS, below, verdicts
from benchmarks.timing import Budget

SHAPES = ("1 024", "100 000", "1 000 000", "16 000 000", "4096×1024")


def record(name, shape, value, group="elementwise", **seconds):
    return Record(group, name, shape, value=value, peer="numpy", ratios=[value],
                  seconds={"trueno": 1e-6, "numpy": value * 1e-6, **seconds})  # fmt: skip


def found(records, row):
    return next(v for v in verdicts(records) if v.row == row)


def test_every_row_is_there_before_anything_is_measured():
    empty = verdicts([])
    assert {v.ok for v in empty} == {None}
    assert len({v.row for v in empty}) == len(empty)


def test_every_row_is_measured_by_some_cell():
    """The names and shapes that the targets look for are those that the groups measure."""
    cells = [c for listed in groups().values() for c in listed(Plan())]
    records = [record(c.name, c.shape, 1.0, c.group) for c in cells]
    assert [v.row for v in verdicts(records) if v.ok is None] == []


def test_every_op_at_every_shape_has_a_cell():
    families = ("arithmetic", "mathematics", "activations", "reductions", "normalization")
    measured = {(c.name, c.shape) for listed in groups().values() for c in listed(Plan())}
    assert measured >= {(op.name, shape) for op in TABLE.values() if op.family in families for shape in SHAPES}


def test_a_cell_bears_the_name_of_its_group():
    assert all(c.group == name for name, listed in groups().items() for c in listed(Plan()))


def test_a_record_bears_the_name_of_its_cell():
    """Measured for real, once each, as shortly as can be."""
    plan = Plan((8,), True, Budget(rounds=1, seconds=0.0, turn=0.0, runs=1))
    with trueno.use("reference"):
        for name in ("rows", "elementwise", "reductions"):
            for cell in groups()[name](plan):
                if cell.shape == "8":
                    (cell_record,) = cell.measure()
                    assert (cell_record.group, cell_record.name, cell_record.shape) == (
                        cell.group,
                        cell.name,
                        cell.shape,
                    )
                    assert not cell_record.problem
                    assert cell_record.value is not None


def test_geometric_mean_and_median_stand_side_by_side():
    records = [record("exp", "1 024", 2.0), record("tanh", "1 024", 8.0), record("sum", "1 024", 4.0, "reductions")]
    verdict = found(records, "geometric mean over those ops, 1 024")
    assert verdict.measured == "4.00× (median 4.00×, 3 ops)"
    assert verdict.ok is (GEOMEANS["1 024"] <= 4.0)


def test_one_op_below_the_floor_misses_and_is_listed():
    records = [record("exp", "100 000", 2.0), record("tanh", "100 000", 0.9)]
    verdict = found(records, "every elementwise op and reduction, 100 000")
    assert not verdict.ok
    assert "1 of 2" in verdict.measured
    assert [r.name for r in below(records)] == ["tanh"]


def test_near_the_memory_floor_level_is_a_twentieth_less():
    """Only bytes count, and only where both are near: a slow peer shares no floor."""
    level = record("add", "16 000 000", 0.96)
    near = replace(level, floor=0.9e-6, limit="bytes")
    assert below([near]) == []
    far = [level, replace(near, floor=0.5e-6), replace(near, limit="flops"), record("add", "16 000 000", 0.94)]
    far += [replace(near, value=0.94)]
    assert below(far) == sorted(far, key=lambda r: r.value)


def test_a_problem_is_a_miss():
    broken = Record("startup", "import trueno", "", "s", 0.001, problem="also imported: ['numba']")
    assert found([broken], "import trueno, beyond NumPy").ok is False
    broken = Record("startup", "first gelu, simd", "1 024", "s", problem="simd: not installed")
    assert found([broken], "a second process's first gelu, after NumPy's import").ok is False


def test_results_are_written_for_machines_and_for_readers(tmp_path):
    facts = {"date": "2026-11-20 10:00", "cpu": "A CPU (R) 9", "versions": {"numpy": "2"}}
    records = [record("exp", "1 024", 0.5), record("add", "1 024", 0.01, "inplace")]
    judged = verdicts(records)
    path = tmp_path / f"{report.stem(facts)}.json"
    report.save_json(path, facts, judged, records)
    assert path.name == "2026-11-20-a-cpu-r-9.json"
    assert json.loads(path.read_text(encoding="utf-8"))["records"][0]["value"] == 0.5
    text = report.markdown(facts, ["it was busy"], judged, records)
    asked = [v for v in judged if v.measured != "not measured"]
    assert asked and all(v.row in text for v in asked)
    assert f"{len(judged) - len(asked)} other targets were not measured" in text
    assert "Warning: it was busy" in text
    assert "| exp | 0.50× n 1 µs |" in text


def test_groups_are_those_of_the_command_line():
    assert tuple(groups()) == run.GROUPS
