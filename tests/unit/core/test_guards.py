"""Guards: what trips them, what every action does, and where they apply."""

import asyncio
import copy
import logging
import os
import pickle
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from threading import Barrier

import numpy as np
import pytest
import trueno
from trueno import Action, Condition, JidokaGuard
from trueno.discovery import registry
from trueno.discovery.protocol import Accuracy, Call, Probe, Rates, Reject
from trueno.dispatch import state
from trueno.dispatch.watch import watch
from trueno.errors import GuardError, ParameterError, TruenoError
from trueno.events import stream as events
from trueno.guards import health
from trueno.ops import TABLE
from trueno.programs.evaluate import evaluate
from trueno.programs.guarded import with_flags
from trueno.reference import ReferenceBackend
from trueno.select import quarantine
from trueno.testing.cases import natural

ROOT = Path(__file__).parents[3]
BACKENDS = [name for name in ("reference", "scalar", "simd") if name in trueno.backends()]
NAN, INF, OVERFLOW = Condition.NAN, Condition.INF, Condition.OVERFLOW
FLOATS = ("float32", "float64")
STOP = {c: JidokaGuard().on(c, Action.STOP) for c in (NAN, INF, OVERFLOW)}


@pytest.fixture(params=BACKENDS)
def backend(request):
    entry = trueno.backends()[request.param]
    if not entry.available:
        pytest.skip(entry.reason)
    with trueno.use(request.param):
        yield request.param


@pytest.fixture
def warned(caplog):
    """What the logger `trueno` warned of."""
    caplog.set_level(logging.WARNING, "trueno")
    return lambda: [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]


@pytest.fixture
def guard_events(monkeypatch):
    seen = []
    monkeypatch.setitem(events.SINKS, "a test", lambda event: seen.append(event) if event.kind == "guard" else None)
    return seen


class Unwell(ReferenceBackend):
    """Computes as the reference does, then spoils what it made; in float64 it is well."""

    name = "unwell"
    accuracy = Accuracy()

    def __init__(self):
        self.spoil = lambda results: None
        self.calls = 0
        self.fused = True
        self.wide = True

    def probe(self, level):
        return Probe(True)

    def supports(self, call):
        if call.guarded and not self.fused:
            return Reject("unguarded")
        if call.dtype == np.float64 and not self.wide:
            return Reject("unsupported_dtype", "float32 alone")
        return super().supports(call)

    def rates(self, call):
        return Rates(1e-6, 1e9, 1e9)

    def kernel(self, call):
        run, outs = super().kernel(call), len(call.op.signature.outputs)

        def kernel(*args):
            status = run(*args)
            if status != -1:
                self.calls += 1
                if call.dtype == np.float32:
                    self.spoil(args[-outs:])
                status = health.status(args[-outs:]) if call.guarded else 0
            return status

        return kernel


@pytest.fixture(params=[True, False], ids=["fused", "looked at"])
def unwell(request):
    made = Unwell()
    made.fused = request.param
    manifest = {"name": "unwell", "api": [1, 1], "kind": "cpu", "tier": 1, "opt_in": True, "arrays": ["numpy:ndarray"]}
    registry.register(manifest, factory=made)
    yield made
    registry._registered.pop("unwell")
    registry.forget()
    state.forget_plans()
    trueno.reset_quarantine()


def nan_first(results):
    results[0].reshape(-1)[0] = np.nan


# ---- what trips ---------------------------------------------------------------------------------------

CALLS = {
    "ln": 1, "sqrt": 1, "recip": 1, "exp": 1, "tanh": 1, "relu": 1, "neg": 1, "div": 2, "mul": 2, "pow": 2,
    "softmax": 1, "sum": 1, "norm_l2": 1, "max": 1, "argmax": 1, "dot": 2, "variance": 1,
    "zscore": 1, "matmul": 2, "transpose": 1,
}  # fmt: skip
HEALTHY = (0.0, 0.5, 1.0, 4.0, -1.0, 30.0)


def expected(condition, operands, results):
    """Name, first index and count of what must trip, by the definitions; None if nothing must."""

    def any_of(test):
        return any(test(x).any() for x in operands)

    explained = {NAN: any_of(np.isnan), INF: any_of(np.isinf)}
    explained[OVERFLOW] = explained[NAN] or explained[INF]
    bad = (np.isnan if condition is NAN else np.isinf)(results.astype(np.float64))
    if explained[condition] or not bad.any():
        return None
    return tuple(map(int, np.argwhere(bad)[0])), int(bad.sum())


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", CALLS)
def test_stop_is_exactly_what_the_definitions_say(name, dtype, backend):
    rng = np.random.default_rng(7)
    print("seed 7")
    function, trips = getattr(trueno, name), 0
    largest = float(np.finfo(dtype).max)
    special = (np.nan, np.inf, -np.inf, largest, -largest, 1e-45)
    for trial in range(30):
        shape = (6, 6) if TABLE[name].structured or trial % 2 else (37,)
        values = HEALTHY if trial < 8 else (*HEALTHY, *rng.choice(special, 2))
        operands = [rng.choice(values, shape).astype(dtype) for _ in range(CALLS[name])]
        before = [x.copy() for x in operands]
        free = np.asarray(function(*operands))
        for condition, guard in STOP.items():
            wanted = expected(condition, operands, free)
            got, error = outcome(guard(function), operands)
            if wanted is None:
                assert error is None, f"{condition} tripped: {error}"
                np.testing.assert_array_equal(got, free)
            else:
                trips += 1
                assert error is not None, f"{condition} should have tripped for {operands}"
                assert (error.index, error.count) == wanted
                assert (error.op, error.backend, error.condition) == (name, backend, condition)
                assert name in str(error) and backend in str(error)
            for x, y in zip(operands, before, strict=True):
                np.testing.assert_array_equal(x, y)
    assert trips or name in ("relu", "neg", "tanh", "argmax", "transpose", "max")


