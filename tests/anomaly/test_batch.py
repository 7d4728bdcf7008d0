"""Batches on a device whose arrays live elsewhere: what moves is counted, what fails leaks nothing."""

import gc

import numpy as np
import pytest
import trueno
from trueno import Action, Condition, JidokaGuard

F = np.float32


def live():
    """What is allocated on the device once garbage is gone."""
    import trueno_fake

    if trueno_fake.LEDGER.live:
        gc.collect()
    return trueno_fake.LEDGER.live


def chain(b, x, y):
    h = b.upload(x)
    h = b.relu(h)
    h = b.scale(h, 2.0)
    return b.add(h, b.upload(y))


def test_a_chain_moves_each_array_once_and_is_one_kernel(fake, rng):
    x, y = rng.standard_normal((2, 100)).astype(F)
    with trueno.Batch("fake") as b:
        h = chain(b, x, y)
        b.execute()
        result = b.read(h)
        counts, ledger = b.counts, fake.LEDGER
        np.testing.assert_array_equal(result, np.maximum(x, 0) * F(2) + y)
        for seen in (counts, ledger):
            assert (seen.uploads, seen.downloads, seen.submits, seen.kernels) == (2, 1, 1, 1)
        assert ledger.synchronizes == 1 and ledger.allocs == counts.allocations == 3
        assert counts.bytes == ledger.bytes_up + ledger.bytes_down == 3 * x.nbytes
        assert counts.peak_bytes == ledger.peak_bytes == 3 * x.nbytes
    assert live() == 0


def test_a_product_with_what_follows_is_one_kernel(fake, rng):
    """gelu(x·w + bias) + residual: 4 uploads, 1 download, 1 submit, 1 kernel."""
    x, w, bias, residual = (rng.standard_normal(s).astype(F) for s in ((6, 5), (5, 7), (7,), (6, 7)))
    with trueno.Batch("fake") as b:
        h = b.matmul(b.upload(x), b.upload(w))
        h = b.add(b.gelu(b.add(h, b.upload(bias))), b.upload(residual))
        b.execute()
        result = b.read(h)
        for seen in (b.counts, fake.LEDGER):
            assert (seen.uploads, seen.downloads, seen.submits, seen.kernels) == (4, 1, 1, 1)
        assert fake.LEDGER.allocs == 5
        np.testing.assert_allclose(result, trueno.gelu(x @ w + bias) + residual, rtol=1e-4, atol=1e-5)
    assert live() == 0


def test_single_calls_move_more(fake, rng):
    x, y = rng.standard_normal((2, 100)).astype(F)
    with trueno.use("fake"):
        trueno.add(trueno.scale(trueno.relu(x), 2.0), y)
    assert fake.LEDGER.uploads + fake.LEDGER.downloads >= 6 and fake.LEDGER.kernels == 3


def test_use_and_data_choose_the_device_too(fake):
    x = np.ones(10, F)
    with trueno.use("fake"), trueno.Batch() as b:
        h = chain(b, x, x)
        b.execute()
        assert b.read(h)[0] == 3 and fake.LEDGER.kernels == 1
    there = trueno.to(x, "fake")
    before = fake.LEDGER.uploads
    with trueno.Batch() as b:
        h = b.relu(b.upload(there))
        b.execute()
        assert b.read(h)[0] == 1 and fake.LEDGER.uploads == before and b.counts.uploads == 0
    with trueno.Batch("scalar") as b, pytest.raises(trueno.DeviceError, match=r"trueno\.numpy"):
        b.upload(there)
    del there, h
    assert live() == 0


def test_numbers_are_not_uploaded(fake):
    with trueno.Batch("fake") as b:
        h = b.maximum(b.add(b.upload(np.zeros(8, F)), 3), 1.5)
        b.execute()
        assert b.read(h)[0] == 3 and fake.LEDGER.uploads == 1


