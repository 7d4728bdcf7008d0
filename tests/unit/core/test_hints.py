"""Spellings of NumPy and PyTorch: taken, or refused with a sentence that names ours, in a short traceback."""

import traceback
from itertools import combinations

import numpy as np
import pytest
import trueno
from trueno import OutError, ParameterError, ShapeError, UnknownKeyword
from trueno.ops import TABLE

F = np.float32
ALONG = [op for op in TABLE.values() if op.over and not op.structured]
SUMS = [op.name for op in ALONG if op.reduces and not op.signature.outputs[0].type]


@pytest.fixture(autouse=True)
def _quick():
    with trueno.use("reference"):
        yield


@pytest.mark.parametrize(
    "name, keywords, hint",
    [
        ("softmax", {"dim": -1}, r"its name here is axis: softmax\(x, axis=-1\)"),
        ("sum", {"keepdim": True}, r"its name here is keepdims: sum\(x, keepdims=True\)"),
        ("std", {"ddof": 1}, r"it divides by n: multiply the result by sqrt\(n / \(n - 1\)\)"),
        ("var", {"correction": 1}, r"it divides by n: multiply the result by n / \(n - 1\)"),
        ("mean", {"dtype": F}, "the result has the dtype of the operands"),
        ("max", {"initial": 0}, "combine the result with it"),
        ("softmax", {"axsi": 0}, 'did you mean "axis"'),
        ("softmax", {"verbosity": 0}, "keywords are axis, out"),
    ],
)
def test_a_keyword_of_another_library(name, keywords, hint):
    for call in (getattr(trueno, name), lambda x, **kw: getattr(trueno.Vector(x), name)(**kw)):
        with pytest.raises(UnknownKeyword, match=hint) as caught:
            call(np.ones(3, F), **keywords)
        assert isinstance(caught.value, TypeError) and isinstance(caught.value, ParameterError)
        assert f"there is no keyword {next(iter(keywords))!r}" in str(caught.value)


def test_the_axis_by_position(rng):
    x = rng.standard_normal((3, 4)).astype(F)
    assert np.array_equal(trueno.sum(x, 0), trueno.sum(x, axis=0))
    assert np.array_equal(trueno.softmax(x, 0), trueno.softmax(x, axis=0))
    assert trueno.max(x, None) == x.max()
    with pytest.raises(ParameterError, match="softmax: axis is an array"):
        trueno.softmax(x, x)
    with pytest.raises(TypeError):
        trueno.dot(x, x, 0)


@pytest.mark.parametrize("name", SUMS)
def test_several_axes_are_one(rng, name):
    op = TABLE[name]
    shape = (2, 3, 4)
    operands = [rng.standard_normal(shape).astype(F) for _ in op.operands]
    f = getattr(trueno, name)
    for count in (1, 2, 3):
        for axes in combinations(range(3), count):
            kept = [i for i in range(3) if i not in axes]
            moved = [
                np.ascontiguousarray(x.transpose(*kept, *axes)).reshape([shape[i] for i in kept] + [-1])
                for x in operands
            ]
            wanted = f(*moved)
            signed = tuple(int(rng.choice([a, a - 3])) for a in axes)
            result, wide = f(*operands, axis=signed), f(*operands, axis=signed, keepdims=True)
            assert np.array_equal(result, wanted) and np.shape(result) == np.shape(wanted), axes
            assert wide.shape == tuple(1 if i in axes else n for i, n in enumerate(shape))
            assert np.array_equal(wide.ravel(), np.ravel(wanted))
            out = np.zeros_like(wide)
            assert f(*operands, axis=signed, keepdims=True, out=out) is out and np.array_equal(out, wide)


