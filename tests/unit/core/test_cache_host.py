"""Calls on the host that are like an earlier one go straight to the kernel, and answer as the long way does."""

import math
from itertools import pairwise
from threading import Barrier, Thread

import numpy as np
import pytest
import trueno
from float_modes import in_mode, needs_modes
from seeds import fresh_seed
from trueno.discovery import registry
from trueno.dispatch import cache, host, state
from trueno.dispatch import call as front
from trueno.ops import TABLE

SEED = fresh_seed(__name__)
BACKENDS = [name for name in ("simd", "scalar", "reference") if trueno.backends()[name].available]
F4, F8 = np.dtype(np.float32), np.dtype(np.float64)
NUMBERS = [0.0, -0.0, math.nan, math.inf, -math.inf, 1e300, -1e39, 3.5e38, 2.0, 1, -7, 16777217, 10**30, 5e-324]
X = np.linspace(-2, 2, 12, dtype=F4).reshape(3, 4)
BIAS = np.linspace(1, 2, 4, dtype=F4)


@pytest.fixture(autouse=True)
def seed():
    print(f"seed {SEED}")  # shown where a test fails
    return SEED


@pytest.fixture(params=BACKENDS)
def backend(request):
    with trueno.use(request.param):
        state.current.get().calls.clear()
        yield request.param


@pytest.fixture
def long_way(monkeypatch):
    """Calls that went the long way, by op."""
    seen, real = [], host.call

    def counted(op, *args):
        seen.append(op.name)
        return real(op, *args)

    monkeypatch.setattr(host, "call", counted)
    return seen


def same(a, b):
    """The same class, dtype and bits."""
    if isinstance(a, tuple):
        return len(a) == len(b) and all(map(same, a, b))
    return type(a) is type(b) and a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def outcome(call, *args, **given):
    """What a call gives, and the class and text of the error that it raises instead."""
    try:
        return call(*args, **given), None
    except trueno.TruenoError as error:
        return None, (type(error), str(error))


def disguised(rng, x):
    """The same numbers, lying in memory as users' arrays do."""
    match rng.integers(0, 6):
        case 0 if x.ndim:
            wide = np.zeros((*x.shape[:-1], x.shape[-1] * 2), x.dtype)
            wide[..., ::2] = x
            return wide[..., ::2]
        case 1:
            return np.asfortranarray(x)
        case 2:
            return x.astype(x.dtype.newbyteorder(">"))
        case 3:
            raw = np.zeros(x.nbytes + 1, np.uint8)
            view = raw[1:].view(x.dtype).reshape(x.shape)
            view[...] = x
            return view
        case 4 if x.ndim:
            return x[..., ::-1].copy()[..., ::-1]
    return x


def drawn(rng, op, dtype):
    """Makers of operands for a call of `op`, and its other arguments: the same shapes and layouts at each call."""
    static = {p.name: p.typical for p in op.params if not p.required or p.choices}
    for _ in range(100 if rng.random() < 0.7 else 1):  # sizes that fit together, mostly
        sizes = {d: int(rng.integers(1, 7)) for s in op.signature.inputs for d in s.dims}
        if not op.misfit(sizes, static):
            break
    leading = tuple(int(n) for n in rng.integers(1, 5, rng.integers(0, 3)))
    makers = []
    for spec in op.signature.inputs:
        lead = leading[rng.integers(0, len(leading) + 1) :] if rng.random() < 0.5 else leading
        lead = tuple(1 if rng.random() < 0.2 else n for n in lead) if spec.leading else ()
        shape, layout = (*lead, *(sizes[d] for d in spec.dims)), int(rng.integers(1 << 32))
        if spec.leading and not spec.dims and rng.random() < 0.3 and makers:
            kind = (float, int)[rng.integers(2)]
            makers.append(lambda values, kind=kind: kind(values.choice([2, -1, 5, 0])) * kind(1))
        else:
            low, high = op.domain or (-2, 2)
            low, high = max(low, -2), min(high, 2)
            makers.append(
                lambda values, shape=shape, layout=layout, low=low, high=high: disguised(
                    np.random.default_rng(layout), values.uniform(low, high, shape).astype(dtype)
                )
            )
    given = {}
    if op.over is not None and not op.structured and rng.random() < 0.7:
        rank = len(leading) + 1
        given["axis"] = None if op.reduces and rng.random() < 0.2 else int(rng.integers(-rank, rank))
        if op.reduces:
            given["keepdims"] = bool(rng.integers(2))
    for p in op.params:
        if p.required:
            given[p.name] = {"min": -0.5, "max": 0.5}.get(p.name, 1.5) if p.symbolic else p.typical
    return makers, given