def test_executing_again_with_other_arrays_allocates_nothing(fake, rng):
    x, y, z = rng.standard_normal((3, 64)).astype(F)
    with trueno.Batch("fake") as b:
        hx = b.upload(x)
        h = b.softmax(b.add(hx, b.upload(y)))
        b.execute()
        allocs, counts = fake.LEDGER.allocs, b.counts
        b.update(hx, z)
        b.execute()
        assert fake.LEDGER.allocs == allocs and b.counts.allocations == counts.allocations
        assert fake.LEDGER.uploads == 3 and fake.LEDGER.submits == 2 and fake.LEDGER.kernels == 2
        np.testing.assert_allclose(b.read(h), trueno.softmax(z + y), rtol=1e-5)


def test_what_no_kernel_takes_goes_home_and_comes_back(fake, rng):
    x = rng.standard_normal((4, 6)).astype(F)
    with trueno.Batch("fake") as b:
        h = b.relu(b.softmax(b.relu(b.upload(x)), axis=0))
        t = b.transpose(h)
        b.execute()
        np.testing.assert_allclose(b.read(t), trueno.softmax(np.maximum(x, 0), axis=0).T, rtol=1e-5)
    del h, t
    assert live() == 0


def program(b, x, w):
    """Every kind of step: fused, structured, reused buffers, two results, the general path."""
    hx, hw = b.upload(x), b.upload(w)
    h = b.matmul(b.relu(b.add(hx, hw)), b.scale(hx, 2.0))
    h, y = b.residual_rms_norm(h, hx, hw)
    return b.add(b.softmax(h, axis=0), y), b.sum(y)


@pytest.mark.parametrize("how", ["error", "memory", "lost"])
def test_a_failure_at_any_call(fake, rng, how):
    """Whatever fails is an error with the op or the batch in it, or a right answer; nothing leaks; then it works."""
    x = rng.standard_normal((6, 6)).astype(F)
    w = rng.standard_normal(6).astype(F)
    with trueno.Batch("reference") as b:
        handles = program(b, x, w)
        b.execute()
        want = [b.read(h) for h in handles]
    kinds = {"error": trueno.KernelError, "memory": trueno.OutOfMemory, "lost": trueno.DeviceLost}
    at, failed = 0, True
    while failed:
        at += 1
        fake.renew()
        fake.control.fail(at, how)
        failed = False
        b, handles = trueno.Batch("fake"), None
        try:
            handles = program(b, x, w)
            b.execute()
            got = [b.read(h) for h in handles]
        except trueno.TruenoError as error:
            failed = True
            told = isinstance(error, kinds[how]) and "fake" in str(error)
            if not told:
                raise AssertionError(f"call {at} is told as {type(error).__name__}: {error}") from error
            if how != "lost" and handles:  # all was recorded, and the uploads are intact
                try:
                    b.execute()
                    got = [b.read(h) for h in handles]
                except trueno.TruenoError as again:
                    raise AssertionError(f"call {at}: the second time {again}") from again
                for g, v in zip(got, want, strict=True):
                    np.testing.assert_allclose(g, v, rtol=1e-5, atol=1e-6, err_msg=f"call {at}")
            del error
        b.close()
        handles = got = None
        assert live() == 0, f"call {at}: {live()} arrays are left"
        assert fake.LEDGER.batching == 0
    assert at > 15


def test_the_callers_own_device_array_is_never_written(fake, rng):
    x, y = rng.standard_normal((2, 50)).astype(F)
    theirs = trueno.to(x, "fake")
    with trueno.Batch("fake") as b:
        h = b.upload(theirs)
        r = b.relu(h)
        b.execute()
        b.update(h, y)
        b.execute()
        np.testing.assert_array_equal(b.read(r), np.maximum(y, 0))
        b.update(h, theirs)
        b.update(h, y)
        np.testing.assert_array_equal(trueno.numpy(theirs), x)


def test_out_may_be_strided(fake):
    out = np.zeros((3, 8), F)
    with trueno.Batch("fake") as b:
        h = b.relu(b.upload(np.ones((3, 4), F)))
        b.execute()
        assert b.read(h, out=out[:, ::2]).base is out and out.sum() == 12


