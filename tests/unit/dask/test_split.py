"""The derivation: stages and patterns of programs, and an op that no file of the plugin knows."""

import dask.array as da
import numpy as np
import pytest
import trueno
from trueno.dispatch.function import FUNCTIONS, build
from trueno.ops import TABLE
from trueno.ops.op import op
from trueno.programs import language as lang
from trueno_dask.folds.split import split


@pytest.mark.parametrize(
    ("name", "stages"),
    [
        ("softmax", [["max", "shifted"]]),
        ("log_softmax", [["max", "shifted"]]),
        ("variance", [["moment"]]),
        ("correlation", [["moment", "moment", "moment"]]),
        ("layer_norm", [["min", "max", "sum", "moment"]]),
        ("rms_norm", [["sum"]]),
        ("argmax", [["argmax"]]),
        ("sum_kahan", [["fsum"]]),
        ("mean", [["sum"]]),
        ("minmax_normalize", [["min", "max"]]),
    ],
)
def test_stages(name, stages):
    assert [[fold.kind for fold in folds] for folds in split(name, ()).stages] == stages


@pytest.fixture
def invented():
    """Ops of tests, taken out of the table afterwards."""
    names = []

    def add(signature, body, **facts):
        row = op(signature, **facts)(body)
        names.append(row.name)
        return build(row)

    yield add
    for name in names:
        TABLE.pop(name), FUNCTIONS.pop(name, None)
    split.cache_clear()


def _lazy(x):
    return da.from_array(x, chunks=(3, 4))


def test_an_op_of_two_stages_splits_without_an_edit(invented):
    def mean_deviation(x):
        return lang.mean(lang.abs(x - lang.mean(x)))

    function = invented("x[...,n] -> r[...]", mean_deviation, over="n")
    x = np.random.default_rng(1).standard_normal((7, 30)).astype(np.float32)
    assert len(split("mean_deviation", ()).stages) == 2
    with trueno.use("reference"):
        got = function(_lazy(x)).compute()
    assert np.allclose(got, np.abs(x - x.mean(1, keepdims=True)).mean(1), rtol=1e-5)


def test_an_op_with_results_of_both_kinds(invented):
    def spread(x, scale: float = 2.0):
        top = lang.max(x)
        return (x - top) * scale, lang.sum(lang.exp(x)), top > 1.0

    def both(x, scale: float = 2.0):
        y, total, above = spread(x, scale)
        return lang.where(above, y, -y), total

    function = invented("x[...,n] -> y[...,n] r[...]", both, over="n")
    x = np.random.default_rng(2).standard_normal((7, 30))
    with trueno.use("reference"):
        y, r = function(_lazy(x), 3.0)
        y, r = y.compute(), r.compute()
    top = x.max(1, keepdims=True)
    assert np.allclose(y, np.where(top > 1, (x - top) * 3, -(x - top) * 3)) and np.allclose(r, np.exp(x).sum(1))


def test_an_op_without_folds_that_needs_the_length_of_a_row(invented):
    def share(x):
        return x / lang.count(x)

    function = invented("x[...,n] -> y[...,n]", share, over="n")
    x = np.random.default_rng(3).standard_normal((7, 30))
    with trueno.use("reference"):
        assert np.allclose(function(_lazy(x)).compute(), x / 30)
