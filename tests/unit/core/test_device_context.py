"""`trueno.device`: buffers and ops of one backend, and an end."""

import copy
import gc
import inspect
import pickle

import numpy as np
import pytest
import trueno
from trueno.context import DeviceContext
from trueno.dispatch.function import function
from trueno.ops import ALIASES, TABLE
from trueno.testing import assert_op

HOSTS = ("scalar", "reference")


@pytest.fixture(params=["fake", *HOSTS])
def name(request, fake):
    return request.param


@pytest.fixture
def x(rng):
    return rng.standard_normal(30).astype(np.float32)


def test_upload_compute_read(name, x):
    with trueno.device(name) as d:
        assert d.name == name and repr(d) == f"<device {name}>" and d.adapter_name
        a = d.upload(x)
        assert not isinstance(a, np.ndarray) or not np.shares_memory(a, x)
        y = d.softmax(d.scale(a, 2.0))
        total = d.sum(a)
        back = d.read(y)
        assert type(back) is np.ndarray
        assert_op("softmax", [2 * x], back)
        assert_op("sum", [x], d.read(total)[()])
        out = np.empty(30, np.float32)
        assert d.read(a, out) is out
        np.testing.assert_array_equal(out, x)
        d.add(a, a, out=a)
        np.testing.assert_array_equal(d.read(a), x + x)
        assert d.read(d.scale(a, d.read(total)[()])).shape == (30,)
        h, z = d.residual_rms_norm(a, a, d.upload(np.ones(30, np.float32)))
        assert d.read(h).shape == d.read(z).shape == (30,)
        d.synchronize()


def test_reading_gives_an_array_of_its_own(name, x):
    with trueno.device(name) as d:
        a = d.upload(x)
        d.read(a)[:] = 0
        np.testing.assert_array_equal(d.read(a), x)


def test_what_is_uploaded(name):
    with trueno.device(name) as d:
        assert d.read(d.upload([1, 2.5])).dtype == np.float32
        assert d.read(d.upload(np.arange(3, dtype=np.uint8))).dtype == np.int64
        assert d.read(d.upload(np.ones((2, 4), ">f8")[:, ::2])).tolist() == [[1, 1], [1, 1]]
        assert d.read(d.upload(trueno.Vector([1, 2]))).tolist() == [1, 2]
        table = d.upload(np.eye(3, dtype=np.float32))
        assert d.read(d.embedding_lookup(table, d.upload(np.array([2, 0])))).tolist() == [[0, 0, 1], [1, 0, 0]]
        for wrong in (["a"], np.ones(2, bool), np.ones(2, complex), np.ones(2, np.longdouble)):
            with pytest.raises(trueno.DtypeError):
                d.upload(wrong)


def test_it_decides_whatever_was_asked_for_outside(name, x):
    with trueno.use("reference"), trueno.device(name) as d, trueno.trace() as events:
        d.relu(d.upload(x))
    assert {e.backend for e in events if e.kind == "run"} == {name}


def test_limits(fake):
    fake.control.memory = 4096
    with trueno.device("fake") as d:
        assert d.limits == {"memory": 4096} and d.adapter_name == "fake device"
        d.limits["memory"] = 0
        assert d.limits == {"memory": 4096}
        with pytest.raises(trueno.OutOfMemory, match="upload: fake failed"):
            d.upload(np.ones(5000, np.float32))
    for host in HOSTS:
        assert trueno.device(host).limits == {}


def test_counts_and_nothing_is_left(fake, x):
    gc.collect()  # what other tests left
    fake.LEDGER.reset()
    before = fake.LEDGER.live
    with trueno.device("fake") as d:
        y = d.read(d.add(d.scale(d.relu(d.upload(x)), 2.0), d.upload(x)))
    np.testing.assert_array_equal(y, 2 * np.maximum(x, 0) + x)
    assert (fake.LEDGER.uploads, fake.LEDGER.downloads, fake.LEDGER.kernels, fake.LEDGER.synchronizes) == (2, 1, 3, 1)
    del d
    gc.collect()
    assert fake.LEDGER.live <= before


def test_after_close_everything_is_an_error(name, x):
    d = trueno.device(name)
    a = d.upload(x)
    assert not d.closed
    d.close()
    d.close()
    assert d.closed and repr(d) == f"<device {name}: closed>"
    calls = (
        lambda: d.upload(x),
        lambda: d.read(a),
        lambda: d.relu(a),
        lambda: d.limits,
        lambda: d.synchronize(),
        lambda: d.__enter__(),
    )
    for call in calls:
        with pytest.raises(trueno.DeviceError, match=rf"is closed; create another: trueno\.device\(.{name}.\)"):
            call()
    np.testing.assert_array_equal(trueno.numpy(a), x)  # buffers are arrays, and live on
    with pytest.raises(ZeroDivisionError), trueno.device(name) as e:
        1 / 0  # noqa: B018 - what matters is that it raises
    assert e.closed


