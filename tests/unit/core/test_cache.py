"""Calls on a device's arrays that are like an earlier one go straight to the kernel, and answer as the first did."""

from decimal import Decimal

import numpy as np
import pytest
import trueno
from trueno.discovery.entry import Entry
from trueno.dispatch import cache, device, state

F = np.float32
X = np.linspace(-2, 2, 12, dtype=F).reshape(3, 4)


@pytest.fixture
def long_way(monkeypatch):
    """Calls that went the long way, by op."""
    seen, real = [], device._run

    def counted(op, *args):
        seen.append(op.name)
        return real(op, *args)

    monkeypatch.setattr(device, "_run", counted)
    return seen


def test_the_second_call_is_short(fake, long_way):
    x, y = trueno.to(X, "fake"), trueno.to(X + 1, "fake")
    for _ in range(3):
        np.testing.assert_array_equal(trueno.numpy(trueno.add(x, y)), X + (X + 1))
        np.testing.assert_array_equal(trueno.numpy(trueno.matmul(x, trueno.transpose(y))), X @ (X + 1).T)
    assert long_way == ["add", "transpose", "matmul"]
    trueno.add(y, x)  # the same shapes and dtypes
    assert long_way.count("add") == 1
    trueno.add(trueno.to(X[:2], "fake"), trueno.to(X[:2], "fake"))
    trueno.add(trueno.to(X.astype("f8"), "fake"), trueno.to(X.astype("f8"), "fake"))
    assert long_way.count("add") == 3


def test_three_dimensions_come_back(fake, long_way):
    cube = np.arange(24, dtype=F).reshape(2, 3, 4)
    x = trueno.to(cube, "fake")
    for _ in range(2):
        assert trueno.relu(x).shape == (2, 3, 4)
        np.testing.assert_allclose(trueno.numpy(trueno.sum(x)), cube.sum(-1))
    assert long_way == ["relu", "sum"]


@pytest.mark.parametrize("first, second", [(0.0, -0.0), (-0.0, 0.0), (1, 1.0), (1.0, 1)])
def test_equal_numbers_are_not_the_same_call(fake, first, second):
    x = trueno.to(np.full(4, 3, F), "fake")
    for s in (first, second, first):
        got = trueno.numpy(trueno.scale(x, s))
        assert np.signbit(got).tolist() == [np.signbit(F(s))] * 4
        assert got.tolist() == [3.0 * s] * 4


@pytest.mark.parametrize("kind", [np.float64, np.float32, Decimal])
def test_zeros_of_other_classes_keep_their_sign(fake, kind):
    x = trueno.to(np.full(4, 3, F), "fake")
    for text in ("0", "-0", "0"):
        got = trueno.numpy(trueno.scale(x, kind(text)))
        assert np.signbit(got).tolist() == [text == "-0"] * 4


def test_an_object_is_asked_for_its_number_each_time(fake):
    class Number:
        value = 2.0

        def __float__(self):
            return self.value

    x, number = trueno.to(np.full(4, 3, F), "fake"), Number()
    for number.value in (2.0, 5.0, -1.0):
        assert trueno.numpy(trueno.scale(x, number)).tolist() == [3 * number.value] * 4
    assert trueno.numpy(trueno.clamp(x, 0.0, Number())).tolist() == [2.0] * 4
    with pytest.raises(trueno.ParameterError, match="clamp"):
        trueno.clamp(x, 0.0, number)


def test_what_is_no_number_stays_an_error(fake):
    x = trueno.to(X, "fake")
    trueno.scale(x, 1)
    trueno.scale(x, 1.0)
    for wrong in (True, "1", None):
        with pytest.raises(trueno.ParameterError, match="scale"):
            trueno.scale(x, wrong)


def test_nan_is_not_kept(fake):
    x = trueno.to(X, "fake")
    with trueno.use("fake"):
        trueno.relu(x)
        before = len(state.current.get().calls)
        for _ in range(20):
            trueno.scale(x, float("nan"))
            trueno.scale(x, np.float64("nan"))
        assert len(state.current.get().calls) == before


def test_no_more_are_kept_than_fit(fake, monkeypatch):
    monkeypatch.setattr(cache, "KEPT", 8)
    x = trueno.to(X, "fake")
    with trueno.use("fake"):
        for i in range(50):
            trueno.scale(x, i + 0.5)
            assert 0 < len(state.current.get().calls) <= 8


def test_out_is_checked_as_before(fake):
    x, out = trueno.to(X, "fake"), trueno.to(np.zeros_like(X), "fake")
    for _ in range(3):
        assert trueno.exp(x, out=out) is out
        np.testing.assert_allclose(trueno.numpy(out), np.exp(X), rtol=1e-6)
        for wrong in (trueno.to(X[:2], "fake"), trueno.to(X.astype("f8"), "fake"), np.zeros_like(X)):
            with pytest.raises(trueno.OutError, match="exp"):
                trueno.exp(x, out=wrong)


def test_a_failure_says_what_it_said_before(fake):
    x = trueno.to(X, "fake")
    said = []
    for _ in range(2):
        fake.control.fail(1, kind="kernel")
        with pytest.raises(trueno.TruenoError, match=r"exp.*fake") as caught:
            trueno.exp(x)
        said.append((type(caught.value), str(caught.value)))
        trueno.reset_quarantine()
        trueno.exp(x)
    assert said[0] == said[1]
    np.testing.assert_allclose(trueno.numpy(trueno.exp(x)), np.exp(X), rtol=1e-6)


def test_a_guard_looks_at_repetitions_too(fake):
    x = trueno.to(np.array([1, -1], F), "fake")
    for _ in range(2):
        trueno.log(x)
    with trueno.JidokaGuard().on(trueno.Condition.NAN, trueno.Action.STOP):
        for _ in range(2):
            with pytest.raises(trueno.GuardError):
                trueno.log(x)


def test_runs_are_traced_every_time(fake):
    x = trueno.to(X, "fake")
    trueno.relu(x)
    with trueno.trace() as t:
        for _ in range(3):
            trueno.relu(x)
    assert len([e for e in t if e.kind == "run"]) == 3


def test_two_devices_stay_an_error(fake):
    x = trueno.to(X, "fake")
    trueno.add(x, x)
    with pytest.raises(trueno.DeviceError):
        trueno.add(x, X)


def test_a_kernel_is_told_shapes_once(fake, monkeypatch):
    asked, called = [], []

    def kernel(real):
        def bind(shapes):
            asked.append(shapes)
            return lambda *given: called.append(len(given)) or real(*(x.reshape((12,)) for x in given))

        def made(*given):
            return real(*given)

        made.bind = bind
        return made

    x, y = trueno.to(X, "fake"), trueno.to(X + 1, "fake")
    backend = type(trueno.backends()["fake"].load())
    real = backend.kernel
    monkeypatch.setattr(backend, "kernel", lambda self, call: kernel(real(self, call)))
    monkeypatch.setattr(Entry, "atomic", True)  # nothing stands around the kernel then
    out = trueno.to(np.zeros_like(X), "fake")
    with trueno.use("fake"):
        for _ in range(3):
            np.testing.assert_array_equal(trueno.numpy(trueno.sub(x, y)), X - (X + 1))
            assert trueno.sub(y, x, out=out) is out
            np.testing.assert_array_equal(trueno.numpy(out), (X + 1) - X)
    assert asked == [((12,),) * 3]  # as the kernel sees them
    assert called == [3] * 5
