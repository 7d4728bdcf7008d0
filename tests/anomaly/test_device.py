"""A device whose arrays live elsewhere: what moves is counted, what fails costs nothing, data stay where they are."""

import copy
import gc
import os
import pickle

import numpy as np
import pytest
import trueno
from trueno.discovery import registry
from trueno.discovery.protocol import Accuracy, Rates
from trueno.ops import TABLE
from trueno.testing import CHECKS, assert_op, cases, verdict
from trueno.testing.checks import rejected

SLOW_LINK = Rates(launch_s=1e-6, flops=1e13, bytes=1e12, link_s=1e-3, link_bytes=1e6)
FAST_LINK = Rates(launch_s=1e-9, flops=1e15, bytes=1e15, link_s=1e-9, link_bytes=1e15)


def live():
    """What is allocated on the device once garbage is gone."""
    import trueno_fake

    if trueno_fake.LEDGER.live:
        gc.collect()
    return trueno_fake.LEDGER.live


def replan():
    """Choose again: the device changed what it declares."""
    from trueno.dispatch.state import forget_plans

    forget_plans()


# ---- host arrays --------------------------------------------------------------------------------------


def test_host_arrays_are_ferried(fake, rng):
    x, y = rng.standard_normal((2, 100)).astype(np.float32)
    with trueno.use("fake"):
        result = trueno.add(x, y)
    assert type(result) is np.ndarray
    np.testing.assert_array_equal(result, x + y)
    counts = fake.LEDGER
    assert (counts.uploads, counts.downloads, counts.kernels, counts.submits) == (2, 1, 1, 1)
    assert (counts.bytes_up, counts.bytes_down) == (2 * x.nbytes, x.nbytes)
    assert counts.allocs == 3
    assert live() == 0


def test_one_operand_twice_is_uploaded_once(fake):
    x = np.ones(100, np.float32)
    with trueno.use("fake"):
        trueno.add(x, x)
    assert fake.LEDGER.uploads == 1


@pytest.mark.parametrize("op", ["add", "softmax", "layer_norm", "residual_rms_norm", "argmax", "matmul", "outer"])
def test_ops_of_every_form(fake, rng, op):
    for dtype in ("float32", "float64"):
        for case in cases(TABLE[op], dtype, long=False):
            with trueno.use("fake"):
                result = getattr(trueno, op)(*case.operands, **case.kwargs)
            results = result if isinstance(result, tuple) else (result,)
            found = verdict(case.op, case.operands, case.kwargs, dtype, results, Accuracy())
            assert found.ok, f"{case}: {found}"
    assert live() == 0


def test_transfers_are_events(fake):
    x = np.ones(1000, np.float32)
    before = trueno.stats()
    with trueno.use("fake"), trueno.trace() as events:
        trueno.add(x, x + 1)
    moved = [e for e in events if e.kind == "transfer"]
    assert [e.bytes for e in moved] == [4000, 4000, 4000]
    assert all(e.op == "add" and e.backend == "fake" and e.seconds >= 0 for e in moved)
    after = trueno.stats()
    for direction, count in (("to device", 2), ("to host", 1)):
        old, new = (s.transfers.get((direction, "fake")) for s in (before, after))
        assert new.count - (old.count if old else 0) == count
        assert new.bytes - (old.bytes if old else 0) == count * 4000


def test_three_single_calls_move_everything_three_times(fake, rng):
    """What a batch will spare: relu, scale and add of two host arrays, one by one."""
    x, y = rng.standard_normal((2, 64)).astype(np.float32)
    with trueno.use("fake"):
        trueno.add(trueno.scale(trueno.relu(x), 2.0), y)
    assert (fake.LEDGER.uploads, fake.LEDGER.downloads, fake.LEDGER.kernels) == (4, 3, 3)


# ---- residency ----------------------------------------------------------------------------------------