CALLABLE = [op for op in TABLE.values() if op.check is None and not op.quantized]


@pytest.mark.parametrize(
    "op", [op for op in CALLABLE if not any(s.type for s in op.signature.inputs)], ids=lambda o: o.name
)
def test_a_repetition_is_bit_for_bit_the_long_way(op, long_way):
    rng = np.random.default_rng([SEED, list(TABLE).index(op.name)])
    taken = 0
    for case in range(60):
        if case >= 6 and taken:  # what is drawn is an error now and then
            break
        dtype = (F4, F8)[case // 3 % 2]
        makers, given = drawn(rng, op, dtype)
        with trueno.use(BACKENDS[case % len(BACKENDS)]):
            for turn in range(4):
                operands = tuple(make(rng) for make in makers)
                scalars = {p.name: p.default for p in op.params if not p.required} | given
                if op.over is not None and not op.structured:
                    scalars = {**scalars, "axis": given.get("axis", -1)}
                    scalars |= {"keepdims": given.get("keepdims", False)} if op.reduces else {}
                wanted, error = outcome(front._anew, op, operands, dict(scalars), None)
                if error:
                    assert [outcome(getattr(trueno, op.name), *operands, **given)[1] for _ in range(3)] == [error] * 3
                    break
                before = len(long_way)
                got = front.call(op, operands, dict(scalars), None)
                assert same(got, wanted), (case, turn, [np.shape(x) for x in operands], given)
                if turn > 1:
                    taken += 1
                    assert len(long_way) == before, "the third call is remembered"
                if len(op.signature.outputs) == 1 and np.ndim(wanted):
                    for out in (np.full_like(wanted, 7), np.full((*wanted.shape, 2), 7, wanted.dtype)[..., 0]):
                        assert front.call(op, operands, dict(scalars), out) is out
                        assert out.tobytes() == wanted.tobytes()
    assert taken


@pytest.mark.parametrize("dtype", [F4, F8], ids=str)
def test_repetitions_are_right_in_float64(backend, dtype):
    rng = np.random.default_rng(SEED)
    tolerance = {"rtol": 64 * np.finfo(dtype).eps, "atol": 64 * np.finfo(dtype).eps}
    for _ in range(5):
        x, y, w = (rng.normal(size=s).astype(dtype) for s in ((5, 6, 7), (6, 1), (7,)))
        a, b, s = x.astype("f8"), y.astype("f8"), float(rng.normal())
        e = np.exp(a - a.max(1, keepdims=True))
        for got, wanted in (
            (trueno.add(x, w), a + w.astype("f8")),
            (trueno.mul(x, y), a * b),
            (trueno.sub(s, x), dtype.type(s).astype("f8") - a),
            (trueno.sum(x, axis=0), a.sum(0)),
            (trueno.mean(x, axis=1, keepdims=True), a.mean(1, keepdims=True)),
            (trueno.sum(x.T, axis=0), a.T.sum(0)),
            (trueno.sum(x, axis=None), a.sum()),
            (trueno.softmax(x, axis=1), e / e.sum(1, keepdims=True)),
            (trueno.matmul(x[0].T, x[1]), a[0].T @ a[1]),
            (trueno.argmax(x, axis=0), a.argmax(0)),
        ):
            np.testing.assert_allclose(got, wanted, **tolerance)


@pytest.mark.parametrize("dtype", [F4, F8], ids=str)
def test_a_number_is_the_array_that_numpy_makes_of_it(backend, dtype, long_way):
    x = np.linspace(-2, 2, 5).astype(dtype)
    for _ in range(3):
        for number in NUMBERS:
            with np.errstate(all="ignore"):
                alike = np.asarray(number, dtype)
                wanted = x + np.full_like(x, alike)
                backwards = np.minimum(np.full_like(x, alike), x)
            assert trueno.add(x, number).tobytes() == wanted.tobytes(), number
            got = trueno.minimum(number, x)
            np.testing.assert_array_equal(np.isnan(got), np.isnan(backwards))
            np.testing.assert_array_equal(got[~np.isnan(got)], backwards[~np.isnan(got)])
    assert len(long_way) <= 2 * 2 * 2  # two of each op and class of number
    for wrong in (True, 10**400, 1j, None, "1"):
        texts = set()
        for _ in range(3):
            with pytest.raises(trueno.TruenoError) as caught:
                trueno.add(x, wrong)
            texts.add((type(caught.value), str(caught.value)))
        assert len(texts) == 1


def test_the_sign_of_a_zero_is_no_part_of_a_key(backend):
    x = np.array([-0.0, 0.0], F4)
    for number in (0.0, -0.0, 0, -0.0, 0.0):
        assert np.signbit(trueno.add(x, number)).tolist() == np.signbit(x + F4.type(number)).tolist()


@needs_modes
@pytest.mark.parametrize("mode", ["up", "down", "zero"])
def test_a_number_is_rounded_to_nearest_in_any_mode(backend, mode):
    x, third = np.zeros(4, F4), np.float32(1 / 3)
    for _ in range(3):
        trueno.add(x, 1 / 3)
    with in_mode(mode):
        got = [trueno.add(x, 1 / 3), trueno.add(x, -1 / 3)]
    assert got[0].tolist() == [third] * 4 and got[1].tolist() == [-third] * 4


@pytest.mark.usefixtures("python_functions")
@pytest.mark.parametrize("op, operands, given", [
    ("add", (X, BIAS), {}), ("mul", (X, 2.0), {}), ("sum", (X,), {"axis": 0}), ("add", (X[:, ::2], X[:, 1::2]), {}),
    ("matmul", (X.T, X[:, ::2]), {}), ("softmax", (X,), {"axis": 0}), ("relu", (X.reshape(3, 2, 2),), {}),
])  # fmt: skip
def test_the_third_call_is_short(backend, long_way, op, operands, given):
    results = [getattr(trueno, op)(*operands, **given) for _ in range(5)]
    assert long_way in ([], [op] * 2), "at most twice: kernels of NumPy take some of these as they are"
    assert all(same(result, results[0]) for result in results)
    assert not any(np.may_share_memory(a, b) for a, b in pairwise(results))


def test_out_may_be_an_operand(backend):
    for _ in range(4):
        x = X.copy()
        assert trueno.add(x, BIAS, out=x) is x
        np.testing.assert_array_equal(x, X + BIAS)
        square = np.arange(9, dtype=F4).reshape(3, 3)
        trueno.add(square, square[0], out=square)
        np.testing.assert_array_equal(square, np.arange(9, dtype=F4).reshape(3, 3) + np.arange(3, dtype=F4))
        line = np.arange(10, dtype=F4)
        trueno.mul(line[:-1], 2.0, out=line[1:])
        np.testing.assert_array_equal(line, [0, *(np.arange(9) * 2)])
        square = np.arange(9, dtype=F4).reshape(3, 3)
        trueno.matmul(square.T, square, out=square)
        wanted = np.arange(9).reshape(3, 3)
        np.testing.assert_array_equal(square, wanted.T @ wanted)
        trueno.softmax(square, axis=0, out=square)
        np.testing.assert_allclose(square.sum(0), 1, rtol=1e-6)


def test_out_is_checked_as_before(backend):
    out = np.empty_like(X)
    frozen = out.copy()
    frozen.flags.writeable = False
    for _ in range(4):
        assert trueno.add(X, BIAS, out=out) is out
        for wrong in (out[:2], out.astype(F8), frozen, np.ma.array(out), [1.0], out.astype(">f4")):
            with pytest.raises(trueno.OutError, match="add"):
                trueno.add(X, BIAS, out=wrong)


def test_errors_say_the_same_each_time(backend):
    trueno.sum(X, axis=0)
    calls = (
        lambda: trueno.add(X, np.ones(3, F4)),
        lambda: trueno.add(X, BIAS.astype(F8)),
        lambda: trueno.sum(X, axis=2),
        lambda: trueno.sum(X, axis=True),
        lambda: trueno.sum(X, axis=0.0),
        lambda: trueno.max(np.ones((0, 3), F4), axis=0),
        lambda: trueno.add(X, np.ma.array(BIAS)),
    )
    for call in calls:
        texts = set()
        for _ in range(3):
            with pytest.raises(trueno.TruenoError) as caught:
                call()
            texts.add((type(caught.value), str(caught.value)))
        assert len(texts) == 1, texts


def test_a_context_has_its_own():
    for _ in range(3):
        trueno.add(X, BIAS)
    with trueno.use("reference"):
        before = len(state.current.get().calls)
        with trueno.trace() as t:
            trueno.add(X, BIAS)
        assert {e.backend for e in t if e.kind == "run"} == {"reference"}
        assert len(state.current.get().calls) == before
    trueno.set_default("reference")
    try:
        for _ in range(3):
            with trueno.trace() as t:
                trueno.add(X, BIAS)
            assert {e.backend for e in t if e.kind == "run"} == {"reference"}
    finally:
        trueno.set_default()


def test_runs_are_traced_every_time(backend):
    with trueno.trace() as t:
        for _ in range(5):
            trueno.add(X, BIAS)
            trueno.mul(X, 2.0)
    assert len([e for e in t if e.kind == "run"]) == 10


def test_a_guard_looks_at_repetitions_too(backend):
    x = np.array([[1, -1], [1, 1]], F4)
    for _ in range(3):
        trueno.log(x[:, ::-1])
        trueno.div(x, 0.0)
    with trueno.JidokaGuard().on(trueno.Condition.NAN, trueno.Action.STOP):
        for _ in range(3):
            with pytest.raises(trueno.GuardError):
                trueno.log(x[:, ::-1])
    trueno.settings.override("TRUENO_GUARD", "inf:stop")
    try:
        for _ in range(3):
            with pytest.raises(trueno.GuardError):
                trueno.div(x, 0.0)
    finally:
        trueno.settings.override("TRUENO_GUARD", None)
    trueno.div(x, 0.0)


def test_whatever_drops_plans_drops_what_is_remembered():
    def chosen():
        with trueno.trace() as t:
            trueno.add(X, BIAS)
        return {e.backend for e in t if e.kind == "run"}

    with trueno.use("reference"):
        now = state.current.get()
        for change in (
            trueno.forgive,
            lambda: trueno.settings.override("TRUENO_FALLBACK", None),
            lambda: trueno.set_default(),
            state.forget_plans,
        ):
            for _ in range(3):
                trueno.add(X, BIAS)
            assert now.calls
            change()
            assert not now.calls
    trueno.settings.override("TRUENO_BACKEND", ("reference",))
    try:
        for _ in range(3):
            assert chosen() == {"reference"}
    finally:
        trueno.settings.override("TRUENO_BACKEND", None)


def test_a_remembered_backend_that_fails_is_left_out(monkeypatch):
    if "scalar" not in BACKENDS:
        pytest.skip("scalar is not available here")
    backend = registry.load("scalar")
    real, broken = type(backend).kernel, []

    def made(self, call):
        kernel = real(self, call)

        def checked(*args):
            if broken:
                args[-1][...] = 99
                raise ValueError("out of order")
            return kernel(*args)

        return checked

    monkeypatch.setattr(type(backend), "kernel", made)
    trueno.settings.override("TRUENO_FALLBACK", "silent")
    try:
        with trueno.prefer("scalar"):
            for _ in range(3):
                trueno.add(X, BIAS)
            assert trueno.explain("add", X, BIAS).chosen == "scalar"
            broken.append(True)
            for _ in range(4):
                np.testing.assert_array_equal(trueno.add(X, BIAS), X + BIAS)
            assert trueno.explain("add", X, BIAS).chosen != "scalar"
        with trueno.use("scalar"):
            broken.clear()
            trueno.forgive("scalar")
            for _ in range(3):
                trueno.mul(X, 2.0)
            broken.append(True)
            for _ in range(3):
                with pytest.raises(trueno.KernelError, match=r"mul: scalar failed \(ValueError: out of order\)"):
                    trueno.mul(X, 2.0)
    finally:
        trueno.settings.override("TRUENO_FALLBACK", None)
        trueno.forgive()
        monkeypatch.undo()
        state.forget_plans()


@pytest.mark.usefixtures("python_functions")
def test_what_ends_a_program_passes(monkeypatch):
    for _ in range(3):
        trueno.add(X, BIAS)
    calls = state.current.get().calls

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setitem(calls, next(key for key in calls if key[0] == "add"), interrupted)
    with pytest.raises(KeyboardInterrupt):
        trueno.add(X, BIAS)


def test_no_more_are_kept_than_fit(monkeypatch):
    monkeypatch.setattr(cache, "KEPT", 8)
    x = np.ones((2, 2, 2), F4)
    with trueno.use("reference"):
        for i in range(50):
            for _ in range(2):
                trueno.scale(x, i + 0.5)
            assert 0 < len(state.current.get().calls) <= 8


def test_a_parameter_that_changes_costs_no_function():
    x = np.ones((2, 2, 2), F4)
    with trueno.use("reference"):
        state.current.get().calls.clear()
        for i in range(20):
            assert trueno.scale(x, i / 4)[0, 0, 0] == i / 4
        assert set(state.current.get().calls.values()) == {cache._seen}


def test_what_is_decided_for_a_plugin_is_not_kept(monkeypatch):
    from trueno.select import policy

    with trueno.use("reference"):
        state.current.get().calls.clear()
        with policy.asking("other"):
            for _ in range(3):
                trueno.add(X, BIAS)
        assert not state.current.get().calls


def test_halves_lists_and_holders_go_the_long_way(long_way):
    half, vector = X.astype(np.float16), trueno.Vector(BIAS)
    with trueno.use("reference"):
        for _ in range(4):
            assert trueno.add(half, half[0]).dtype == np.float16
            np.testing.assert_array_equal(trueno.add([1.0, 2.0], 1.0), [2, 3])
            assert type(trueno.add(vector, 1.0)) is trueno.Vector
    assert len(long_way) == 12


def test_threads_remember_side_by_side():
    count, failures = 6, []
    start = Barrier(count)

    def work(t):
        rng = np.random.default_rng([SEED, t])
        start.wait()
        for i in range(150):
            x, y = rng.normal(size=(3, 4)).astype(F4), rng.normal(size=4).astype(F4)
            with trueno.use(BACKENDS[int(rng.integers(len(BACKENDS)))]):
                if i % 40 == t:
                    state.forget_plans()
                if not (
                    np.array_equal(trueno.add(x, y), x + y)
                    and np.array_equal(trueno.mul(x, float(i)), x * F4.type(i))
                    and np.array_equal(trueno.max(x, axis=0), x.max(0))
                ):
                    failures.append((t, i))

    threads = [Thread(target=work, args=(t,)) for t in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
