"""Plugins that fail while they run: the inputs stay, the answer is right or an error, and it is said once."""

import logging
import signal
import warnings
from contextlib import nullcontext
from functools import partial

import numpy as np
import pytest
import trueno
from trueno.testing import assert_op

RAISING = {
    "raises_mid_run": (trueno.KernelError, RuntimeError, "launch timed out"),
    "type_error_mid_run": (trueno.KernelError, TypeError, "unsupported operand"),
    "memory_error_mid_run": (trueno.OutOfMemory, MemoryError, "no scratch left"),
    "lost_mid_run": (trueno.DeviceLost, trueno.DeviceLost, "fell off the bus"),
}
REFUSING = ("refuses_after_writing",)
OPS = ("add", "softmax", "sum", "layer_norm", "residual_rms_norm", "matmul", "outer", "symmetric_eigen")


def operands(op, rng, dtype=np.float32):
    """Sound operands of an op, one call's worth."""
    m = 6
    shapes = {"outer": [(m,), (m,)], "matmul": [(m, m), (m, m)], "symmetric_eigen": [(m, m)]}
    if op in shapes:
        arrays = [rng.standard_normal(s).astype(dtype) for s in shapes[op]]
        return [arrays[0] + arrays[0].T] if op == "symmetric_eigen" else arrays
    row = trueno.testing.cases(trueno.ops.TABLE[op], dtype)
    return next(list(c.operands) for c in row if c.label == "one row of 64")


@pytest.fixture
def chaos(plugins):
    """Install one kind, without a child process that would find it out; its `control`."""

    def make(kind, **settings):
        plugins(chaos=[kind], TRUENO_PROBE="off", **settings)
        assert trueno.backends()[kind].available, trueno.backends()[kind].reason
        trueno.use(kind).__enter__  # noqa: B018 - loads it
        import trueno_chaos.running

        return trueno_chaos.running.control

    return make


def call(op, given, out=None):
    return getattr(trueno, op)(*given, out=out)


def counted(kind):
    return trueno.stats().events.get(kind, 0)


def as_bytes(arrays):
    return [a.tobytes() for a in arrays]


@pytest.mark.parametrize("name", [5, b"scalar", ["scalar"]])
def test_resetting_the_quarantine_wants_a_name(name):
    with pytest.raises(trueno.ParameterError, match=r"reset_quarantine: .* is not the name of a backend"):
        trueno.reset_quarantine(name)
    trueno.reset_quarantine("SCALAR")  # as everywhere, in any case
    assert trueno.forgive is trueno.reset_quarantine


@pytest.mark.parametrize("kind", RAISING)
@pytest.mark.parametrize("op", OPS)
def test_an_automatic_choice_falls_back(chaos, rng, kind, op):
    control = chaos(kind)
    arrays = operands(op, rng)
    assert trueno.explain(op, *arrays).chosen == kind
    before = as_bytes(arrays)
    fallbacks = counted("fallback")
    control.arm()
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        results = [call(op, arrays) for _ in range(3)]
    assert as_bytes(arrays) == before
    for result in results:
        assert_op(op, arrays, result)
    (warning,) = [w for w in said if issubclass(w.category, trueno.TruenoWarning)]
    assert op in str(warning.message) and kind in str(warning.message) and RAISING[kind][2] in str(warning.message)
    assert counted("fallback") == fallbacks + 1
    if kind == "lost_mid_run":
        entry = trueno.backends()[kind]
        assert not entry.available and entry.code == "lost" and "bus" in entry.reason
    else:
        decision = trueno.explain(op, *arrays)
        assert {c.name: c.code for c in decision.candidates}[kind] == "quarantined"


@pytest.mark.parametrize("how", ["fast", "general", "Vector"])
def test_the_warning_points_at_the_caller(chaos, how):
    """It carries the user's line, not one of Trueno's."""
    control = chaos("raises_mid_run")
    x = np.ones(64, np.float32)
    v = trueno.Vector(x)
    control.arm()
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        if how == "fast":
            trueno.add(x, x)
        elif how == "general":
            trueno.add(x[::2], 1)
        else:
            v.add(v)
    assert [w.filename for w in said] == [__file__]


@pytest.mark.parametrize("kind", RAISING)
def test_forgiving(chaos, kind):
    control = chaos(kind, TRUENO_FALLBACK="silent")
    x = np.ones(8, np.float32)
    control.arm(1, forever=False)
    assert trueno.add(x, x).tolist() == [2] * 8
    trueno.reset_quarantine(kind)
    if kind == "lost_mid_run":
        pytest.skip("a lost device does not come back in this process")
    assert trueno.explain("add", x, x).chosen == kind
    assert trueno.add(x, x).tolist() == [2] * 8