def outcome(call, operands):
    """What a call gives, or the GuardError that it raises."""
    try:
        return call(*operands), None
    except GuardError as error:
        return None, error


def test_an_input_explains_its_own_kind_only(backend):
    x = np.array([np.nan, 0.0, 1.0], "f4")
    assert np.isnan(STOP[NAN](trueno.ln)(x)[0])
    assert np.isinf(STOP[OVERFLOW](trueno.ln)(x)[1])  # not all inputs are finite
    with pytest.raises(GuardError, match=r"1 Inf: the first is y\[1\]"):
        STOP[INF](trueno.ln)(x)
    with pytest.raises(GuardError, match="NaN"):  # an Inf explains no NaN
        STOP[NAN](trueno.sub)(np.array([np.inf], "f4"), np.array([np.inf], "f4"))


def test_a_parameter_explains(backend):
    x = np.ones(4, "f4")
    assert np.isinf(STOP[INF](trueno.scale)(x, np.inf)).all()
    assert np.isinf(STOP[OVERFLOW](trueno.scale)(x, np.inf)).all()
    with pytest.raises(GuardError):
        STOP[OVERFLOW](trueno.scale)(x * 3e38, 1e3)
    with pytest.raises(GuardError):
        STOP[NAN](trueno.scale)(x * 0, np.inf)


@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize("axis", [0, 1, 2, 3, -1, -3, None])
def test_the_place_is_the_callers(backend, axis, keepdims):
    """Kernels see rows along the last axis; who asked for another is told where it is in his own result."""
    x = np.zeros((2, 3, 4, 5), "f4")
    x[1, 2, 3, 1] = x[1, 2, 3, 4] = x[1, 1, 3, 1] = x[0, 2, 3, 1] = x[1, 2, 0, 1] = 3e38
    with pytest.raises(GuardError) as caught:
        STOP[OVERFLOW](trueno.sum)(x, axis=axis, keepdims=keepdims)
    wanted = np.sum(x.astype("f8"), axis=axis, keepdims=keepdims) > 3.4e38
    assert caught.value.shape == wanted.shape
    assert caught.value.index == tuple(map(int, np.argwhere(wanted)[0]))
    assert caught.value.count == wanted.sum()


def test_the_place_in_a_batch_and_on_a_device(fake):
    x = np.ones((2, 3, 4), "f4")
    x[1, 0, 2] = -1
    there = trueno.to(x, "fake")
    with pytest.raises(GuardError) as alone, STOP[NAN]:
        trueno.sqrt(there)
    with trueno.Batch("fake") as b:
        h = b.scale(b.sqrt(b.upload(x)), 2.0)
        with pytest.raises(GuardError) as together, STOP[NAN]:
            b.execute()
        assert h.shape == x.shape
    for caught in (alone, together):
        assert (caught.value.index, caught.value.shape) == ((1, 0, 2), (2, 3, 4))
        assert "[1, 0, 2] of shape (2, 3, 4)" in str(caught.value)


def test_positions_never_trip(backend):
    x = np.array([1.0, np.inf, 2.0], "f4")
    guard = STOP[NAN].on(INF, Action.STOP).on(OVERFLOW, Action.STOP).on(Condition.divergence(0), Action.STOP)
    assert guard(trueno.argmax)(x) == 1


def test_results_of_many_axes(backend):
    x = np.ones((2, 3, 4, 5), "f4")
    x[1, 2, 3, 4] = -1
    with pytest.raises(GuardError) as caught:
        STOP[NAN](trueno.sqrt)(x)
    assert caught.value.count == 1
    assert (caught.value.index, caught.value.shape) == ((1, 2, 3, 4), (2, 3, 4, 5))
    assert "the first is y[1, 2, 3, 4] of shape (2, 3, 4, 5)" in str(caught.value)
    y = np.ones((8, 8, 8), "f4")[::2, ::2, ::2]
    np.testing.assert_array_equal(STOP[NAN](trueno.sqrt)(y), y)


