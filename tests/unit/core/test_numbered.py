"""A further device of a backend is a backend of its own, `cuda_emulated:1`: here with the emulated GPUs."""

from threading import Thread

import numpy as np
import pytest
import trueno
from seeds import fresh_seed
from trueno.backend import KernelTable, Rates, Reject, op
from trueno.discovery import registry
from trueno.dispatch import state
from trueno.dispatch.transfer import device_of
from trueno.ops import TABLE

pytest.importorskip("trueno_cuda", reason="trueno-cuda is not installed")
FIRST, SECOND, THIRD = "cuda_emulated", "cuda_emulated:1", "cuda_emulated:2"


@pytest.fixture
def rng():
    seed = fresh_seed()
    print("seed", seed)
    return np.random.default_rng(seed)


@pytest.fixture
def x(rng):
    return rng.standard_normal((4, 8)).astype(np.float32)


@pytest.fixture
def known():
    """What the registry knows, again after the test."""
    registry.forget()
    yield
    registry.forget()


def where(y):
    return device_of(y).name


# ---- names


@pytest.mark.parametrize(
    "given, name",
    [("simd", "simd"), ("SIMD", "simd"), ("CUDA_Emulated:0", FIRST), ("cuda_emulated:1", SECOND),
     ("Cuda_Emulated:1", SECOND), ("cuda_emulated:01", SECOND), ("nothing", "nothing")],
)  # fmt: skip
def test_a_name_as_the_registry_has_it(given, name):
    assert registry.named(given) == name


def test_a_device_becomes_a_backend_when_it_is_first_named(known):
    assert SECOND not in registry.entries()
    assert registry.named(SECOND) == SECOND
    entry, whole = registry.entries()[SECOND], registry.entries()[FIRST]
    assert (entry.name, entry.kind, entry.tier, entry.foreign) == (SECOND, whole.kind, whole.tier, whole.foreign)
    assert entry.opt_in  # which the selector never chooses
    assert entry.load() is registry.load(SECOND) is not registry.load(FIRST)
    assert entry.load().name == SECOND and SECOND in registry.numbered
    assert list(registry.entries()).index(FIRST) < list(registry.entries()).index(SECOND)
    assert trueno.backends()[SECOND].available


@pytest.mark.parametrize(
    "name, kind, words",
    [
        ("cuda_emulated:8", trueno.BackendUnavailable, "cuda_emulated:8 is not there: .* numbers 0 to 7"),
        ("cuda_emulated:x", trueno.UnknownBackend, 'cuda_emulated:x" names no device; cuda_emulated wants a number'),
        ("cuda_emulated:", trueno.UnknownBackend, "wants a number after the colon"),
        ("cuda_emulated:-1", trueno.UnknownBackend, "wants a number after the colon"),
        ("cuda_emulated:1:0", trueno.UnknownBackend, "wants a number after the colon"),
        ("simd:0", trueno.UnknownBackend, '"simd:0" is not installed; write "simd"'),
        ("cuda_emulated:" + "1" * 5000, trueno.UnknownBackend, "wants a number after the colon"),
        ("nothing:1", trueno.UnknownBackend, '"nothing" is not installed'),
        (":1", trueno.UnknownBackend, "is not installed"),
    ],
)
def test_what_is_not_there(x, name, kind, words):
    for act in (
        lambda: trueno.to(x, name), lambda: trueno.use(name).__enter__(), lambda: trueno.Batch(name),
        lambda: trueno.device(name), lambda: trueno.KVCache(1, 1, 16, device=name, capacity=8),
        lambda: registry.load(name), lambda: trueno.Vector(x[0], backend=name),
    ):  # fmt: skip
        with pytest.raises(kind, match=words):
            act()
    assert name not in registry.entries()