@pytest.mark.parametrize("kind", RAISING)
@pytest.mark.parametrize("op", OPS)
def test_an_explicit_choice_raises(chaos, rng, kind, op):
    control = chaos(kind)
    arrays = operands(op, rng)
    before = as_bytes(arrays)
    control.arm()
    ours, theirs, words = RAISING[kind]
    with trueno.use(kind), pytest.raises(ours) as caught:
        call(op, arrays)
    assert as_bytes(arrays) == before
    assert op in str(caught.value) and kind in str(caught.value) and words in str(caught.value)
    assert isinstance(caught.value, trueno.TruenoError)
    assert isinstance(caught.value.__cause__, theirs)


@pytest.mark.parametrize("kind", [*RAISING, *REFUSING])
@pytest.mark.parametrize("how", ["automatic", "explicit", "environment"])
@pytest.mark.parametrize("at", [1, 2, 3])
def test_out_that_is_an_operand_survives(chaos, rng, kind, how, at):
    """A kernel that wrote half of `out` before it failed has not written over the operand."""
    extra = {"TRUENO_BACKEND": kind} if how == "environment" else {}
    control = chaos(kind, **extra)
    x, y = rng.standard_normal((2, 64)).astype(np.float32)
    meant, before, other = x + y, x.copy(), y.tobytes()
    control.arm(at)
    for attempt in range(1, 4):
        np.copyto(x, before)
        failure = None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                if how == "explicit":
                    with trueno.use(kind):
                        result = trueno.add(x, y, out=x)
                else:
                    result = trueno.add(x, y, out=x)
            except (trueno.KernelError, trueno.OutOfMemory, trueno.BackendUnavailable) as error:
                failure = error
        if failure is None:
            assert result is x
            np.testing.assert_array_equal(x, meant)
        else:
            assert how != "automatic" and attempt >= at, failure
            assert kind == "lost_mid_run" or not isinstance(failure, trueno.BackendUnavailable)
            np.testing.assert_array_equal(x, before)
        assert y.tobytes() == other


def test_out_of_several_results(chaos, rng):
    control = chaos("raises_mid_run")
    arrays = operands("residual_rms_norm", rng)
    before = [a.copy() for a in arrays]
    h, y = arrays[0], np.empty_like(arrays[0])
    control.arm()
    with pytest.warns(trueno.TruenoWarning, match="raises_mid_run"):
        result = trueno.residual_rms_norm(*arrays, out=(h, y))
    assert result[0] is h and result[1] is y
    assert_op("residual_rms_norm", before, result)


def test_views_and_overlap(chaos, rng):
    """`out` that overlaps an operand by all but one element, strided operands, integers: as if nothing had failed."""
    control = chaos("raises_mid_run", TRUENO_FALLBACK="silent")
    buffer = rng.standard_normal(65).astype(np.float32)
    meant = buffer[:-1] + buffer[:-1]
    control.arm()
    trueno.add(buffer[:-1], buffer[:-1], out=buffer[1:])
    np.testing.assert_array_equal(buffer[1:], meant)
    trueno.reset_quarantine()
    x = rng.standard_normal((8, 9)).astype(np.float32)
    np.testing.assert_array_equal(trueno.add(x.T, 1.5), x.T + np.float32(1.5))


@pytest.mark.parametrize("kind", REFUSING)
@pytest.mark.parametrize("op", ["add", "softmax", "sum", "matmul"])
def test_a_refusal_after_writing_is_survived(chaos, rng, kind, op):
    """Half a result was written, then the kernel said that the call is not for it."""
    control = chaos(kind)
    arrays = operands(op, rng)
    before = as_bytes(arrays)
    control.arm()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(3):
            assert_op(op, arrays, call(op, arrays))
    with trueno.use(kind), pytest.raises(trueno.KernelError) as caught:
        call(op, arrays)
    assert op in str(caught.value) and kind in str(caught.value)
    assert as_bytes(arrays) == before


class Panic(BaseException):
    """No Exception, as what a plugin written in Rust raises where it panics."""


class Speechless(Exception):
    def __str__(self):
        raise RuntimeError("no words")


def raising(error):
    def fail():
        raise error

    return fail


