"""`trueno.split`, `trueno.repeat` and `trueno.concatenate` of many arrays against NumPy: views, and errors."""

import numpy as np
import pytest
import trueno
from trueno.errors import ParameterError, ShapeError


@pytest.mark.parametrize("axis", [0, 1, 2, -1])
def test_parts_are_views(axis):
    x = np.random.default_rng(0).normal(size=(6, 6, 6)).astype(np.float32)
    parts = trueno.split(x, [1, 0, 3, 2], axis)
    for part, want in zip(parts, np.split(x, [1, 1, 4], axis), strict=True):
        assert np.shares_memory(part, x) or not part.size
        np.testing.assert_array_equal(part, want)
    np.testing.assert_array_equal(trueno.concatenate(*trueno.split(x, (2, 4), axis=axis), axis=axis), x)


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("repeats", [0, 1, 3, [2, 0, 1, 4]])
def test_repeat_is_numpys(axis, repeats):
    x = np.arange(64, dtype=np.float32).reshape(4, 4, 4)
    np.testing.assert_array_equal(trueno.repeat(x, repeats, axis), np.repeat(x, repeats, axis))


def test_an_axis_of_one_is_repeated_without_a_copy():
    x = np.arange(8, dtype=np.float32).reshape(2, 1, 4)
    y = trueno.repeat(x, 1000, 1)
    assert y.shape == (2, 1000, 4) and np.shares_memory(x, y) and not y.flags.writeable
    np.testing.assert_array_equal(y, np.repeat(x, 1000, 1))
    np.testing.assert_array_equal(trueno.add(y, 0.0), y)


def test_lists_and_vectors():
    first, second = trueno.split(trueno.Vector([1, 2, 3]), [1, 2])
    assert first.tolist() == [1] and second.tolist() == [2, 3]
    assert trueno.repeat([1.0, 2.0], 2).tolist() == [1, 1, 2, 2]


def test_what_is_wrong_is_named():
    x = np.zeros((4, 6), np.float32)
    with pytest.raises(ShapeError, match=r"split: sizes \[4, 1\] add up to 5, but x has 6 along axis 1; list sizes"):
        trueno.split(x, [4, 1], 1)
    with pytest.raises(ShapeError, match=r"split: sizes \[7, -1\]"):
        trueno.split(x, [7, -1], 1)
    with pytest.raises(ParameterError, match="split: sizes is 2; give the number of elements of each part"):
        trueno.split(x, 2)
    with pytest.raises(ParameterError, match=r"split: axis is 2, but x has 2 dimensions"):
        trueno.split(x, [4], 2)
    with pytest.raises(ParameterError, match="repeat: repeats is -1; give a whole number"):
        trueno.repeat(x, -1)
    with pytest.raises(ParameterError, match=r"repeat: repeats is 1\.5"):
        trueno.repeat(x, 1.5)
    with pytest.raises(ShapeError, match="repeat: 3 repeats, but x has 4 along axis 0; give one for each"):
        trueno.repeat(x, [1, 2, 3])
    with pytest.raises(ParameterError, match="repeat: axis is 'a'; it must be an integer"):
        trueno.repeat(x, 2, "a")


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_many_arrays_are_joined(axis):
    rng = np.random.default_rng(2)
    shapes = [[3, 4, 5] for _ in range(5)]
    for n, shape in zip((1, 0, 7, 3, 2), shapes, strict=True):
        shape[axis] = n
    arrays = [rng.normal(size=shape).astype(np.float32) for shape in shapes]
    for count in (2, 3, 5):
        want = np.concatenate(arrays[:count], axis)
        np.testing.assert_array_equal(trueno.concatenate(*arrays[:count], axis=axis), want)
        np.testing.assert_array_equal(trueno.concatenate(arrays[:count], axis=axis), want)
        out = np.empty_like(want)
        assert trueno.concatenate(tuple(arrays[:count]), axis=axis, out=out) is out
        np.testing.assert_array_equal(out, want)
    np.testing.assert_array_equal(trueno.concatenate(a=arrays[0], b=arrays[2], axis=axis), np.concatenate(
        (arrays[0], arrays[2]), axis))  # fmt: skip


def test_arrays_that_do_not_fit_are_named():
    x = np.zeros((4, 6), np.float32)
    with pytest.raises(ShapeError, match=r"concatenate: array 2: b has 5 along axis 1, but a has 6"):
        trueno.concatenate(x, x, x[:, :5])
    for arrays in ([x], []):
        with pytest.raises(ParameterError, match=f"concatenate: {len(arrays)} arrays?; give two or more"):
            trueno.concatenate(arrays)
    with pytest.raises(ParameterError, match="concatenate: 0 arrays; give two or more"):
        trueno.concatenate()
    with pytest.raises(ParameterError, match="concatenate: 1 array; give two or more"):
        trueno.concatenate(x)
