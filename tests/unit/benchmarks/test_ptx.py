"""Rows of PTX: every producer has texts, and what is read is compared with them."""

import pytest

pytest.importorskip("trueno_cuda", reason="needs trueno-cuda")

from trueno_cuda.ptx.syntax import tokens

from benchmarks.rows import Plan, ptx
from benchmarks.timing import OURS, Budget

PLAN = Plan(quick=True, budget=Budget(rounds=1, seconds=0.0, turn=0.0, runs=1))


def test_every_cell_has_a_figure():
    for cell in ptx.cells(PLAN):
        (record,) = cell.measure()
        assert (record.group, record.name, record.shape) == (cell.group, cell.name, cell.shape)
        assert record.value and record.seconds[OURS] and not record.problem


def test_lost_pieces_are_a_problem(monkeypatch):
    right = tokens.tokens
    monkeypatch.setattr(tokens, "tokens", lambda text: list(right(text))[1:])
    (record,) = ptx._parse("nvcc", PLAN)
    assert record.problem == "the tokens are not the text"