# ---- operands are kept ---------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [5, 1024, 200_000])
@pytest.mark.parametrize("how", ["itself", "a view", "shifted", "2-D"])
def test_in_place_operands_are_as_they_were_after_a_stop(how, n, backend):
    x = np.ones(n, "f4")
    x[n // 2] = -1
    before = x.copy()
    operand, out = {
        "itself": (x, x),
        "a view": (x, x[:]),
        "shifted": (x[:-1], x[1:]),
        "2-D": (x.reshape(-1, 1), x.reshape(-1, 1)),
    }[how]
    with pytest.raises(GuardError):
        STOP[NAN](trueno.sqrt)(operand, out=out)
    np.testing.assert_array_equal(x, before)
    healthy = np.sqrt(np.abs(operand))
    np.abs(x, out=x)
    STOP[NAN](trueno.sqrt)(operand, out=out)
    np.testing.assert_allclose(out, healthy, 1e-6)


def test_in_place_repairs_reach_out(unwell):
    unwell.spoil = nan_first
    x = np.full(9, 4.0, "f4")
    with trueno.use("unwell"), JidokaGuard().on(NAN, Action.FALL_BACK):
        assert trueno.sqrt(x, out=x) is x
    np.testing.assert_array_equal(x, np.full(9, 2.0))


# ---- actions -------------------------------------------------------------------------------------------


def test_log_goes_on(backend, warned, guard_events):
    x = np.array([4.0, -1.0, -2.0], "f4")
    got = JidokaGuard().on(NAN, Action.LOG)(trueno.sqrt)(x)
    np.testing.assert_array_equal(got, [2, np.nan, np.nan])
    assert len(warned()) == 1 and "made 2 NaN: the first is y[1]" in warned()[0]
    (event,) = guard_events
    assert (event.op, event.backend) == ("sqrt", backend)
    assert event.data == {"condition": "nan", "action": "log"}


def test_every_rule_acts_in_order(backend, warned, guard_events):
    x = np.array([0.0, -1.0], "f4")
    guard = JidokaGuard().on(INF, Action.LOG).on(NAN, Action.LOG).on(OVERFLOW, Action.STOP)
    with pytest.raises(GuardError, match="overflowed"):
        guard(trueno.ln)(x)
    assert [e.data["condition"] for e in guard_events] == ["inf", "nan", "overflow"]
    assert len(warned()) == 2


def test_promote_recomputes_in_float64(backend, guard_events):
    rng = np.random.default_rng(3)
    x = (1e30 * rng.normal(size=200)).astype("f4")
    y = (1e30 * rng.normal(size=200)).astype("f4")
    guard = JidokaGuard().on(OVERFLOW, Action.PROMOTE_F64).on(NAN, Action.PROMOTE_F64)
    wide = [x.astype("f8"), y.astype("f8")]
    np.testing.assert_allclose(guard(trueno.norm_l2)(x), np.linalg.norm(wide[0]), 1e-5)
    # The variance overflows inside, and the result is a finite 0: that no condition but divergence sees.
    out = np.empty(200, "f4")
    weights = np.ones(200, "f4"), np.zeros(200, "f4")
    assert guard(trueno.layer_norm)(x, *weights, out=out) is out and not out.any()
    far = JidokaGuard().on(Condition.divergence(1e-4), Action.PROMOTE_F64)
    assert far(trueno.layer_norm)(x, *weights, out=out) is out
    np.testing.assert_allclose(out, (wide[0] - wide[0].mean()) / wide[0].std(), 1e-5)
    got = guard(trueno.correlation)(x, y)
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, np.corrcoef(*wide)[0, 1], 1e-5)
    assert guard_events and {e.data["action"] for e in guard_events} == {"promote_f64"}


def test_promote_stops_at_what_float64_cannot_mend(backend):
    x = np.array([1.0, 1e30], "f4")
    guard = JidokaGuard().on(OVERFLOW, Action.PROMOTE_F64)
    with pytest.raises(GuardError, match=r"rounded to float32, z\[1\] is inf") as caught:
        guard(trueno.mul)(x, x)
    assert caught.value.condition is OVERFLOW
    with pytest.raises(GuardError, match="y"):
        JidokaGuard().on(NAN, Action.PROMOTE_F64)(trueno.sqrt)(-x)


def test_promote_stops_at_once_in_float64(backend):
    x = np.array([1.0, 1e200])
    with pytest.raises(GuardError, match="float64 already"):
        JidokaGuard().on(OVERFLOW, Action.PROMOTE_F64)(trueno.mul)(x, x)


def test_promote_is_unguarded_inside_and_uses_the_same_backend(unwell):
    unwell.spoil = nan_first
    with trueno.use("unwell"), JidokaGuard().on(NAN, Action.PROMOTE_F64):
        np.testing.assert_array_equal(trueno.sqrt(np.full(5, 4.0, "f4")), np.full(5, 2.0))
    assert unwell.calls == 2


def test_promote_takes_parameters_as_they_were_given(unwell):
    with trueno.use("unwell"):
        x = np.full(3, 1e-38, "f4")
        assert np.isinf(trueno.scale(x, 1e60)).all()  # which is Inf to a float32 kernel
        with JidokaGuard().on(OVERFLOW, Action.PROMOTE_F64):
            np.testing.assert_allclose(trueno.scale(x, 1e60), 1e22, 1e-6)
            with pytest.raises(GuardError, match="is inf"):
                trueno.scale(x, 1e300)