def test_a_backend_may_not_know_out(fake, monkeypatch):
    backend = trueno.discovery.registry.load("fake")
    to_host = backend.to_host
    monkeypatch.setattr(backend, "to_host", lambda x, out=None: to_host(x))
    out = np.zeros(4, F)
    with trueno.Batch("fake") as b, trueno.device("fake") as d:
        h = b.relu(b.upload(np.ones(4, F)))
        b.execute()
        assert b.read(h, out=out) is out and out.sum() == 4
        assert d.read(d.upload([2.0] * 4), out=out) is out and out.sum() == 8


@pytest.mark.parametrize("how", ["error", "memory", "lost"])
@pytest.mark.parametrize("kind", ["kernel", "submit", "synchronize"])
def test_every_error_of_an_execution_says_which_ops_it_was(fake, how, kind):
    with trueno.Batch("fake") as b:
        square = b.upload(np.ones((2, 2), F))
        held = chain(b, np.ones(10, F), np.ones(10, F)), b.matmul(square, square)
        fake.control.fail(1, how, kind)
        with pytest.raises(trueno.TruenoError, match="fake failed") as caught:
            b.execute()
        text = " ".join([str(caught.value), *caught.value.__notes__])
        assert "relu" in text and text.count("fake failed") == 1
        if kind == "kernel":
            assert "kernel 1 of 2, 3 ops in one kernel: relu, scale, add" in text
        else:
            assert "when its kernels were submitted: relu_scale_add" in text and "matmul" in text
        del held


def test_the_error_names_the_op_and_its_parts(fake):
    with trueno.Batch("fake") as b:
        h = chain(b, np.ones(10, F), np.ones(10, F))
        fake.control.fail(1, "error", "kernel")
        with pytest.raises(trueno.KernelError, match=r"relu_scale_add_.*: fake failed") as caught:
            b.execute()
        assert "kernel 1 of 1, 3 ops in one kernel: relu, scale, add" in caught.value.__notes__[0]
        with pytest.raises(trueno.BatchError, match="not executed"):
            b.read(h)
        b.execute()
        assert b.read(h)[0] == 3


@pytest.mark.parametrize("how", ["automatic", "explicit"])
def test_an_automatic_choice_falls_back_and_an_explicit_one_raises(plugins, how):
    plugins(chaos=["raises_mid_run"], TRUENO_PROBE="off")
    trueno.discovery.registry.load("raises_mid_run")
    from trueno_chaos.running import control

    x, y = np.ones(10, F), np.full(10, 2, F)
    with trueno.prefer("raises_mid_run"), trueno.Batch(None if how == "automatic" else "raises_mid_run") as b:
        h = chain(b, x, y)
        b.execute()
        assert b.read(h)[0] == 4 and "raises_mid_run" in str(b)
        control.arm()
        if how == "explicit":
            with pytest.raises(trueno.KernelError, match=r"relu_scale_add_.*: raises_mid_run failed"):
                b.execute()
        else:
            with pytest.warns(trueno.TruenoWarning, match=r"relu_scale_add_.* runs it from now on"):
                b.execute()
            assert b.read(h)[0] == 4 and "raises_mid_run" not in str(b)
            b.execute()
        assert (x == 1).all() and (y == 2).all()
    trueno.reset_quarantine()


@pytest.mark.parametrize("late", [False, True])
def test_guards_work_inside(fake, late):
    fake.control.late = late
    x = np.array([1.0, -1.0, 4.0], F)
    guard = JidokaGuard().on(Condition.NAN, Action.STOP)
    with trueno.Batch("fake") as b:
        h = b.scale(b.sqrt(b.upload(x)), 2.0)
        with guard, pytest.raises(trueno.GuardError, match="sqrt_scale"):
            b.execute()
        b.execute()
        assert np.isnan(b.read(h)[1])


def test_a_lost_device_is_an_error_and_closing_works(fake):
    b = trueno.Batch("fake")
    h = chain(b, np.ones(10, F), np.ones(10, F))
    fake.control.lost = True
    with pytest.raises(trueno.DeviceLost):
        b.execute()
    with pytest.raises(trueno.BatchError):
        b.read(h)
    b.close()
    assert live() == 0
    fake.control.reset()
