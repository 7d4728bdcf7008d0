"""`trueno.KVCache` with its pages on a device, against one on the host; and devices that have no kernels for caches."""

import re

import numpy as np
import pytest
import trueno
from trueno.errors import DeviceError, KernelError, OutOfMemory, ParameterError, TruenoError, UnknownBackend

DTYPES = ("float32", "float16", "bfloat16", "q8_0")


@pytest.fixture
def device(fake):
    return "fake"


def rows(rng, *shape):
    return rng.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("page", [0, 8])
def test_it_holds_and_gives_what_one_on_the_host_does(device, dtype, page):
    """Prompts, single tokens, forks that write to shared pages, truncation: the same numbers in both."""
    rng = np.random.default_rng(1)
    how = {"dtype": dtype, "capacity": 40, "sequences": 3, "page": page}
    here, there = (trueno.KVCache(2, 2, 32, device=name, **how) for name in ("", device))
    assert (here.device, there.device, there.nbytes) == ("host", device, here.nbytes)

    def step(sequences, tokens, **given):
        one = isinstance(sequences, int)
        lead = (tokens,) if one else (len(sequences), tokens)
        for layer in range(2):
            k, v, q = (rows(rng, *lead, heads, 32) for heads in (2, 2, 6))
            with trueno.use("scalar"):
                here.append(layer, k, v, sequences)
                want = here.attend(layer, q, sequences, **given)
            there.append(layer, trueno.to(k, device), trueno.to(v, device), sequences)
            y = there.attend(layer, trueno.to(q, device), sequences, **given)
            assert type(y) is type(trueno.to(q, device))
            np.testing.assert_allclose(trueno.numpy(y), want, rtol=0, atol=1e-5)

    first = here.new()
    assert there.new() == first
    step(first, 13)
    step(first, 1, window=5)
    second = here.fork(first)
    assert there.fork(first) == second
    step([second, first], 1, scale=0.3)  # one of them gets a copy of the page that both write to
    step(second, 3, softcap=4.0)
    for cache in (here, there):
        cache.truncate(first, 9)
        cache.defragment()
    step([first, second], 2)
    for sequence in (first, second):
        for layer in range(2):
            for x, want in zip(there.read(layer, sequence), here.read(layer, sequence), strict=True):
                np.testing.assert_array_equal(x, want)
    assert there.used == here.used and there.length(first) == 11


def test_nothing_but_rows_and_indices_moves(fake):
    rng = np.random.default_rng(2)
    cache = trueno.KVCache(4, 2, 32, capacity=4096, page=64, device="fake")
    s = cache.new()
    k, v, q = (trueno.to(rows(rng, 1, heads, 32), "fake") for heads in (2, 2, 6))
    fake.LEDGER.reset()
    for layer in range(4):
        cache.append(layer, k, v, s)
        cache.attend(layer, q, s)
    assert fake.LEDGER.downloads == 0 and fake.LEDGER.uploads == 3, "slots, table and lengths, once for all layers"
    other = cache.fork(s)
    fake.LEDGER.reset()
    cache.append(0, k, v, other)
    assert fake.LEDGER.downloads == 0 and fake.LEDGER.bytes_up < cache.nbytes // 50


@pytest.mark.parametrize("count", [1, 3])
def test_a_recorded_step_serves_every_token(device, count):
    """Sequences of different lengths, others than those recorded with, and pages that come and go."""
    rng = np.random.default_rng(3)
    how = {"dtype": "float32", "capacity": 48, "sequences": 5, "page": 8}
    here, there = (trueno.KVCache(2, 2, 32, device=name, **how) for name in ("", device))
    for cache in (here, there):
        start = cache.new()
        for layer in range(2):
            k, v = (rows(np.random.default_rng(layer), 11, 2, 32) for _ in range(2))
            cache.append(layer, trueno.to(k, device) if cache is there else k,
                         trueno.to(v, device) if cache is there else v, start)  # fmt: skip
        assert [cache.fork(start) for _ in range(4)] == [1, 2, 3, 4]
        cache.truncate(2, 5)
    inputs = [np.zeros((count, heads, 32), np.float32) for heads in (6, 2, 2)]
    with trueno.Batch(device) as b:
        step = there.record(b, count)
        q, k, v = handles = [b.upload(x) for x in inputs]
        ys = [b.keep(step.attend(layer, q, k, v, scale=0.2)) for layer in range(2)]
        turned = b.rope(q, step.positions)
        for turn in range(20):
            chosen = [int(s) for s in rng.permutation(5)[:count]]
            for handle, x in zip(handles, inputs, strict=True):
                x[...] = rows(rng, *x.shape)
                b.update(handle, x)
            starts = here.lengths(chosen)
            step.run(chosen)
            with trueno.use("scalar"):
                for layer in range(2):
                    here.append(layer, *(x[:, None] for x in inputs[1:]), chosen)
                    want = here.attend(layer, inputs[0][:, None], chosen, scale=0.2)[:, 0]
                    np.testing.assert_allclose(b.read(ys[layer]), want, rtol=0, atol=1e-5)
                np.testing.assert_allclose(b.read(turned), trueno.rope(inputs[0], starts), rtol=0, atol=1e-4)
            if turn % 7 == 6:
                for cache in (here, there):
                    cache.truncate(chosen[0], 3)
    for s in range(5):
        for x, want in zip(there.read(1, s), here.read(1, s), strict=True):
            np.testing.assert_array_equal(x, want)