def test_data_stay_on_the_device(fake, rng):
    x, y = rng.standard_normal((2, 4, 50)).astype(np.float32)
    a, b = trueno.to(x, "fake"), trueno.to(y, "fake")
    assert type(a) is fake.Array and a.shape == x.shape and a.dtype == x.dtype
    fake.LEDGER.reset()
    c = trueno.softmax(trueno.add(a, b))
    total = trueno.sum(c)
    product = trueno.matmul(c, trueno.transpose(b))
    assert type(c) is type(total) is type(product) is fake.Array
    assert (fake.LEDGER.uploads, fake.LEDGER.downloads) == (0, 0)
    assert_op("sum", [trueno.numpy(c)], trueno.numpy(total))
    home = trueno.numpy(c)
    assert type(home) is np.ndarray
    assert_op("softmax", [x + y], home)
    assert trueno.to(a, "fake") is a
    assert trueno.explain("add", a, b).chosen == "fake" and trueno.explain("add", a, b).by == "resident"


def test_rows_of_blocks_interleave_where_they_are(fake, rng):
    f = trueno.quant.FORMATS["q4_k"]
    rows = rng.integers(0, 100, (40, f.row_bytes(512)), np.uint8)  # no exponent of a NaN
    q = trueno.QuantizedMatrix(trueno.to(rows, "fake"), (40, 512), "q4_k")
    laid = q.interleaved()
    assert type(laid.bytes) is fake.Array
    assert np.array_equal(trueno.numpy(laid.bytes), trueno.QuantizedMatrix(rows, q.shape, "q4_k").interleaved().bytes)
    assert type(laid.plain().bytes) is fake.Array
    assert np.array_equal(trueno.numpy(laid.plain().bytes), rows)
    assert repr(laid).endswith("q4_k_r16, 4.5 bits an element, on fake>")
    y = laid @ trueno.to(np.ones(512, np.float32), "fake")
    assert type(y) is fake.Array
    assert np.array_equal(trueno.numpy(y), trueno.numpy(q @ trueno.to(np.ones(512, np.float32), "fake")))


def test_numbers_go_to_the_device(fake):
    a = trueno.to(np.ones(8, np.float32), "fake")
    assert trueno.numpy(trueno.add(a, 1.5)).tolist() == [2.5] * 8
    assert trueno.numpy(trueno.scale(a, 3.0)).tolist() == [3.0] * 8


