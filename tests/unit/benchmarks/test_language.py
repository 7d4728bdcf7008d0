"""Rows of language models' ops: every contestant computes the same, and one that does not is named."""

import numpy as np
import pytest
import trueno
from trueno.ops import TABLE

from benchmarks.floors import Floor
from benchmarks.rows import Plan, language
from benchmarks.timing import OURS, Budget

SMALL = {
    "topk": (3, 50, 7),
    "sample": (5, 300, {"temperature": 0.8, "top_k": 20, "top_p": 0.95, "min_p": 0.05}),
    "concatenate": ((5, 7), 1),
    "attention_decode": ((9, 4), "float16"),
    "kv_cache_scatter": (5, 64, "float16"),
    "quant_experts": (3, 4, 2, 8, 256),
    "quant_embedding_lookup": (5, 16, 256),
}


@pytest.fixture(autouse=True)
def _on_the_reference():
    """Numerics only: what the ops mean, with nothing to compile."""
    with trueno.use("reference"):
        yield


@pytest.mark.parametrize("name", language.WORKS)
def test_contestants_compute_what_we_do(name):
    work = language.WORKS[name](*SMALL[name])
    assert work.disagreeing() == [] and len(work.calls) > 1
    assert work.reads > 0 and work.writes > 0


def test_all_tokens_without_top_k():
    how = {"temperature": 1.5, "top_k": 0, "top_p": 0.9, "min_p": 0.0}
    assert language.sample(20, 200, how).disagreeing() == []


def test_one_token_and_one_expert():
    assert language.quant_experts(1, 4, 2, 8, 256).disagreeing() == []


@pytest.mark.parametrize("name", language.WORKS)
def test_a_result_that_is_wrong_is_named(name):
    work = language.WORKS[name](*SMALL[name])
    for peer in [peer for peer in work.calls if peer != OURS]:
        right = [np.array(x) for x in work._result(peer)]
        right[0].flat[0] += 1 if right[0].dtype.kind == "i" else np.abs(right[0]).max() + 1
        work.calls[peer] = lambda result=right: result
        work.results.pop(peer, None)
    assert work.disagreeing() == [peer for peer in work.calls if peer != OURS]


def test_every_op_of_the_group_has_a_cell():
    cells = list(language.cells(Plan()))
    assert {cell.name for cell in cells} == set(language.WORKS) <= set(TABLE)
    assert {name for name, _ in language.CASES} == set(SMALL)


def test_a_record_has_a_ratio_and_a_floor(monkeypatch):
    """The figures themselves do not matter here."""
    monkeypatch.setattr(language, "floor", lambda *_: Floor(1e-9, "bytes"))
    monkeypatch.setitem(language.WORKS, "concatenate", lambda: language.concatenate((5, 7), 0))
    plan = Plan(budget=Budget(rounds=1, seconds=0.01, runs=1))
    (record,) = language._measured("concatenate", "small", (), plan)
    assert record.value and record.floor == 1e-9 and record.limit == "bytes" and not record.problem
    monkeypatch.setitem(language.WORKS, "concatenate", lambda: broken(language.concatenate((5, 7), 0)))
    (record,) = language._measured("concatenate", "small", (), plan)
    assert record.problem == "disagrees with ours: numpy" and "numpy" not in record.seconds


def broken(work):
    work.calls["numpy"] = lambda: np.zeros((10, 7), np.float32)
    return work