@pytest.mark.parametrize("name", ["scalar", "fake"])
def test_sequences_join_and_leave_between_two_runs(fake, name):
    """A row without a sequence changes nothing, and the others get what a step of their own gives."""
    rng = np.random.default_rng(7)
    how = {"dtype": "float32", "capacity": 24, "sequences": 3, "page": 8, "device": name}
    cache, alone = trueno.KVCache(1, 2, 16, **how), trueno.KVCache(1, 2, 16, **how)
    numbers = [cache.new() for _ in range(3)]
    assert [alone.new() for _ in range(3)] == numbers
    with trueno.Batch(name) as many, trueno.Batch(name) as few:
        arrays = [
            [b.upload(np.zeros((count, h, 16), np.float32)) for h in (4, 2, 2)] for b, count in ((many, 3), (few, 1))
        ]
        steps = cache.record(many, 3), alone.record(few, 1)
        results = [step.attend(0, *x) for step, x in zip(steps, arrays, strict=True)]
        for listed in ([0, None, 2], [None, 1, None], [2, 1, 0], (None, 0, None), [None] * 3, [1, 0, None]) * 3:
            given = [rows(rng, 3, h, 16) for h in (4, 2, 2)]
            for handle, x in zip(arrays[0], given, strict=True):
                many.update(handle, x)
            steps[0].run(listed)
            y = many.read(results[0])
            for row, sequence in enumerate(listed):
                if sequence is None:
                    continue
                for handle, x in zip(arrays[1], given, strict=True):
                    few.update(handle, x[row : row + 1])
                steps[1].run([sequence])
                np.testing.assert_allclose(y[row : row + 1], few.read(results[1]), rtol=0, atol=2e-6)
        assert cache.lengths(numbers).tolist() == alone.lengths(numbers).tolist()
        with pytest.raises(ParameterError, match="it is for 3 sequences, and 2 are given"):
            steps[0].run([0, None])
        with pytest.raises(ParameterError, match="each may be there once"):
            steps[0].run([1, None, 1])


@pytest.mark.parametrize("device", ["", "fake"])
def test_a_batch_writes_to_a_cache_in_its_step_alone(fake, device):
    """Not where the batch is executed to warm up, for another cache's step, or when pages have other users."""
    name = device or "scalar"
    caches = [trueno.KVCache(1, 1, 4, dtype="float32", capacity=8, sequences=2, device=device) for _ in range(2)]
    one, other = caches
    s, t = one.new(), other.new()
    for cache, sequence in ((one, s), (other, t)):
        x = np.arange(1, 13, dtype=np.float32).reshape(3, 1, 4)
        x = trueno.to(x, device) if device else x
        cache.append(0, x, x, sequence)
    before = one.read(0, s)[0]
    with trueno.Batch(name) as b:
        h = b.upload(np.full((1, 1, 4), -9, np.float32))
        first, second = one.record(b, 1), other.record(b, 1)
        with pytest.raises(ParameterError, match="attend is not recorded for layers 0; each gets the token"):
            first.run([s])
        y = first.attend(0, h, h, h)
        second.attend(0, h, h, h)
        b.execute()
        np.testing.assert_array_equal(one.read(0, s)[0], before)
        first.run(np.array([s]))
        np.testing.assert_array_equal(one.read(0, s)[0], [*before, [[-9] * 4]])
        np.testing.assert_array_equal(other.read(0, t)[0], before)
        one.truncate(s, 3)
        fork = one.fork(s)
        b.execute()
        with pytest.raises(ParameterError, match="there is no sequence 99"):
            first.run([99])
        b.relu(y)
        b.execute()
        np.testing.assert_array_equal(one.read(0, fork)[0], before)
        np.testing.assert_array_equal(one.read(0, s)[0], before)
        for wrong in ([False], [0.0], [[s]], s, "a", {0: 1}.items()):
            with pytest.raises(ParameterError, match=r"there is no sequence|give a list of what|it is for 1"):
                first.run(wrong)
        assert one.length(s) == 3