def test_promote_where_the_named_backend_has_no_float64(unwell):
    unwell.spoil, unwell.wide = nan_first, False
    with trueno.use("unwell"), JidokaGuard().on(NAN, Action.PROMOTE_F64):
        np.testing.assert_array_equal(trueno.sqrt(np.full(5, 4.0, "f4")), np.full(5, 2.0))
    assert unwell.calls == 1


def test_fall_back_delivers_the_reference(unwell, guard_events):
    unwell.spoil = nan_first
    x = np.full((3, 7), 4.0, "f4")
    with trueno.use("unwell"), JidokaGuard().on(NAN, Action.FALL_BACK).on(NAN, Action.STOP):
        for _ in range(5):  # named: it goes on, however often
            np.testing.assert_array_equal(trueno.sqrt(x), np.full((3, 7), 2.0))
    assert not quarantine.quarantined()
    assert [e.data["action"] for e in guard_events] == ["fall_back"] * 5  # repaired, so STOP has nothing to stop
    assert unwell.calls == 5


def test_repeated_trips_leave_an_unnamed_backend_out(unwell, warned):
    unwell.spoil = nan_first
    x = np.full(7, 4.0, "f4")
    with trueno.prefer("unwell"):
        with JidokaGuard().on(NAN, Action.FALL_BACK):
            for trip in range(3):
                assert not quarantine.quarantined(), trip
                np.testing.assert_array_equal(trueno.sqrt(x), np.full(7, 2.0))
            (held,) = quarantine.quarantined()
            assert (held.backend, held.op, held.dtype) == ("unwell", "sqrt", "float32")
            assert "3 times" in held.reason and len(warned()) == 1
            np.testing.assert_array_equal(trueno.sqrt(x), np.full(7, 2.0))
            assert unwell.calls == 3
            trueno.exp(x)
            assert unwell.calls == 4  # another op is another key
        np.testing.assert_array_equal(trueno.sqrt(x), np.full(7, 2.0))
        assert unwell.calls == 4  # without the guard, too
        trueno.reset_quarantine("unwell")
        assert np.isnan(trueno.sqrt(x)[0])
        assert unwell.calls == 5


def test_data_that_the_reference_cannot_mend_quarantine_nobody(unwell):
    with trueno.prefer("unwell"), JidokaGuard().on(NAN, Action.FALL_BACK):
        for _ in range(5):
            assert np.isnan(trueno.sqrt(np.full(3, -1.0, "f4"))).all()
    assert not quarantine.quarantined()


def test_later_rules_see_what_an_action_made(unwell, guard_events):
    def spoil(results):
        results[0][:] = [np.nan, np.inf, 7.0]

    unwell.spoil = spoil
    guard = JidokaGuard().on(INF, Action.LOG).on(NAN, Action.PROMOTE_F64).on(INF, Action.STOP)
    guard = guard.on(Condition.divergence(1e-6), Action.STOP)
    with trueno.use("unwell"), guard:
        np.testing.assert_array_equal(trueno.sqrt(np.full(3, 4.0, "f4")), np.full(3, 2.0))
    assert [e.data["condition"] for e in guard_events] == ["inf", "nan"]


# ---- divergence ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", ["add", "exp", "softmax", "sum", "layer_norm", "argmax", "matmul", "symmetric_eigen"])
def test_what_is_right_does_not_diverge(name, dtype, backend):
    rng = np.random.default_rng(11)
    print("seed 11")
    op = TABLE[name]
    for shape in ((4, 4), (33, 33), (200, 200)):
        x = rng.normal(size=shape).astype(dtype)
        operands = [x + x.T] if name == "symmetric_eigen" else [x] + [x[0] if k == "w" else x for k in op.layout[1:]]
        got = JidokaGuard().on(Condition.divergence(1e-3), Action.STOP)(getattr(trueno, name))(*operands)
        free = getattr(trueno, name)(*operands)
        for a, b in zip(
            got if isinstance(got, tuple) else (got,), free if isinstance(free, tuple) else (free,), strict=True
        ):
            np.testing.assert_array_equal(a, b)


def test_divergence_is_measured_in_the_largest_value(unwell):
    rng = np.random.default_rng(13)
    print("seed 13")
    for _ in range(40):
        x = rng.normal(size=50).astype("f4")
        error = np.float32(rng.uniform(-1, 1) * 10.0 ** rng.integers(-6, 0))
        k = int(rng.integers(50))

        def spoil(results, k=k, error=error):
            results[0][k] += error

        unwell.spoil = spoil
        wanted = (x.astype("f8") * x).astype("f4")
        off = abs(float(wanted[k] + error) - float(wanted[k])) / float(np.abs(wanted).max())
        for tolerance in (1e-6, 1e-4, 1e-2):
            guard = JidokaGuard().on(Condition.divergence(tolerance), Action.STOP)
            with (
                trueno.use("unwell"),
                nullcontext() if off <= tolerance else pytest.raises(GuardError) as caught,
                guard,
            ):
                trueno.mul(x, x)
            if off > tolerance:
                assert (caught.value.index, caught.value.count) == ((k,), 1)
                assert f"more than {tolerance:g}" in str(caught.value)