def test_broadcasts_and_axes_on_the_device(fake, rng):
    x = rng.standard_normal((3, 4, 5)).astype(np.float32)
    w = rng.standard_normal((4, 1)).astype(np.float32)
    a, b = trueno.to(x, "fake"), trueno.to(w, "fake")
    np.testing.assert_array_equal(trueno.numpy(trueno.add(a, b)), x + w)
    np.testing.assert_allclose(trueno.numpy(trueno.sum(a, axis=0)), x.sum(0), rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(trueno.numpy(trueno.argmax(a, axis=None)), np.argmax(x))
    i = trueno.to(np.array([2, 0]), "fake")
    table = trueno.to(x[0], "fake")
    np.testing.assert_array_equal(trueno.numpy(trueno.embedding_lookup(table, i)), x[0][[2, 0]])
    before = fake.LEDGER.downloads
    there = trueno.embedding_lookup(table, trueno.to(np.array([9, 1, -1]), "fake"))  # which nobody at home looks at
    assert fake.LEDGER.downloads == before
    got = trueno.numpy(there)
    assert np.isnan(got[[0, 2]]).all()
    np.testing.assert_array_equal(got[1], x[0][1])
    with pytest.raises(trueno.ParameterError, match="is 9"):
        trueno.embedding_lookup(table, 9)


def test_out_on_the_device(fake, rng):
    x = rng.standard_normal(20).astype(np.float32)
    a = trueno.to(x, "fake")
    assert trueno.add(a, a, out=a) is a
    np.testing.assert_array_equal(trueno.numpy(a), x + x)
    with pytest.raises(trueno.OutError, match="fake"):
        trueno.add(a, a, out=np.empty(20, np.float32))
    with pytest.raises(trueno.TruenoError):
        trueno.add(x, x, out=a)


def test_two_places_are_an_error_that_says_how_to_move(fake):
    x = np.ones(8, np.float32)
    a = trueno.to(x, "fake")
    for call in (lambda: trueno.add(a, x), lambda: trueno.add(x, a), lambda: trueno.matmul(trueno.to(
        np.ones((2, 2), np.float32), "fake"), np.ones((2, 2), np.float32))):  # fmt: skip
        with pytest.raises(trueno.DeviceError, match=r"trueno\.to\(|trueno\.numpy\(") as caught:
            call()
        assert "host" in str(caught.value) and "fake" in str(caught.value)
    with trueno.use("scalar"), pytest.raises(trueno.DeviceError, match=r"trueno\.to"):
        trueno.add(a, a)
    fake.LEDGER.reset()
    with pytest.raises(trueno.DeviceError):
        trueno.add(a, x)
    assert (fake.LEDGER.uploads, fake.LEDGER.downloads, fake.LEDGER.allocs) == (0, 0, 0)


def test_two_devices_are_an_error_that_names_both(fake, plugins):
    plugins(chaos=["wrong_home"], TRUENO_PROBE="off")
    x = np.ones(8, np.float32)
    a, b = trueno.to(x, "fake"), trueno.to(x, "wrong_home")
    with pytest.raises(trueno.DeviceError, match=r"trueno\.to\(") as caught:
        trueno.add(a, b)
    assert "fake" in str(caught.value) and "wrong_home" in str(caught.value)
    there = trueno.to(b, "fake")  # from one device to another, by way of the host
    assert trueno.numpy(trueno.add(a, there)).tolist() == [2] * 8


def test_nothing_is_converted_in_silence(fake):
    a = trueno.to(np.ones(3, np.float32), "fake")
    for hidden in (np.asarray, bool, float, list, pickle.dumps, copy.copy, lambda v: v + v, lambda v: np.add(v, v)):
        with pytest.raises(TypeError):
            hidden(a)
    with pytest.raises(ValueError, match="reshape"):
        a.reshape((2, 2))


def test_bad_operands_on_the_device(fake):
    a, b = (trueno.to(np.ones(n, np.float32), "fake") for n in (3, 4))
    with pytest.raises(trueno.ShapeError):
        trueno.add(a, b)
    with pytest.raises(trueno.DtypeError):
        trueno.add(a, trueno.to(np.ones(3), "fake"))
    with pytest.raises(trueno.DtypeError):
        trueno.relu(trueno.to(np.ones(3, np.int64), "fake"))
    with pytest.raises(trueno.DtypeError):
        trueno.to(np.array(["a"]), "fake")
    with pytest.raises(trueno.UnknownBackend):
        trueno.to(np.ones(3), "faky")


# ---- choosing -----------------------------------------------------------------------------------------


def test_small_host_arrays_stay_home_and_resident_ones_stay_there(fake):
    fake.control.rates = SLOW_LINK
    replan()
    for n in (1, 1000, 90_000, 1_000_000):
        x = np.ones(n, np.float32)
        assert trueno.explain("add", x, x).chosen != "fake"
        a = trueno.to(x, "fake")
        assert trueno.explain("add", a, a).chosen == "fake"
    fake.LEDGER.reset()
    trueno.add(x, x)
    assert fake.LEDGER.kernels == 0


def test_a_fast_link_draws_large_arrays(fake):
    fake.control.rates = FAST_LINK
    replan()
    small, large = np.ones(1000, np.float32), np.ones(1 << 20, np.float32)
    assert trueno.explain("add", small, small).chosen != "fake"
    assert {c.name: c.code for c in trueno.explain("add", small, small).candidates}["fake"] == "too_small"
    decision = trueno.explain("add", large, large)
    assert decision.chosen == "fake"
    assert next(c for c in decision.candidates if c.name == "fake").moved >= 2 * large.nbytes
    fake.LEDGER.reset()
    np.testing.assert_array_equal(trueno.add(large, large), large + large)
    assert fake.LEDGER.kernels == 1
    m = np.ones((700, 700), np.float32)
    assert trueno.explain("matmul", m, m).chosen == "fake"
    assert trueno.explain("matmul", m[:20, :20], m[:20, :20]).chosen != "fake"


def test_preferring_and_explaining_run_nothing(fake):
    x = np.ones(10, np.float32)
    with trueno.prefer("fake"):
        decision = trueno.explain("add", x, x)
        assert decision.chosen == "fake" and decision.by == "preferred"
        assert trueno.add(x, x).tolist() == [2] * 10
    assert fake.LEDGER.kernels == 1


# ---- failing ------------------------------------------------------------------------------------------


def chain(x, w):
    """A few calls of different form."""
    y = trueno.add(x, x)
    y = trueno.rms_norm(y, w)
    return trueno.matvec(y, w)


def sample(rng):
    return rng.standard_normal((8, 16)).astype(np.float32), rng.standard_normal(16).astype(np.float32)


def each_n(fake, how, settings, run, kind=""):
    """`run` with the device failing at operation 1, 2, … until it is over without a failure; nothing may leak."""
    for n in range(1, 100):
        fake.renew(**settings)
        held = live()
        fake.control.fail(n, how, kind)
        run(n)
        over = fake.control.seen < n
        fake.control.reset()
        assert live() == held, f"leaked at operation {n}"
        if over:
            return n - 1
    raise AssertionError("it never ends")


@pytest.mark.parametrize("how", ["error", "memory", "lost"])
def test_whatever_fails_an_automatic_choice_goes_on(fake, rng, how):
    x, w = sample(rng)
    with trueno.use("reference"):
        right = chain(x, w)
    before = x.tobytes(), w.tobytes()

    def run(n):
        with trueno.prefer("fake"):
            np.testing.assert_allclose(chain(x, w), right, rtol=1e-5, atol=1e-6, err_msg=f"failed at {n}")
        assert (x.tobytes(), w.tobytes()) == before

    assert each_n(fake, how, {"TRUENO_FALLBACK": "silent"}, run) > 15


@pytest.mark.parametrize("how, error", [
    ("error", trueno.KernelError), ("memory", trueno.OutOfMemory), ("lost", trueno.DeviceLost),
])  # fmt: skip
def test_whatever_fails_an_explicit_choice_says_so(fake, rng, how, error):
    x, w = sample(rng)
    before = x.tobytes(), w.tobytes()
    failures = 0

    def run(n):
        nonlocal failures
        raised = None
        try:
            with trueno.use("fake"):
                chain(x, w)
        except error as caught:
            raised = caught
        if raised is not None:
            failures += 1
            assert "fake" in str(raised) and any(op in str(raised) for op in ("add", "rms_norm", "matvec"))
            assert raised.__cause__ is not None
        assert (x.tobytes(), w.tobytes()) == before

    assert each_n(fake, how, {}, run) == failures > 15


@pytest.mark.parametrize("how, error", [
    ("error", trueno.KernelError), ("memory", trueno.OutOfMemory), ("lost", trueno.DeviceLost),
])  # fmt: skip
def test_whatever_fails_on_resident_arrays_says_so(fake, rng, how, error):
    """Compute follows data, so no other code can take over: an error of the right kind that names the device."""
    x, w = sample(rng)

    def run(n):
        said = "fake"
        try:
            chain(trueno.to(x, "fake"), trueno.to(w, "fake"))
        except error as raised:
            said = str(raised)
        assert "fake" in said

    each_n(fake, how, {}, run)


@pytest.mark.parametrize("how", ["error", "memory"])
def test_out_on_the_device_survives(fake, rng, how):
    """A kernel that wrote half of a resident `out` before it failed has not written over the operand."""
    x = rng.standard_normal(32).astype(np.float32)

    def run(n):
        a = b = None
        try:
            a, b = trueno.to(x, "fake"), trueno.to(x, "fake")
            trueno.add(a, b, out=a)
        except trueno.TruenoError:
            if b is not None:
                fake.control.reset()
                np.testing.assert_array_equal(trueno.numpy(a), x)

    each_n(fake, how, {}, run)


def test_no_memory_is_a_fallback_or_an_error(fake, rng):
    x = rng.standard_normal(1000).astype(np.float32)
    for budget in (0, 3999, 4000, 8000, 11_999):
        fake.renew()
        fake.control.memory = budget
        with trueno.use("fake"), pytest.raises(trueno.OutOfMemory, match="add: fake") as caught:
            trueno.add(x, x + 1, out=x)
        assert isinstance(caught.value, MemoryError) and "bytes" in str(caught.value)
        del caught  # its traceback holds the arrays of the call
        with trueno.prefer("fake"), pytest.warns(trueno.TruenoWarning, match="fake"):
            np.testing.assert_array_equal(trueno.add(x, x + 1), x + (x + 1))
        assert live() == 0
    fake.renew()
    fake.control.memory = 12_000
    with trueno.use("fake"):
        np.testing.assert_array_equal(trueno.add(x, x + 1), x + (x + 1))
    assert fake.LEDGER.peak_bytes == 12_000
    fake.control.memory = 10
    with pytest.raises(trueno.OutOfMemory):
        trueno.to(x, "fake")


def test_a_lost_device_stays_lost(fake):
    x = np.ones(8, np.float32)
    a = trueno.to(x, "fake")
    fake.control.fail(1, "lost")
    with pytest.raises(trueno.DeviceLost, match="fake"):
        trueno.add(a, a)
    entry = trueno.backends()["fake"]
    assert not entry.available and entry.code == "lost" and "lost" in entry.reason
    with pytest.raises(trueno.BackendUnavailable, match="lost"), trueno.use("fake"):
        trueno.add(x, x)
    with pytest.raises(trueno.TruenoError, match="lost"):
        trueno.numpy(a)
    with pytest.raises(trueno.TruenoError, match="lost"):
        trueno.add(a, a)
    assert trueno.add(x, x).tolist() == [2] * 8


def test_lost_inside_a_context(fake):
    """`use` was entered before the device went away: the calls inside still say what happened."""
    x = np.ones(8, np.float32)
    with trueno.use("fake"):
        trueno.add(x, x)
        fake.control.fail(1, "lost")
        for _ in range(2):
            with pytest.raises((trueno.DeviceLost, trueno.BackendUnavailable), match=r"(?i)lost"):
                trueno.add(x, x)
        with pytest.raises((trueno.DeviceLost, trueno.BackendUnavailable), match=r"(?i)lost"):
            trueno.sum(x)


def test_empty_gives_another_shape(fake):
    x = np.ones(8, np.float32)
    fake.control.wrong_shape = True
    with trueno.use("fake"), pytest.raises(trueno.KernelError, match="shape"):
        trueno.add(x, x)
    a = trueno.to(x, "fake")
    with pytest.raises(trueno.KernelError, match="shape"):
        trueno.add(a, a)
    with trueno.prefer("fake"), pytest.warns(trueno.TruenoWarning, match="fake"):
        assert trueno.add(x, x).tolist() == [2] * 8


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_fork_after_use(host):
    """The child of a fork cannot use the device, says so, and computes elsewhere; the parent goes on."""
    met = host(fake=None).says("""
x = np.ones(8, np.float32)
with trueno.use("fake"):
    trueno.add(x, x)
read, write = os.pipe()
pid = os.fork()
if not pid:
    total = trueno.add(x, x).tolist()
    try:
        trueno.use("fake").__enter__()
        raised = ""
    except trueno.BackendUnavailable as error:
        raised = str(error)
    os.write(write, json.dumps([total, raised]).encode())
    os._exit(0)
os.waitpid(pid, 0)
with trueno.use("fake"):
    total = trueno.add(x, x).tolist()
say(child=json.loads(os.read(read, 9999)), parent=total)
""")
    assert met["parent"] == met["child"][0] == [2] * 8
    assert "spawn" in met["child"][1] and met["child"][1].startswith("fake: ")


@pytest.mark.parametrize("late", [False, True])
def test_guards_on_the_device(fake, late):
    """A device may tell its status bits at once, or at the next synchronize: the guard stops either way."""
    fake.control.late = late
    x = np.array([1.0, -1.0], np.float32)
    with trueno.use("fake"), trueno.JidokaGuard().on(trueno.Condition.NAN, trueno.Action.STOP):
        assert trueno.ln(np.abs(x)).tolist() == [0, 0]
        with pytest.raises(trueno.GuardError, match="fake"):
            trueno.ln(x, out=x)
        assert x.tolist() == [1, -1]
        a = trueno.to(x, "fake")
        with pytest.raises(trueno.GuardError, match="fake"):
            trueno.numpy(trueno.ln(a))
        assert trueno.numpy(trueno.ln(trueno.to(np.abs(x), "fake"))).tolist() == [0, 0]
    assert live() <= 2


@pytest.mark.parametrize("op, wrong", [("argmax", 1), ("sum", 77.0), ("neg", -5.0)])
@pytest.mark.parametrize("writes", [True, False])
def test_a_repaired_result_takes_its_place_on_the_device(fake, monkeypatch, op, wrong, writes):
    """Whatever its dtype and shape, and whether or not the backend can write without allocating."""
    backend = type(registry.load("fake"))
    kernel = backend.kernel

    def faulty(self, call):
        run = kernel(self, call)

        def wrongly(*args):
            status = run(*args)
            args[-1]._elements()[...] = wrong
            return status

        return wrongly if call.op.name == op else run

    monkeypatch.setattr(backend, "kernel", faulty)
    if not writes:
        monkeypatch.delattr(backend, "write")
    replan()
    x = np.array([4.0, 1.0, 3.0, 2.0], np.float32)
    with trueno.JidokaGuard().on(trueno.Condition.divergence(1e-3), trueno.Action.FALL_BACK):
        result = getattr(trueno, op)(trueno.to(x, "fake"))
    assert trueno.to(result, "fake") is result  # it has not moved
    np.testing.assert_array_equal(trueno.numpy(result), getattr(trueno, op)(x))
    assert fake.LEDGER.copies == (not writes)
    replan()


def everything(x):
    """Every way to the device and back that is not a batch."""
    d, e = trueno.to(x, "fake"), trueno.to(x, "fake")
    trueno.add(d, 2.0, out=e)
    trueno.softmax(d, axis=0)
    trueno.add(d, e, out=d)
    m = copy.deepcopy(trueno.Matrix(d) @ trueno.Matrix(e))
    with trueno.use("fake"):
        trueno.matmul(x, x)
    with trueno.device("fake") as context:
        context.read(context.softmax(context.upload(x), axis=0))
    with trueno.JidokaGuard().on(trueno.Condition.divergence(1e-3), trueno.Action.FALL_BACK):
        trueno.abs(d)
    return m.numpy()


@pytest.mark.parametrize("how", ["error", "memory", "lost"])
def test_a_failure_at_any_call(fake, how):
    """The error is ours, names op and device and is of its kind; references alone free every array."""
    x = np.ones((3, 3), np.float32)
    kinds = {"error": trueno.KernelError, "memory": trueno.OutOfMemory, "lost": trueno.DeviceLost}
    fake.renew()
    want = everything(x)
    at, failed = 0, True
    while failed:
        at += 1
        fake.renew()
        before = fake.LEDGER.live
        fake.control.fail(at, how)
        failed, told = False, ""
        gc.disable()
        try:
            np.testing.assert_array_equal(everything(x), want)
        except Exception as error:
            failed, told, kind = True, f"{type(error).__name__}: {error}", type(error)
        finally:
            gc.enable()
        assert fake.LEDGER.live == before, f"call {at}: {told}"
        if failed:
            assert issubclass(kind, kinds[how]) and ": fake failed (" in told, f"call {at}: {told}"
    assert at > 30


@pytest.mark.slow
def test_conformance(fake):
    """The kit's checks on the whole table: the fake device computes what it should."""
    wrong = []
    for op in TABLE.values():
        for dtype in ("float32", "float64"):
            for name, check in CHECKS.items() if rejected(op, "fake", dtype) is None else ():
                try:
                    check(op, "fake", dtype, long=False) if name == "values" else check(op, "fake", dtype)
                except AssertionError as error:
                    wrong.append(f"{name} {op.name} {dtype}: {str(error)[:300]}")
    assert not wrong, "\n".join(wrong)
    assert live() == 0