def test_a_step_records_nothing_of_a_wrong_call():
    cache = trueno.KVCache(2, 2, 4, dtype="float32", capacity=5, page=4)
    with pytest.raises(ParameterError, match="batch is None; give a trueno"):
        cache.record(None, 1)
    with trueno.Batch("scalar") as b:
        step = cache.record(b, 1)
        q, k = (b.upload(np.ones((1, heads, 4), np.float32)) for heads in (6, 2))
        for wrong, name in (((q, q, k), "k"), ((q, k, q), "v"), ((b.upload(1.0), k, k), "q"), ((k, k, None), "v")):
            with pytest.raises(TruenoError, match=f"KVCache.record: {name} (has shape|is None)"):
                step.attend(0, *wrong)
        assert repr(b) == "<Batch('scalar'), 0 ops>"
        for layer in range(2):
            step.attend(layer, q, k, k)
        s = cache.new()
        for _ in range(5):
            step.run([s])
        with pytest.raises(OutOfMemory, match="the capacity is 5"):
            step.run([s])
        assert cache.length(s) == 5


def test_an_error_in_a_step_changes_nothing(fake):
    cache = trueno.KVCache(1, 2, 32, dtype="float16", capacity=16, page=8, sequences=1)
    s = cache.new()
    x = [np.ones((1, heads, 32), np.float32) for heads in (6, 2, 2)]
    with trueno.Batch("scalar") as b:
        step = cache.record(b, 1)
        y = step.attend(0, *map(b.upload, x))
        for _ in range(16):
            step.run([s])
        assert b.read(y).shape == (1, 6, 32)
        for sequences, kind, why in (
            ([s], OutOfMemory, "the capacity is 16; truncate it"),
            ([], ParameterError, "it is for 1 sequences, and 0 are given"),
            ([7], ParameterError, "there is no sequence 7"),
        ):
            with pytest.raises(kind, match=why):
                step.run(sequences)
            assert cache.length(s) == 16 and cache.used == cache.nbytes
        uneven = trueno.KVCache(2, 2, 32, dtype="float16", capacity=16)
        rest = uneven.record(b, 1), uneven.new()
        uneven.append(1, *x[1:], rest[1])
        for layer in range(2):
            rest[0].attend(layer, *map(b.upload, x))
        with pytest.raises(ParameterError, match="sequence 0 has 0 to 1 tokens in its layers; truncate it"):
            rest[0].run([rest[1]])
        assert uneven.lengths([0], 1) == 1 and y is not None
        with pytest.raises(ParameterError, match="layer 0 is recorded already"):
            step.attend(0, *map(b.upload, x))
        with pytest.raises(ParameterError, match="sequences is 0; give how many"):
            cache.record(b, 0)
        cache.truncate(s, 8)
        used = cache.used
        fail = trueno.JidokaGuard().on(trueno.Condition.INF, trueno.Action.STOP)
        x[2][...] = 1e6  # beyond float16
        with fail, pytest.raises(trueno.GuardError):
            step.run([s])
        assert cache.length(s) == 8 and cache.used == used
        x[2][...] = 1
        step.run([s])
        assert cache.length(s) == 9
    there = trueno.KVCache(1, 2, 32, capacity=16, page=8, sequences=2, device="fake")
    s = there.new()
    one = trueno.to(np.ones((3, 2, 32), np.float32), "fake")
    there.append(0, one, one, s)
    other, used = there.fork(s), there.used
    fake.control.fail(1, "memory", "alloc")
    with pytest.raises(OutOfMemory):
        there.append(0, one, one, other)
    fake.control.reset()
    assert there.used == used and there.length(other) == 3, "the copy of the page failed, and both share it again"
    there.append(0, one, one, other)
    np.testing.assert_array_equal(there.read(0, other)[0], np.ones((6, 2, 32)))