def call_of(name, *operands, dtype="f4", rank=1):
    sizes = tuple(x.size.bit_length() for x in operands)
    return Call(TABLE[name], np.dtype(dtype), TABLE[name].layout, rank, sizes)


@pytest.mark.parametrize(
    ("got", "wanted", "bad"),
    [
        ([1.0, np.nan], [1.0, 2.0], 1),
        ([1.0, 2.0], [1.0, np.nan], 1),
        ([np.nan, 2.0], [np.nan, 2.0], 0),
        ([np.inf, 2.0], [np.inf, 2.0], 0),
        ([np.inf, 2.0], [-np.inf, 2.0], 1),
        ([np.inf, 2.0], [5.0, 2.0], 1),
        ([np.inf, 2.0], [1e300, 2.0], 0),  # float32 has no better value for it
        ([5.0, 2.0], [np.inf, 2.0], 1),
        ([0.0, -0.0], [0.0, 0.0], 0),
        ([1e-30, 0.0], [0.0, 0.0], 1),
        ([1.0, 1.001], [1.0, 1.0], 0),
        ([1.0, 1.2], [1.0, 1.0], 1),
        ([100.0, 1.2], [100.0, 1.0], 0),
        ([1.0, 2.0, 3.0], [1.0, 2.0], 3),
        ([1.0], [1.0, 2.0], 2),
    ],
)
def test_divergence_case_by_case(got, wanted, bad):
    x = np.zeros(2, "f4")
    got = [np.array(got, "f4")]
    finding = health.divergence(call_of("neg", x), got, [np.array(wanted, "f8")], 0.01)
    assert (finding.count if finding else 0) == bad


def test_another_position_diverges():
    x = np.array([1.0, 3.0, 2.0], "f4")
    finding = health.divergence(call_of("argmax", x), [np.array(2)], [np.array(1)], 1e3)
    assert finding.count == 1 and "2 where 1 was expected" in finding.detail


def test_the_sign_of_an_eigenvector_is_free():
    call = call_of("symmetric_eigen", np.eye(2))
    values, vectors = np.array([2.0, 1.0]), np.eye(2)
    assert health.divergence(call, [values, -vectors], [values, vectors], 1e-9) is None
    assert health.divergence(call, [values + 1, vectors], [values, vectors], 1e-9).result == "values"


def test_the_reference_of_every_layout(backend):
    rng = np.random.default_rng(17)
    print("seed 17")
    guard = JidokaGuard().on(Condition.divergence(1e-5), Action.STOP)
    shapes = [(3, 4, 5), (5,), (4, 1), (1, 1, 5), (1,), (3, 1, 1)]
    with guard:
        for a in shapes:
            for b in shapes:
                x, y = rng.normal(size=a).astype("f4"), rng.normal(size=b).astype("f4")
                np.testing.assert_array_equal(trueno.sub(x, y), x - y)
        for shape in ((7,), (6, 7), (2, 3, 7)):
            x, w = rng.normal(size=shape).astype("f4"), np.ones(7, "f4")
            trueno.layer_norm(x, w, w)
            for axis in range(len(shape)):
                trueno.sum(x, axis=axis, keepdims=True)
                trueno.softmax(x, axis=axis)


# ---- finding -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("n", [0, 1, 4095, 4096, 4097, 9000, 70_000])
def test_finite_is_exact(n, dtype):
    rng = np.random.default_rng(n)
    for scale in (1.0, 1e-30, np.finfo(dtype).max):
        x = (rng.uniform(-1, 1, n) * scale).astype(dtype)
        assert health.finite(x)
        assert health.status([x, np.zeros(3, np.int64)]) == 0
        for value, bits in ((np.nan, 1), (np.inf, 2), (-np.inf, 2)):
            for at in {0, n // 2, n - 1} if n else ():
                y = x.copy()
                y[at] = value
                assert not health.finite(y)
                assert health.status([x, y]) == bits
                finding = health.where(np.isnan if bits == 1 else np.isinf, ["a", "b"], [x, y])
                assert (finding.result, finding.index, finding.count) == ("b", (at,), 1)
    assert health.status([np.float32(np.nan).reshape(())]) == 1


# ---- for whom they hold --------------------------------------------------------------------------------

BAD = np.array([-1.0], "f4")


def trips():
    try:
        trueno.sqrt(BAD)
    except GuardError:
        return True
    return False


def test_nested_guards_replace_each_other():
    log = JidokaGuard().on(NAN, Action.LOG)
    assert not trips()
    with STOP[NAN] as entered:
        assert entered is STOP[NAN] and trips()
        with log:
            assert not trips()
            with STOP[NAN], STOP[NAN]:
                assert trips()
            assert not trips()
        assert trips()
        with JidokaGuard():
            assert not trips()
        with trueno.use("reference"):
            assert trips()
            with STOP[INF]:
                assert not trips()
        assert trips()
    assert not trips()


def test_a_guard_is_left_when_something_raises():
    with pytest.raises(ZeroDivisionError), STOP[NAN]:
        raise ZeroDivisionError
    assert not trips()


def test_one_guard_in_many_threads():
    together = Barrier(8)

    def work(i):
        collected = []
        for k in range(60):
            with STOP[NAN] if (i + k) % 2 else JidokaGuard():
                if k < 3:
                    together.wait()
                collected.append(trips() == bool((i + k) % 2))
            collected.append(not trips())
        return all(collected)

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(8)))