def test_several_axes_agree_with_numpy(rng):
    x, y = rng.standard_normal((2, 4, 5, 3))
    assert np.allclose(trueno.sum(x, (0, 2)), x.sum((0, 2)), rtol=1e-12)
    assert np.allclose(trueno.std(x, axis=(1, 2), keepdims=True), x.std((1, 2), keepdims=True), rtol=1e-12)
    assert np.allclose(trueno.dot(x, y[0], axis=(0, -1)), (x * y[0]).sum((0, 2)), rtol=1e-10)
    assert np.array_equal(trueno.sum(x, axis=()), x)
    assert trueno.sum([[1.0, 2.0], [3.0, 4.0]], axis=(0, 1)) == 10
    assert trueno.Matrix(x[0]).sum(axis=(0, 1)).dtype == np.float64
    assert isinstance(trueno.Matrix(x[0]).sum(axis=(0,)), trueno.Vector)


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda x: trueno.sum(x, axis=(0, 0)), r"sum: axis is \(0, 0\); it must be integers, each axis once"),
        (lambda x: trueno.sum(x, axis=(0, 2)), "sum: axis is 2, but x has 2 dimension"),
        (lambda x: trueno.sum(x, axis=(0, None)), "sum: axis is"),
        (lambda x: trueno.sum(x, axis=("a",)), "sum: axis is 'a'"),
        (lambda x: trueno.softmax(x, axis=(0, 1)), r"softmax: axis is \(0, 1\); it must be an integer"),
        (lambda x: trueno.argmax(x, axis=(0, 1)), "argmax: axis is .*a position is along one axis"),
        (lambda x: trueno.sum(x, axis=(0, 1), keepdims=1), "sum: keepdims is 1"),
    ],
)
def test_axes_that_are_not_there(call, message):
    with pytest.raises(ParameterError, match=message):
        call(np.ones((2, 3), F))


def test_out_for_several_axes_must_fit():
    x = np.ones((2, 3, 4), F)
    with pytest.raises(OutError, match=r"sum: out has shape \(4,\), but the result has \(3,\)"):
        trueno.sum(x, axis=(0, 2), out=np.zeros(4, F))
    with pytest.raises(OutError, match="sum: out for r is list"):
        trueno.sum(x, axis=(0, 2), out=[0.0] * 3)


@pytest.mark.parametrize(
    "name, shapes, better",
    [
        ("matmul", ((4, 2, 3), (4, 3, 2)), "batched_matmul"),
        ("matmul", ((2, 3), (3,)), "matvec"),
        ("matmul", ((3,), (3, 2)), "vecmat"),
        ("matmul", ((3,), (3,)), "dot"),
        ("matvec", ((2, 3), (3, 2)), "matmul"),
        ("vecmat", ((2, 3), (3,)), "matvec"),
    ],
)
def test_a_product_names_the_op_for_these_ranks(name, shapes, better):
    operands = [np.ones(shape, F) for shape in shapes]
    with pytest.raises(ShapeError, match=rf"{name}: .* needs \d dimension.*; .*trueno\.{better}\("):
        getattr(trueno, name)(*operands)
    assert np.allclose(getattr(trueno, better)(*operands), np.matmul(*operands))


def test_a_matrix_that_is_not_square():
    with pytest.raises(ShapeError, match="symmetric_eigen: a must be square, but is 2×3"):
        trueno.symmetric_eigen(np.zeros((2, 3), F))


WRONG = [
    lambda: trueno.matmul(np.ones((2, 3), F), np.ones((2, 3), F)),
    lambda: trueno.softmax(np.ones(3, F), dim=0),
    lambda: trueno.sum(np.ones(3, F), axis=(1, 2)),
    lambda: trueno.Matrix([[1.0]]) @ trueno.Matrix([[1.0], [2.0]]),
    lambda: trueno.Vector([1.0, 2.0, 3.0]) + trueno.Vector([1.0, 2.0]),
    lambda: trueno.Vector([1.0]).softmax(axis=3),
]


@pytest.mark.parametrize("call", WRONG)
def test_a_traceback_ends_at_the_callers_line(call, monkeypatch):
    def frames():
        with pytest.raises(trueno.TruenoError) as caught:
            call()
        return traceback.extract_tb(caught.value.__traceback__)[2:]  # after this function and the lambda

    assert frames() == []
    monkeypatch.setenv("TRUENO_TRACEBACK", "full")
    trueno.settings.reload()
    try:
        assert len(frames()) > 1
    finally:
        monkeypatch.undo()
        trueno.settings.reload()