def test_arrays_of_another_place(fake):
    here, there = (trueno.KVCache(1, 2, 32, capacity=8, device=name) for name in ("", "fake"))
    s = here.new(), there.new()
    x = np.ones((1, 2, 32), np.float32)
    y = trueno.to(x, "fake")
    with pytest.raises(
        DeviceError, match=re.escape("append: k is on the host, and the cache on fake; move it: trueno.to(k")
    ):
        there.append(0, x, y, s[1])
    with pytest.raises(
        DeviceError, match=re.escape("attend: q is on fake, and the cache on the host; move it: trueno.numpy(q")
    ):
        here.attend(0, y, s[0])
    for cache, name in ((here, "fake"), (there, "scalar")):
        with (
            trueno.Batch(name) as b,
            pytest.raises(
                DeviceError,
                match=r"KVCache\.record: the cache is on .*, and the batch on .*; make the cache with device='(fake)?'",
            ),
        ):
            cache.record(b, 1)
    with trueno.Batch() as b:
        k = [trueno.to(np.ones((1, heads, 32), np.float32), "fake") for heads in (6, 2, 2)]
        y = (step := there.record(b, 1)).attend(0, *map(b.upload, k))
        step.run([s[1]])
        assert b.read(y).shape == (1, 6, 32) and there.length(s[1]) == 1
    with pytest.raises(ParameterError, match="device is 3, not the name of a backend"):
        trueno.KVCache(1, 2, 32, capacity=8, device=3)
    with pytest.raises(UnknownBackend, match="nowhere"):
        trueno.KVCache(1, 2, 32, capacity=8, device="nowhere")
    fake.control.memory = 10_000
    with pytest.raises(OutOfMemory, match=r"KVCache: there is no room for \d+ bytes"):
        trueno.KVCache(4, 2, 32, capacity=800, device="fake")
    assert trueno.KVCache(1, 2, 32, capacity=8, device="scalar").device == "host"


@pytest.mark.skipif("cuda_emulated" not in trueno.backends(), reason="the emulated device is not installed")
def test_a_device_without_kernels_for_caches():
    """The cache is on the host, and says so; keys, values and queries move there, and results back."""
    rng, name = np.random.default_rng(5), "cuda_emulated"
    here, there = (trueno.KVCache(1, 2, 32, dtype="float32", capacity=32, page=8, device=d) for d in ("", name))
    if there.device != "host":
        pytest.skip("it has kernels now")
    assert "on the host because cuda_emulated has no kernel for kv_cache_scatter (unsupported_op)" in repr(there)
    s = here.new(), there.new()
    for tokens in (12, 1):
        k, v, q = (rows(rng, tokens, heads, 32) for heads in (2, 2, 6))
        with trueno.use("scalar"):
            here.append(0, k, v, s[0])
            want = here.attend(0, q, s[0])
        with trueno.use(name), trueno.trace("transfer") as seen:
            there.append(0, trueno.to(k, name), trueno.to(v, name), s[1])
            y = there.attend(0, trueno.to(q, name), s[1])
        assert type(y) is type(trueno.to(q, name)) and len(seen.events) == 3 + 3 + 1
        np.testing.assert_allclose(trueno.numpy(y), want, rtol=0, atol=1e-5)
    with (
        trueno.Batch(name) as b,
        pytest.raises(DeviceError, match=r"on the host because cuda_emulated .*; call append and att"),
    ):
        there.record(b, 1)


@pytest.mark.parametrize("kind", ["kernel", "upload"])
def test_a_device_that_fails_leaves_the_lengths(fake, kind):
    cache = trueno.KVCache(1, 2, 32, capacity=16, device="fake")
    s, x = cache.new(), trueno.to(np.ones((2, 2, 32), np.float32), "fake")
    fake.control.fail(1, "error", kind)
    with pytest.raises(KernelError):
        cache.append(0, x, x, s)
    fake.control.reset()
    assert cache.length(s) == 0 and cache.used == 0
    cache.append(0, x, x, s)
    np.testing.assert_array_equal(cache.read(0, s)[1], np.ones((2, 2, 32)))