@pytest.mark.parametrize("kind", ["fails", "fails_mid_run"])
@pytest.mark.parametrize("how", ["fast", "general", "batch"])
@pytest.mark.parametrize(
    "error",
    [TypeError, StopIteration, LookupError, RuntimeError, AssertionError, Panic, Speechless],
    ids=lambda e: e.__name__,
)
def test_whatever_a_kernel_raises_is_its_failure(chaos, kind, how, error):
    """It is entered once more at most, said once, counted, and left out from then on."""
    control = chaos(kind)
    x = np.arange(8, dtype=np.float32)
    control.fail = raising(error("chaos"))
    trueno.add(x, x)  # makes the plan, so that the kernel itself fails
    fallbacks, quarantines = counted("fallback"), counted("quarantine")
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        if how == "batch":
            with trueno.Batch() as b:
                h = b.add(b.upload(x), b.upload(x))
                control.arm()
                for _ in range(3):
                    b.execute()
                    assert b.read(h).tolist() == (x + x).tolist()
        else:
            y = x if how == "fast" else np.repeat(x, 2)[::2]
            control.arm()
            for _ in range(3):
                assert trueno.add(x, y).tolist() == (x + x).tolist()
    assert control.calls <= 2
    assert [kind in str(w.message) and error.__name__ in str(w.message) for w in said] == [True]
    assert (counted("fallback"), counted("quarantine")) == (fallbacks + 1, quarantines + 1)
    assert [q.backend for q in trueno.stats().quarantined] == [kind]
    decision = trueno.explain("add", x, x)
    assert decision.chosen != kind and {c.name: c.code for c in decision.candidates}[kind] == "quarantined"
    with trueno.use(kind), pytest.raises(trueno.KernelError, match=f"add: {kind} failed .{error.__name__}") as caught:
        trueno.add(x, x)
    assert isinstance(caught.value.__cause__, error)


def test_a_refusal_by_exception_is_one(chaos):
    """A kernel that cannot return says `Refused`: the next candidate computes, and nothing is wrong."""
    control = chaos("fails")
    x = np.arange(8, dtype=np.float32)
    control.fail = raising(trueno.discovery.protocol.Refused("not these"))
    control.arm()
    assert trueno.add(x, x).tolist() == (x + x).tolist()  # where a warning is an error
    assert not trueno.stats().quarantined and trueno.explain("add", x, x).chosen == "fails"
    with trueno.use("fails"), pytest.raises(trueno.KernelError, match=r"add: fails refused operands .*not these"):
        trueno.add(x, x)


@pytest.mark.skipif(not hasattr(signal, "SIGUSR1"), reason="no signal of the user's own")
@pytest.mark.parametrize("kind", ["fails", "fails_mid_run"])
@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("handler", ["function", "partial", "object", "resets itself"])
def test_what_a_signal_raises_is_the_users(chaos, kind, named, handler):
    """A timer's exception is on its way to the user; the kernel that it came by has not failed."""

    def raises(number, frame):
        if handler == "resets itself":
            signal.signal(number, signal.SIG_DFL)
        raise TimeoutError("the user's own")

    class Callable:
        def __call__(self, *given):
            raises(*given)

    too_late = {"partial": partial(raises), "object": Callable()}.get(handler, raises)
    control = chaos(kind)
    x = np.arange(8, dtype=np.float32)
    control.fail = lambda: signal.raise_signal(signal.SIGUSR1)
    before = signal.signal(signal.SIGUSR1, too_late)
    try:
        for operand in (x, 1.0):
            signal.signal(signal.SIGUSR1, too_late)
            control.arm(forever=False)
            with trueno.use(kind) if named else nullcontext(), pytest.raises(TimeoutError, match="the user's own"):
                trueno.add(x, operand)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert not trueno.stats().quarantined and trueno.explain("add", x, x).chosen == kind


@pytest.mark.parametrize("op", ["add", "sum", "matmul"])
def test_a_strange_status_is_no_success(chaos, rng, op):
    control = chaos("strange_status")
    arrays = operands(op, rng)
    control.arm()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert_op(op, arrays, call(op, arrays))
    with trueno.use("strange_status"), pytest.raises(trueno.KernelError):
        call(op, arrays)


@pytest.mark.parametrize("mode", ["error", "warn", "log", "silent"])
def test_the_fallback_setting(chaos, mode, caplog):
    control = chaos("raises_mid_run", TRUENO_FALLBACK=mode)
    x = np.arange(6, dtype=np.float32)
    control.arm()
    with warnings.catch_warnings(record=True) as said, caplog.at_level(logging.WARNING, "trueno"):
        warnings.simplefilter("always")
        if mode == "error":
            for _ in range(2):
                with pytest.raises(trueno.KernelError, match="add: raises_mid_run failed") as caught:
                    trueno.add(x, x, out=x)
                assert isinstance(caught.value.__cause__, RuntimeError)
                assert x.tolist() == [0, 1, 2, 3, 4, 5]
        else:
            for _ in range(3):
                assert trueno.add(x, x).tolist() == [0, 2, 4, 6, 8, 10]
    assert len(said) == (mode == "warn")
    assert len([r for r in caplog.records if "raises_mid_run" in r.message]) == (mode == "log")