def test_threads_name_a_device_at_once(known):
    loaded = []
    threads = [Thread(target=lambda: loaded.append(registry.load(THIRD))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(loaded) == 8 and len(set(map(id, loaded))) == 1


# ---- arrays


def test_where_an_array_is(x):
    assert registry.home(x) is None and registry.home([1.0]) is None
    for name in (FIRST, SECOND, THIRD):
        y = trueno.to(x, name)
        assert registry.home(y) is registry.entries()[registry.named(name)] is device_of(y)
        assert trueno.to(y, name) is y
        assert trueno.numpy(y).tobytes() == x.tobytes()


def test_an_array_outlives_what_the_registry_knew(x, known):
    y = trueno.to(x, SECOND)
    trueno.relu(y)
    registry.forget()
    backend = registry.numbered[SECOND]
    assert where(y) == SECOND and SECOND in registry.entries()
    assert registry.load(SECOND) is backend  # which launches and batches hold
    z = trueno.relu(y)
    assert where(z) == SECOND
    assert np.array_equal(trueno.numpy(z), np.maximum(x, 0))


def test_a_copy_between_devices_does_not_touch_the_host(x, monkeypatch):
    first = trueno.to(x, FIRST)
    for name in (FIRST, SECOND):
        monkeypatch.setattr(registry.load(name), "to_host", None, raising=False)
        monkeypatch.setattr(registry.load(name), "to_device", None, raising=False)
    with trueno.trace() as events:
        second = trueno.to(first, SECOND)
        back = trueno.to(second, FIRST)
    assert back is not first and (where(second), where(back)) == (SECOND, FIRST)
    moved = [(e.kind, e.op, e.backend, e.detail, e.bytes) for e in events if e.kind == "transfer"]
    assert moved == [("transfer", "to", name, "between devices", x.nbytes) for name in (SECOND, FIRST)]
    monkeypatch.undo()
    assert np.array_equal(trueno.numpy(second), x) and np.array_equal(trueno.numpy(back), x)


def test_what_a_backend_cannot_adopt_goes_through_the_host(x, monkeypatch):
    monkeypatch.setattr(registry.load(SECOND), "adopt", lambda x: None, raising=False)
    assert np.array_equal(trueno.numpy(trueno.to(trueno.to(x, FIRST), SECOND)), x)


def test_an_adopted_copy_of_another_shape_is_an_error(x, monkeypatch):
    backend, first = registry.load(SECOND), trueno.to(x, FIRST)
    real = backend.adopt
    monkeypatch.setattr(backend, "adopt", lambda x: real(x).reshape((8, 4)), raising=False)
    with pytest.raises(trueno.KernelError, match="adopt"):
        trueno.to(first, SECOND)


def test_calls_stay_on_their_device(x):
    for name in (FIRST, SECOND, THIRD):
        y = trueno.to(x, name)
        s = trueno.softmax(y)
        assert (where(s), where(trueno.sum(y, axis=-1))) == (name, name)
        a, b = trueno.residual_rms_norm(y, y, trueno.to(x[0], name))
        assert where(a) == where(b) == name


def test_alternating_calls_are_right_and_stay(x):
    """The cache of calls tells devices apart: 1 000 calls on two devices in turn, with results to write to or not."""
    names = (FIRST, SECOND)
    arrays = [trueno.to(x[0] + i, name) for i, name in enumerate(names)]
    outs = [trueno.to(np.zeros(8, np.float32), name) for name in names]
    for turn in range(500):
        for i, name in enumerate(names):
            y = trueno.add(arrays[i], arrays[i]) if turn % 2 else trueno.add(arrays[i], arrays[i], out=outs[i])
            assert y.data.device_id == i and where(y) == name
            assert np.array_equal(y.elements, 2 * (x[0] + i))


def test_a_cached_call_is_one_of_its_device(x):
    for name in (FIRST, SECOND):
        trueno.relu(trueno.to(x, name))
    before = len(state.current.get().calls)
    for name in (FIRST, SECOND, FIRST, SECOND):
        trueno.relu(trueno.to(x, name))
    assert len(state.current.get().calls) == before


@pytest.mark.parametrize("length", [8, 16, 24])  # a call of another length uses what a first one prepared
def test_operands_of_two_devices_are_an_error(rng, length):
    x = rng.standard_normal(length).astype(np.float32)
    a, b = trueno.to(x, FIRST), trueno.to(x, SECOND)
    for _ in range(2):
        trueno.add(a, a)
        trueno.add(b, b)
        with pytest.raises(trueno.DeviceError, match=r"add: y is on cuda_emulated:1, but x is on cuda_emulated; move"):
            trueno.add(a, b)


@pytest.mark.parametrize("length", [8, 16, 24])
def test_a_result_of_another_device_is_an_error(rng, length):
    x = rng.standard_normal(length).astype(np.float32)
    a, out = trueno.to(x, FIRST), trueno.to(np.zeros_like(x), SECOND)
    own = trueno.to(x, FIRST)
    for _ in range(2):
        with pytest.raises(trueno.OutError, match="the operands live on cuda_emulated"):
            trueno.add(a, a, out=out)
        assert trueno.add(a, a, out=own) is own
    assert not out.elements.any()


def test_devices_compute_in_threads(x):
    wrong = []

    def work(i, name):
        try:
            y = trueno.to(x + i, name)
            for _ in range(20):
                z = trueno.mul(y, y)
                if where(z) != name or not np.array_equal(z.elements, (x + i) * (x + i)):
                    wrong.append(name)
        except Exception as error:
            wrong.append(error)

    threads = [Thread(target=work, args=each) for each in enumerate((FIRST, SECOND, THIRD))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


# ---- requests


def test_use_of_a_device(x):
    with trueno.use(SECOND), trueno.trace() as events:
        y = trueno.relu(x)  # of the host, computed there
    assert np.array_equal(y, np.maximum(x, 0))
    assert {e.backend for e in events if e.kind == "run"} == {SECOND}
    with trueno.use("CUDA_EMULATED:0"):
        assert trueno.explain("relu", x).chosen == FIRST
    with trueno.use(SECOND):
        assert trueno.explain("relu", x).chosen == SECOND


def test_a_backend_is_any_of_its_devices_and_a_device_is_itself(x):
    first, second = trueno.to(x, FIRST), trueno.to(x, SECOND)
    with trueno.use(FIRST):
        assert where(trueno.relu(second)) == SECOND and where(trueno.relu(first)) == FIRST
    with trueno.use(SECOND):
        assert where(trueno.relu(second)) == SECOND
        with pytest.raises(trueno.DeviceError, match=r"live on cuda_emulated, but cuda_emulated:1 was asked for"):
            trueno.relu(first)
    with trueno.use(THIRD), pytest.raises(trueno.DeviceError, match=r"live on cuda_emulated:1, but cuda_emulated:2"):
        trueno.relu(second)


@pytest.mark.parametrize("value", ["cuda_emulated:1", "CUDA_EMULATED:1", "cuda_emulated:1,simd"])
def test_the_setting_names_a_device(x, value):
    trueno.settings.override("TRUENO_BACKEND", value)
    try:
        assert trueno.explain("relu", x).chosen == SECOND
        assert where(trueno.relu(trueno.to(x, SECOND))) == SECOND
    finally:
        trueno.settings.override("TRUENO_BACKEND", None)


def test_the_setting_names_a_device_that_is_not_there(x):
    trueno.settings.override("TRUENO_BACKEND", "cuda_emulated:9")
    try:
        with pytest.raises(trueno.BackendUnavailable, match="cuda_emulated:9 is not there"):
            trueno.relu(x)
    finally:
        trueno.settings.override("TRUENO_BACKEND", None)


def test_device_contexts(x):
    with trueno.device("CUDA_emulated:1") as d:
        assert d.name == SECOND and repr(d) == "<device cuda_emulated:1>" and d.limits["sms"] == 4
        y = d.gelu(d.upload(x))
        assert where(y) == SECOND and d.read(y).shape == x.shape
        with pytest.raises(trueno.DeviceError, match="cuda_emulated"):
            d.gelu(trueno.to(x, FIRST))
    assert trueno.device("cuda_emulated:0").name == FIRST


def test_quarantine_of_a_device():
    trueno.reset_quarantine(SECOND)
    with pytest.raises(trueno.BackendUnavailable, match="is not there"):
        trueno.reset_quarantine("cuda_emulated:9")


def test_vectors_and_matrices(x):
    v = trueno.Vector(trueno.to(x[0], SECOND))
    assert where((v + v).array) == SECOND
    with pytest.raises(trueno.DeviceError, match=r"the data live on cuda_emulated:1, but backend is 'cuda_emulated'"):
        trueno.Vector(trueno.to(x[0], SECOND), backend=FIRST)
    assert trueno.Vector(trueno.to(x[0], SECOND), backend="cuda_emulated:1") is not None


# ---- batches, caches, blocks


def test_a_batch_of_a_device(x):
    with trueno.Batch("CUDA_emulated:1") as batch:
        h = batch.upload(x)
        y = batch.relu(batch.add(h, h))
        for turn in range(3):
            batch.update(h, x + turn)
            batch.execute()
            assert np.array_equal(batch.read(y), np.maximum(2 * (x + turn), 0))
        assert str(batch).endswith("cuda_emulated:1") and "2 ops in 1 kernel" in str(batch)


def test_a_batch_takes_arrays_of_its_device(x):
    here, there = trueno.to(x, SECOND), trueno.to(x, FIRST)
    with trueno.Batch(SECOND) as batch:
        y = batch.relu(batch.upload(here))
        batch.execute()
        assert np.array_equal(batch.read(y), np.maximum(x, 0))
    with trueno.Batch(SECOND) as batch, pytest.raises(trueno.DeviceError, match="cuda_emulated"):
        batch.upload(there)


def test_a_cache_of_a_device(rng):
    how = {"dtype": "float32", "capacity": 16, "sequences": 1, "page": 8}
    here, there = (trueno.KVCache(1, 1, 16, device=name, **how) for name in ("", "CUDA_EMULATED:1"))
    assert there.device == SECOND and repr(there).endswith(", on cuda_emulated:1>")
    k, v, q = rng.standard_normal((3, 3, 1, 16)).astype(np.float32)
    sequence = here.new()
    assert there.new() == sequence
    here.append(0, k, v, sequence)
    there.append(0, trueno.to(k, SECOND), trueno.to(v, SECOND), sequence)
    y = there.attend(0, trueno.to(q, SECOND), sequence)
    assert where(y) == SECOND
    np.testing.assert_allclose(trueno.numpy(y), here.attend(0, q, sequence), rtol=0, atol=1e-5)
    with pytest.raises(trueno.DeviceError, match="cuda_emulated"):
        there.append(0, trueno.to(k, FIRST), trueno.to(v, FIRST), sequence)


def test_a_quantized_matrix_of_a_device(rng):
    w = trueno.quantize(rng.standard_normal((8, 64)).astype(np.float32), "q8_0")
    x = rng.standard_normal(64).astype(np.float32)
    there = trueno.to(w, SECOND)
    assert repr(there).endswith(", on cuda_emulated:1>") and where(there.bytes) == SECOND
    assert repr(trueno.to(there, FIRST)).endswith(", on cuda_emulated>")
    y = trueno.quant_matvec(there, trueno.to(x, SECOND), activations="f32")
    assert where(y) == SECOND
    np.testing.assert_allclose(trueno.numpy(y), trueno.dequantize(w) @ x, rtol=1e-4, atol=1e-5)
    assert where(trueno.dequantize(there)) == SECOND
    assert np.array_equal(trueno.numpy(there.bytes), w.bytes)


# ---- ops of one backend alone


@op("x[...] -> y[...]", structured=True, flops="n", table=False)
def doubled_here(x, *, times: int = 2):
    """y = times · x.  Of no backend but the test's."""
    return x * times


def test_an_op_beside_the_table():
    assert "doubled_here" not in TABLE and not hasattr(trueno, "doubled_here")
    kernels = KernelTable("float32")
    rates = Rates(1e-6, 1e9, 1e9)

    def made(device, call):
        return (device, call.op.name)

    assert kernels.add(doubled_here, rates=rates)(made) is made
    assert list(kernels) == [] and len(kernels) == 0  # those of the table

    def asked(op, dtype="float32"):
        from trueno.backend import Call

        return Call(op, np.dtype(dtype), "e", 1, (3,), (("times", 2),))

    assert kernels.refusal(asked(doubled_here)) is None
    assert kernels.kernel(asked(doubled_here), "gpu") == ("gpu", "doubled_here")
    assert kernels.rates(asked(doubled_here)) is rates
    assert kernels.refusal(asked(doubled_here, "float64")).code == "unsupported_dtype"
    assert kernels.refusal(asked(TABLE["relu"])) == Reject("unsupported_op", "no kernel for relu")
    with pytest.raises(ValueError, match=r"'doubled_here'.*already"):
        kernels.add(doubled_here, rates=rates)(made)


def test_an_op_that_has_a_name_of_the_table():
    @op("x[...] -> y[...]", structured=True, flops="n", table=False)
    def relu(x):
        """Another one."""
        return x

    kernels = KernelTable("float32")
    kernels.add(relu, rates=Rates(1e-6, 1e9, 1e9))(lambda device, call: "own")
    kernels.add("relu", rates=Rates(1e-6, 1e9, 1e9))(lambda device, call: "table's")
    from trueno.backend import Call

    calls = [Call(one, np.dtype("f4"), "e", 1, (3,)) for one in (relu, TABLE["relu"])]
    assert [kernels.kernel(call) for call in calls] == ["own", "table's"]
    assert TABLE["relu"] is not relu


def test_a_batch_records_an_op_beside_the_table(x):
    with trueno.Batch(SECOND) as batch:
        h = batch.upload(x)
        y = batch.call(doubled_here, h, times=3)
        assert y.shape == h.shape and y.dtype == h.dtype
        with pytest.raises(trueno.TruenoError, match="doubled_here"):
            batch.execute()  # no backend has a kernel for it
    with trueno.Batch(SECOND) as batch:
        h = batch.upload(x)
        with pytest.raises(trueno.ParameterError, match=r"Batch.call: 'doubled_here' with 2 operands; give"):
            batch.call(doubled_here, h, h)
        with pytest.raises(trueno.ParameterError, match=r"Batch.call: 'relu' with 1 operands; give an op of a backend"):
            batch.call("relu", h)
        with pytest.raises(trueno.ParameterError, match=r"doubled_here has no parameter 'tims'; it has times"):
            batch.call(doubled_here, h, tims=3)