def test_tasks_have_guards_of_their_own():
    async def work(guard, wanted):
        collected = []
        for _ in range(20):
            with guard:
                await asyncio.sleep(0)
                collected.append(trips() == wanted)
            collected.append(trips() == outside)
        return all(collected)

    async def all_of_them():
        guards = [(STOP[NAN], True), (JidokaGuard(), False), (STOP[NAN], True), (STOP[INF], False)]
        return await asyncio.gather(*(work(*g) for g in guards))

    outside = False
    assert all(asyncio.run(all_of_them()))
    outside = True
    with STOP[NAN]:
        assert all(asyncio.run(all_of_them()))


def test_decorator_of_functions():
    @STOP[NAN]
    def work(x, /, factor=1, *, more=0):
        """Its words."""
        return trueno.sqrt(x) * factor + more

    assert work.__name__ == "work" and work.__doc__ == "Its words."
    assert work(np.array([4.0], "f4"), 3, more=1) == 7
    with pytest.raises(GuardError):
        work(BAD)
    assert not trips()


def test_decorator_of_async_functions():
    @STOP[NAN]
    async def work(x):
        """Its words."""
        await asyncio.sleep(0)
        return trueno.sqrt(x)

    async def main():
        assert (await work(np.array([4.0], "f4")))[0] == 2
        other = asyncio.ensure_future(work(BAD))
        await asyncio.sleep(0)
        assert not trips()  # while that one waits inside its guard
        with pytest.raises(GuardError):
            await other

    assert asyncio.iscoroutinefunction(work) and work.__doc__ == "Its words."
    asyncio.run(main())


def test_generators_are_refused():
    def one():
        yield trueno.sqrt(BAD)

    async def two():
        yield trueno.sqrt(BAD)

    for function in (one, two):
        with pytest.raises(ParameterError, match="generator"):
            STOP[NAN](function)
    with pytest.raises(ParameterError, match="give a function"):
        STOP[NAN](np.ones(3))


def test_a_guard_of_one_call():
    guarded = STOP[NAN](trueno.sqrt)
    assert guarded.__name__ == "sqrt" and guarded.op is TABLE["sqrt"]
    with pytest.raises(GuardError):
        guarded(BAD)
    assert np.isnan(trueno.sqrt(BAD))