@pytest.mark.parametrize("kind, error", [("interrupts_mid_run", KeyboardInterrupt), ("exits_mid_run", SystemExit)])
def test_what_is_no_exception_passes_through(chaos, kind, error):
    """Ctrl-C and exit are the user's: no fallback catches them, and the operand is whole."""
    control = chaos(kind)
    x = np.arange(6, dtype=np.float32)
    control.arm()
    with pytest.raises(error):
        trueno.add(x, x, out=x)
    assert x.tolist() == [0, 1, 2, 3, 4, 5]
    control.arm(0)
    assert trueno.add(x, x).tolist() == [0, 2, 4, 6, 8, 10]
    assert trueno.explain("add", x, x).chosen == kind


def test_it_fails_at_every_call(chaos, rng):
    """Fail at call n for n in 1 … 12 of a small program: the same answer every time, or nothing is lost."""
    x = rng.standard_normal((5, 33)).astype(np.float32)
    w = rng.standard_normal(33).astype(np.float32)

    def program():
        y = trueno.add(x, x)
        y = trueno.rms_norm(y, w)
        trueno.scale(y, 0.5, out=y)
        z = trueno.matmul(y, np.ascontiguousarray(x.T))
        return trueno.softmax(z)

    control = chaos("raises_mid_run", TRUENO_FALLBACK="silent")
    meant, before = program(), (x.tobytes(), w.tobytes())
    for n in range(1, 8):
        trueno.reset_quarantine()
        control.arm(n, forever=False)
        np.testing.assert_allclose(program(), meant, rtol=1e-6)
        assert (x.tobytes(), w.tobytes()) == before


@pytest.mark.parametrize("kind", ["supports_raises", "supports_nonsense", "kernel_raises", "kernel_is_none"])
def test_it_cannot_be_asked(chaos, kind):
    """supports() or kernel() is broken: an automatic choice goes past it, an explicit one is an error that says so."""
    chaos(kind)
    x = np.ones(4, np.float32)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for _ in range(2):
            assert trueno.add(x, x).tolist() == [2] * 4
    assert len(said) == (kind.startswith("kernel"))
    decision = trueno.explain("add", x, x)
    code = {c.name: c.code for c in decision.candidates}[kind]
    assert code == ("unsupported_call" if kind.startswith("supports") else "quarantined")
    assert kind in str(decision)
    with trueno.use(kind), pytest.raises(trueno.KernelError, match=kind):
        trueno.add(x, x)


@pytest.mark.parametrize("kind", ["rates_raise", "rates_nan", "rates_negative", "rates_none"])
def test_speeds_that_are_none(chaos, kind):
    chaos(kind)
    x = np.ones(4, np.float32)
    assert trueno.add(x, x).tolist() == [2] * 4
    decision = trueno.explain("add", x, x)
    assert {c.name: c.code for c in decision.candidates}[kind] == "bad_rates"
    assert decision.chosen != kind
    with trueno.use(kind):  # asked for by name, its speed does not matter
        assert trueno.add(x, x).tolist() == [2] * 4
        assert trueno.explain("add", x, x).chosen == kind


def test_lies_about_cost(chaos):
    """It is believed, and right; explain shows whose figure that was, and a preference or a block goes past it."""
    chaos("lies_about_cost")
    x = np.ones(4, np.float32)
    assert trueno.add(x, x).tolist() == [2] * 4
    decision = trueno.explain("add", x, x)
    assert decision.chosen == "lies_about_cost"
    (candidate,) = [c for c in decision.candidates if c.name == "lies_about_cost"]
    assert candidate.source == "declared"
    with trueno.prefer("scalar"):
        assert trueno.explain("add", x, x).chosen == "scalar"


def test_nan_is_stopped_by_a_guard(chaos, rng):
    control = chaos("nan_later")
    x = rng.standard_normal(64).astype(np.float32)
    control.arm()
    assert np.isnan(trueno.add(x, x)).any()  # nobody looks at results unasked
    stop = trueno.JidokaGuard().on(trueno.Condition.NAN, trueno.Action.STOP)
    before = x.copy()
    with stop, pytest.raises(trueno.GuardError, match="nan_later"):
        trueno.add(x, x, out=x)
    np.testing.assert_array_equal(x, before)
    back = trueno.JidokaGuard().on(trueno.Condition.NAN, trueno.Action.FALL_BACK)
    with back, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        np.testing.assert_array_equal(trueno.add(x, x), x + x)


