"""Rows of LZ4: the pages are of every kind, both contestants decode to them, and wrong bytes are named."""

import numpy as np
import pytest
import trueno

pytest.importorskip("numba", reason="needs numba")
pytest.importorskip("lz4.block", reason="needs the package lz4")

from benchmarks.rows import Plan, lz4
from benchmarks.timing import OURS, Budget

PLAN = Plan(quick=True, budget=Budget(rounds=1, seconds=0.0, turn=0.0, runs=1))


@pytest.fixture(autouse=True)
def _on_the_reference():
    with trueno.use("reference"):
        yield


def test_pages_are_of_every_kind():
    x = lz4.pages(2)
    assert x.shape == (2 * len(lz4.KINDS), lz4.PAGE)
    sizes = sorted(len(block) for block in lz4._blocks(x))
    assert sizes[0] < 64 and sizes[1] < 64 and 64 < sizes[2] < lz4.PAGE < sizes[-1]


def test_every_cell_has_a_ratio(monkeypatch):
    monkeypatch.setattr(lz4, "FEW", 1)
    for cell in lz4.cells(PLAN):
        (record,) = cell.measure()
        assert (record.group, record.name, record.shape) == (cell.group, cell.name, cell.shape)
        assert record.value and record.peer == lz4.PACKAGE and not record.problem


def test_wrong_bytes_are_a_problem(monkeypatch):
    right = trueno.lz4_decompress

    def wrong(*operands, page, out=None):
        y, lengths = right(*operands, page=page)
        if out:
            out[0][...], out[1][...] = y ^ np.uint8(1), lengths
        return y ^ np.uint8(1), lengths

    monkeypatch.setattr(trueno, "lz4_decompress", wrong)
    (record,) = lz4._decompress(1, 1, PLAN)
    assert record.problem == "other bytes" and OURS in record.seconds
    (record,) = lz4._compress(1, 1, 1, PLAN)
    assert record.problem == "ours do not decode to their pages"