def test_a_device_that_fails_at_its_end(fake):
    with pytest.raises(trueno.DeviceLost, match="close: fake failed"), trueno.device("fake"):
        fake.control.fail(1, "lost", "synchronize")
    fake.renew()
    d = trueno.device("fake")
    fake.control.fail(1, "error", "synchronize")
    with pytest.raises(ZeroDivisionError), d:
        1 / 0  # noqa: B018
    assert d.closed


def test_a_device_that_was_lost_says_so(fake, x):
    with trueno.device("fake") as d:
        a = d.upload(x)
        fake.control.fail(1, "lost", "kernel")
        with pytest.raises(trueno.DeviceLost):
            d.relu(a)
        for call in (lambda: d.upload(x), lambda: d.relu(a), lambda: d.read(a), lambda: d.limits):
            with pytest.raises(trueno.BackendUnavailable, match="lost"):
                call()
    assert d.closed


def test_arrays_of_another_device(fake, x):
    a = trueno.to(x, "fake")
    with trueno.device("fake") as d, trueno.device("scalar") as h:
        for call in (lambda: d.relu(x), lambda: d.add(a, x), lambda: d.relu([1.0]), lambda: d.read(x)):
            with pytest.raises(trueno.DeviceError, match=r"not a buffer of fake; upload it first: \.upload\("):
                call()
        for call in (lambda: h.relu(a), lambda: h.add(x, a), lambda: h.read(a)):
            with pytest.raises(trueno.DeviceError, match=r"is on fake, not a buffer of scalar"):
                call()
        assert type(d.relu(a)) is fake.Array  # of the same device, whoever made it
        assert type(d.relu(trueno.Vector(a))) is trueno.Vector
        np.testing.assert_array_equal(d.read(trueno.Vector(a)), x)


def test_bad_out_of_read(name, x):
    with trueno.device(name) as d:
        a = d.upload(x)
        for out in (np.empty(3, np.float32), np.empty(30), [0.0] * 30, np.empty(60, np.float32)[::2]):
            with pytest.raises(trueno.OutError, match="read: out"):
                d.read(a, out)


def test_ops_are_methods_with_their_true_signatures():
    d = trueno.device("reference")
    for op in TABLE.values():
        got, wanted = (list(inspect.signature(f).parameters.values()) for f in (getattr(d, op.name), function(op.name)))
        assert [(p.name, p.kind, repr(p.default)) for p in got] == [(p.name, p.kind, repr(p.default)) for p in wanted]
        assert getattr(d, op.name).__doc__ == function(op.name).__doc__
    assert {*TABLE, *ALIASES, "upload"} <= set(dir(d))
    assert d.read(d.subtract(d.upload([3.0]), 1.0)).tolist() == [2.0]
    own = {n for n in vars(DeviceContext) if not n.startswith("_")} - {*TABLE, *ALIASES}
    assert own == {"name", "adapter_name", "limits", "closed", "upload", "read", "synchronize", "close"}
    with pytest.raises(AttributeError, match='did you mean "relu"'):
        d.rellu  # noqa: B018


def test_errors_are_those_of_the_ops(name, x):
    with trueno.device(name) as d:
        a = d.upload(x)
        with pytest.raises(trueno.ShapeError):
            d.add(a, d.upload([1.0, 2.0]))
        with pytest.raises(trueno.ParameterError):
            d.gelu(a, approximate="wrong")
        with pytest.raises(TypeError):
            d.add(a)


def test_names(fake):
    assert trueno.device("FAKE").name == "fake"
    with pytest.raises(trueno.UnknownBackend, match='did you mean "fake"'):
        trueno.device("fakee")
    with pytest.raises(trueno.ParameterError, match="is not the name of a backend"):
        trueno.device(3)


def test_it_is_not_pickled_or_copied():
    d = trueno.device("reference")
    for function_ in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="cannot be pickled or copied"):
            function_(d)


def test_whole_numbers_never_wrap(name):
    with trueno.device(name) as d:
        assert d.read(d.upload(np.array([7], np.uint64))).tolist() == [7]
        with pytest.raises(trueno.ParameterError, match="upload: x holds 9223372036854775809, which is beyond int64"):
            d.upload(np.array([2**63 + 1], np.uint64))


def test_masks_are_not_dropped(name, x):
    with trueno.device(name) as d:
        with pytest.raises(trueno.DtypeError, match="upload: x is a masked array"):
            d.upload(np.ma.masked_array(x, True))
        with pytest.raises(trueno.OutError, match="read: out is MaskedArray"):
            d.read(d.upload(x), out=np.ma.masked_array(x, True))
