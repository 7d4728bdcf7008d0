"""Calls beside the fast path: every row finds the kernel that the call runs."""

from benchmarks.rows import Plan, general


def test_every_row_has_its_figure():
    listed = list(general.cells(Plan.short()))
    assert {cell.name for cell in listed} == set(general.CASES)
    for cell in listed:
        (record,) = cell.measure()
        assert not record.problem and {"call", "kernel"} <= record.seconds.keys(), cell.name