def test_wrong_numbers_are_found_by_divergence(chaos, rng):
    control = chaos("wrong_later")
    x = rng.standard_normal(64).astype(np.float32)
    control.arm()
    diverging = trueno.Condition.divergence(1e-5)
    with (
        trueno.JidokaGuard().on(diverging, trueno.Action.STOP),
        pytest.raises(trueno.GuardError, match="wrong_later"),
    ):
        trueno.add(x, x)
    with trueno.JidokaGuard().on(diverging, trueno.Action.FALL_BACK), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        np.testing.assert_array_equal(trueno.add(x, x), x + x)


def test_the_guard_setting(chaos, rng):
    control = chaos("nan_later", TRUENO_GUARD="1")
    x = rng.standard_normal(64).astype(np.float32)
    np.testing.assert_array_equal(trueno.add(x, x), x + x)
    control.arm()
    with pytest.raises(trueno.GuardError, match="nan_later"):
        trueno.add(x, x)


@pytest.mark.parametrize("kind", ["wrong_shape", "wrong_dtype", "wrong_home"])
def test_foreign_memory_that_is_wrong(chaos, rng, kind):
    """Fresh arrays, or results, have another shape or type: an error that says so, never wrong numbers."""
    control = chaos(kind)
    x = rng.standard_normal(200_000).astype(np.float32)
    meant, before = x + x, x.tobytes()
    with trueno.use(kind):
        np.testing.assert_array_equal(trueno.add(x, x), meant)
        control.arm()
        with pytest.raises(trueno.KernelError) as caught:
            trueno.add(x, x, out=x)
    assert "add" in str(caught.value) and kind in str(caught.value)
    assert "shape" in f"{caught.value} {caught.value.__cause__}"
    assert x.tobytes() == before
    assert trueno.explain("add", x, x).chosen == kind
    with pytest.warns(trueno.TruenoWarning, match=kind):
        np.testing.assert_array_equal(trueno.add(x, x), meant)
    np.testing.assert_array_equal(trueno.add(x, x), meant)


def test_trace_and_stats_show_a_fallback(chaos):
    control = chaos("raises_mid_run", TRUENO_FALLBACK="silent")
    x = np.ones(4, np.float32)
    control.arm()
    with trueno.trace() as events:
        assert trueno.add(x, x).tolist() == [2] * 4
    kinds = [e.kind for e in events]
    assert "fallback" in kinds and "quarantine" in kinds and "decision" in kinds
    fallback = next(e for e in events if e.kind == "fallback")
    assert fallback.op == "add" and fallback.backend == "raises_mid_run" and "timed out" in fallback.detail


def test_a_child_that_prints(host):
    """A plugin that prints in its kernels disturbs no numbers; doctor's JSON stays JSON."""
    there = host(chaos=["prints"])
    met = there.says("""
x = np.ones(3, np.float32)
with trueno.use("prints"):
    total = trueno.add(x, x).tolist()
say(total=total)
""")
    assert met["total"] == [2, 2, 2]


def test_all_of_them_at_once(host):
    """Every backend of the chaos distribution beside the sound ones: nothing hangs, and the numbers are right."""
    import tomllib
    from pathlib import Path

    with (Path(__file__).parents[1] / "chaos" / "pyproject.toml").open("rb") as file:
        points = tomllib.load(file)["project"]["entry-points"]["trueno.backends"]
    there = host(chaos=[name for name in points if not name.startswith("hangs")], fake=None)
    met = there.says(
        """
x = np.arange(6, dtype=np.float32)
m = np.arange(9, dtype=np.float32).reshape(3, 3)
large = np.ones(300_000, np.float32)
with warnings.catch_warnings():
    warnings.simplefilter("error")
    say(add=trueno.add(x, x).tolist(), matmul=trueno.matmul(m, m).tolist(), sum=float(trueno.sum(large)),
        large=float(trueno.add(large, large)[-1]), known=len(trueno.backends()),
        chosen=trueno.explain("add", x, x).chosen)
""",
        TRUENO_PROBE_TIMEOUT="60",
    )
    m = np.arange(9, dtype=np.float32).reshape(3, 3)
    assert met["add"] == [0, 2, 4, 6, 8, 10] and met["matmul"] == (m @ m).tolist()
    assert met["sum"] == 300_000 and met["large"] == 2
    assert met["known"] >= len(points)