@pytest.mark.parametrize(
    ("value", "outcome"),
    [
        ("1", "GuardError"),
        ("stop", "GuardError"),
        ("nan:stop", "GuardError"),
        ("inf:stop", "fine"),
        ("off", "fine"),
        ("nan:log,inf:stop", "fine"),
        ("overflow:promote_f64", "fine"),
        ("divergence(1e-5):stop", "fine"),
        ("nan:explode", "SettingError"),
        ("divergence(x):stop", "SettingError"),
    ],
)
def test_environment(value, outcome):
    code = (
        "import numpy, trueno\n"
        "def word():\n"
        "    try:\n"
        "        trueno.sqrt(numpy.array([-1.0], 'f4'))\n"
        "    except Exception as error:\n"
        "        return type(error).__name__\n"
        "    return 'fine'\n"
        "with trueno.JidokaGuard():\n"
        "    inside = word()\n"
        "print(word(), inside)\n"
    )
    environment = os.environ | {"TRUENO_GUARD": value, "TRUENO_BACKEND": "reference"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [outcome, "SettingError" if outcome == "SettingError" else "fine"]


# ---- the objects ---------------------------------------------------------------------------------------


def test_parse():
    parsed = JidokaGuard.parse((("nan", "stop"), ("divergence(1e-5)", "fall_back"), ("overflow", "promote_f64")))
    by_hand = JidokaGuard().on(NAN, Action.STOP).on(Condition.divergence(1e-5), Action.FALL_BACK)
    assert parsed == by_hand.on(OVERFLOW, Action.PROMOTE_F64)


@pytest.mark.parametrize("make, said", [
    (lambda: Condition("Nan"), 'did you mean "nan"'),
    (lambda: Condition(5), "the conditions are nan, inf, overflow, divergence"),
    (lambda: Condition("nan", 1e-3), "only divergence has a tolerance"),
    (lambda: Condition("divergence"), "no tolerance"),
    (lambda: Condition("divergence", -1.0), "a finite number, 0 or more"),
    (lambda: Condition.divergence(10**400), "a finite number, 0 or more"),
    (lambda: JidokaGuard(NAN), "give pairs"),
    (lambda: JidokaGuard(5), "give pairs"),
    (lambda: JidokaGuard("nan"), "give pairs"),
    (lambda: JidokaGuard((1,)), "give a trueno.Condition"),
    (lambda: JidokaGuard(((1,),)), "give a trueno.Condition"),
    (lambda: JidokaGuard((NAN, Action.STOP)), "give a trueno.Condition"),
])  # fmt: skip
def test_what_is_no_condition_or_rule_is_a_sentence(make, said):
    with pytest.raises(ParameterError, match=re.escape(said)):
        make()


def test_a_guard_is_left_where_it_was_entered():
    guard, before = STOP[NAN], state.current.get()
    with pytest.raises(TruenoError, match="left where it was entered"):
        guard.__exit__(None, None, None)
    with guard, ThreadPoolExecutor(1) as pool:
        with pytest.raises(TruenoError, match="same thread"):
            pool.submit(guard.__exit__, None, None, None).result()
        assert state.current.get().rules == guard.rules
    assert state.current.get() is before


def test_guards_that_are_left_in_another_order_leave_nothing_behind():
    before = state.current.get()
    first, second = STOP[NAN], STOP[INF]
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert state.current.get().rules == second.rules
    second.__exit__(None, None, None)
    assert state.current.get() is before


def test_a_trip_says_what_the_inputs_hold():
    w = np.full(5, np.inf, np.float32)
    with pytest.raises(GuardError, match="no input holds a NaN; x holds 5 Inf, y holds 5 Inf"):
        STOP[NAN](trueno.sub)(w, w)
    with pytest.raises(GuardError, match="its inputs are finite"):
        STOP[NAN](trueno.sqrt)(-np.ones(3, np.float32))
    with pytest.raises(GuardError, match=r"no input holds a NaN; \w+ is inf"):
        STOP[NAN](trueno.scale)(np.zeros(3, np.float32), np.inf)


def test_guards_are_values():
    one = JidokaGuard().on(NAN, Action.STOP)
    assert one == STOP[NAN] and hash(one) == hash(STOP[NAN]) and one != one.on(INF, Action.STOP)
    assert one.rules == ((NAN, Action.STOP),)
    assert copy.deepcopy(one) == pickle.loads(pickle.dumps(one)) == one
    assert repr(one.on(Condition.divergence(1e-5), Action.LOG)) == (
        "JidokaGuard().on(Condition.NAN, Action.STOP).on(Condition.divergence(1e-05), Action.LOG)"
    )
    assert trueno.JidokaCondition is Condition and trueno.JidokaAction is Action
    with pytest.raises(AttributeError):
        one.rules = ()
    assert not vars(one).keys() - {"rules"}


def test_wrong_rules_are_refused():
    for rule in (("nan", Action.STOP), (NAN, "stop"), (Action.STOP, NAN)):
        with pytest.raises(ParameterError, match=r"trueno\.Condition"):
            JidokaGuard().on(*rule)
    for tolerance in (-1, np.nan, np.inf, "1e-5", True, None):
        with pytest.raises(ParameterError, match="tolerance"):
            Condition.divergence(tolerance)
    assert Condition.divergence(0).tolerance == 0


# ---- guarded programs -----------------------------------------------------------------------------------


def programs():
    """Every row program of the table: each op, each static choice, and the layouts of broadcast operands."""
    for op in TABLE.values():
        if op.structured:
            continue
        choices = [{}] + [{p.name: v} for p in op.static for v in p.choices if v != p.default]
        layouts = {op.layout, "e" + "u" * (len(op.layout) - 1), "e" + "r" * (len(op.layout) - 1)}
        for layout in sorted(layouts if op.over is None else {op.layout}):
            for static in choices:
                yield pytest.param(op, op.program(layout, **static), id=f"{op.name} {layout} {static or ''}".strip())


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(("op", "program"), list(programs()))
def test_flags_are_exactly_what_the_results_hold(op, program, dtype):
    rng = np.random.default_rng(19)
    print("seed 19")
    params = [float(p.default) if not p.required else 0.5 for p in op.params if p.symbolic]
    largest = float(np.finfo(dtype).max)
    rows, n, seen = 64, 9, set()
    for special in ((), (np.nan,), (np.inf, -np.inf), (largest, -largest), (np.nan, np.inf, 0.0, largest)):
        operands = []
        for _, kind in program.operands:
            shape = {"e": (rows, n), "w": (n,), "r": (rows,), "u": ()}[kind]
            x = natural(op, rng, shape)
            hit = rng.random(shape) < 0.05
            operands.append(np.where(hit, rng.choice(special, shape), x).astype(dtype) if special else x.astype(dtype))
        one = evaluate(with_flags(program), operands, params, dtype)
        two = evaluate(with_flags(program, bits=True), operands, params, dtype)
        results = evaluate(program, operands, params, dtype)
        floats = [r.reshape(len(r), -1) for r in results if r.dtype.kind == "f"]
        assert (len(one), len(two)) == (len(results) + len(floats), len(results) + 2 * len(floats))
        for a, b, r in zip(one, two, results, strict=False):
            np.testing.assert_array_equal(a, r)
            np.testing.assert_array_equal(b, r)
        for k, r in enumerate(floats):
            finite = ~np.isfinite(r).all(axis=1)
            np.testing.assert_array_equal(one[len(results) + k], finite)
            np.testing.assert_array_equal(two[len(results) + 2 * k], np.isnan(r).any(axis=1))
            np.testing.assert_array_equal(two[len(results) + 2 * k + 1], np.isinf(r).any(axis=1))
            seen |= set(finite.tolist())
    assert seen == {True, False} or op.name in ("tanh", "signum", "atan", "copysign") or not floats


def test_a_guarded_program_keeps_its_own():
    program = TABLE["softmax"].program()
    made = with_flags(program)
    assert made.nodes[: len(program.nodes)] == program.nodes and made.outputs[:1] == program.outputs
    assert [made.nodes[o].type for o in made.outputs[1:]] == ["bool"]
    assert with_flags(TABLE["argmax"].program()).outputs == TABLE["argmax"].program().outputs


# ---- watch, the layer around a kernel -----------------------------------------------------------------


def test_a_healthy_fused_call_looks_at_nothing(monkeypatch):
    def never(*_):
        raise AssertionError("results were looked at")

    monkeypatch.setattr(health, "status", never)
    monkeypatch.setattr(health, "where", never)
    x, y = np.ones(3, "f4"), np.empty(3, "f4")
    watched = watch(lambda *_: None, call_of("neg", x), "scalar", STOP[NAN].rules, True, state.current.get())
    assert watched(x, y) == 0
    assert watched(x, x) == -1
    refused = watch(lambda *_: -1, call_of("neg", x), "scalar", STOP[NAN].rules, True, state.current.get())
    assert refused(x, y) == -1
    other = watch(lambda *_: 2, call_of("neg", x), "scalar", STOP[NAN].rules, True, state.current.get())
    assert other(x, y) == 0  # an Inf, which no rule asks for


def test_an_op_that_only_moves_data_is_not_watched():
    def kernel(*_):
        return 3

    x = np.ones((3, 3), "f4")
    assert watch(kernel, call_of("transpose", x), "scalar", STOP[NAN].rules, False, state.current.get()) is kernel
    assert (
        watch(kernel, call_of("transpose", x), "scalar", STOP[NAN].rules, True, state.current.get())(x, x.copy()) == 0
    )


DEVICE = """
import numpy as np, trueno
from trueno import Action, Condition, JidokaGuard
from trueno.events import stream as events
from trueno.errors import GuardError
from trueno_fake import LEDGER, control
import trueno_fake, pathlib
trueno.register(pathlib.Path(trueno_fake.__file__).with_name("backend.toml"))
x = np.array([4.0, 1.0, -1.0, 9.0], "f4")
stop = JidokaGuard().on(Condition.NAN, Action.STOP)

def stopped(call):
    try:
        call()
    except GuardError as error:
        assert error.backend == "fake" and error.index == (2,) and error.count == 1, vars(error)
        return True
    return False

for late in (False, True):
    control.late = late
    with trueno.use("fake"), stop:  # host arrays, ferried
        assert stopped(lambda: trueno.sqrt(x))
        assert stopped(lambda: trueno.sqrt(x, out=x)) and x[2] == -1
        assert trueno.sqrt(np.abs(x))[0] == 2
    there = trueno.to(x, "fake")
    fine = trueno.to(np.abs(x), "fake")
    with stop:
        assert stopped(lambda: trueno.sqrt(there))
        before = LEDGER.downloads
        assert trueno.numpy(trueno.sqrt(fine))[3] == 3
        assert LEDGER.downloads == before + 1  # a healthy call moved nothing
        assert stopped(lambda: trueno.sqrt(there, out=there))
        assert (trueno.numpy(there) == x).all()
        assert trueno.sqrt(fine, out=fine) is fine
        assert trueno.numpy(fine)[3] == 3
    big = trueno.to(np.array([1e30, 2e30, -1e30, 0], "f4"), "fake")
    one, zero = (trueno.to(np.full(4, v, "f4"), "fake") for v in (1, 0))
    with JidokaGuard().on(Condition.NAN, Action.PROMOTE_F64).on(Condition.INF, Action.PROMOTE_F64):
        y = trueno.norm_l2(big)
        assert np.allclose(trueno.numpy(y), np.sqrt(6e60), 1e-5), trueno.numpy(y)
    far = Condition.divergence(1e-4)
    with JidokaGuard().on(far, Action.FALL_BACK).on(far, Action.PROMOTE_F64):
        assert trueno.layer_norm(big, one, zero, out=big) is big
        want = np.array([1.0, 3.0, -3.0, -1.0]) / np.sqrt(5)
        assert np.allclose(trueno.numpy(big), want, 1e-5), (trueno.numpy(big), want)
print("well")
"""


def test_on_a_device():
    folder = ROOT / "tests" / "fake_device" / "src"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])}
    environment["TRUENO_PROBE"] = "off"
    done = subprocess.run([sys.executable, "-c", DEVICE], env=environment, capture_output=True, text=True, check=False)
    assert done.stdout == "well\n", done.stderr
