"""Messages between emulated GPUs: on arrays, and inside batches, against NumPy; and what is no message."""

from threading import Thread

import numpy as np
import pytest
import trueno
from ml_dtypes import bfloat16
from seeds import fresh_seed
from trueno.dispatch.transfer import device_of
from trueno_cuda.kernels.exchange import inboxes, launches, shares
from trueno_cuda.nccl import OPS, Communicator

UFUNCS = {"sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum}


def names(count):
    return [f"cuda_emulated:{i}" for i in range(count)]


@pytest.fixture
def rng():
    seed = fresh_seed()
    print("seed", seed)
    return np.random.default_rng(seed)


@pytest.fixture(params=[2, 3])
def links(request):
    with Communicator(*names(request.param)) as links:
        yield links


@pytest.fixture(scope="module")
def pair():
    return Communicator(*names(2))


def moved(links, arrays):
    return [trueno.to(x, name) for x, name in zip(arrays, links.devices, strict=True)]


def back(links, results):
    """The results on the host; each must be on its own GPU."""
    assert [device_of(y).name for y in results] == list(links.devices)
    return list(map(trueno.numpy, results))


def at_once(batches):
    """Execute each in a thread, and raise what one of them raises."""
    errors = []

    def run(batch):
        try:
            batch.execute()
        except Exception as error:
            errors.append(error)

    threads = [Thread(target=run, args=(batch,)) for batch in batches]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


# ---- arrays


def test_what_it_is(links):
    assert len(links) == len(links.devices) in (2, 3)
    assert links.devices[0] == "cuda_emulated"  # which number 0 is
    assert repr(links).startswith("<Communicator cuda_emulated, cuda_emulated:1")


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("dtype", ["f4", "f8", "i8"])
def test_reductions(links, rng, op, dtype):
    arrays = [(rng.standard_normal((4, 6)) * 9).astype(dtype) for _ in links.devices]
    given = moved(links, arrays)
    want = arrays[0]
    for x in arrays[1:]:
        want = UFUNCS[op](want, x)
    for y in back(links, links.all_reduce(given, op)):
        assert y.dtype == dtype and y.tobytes() == want.tobytes()
    arrays = [np.concatenate([x] * len(links)) for x in arrays]
    scattered = back(links, links.reduce_scatter(moved(links, arrays), op))
    assert [y.tobytes() for y in scattered] == [want.tobytes()] * len(links)
    assert [trueno.numpy(x).tobytes() for x in given] == [x[:4].tobytes() for x in arrays]  # operands stay


def test_rows_behind_one_another(links, rng):
    arrays = [rng.standard_normal((3, 5)).astype(np.float32) for _ in links.devices]
    for axis in (0, -2):
        for y in back(links, links.all_gather(moved(links, arrays), axis)):
            assert np.array_equal(y, np.concatenate(arrays))


@pytest.mark.parametrize("shape", [(), (1,), (7,), (2, 3, 4)])
def test_one_for_all(links, rng, shape):
    arrays = [rng.standard_normal(shape).astype(np.float32) for _ in links.devices]
    for root in range(len(links)):
        for y in back(links, links.broadcast(moved(links, arrays), root)):
            assert np.array_equal(y, arrays[root])
    for y in back(links, links.all_reduce(moved(links, arrays))):
        np.testing.assert_allclose(y, sum(arrays), rtol=1e-6)


def test_an_empty_message(pair):
    arrays = moved(pair, [np.zeros((0, 3), np.float32)] * 2)
    for send in (pair.all_reduce, pair.all_gather, pair.reduce_scatter, pair.broadcast):
        results = send(arrays)
        assert [y.shape for y in results] == [(0, 3)] * 2


def test_alone(rng):
    """A communicator of one GPU, so that a program need not tell that case apart."""
    links = Communicator("cuda_emulated:1")
    x = rng.standard_normal((4, 4)).astype(np.float32)
    for send in (links.all_reduce, links.all_gather, links.reduce_scatter, links.broadcast):
        (y,) = send(moved(links, [x]))
        assert np.array_equal(trueno.numpy(y), x)


def test_in_any_order(rng):
    """Places are those of the names, not of the GPUs' numbers."""
    links = Communicator("cuda_emulated:2", "cuda_emulated:1")
    arrays = [rng.standard_normal(4).astype(np.float32) for _ in range(2)]
    for y in back(links, links.all_gather(moved(links, arrays))):
        assert np.array_equal(y, np.concatenate(arrays))


def test_closing(rng):
    with Communicator(*names(2)) as links:
        links.all_reduce(moved(links, [np.ones(3, np.float32)] * 2))
    links.close()
    (y, _) = links.all_reduce(moved(links, [np.ones(3, np.float32)] * 2))  # which opens it again
    assert trueno.numpy(y).tolist() == [2, 2, 2]


# ---- what is no message


@pytest.mark.parametrize(
    "given, kind, words",
    [
        ((), trueno.ParameterError, r'no device is named; write Communicator\("cuda:0", "cuda:1"\)'),
        (("cuda_emulated", "cuda_emulated:0"), trueno.ParameterError, "name a device twice; each takes part once"),
        (("cuda_emulated", "cuda_emulated:8"), trueno.BackendUnavailable, "cuda_emulated:8 is not there"),
        (("cuda_emulated", "nothing"), trueno.UnknownBackend, '"nothing" is not installed'),
        (("simd",), trueno.ParameterError, "simd runs no PTX"),
        (("cuda_emulated", 1), trueno.ParameterError, "1 is not the name of a backend"),
    ],
)
def test_devices_that_do_not_exchange(given, kind, words):
    with pytest.raises(kind, match=words):
        Communicator(*given)


@pytest.mark.parametrize("side", [0, 4095, True, 1e6, "16"])
def test_a_side_that_is_no_number_of_bytes(side):
    with pytest.raises(trueno.ParameterError, match=r"side is .*; give bytes, 4096 or more"):
        Communicator("cuda_emulated", side=side)


ONE, TWO = (np.ones(shape, np.float32) for shape in ((4, 2), (4, 3)))


@pytest.mark.parametrize(
    "send, kind, words",
    [
        (lambda c, m: c.all_reduce(m([ONE, ONE])[:1]), trueno.ParameterError,
         "all_reduce: 1 was given; give a list of 2 arrays, one of each device"),
        (lambda c, m: c.all_reduce(m([ONE, ONE])[0]), trueno.ParameterError,
         "all_reduce: a Array was given; give a list"),
        (lambda c, m: c.all_reduce(iter(m([ONE, ONE]))), trueno.ParameterError, "a list_iterator was given"),
        (lambda c, m: c.all_reduce([ONE, ONE]), trueno.DeviceError,
         r"array 0 is a ndarray, not of cuda_emulated; move it: trueno.to\(x, 'cuda_emulated'\)"),
        (lambda c, m: c.all_reduce([m([ONE, ONE])[0], [1.0]]), trueno.DeviceError, "array 1 is a list"),
        (lambda c, m: c.all_reduce(m([ONE, ONE])[::-1]), trueno.DeviceError,
         "array 0 is on GPU 1, and cuda_emulated is its place"),
        (lambda c, m: c.all_reduce(m([ONE, TWO])), trueno.ShapeError,
         r"all_reduce: the arrays have shapes \(4, 2\), \(4, 3\); they must agree"),
        (lambda c, m: c.all_reduce(m([ONE, ONE.astype("f8")])), trueno.DtypeError,
         "all_reduce: the arrays are float32, float64; of one dtype"),
        (lambda c, m: c.all_reduce(m([ONE, ONE]), "mean"), trueno.ParameterError,
         "all_reduce: op is 'mean'; it is one of sum, prod, max, min"),
        (lambda c, m: c.reduce_scatter(m([ONE, ONE]), "avg"), trueno.ParameterError, "reduce_scatter: op is 'avg'"),
        (lambda c, m: c.reduce_scatter(m([ONE[:3], ONE[:3]])), trueno.ShapeError,
         r"reduce_scatter: the first axis of \(3, 2\) is not 2 equal parts"),
        (lambda c, m: c.all_gather(m([ONE, ONE]), 1), trueno.ParameterError,
         "all_gather: axis is 1 of 2; it gathers arrays along the first axis, 0"),
        (lambda c, m: c.all_gather(m([ONE[0, 0], ONE[0, 0]])), trueno.ParameterError, "all_gather: axis is 0 of 0"),
        (lambda c, m: c.broadcast(m([ONE, ONE]), 2), trueno.ParameterError,
         "broadcast: root is 2; it is a place among 2 devices, from 0 on"),
        (lambda c, m: c.broadcast(m([ONE, ONE]), -1), trueno.ParameterError, "broadcast: root is -1"),
        (lambda c, m: c.broadcast(m([ONE, ONE]), True), trueno.ParameterError, "broadcast: root is True"),
        (lambda c, m: c.all_reduce(m([ONE, ONE]), precision="bf16"), trueno.ParameterError,
         "all_reduce: precision is 'bf16'; arrays are sent as they are, handles rounded"),
        (lambda c, m: c.all_reduce(m([ONE, ONE]), precision="f16"), trueno.ParameterError,
         "all_reduce: precision is 'f16'; it is one of f32, bf16"),
    ],
)  # fmt: skip
def test_what_is_no_message(pair, send, kind, words):
    with pytest.raises(kind, match=words):
        send(pair, lambda arrays: moved(pair, arrays))


# ---- inside batches


def test_messages_of_batches(links, rng):
    """A sum, a computation, and rows beside one another, replayed with new values."""
    arrays = [rng.standard_normal((2, 6)).astype(np.float32) for _ in links.devices]
    batches = [trueno.Batch(name) for name in links.devices]
    given = [b.upload(x) for b, x in zip(batches, arrays, strict=True)]
    sums = links.all_reduce([b.relu(h) for b, h in zip(batches, given, strict=True)])
    parts = [b.scale(h, float(i + 1)) for i, (b, h) in enumerate(zip(batches, sums, strict=True))]
    rows = links.all_gather(parts, -1)
    assert [h.shape for h in sums] == [(2, 6)] * len(links) and rows[0].shape == (2, 6 * len(links))
    for turn in range(3):
        at_once(batches)
        total = np.maximum(arrays[0], 0)
        for x in arrays[1:]:
            total = total + np.maximum(x, 0)  # in the order of the GPUs: the same bits on all
        want = np.hstack([total * np.float32(i + 1) for i in range(len(links))])
        for batch, h in zip(batches, rows, strict=True):
            assert batch.read(h).tobytes() == want.tobytes(), turn
        arrays = [rng.standard_normal((2, 6)).astype(np.float32) for _ in arrays]
        for batch, h, x in zip(batches, given, arrays, strict=True):
            batch.update(h, x)
    listed = str(batches[0])
    assert "exchanged_sum" in listed and "exchanged_rows" in listed


def test_parts_of_several_widths(links, rng):
    widths = (4, 8, 12)[: len(links)]
    arrays = [rng.standard_normal((3, n)).astype(np.float32) for n in widths]
    batches = [trueno.Batch(name) for name in links.devices]
    for axis in (-1, 1):
        given = [b.upload(x) for b, x in zip(batches, arrays, strict=True)]
        rows = links.all_gather(given, axis)
    at_once(batches)
    for batch, h in zip(batches, rows, strict=True):
        assert np.array_equal(batch.read(h), np.hstack(arrays))


@pytest.mark.parametrize("n", [7, 64])
def test_messages_in_bfloat16(links, rng, n):
    """Parts are rounded, each GPU's own as well; sums are not."""
    arrays = [rng.standard_normal((3, n)).astype(np.float32) for _ in links.devices]
    batches = [trueno.Batch(name) for name in links.devices]
    given = [b.upload(x) for b, x in zip(batches, arrays, strict=True)]
    narrow, wide = links.all_reduce(given, precision="bf16"), links.all_reduce(given, precision="f32")
    at_once(batches)
    want, exact = (sum((x.astype(kind).astype(np.float32) for x in arrays[1:]), arrays[0].astype(kind).astype("f4"))
                   for kind in (bfloat16, np.float32))  # fmt: skip
    for batch, one, two in zip(batches, narrow, wide, strict=True):
        assert batch.read(one).tobytes() == want.tobytes() and batch.read(two).tobytes() == exact.tobytes()
    size = sum(abs(x.astype(np.float64)) for x in arrays)
    assert (abs(want - sum(x.astype(np.float64) for x in arrays)) <= (2**-8 + 2**-22) * size).all()


def test_messages_of_two_communicators(rng):
    """Each has memory of its own."""
    one, two = Communicator(*names(2)), Communicator(*names(2), side=4096)
    arrays = [rng.standard_normal(5).astype(np.float32) for _ in range(2)]
    batches = [trueno.Batch(name) for name in one.devices]
    given = [b.upload(x) for b, x in zip(batches, arrays, strict=True)]
    again = two.all_reduce(one.all_reduce(given))
    at_once(batches)
    for batch, h in zip(batches, again, strict=True):
        np.testing.assert_allclose(batch.read(h), 2 * (arrays[0] + arrays[1]), rtol=1e-6)


def test_a_batch_that_waits_in_vain(pair, monkeypatch):
    monkeypatch.setattr(inboxes, "WAIT_S", 0.2)
    links = Communicator(*names(2))
    batches = [trueno.Batch(name) for name in links.devices]
    sums = links.all_reduce([b.upload(ONE) for b in batches])
    assert len(sums) == 2
    with pytest.raises(trueno.KernelError, match="waited for the other GPUs; execute their batches in threads"):
        batches[0].execute()


@pytest.mark.parametrize(
    "send, kind, words",
    [
        (lambda c, h: c.all_reduce(h, "max"), trueno.ParameterError, "op is 'max'; batches record sums alone"),
        *((lambda c, h, p=p: c.all_reduce(h, precision=p), trueno.ParameterError,
           f"all_reduce: precision is {p!r}; it is one of f32, bf16") for p in ("fp16", None, 16, "BF16")),
        (lambda c, h: c.all_gather(h), trueno.ParameterError,
         "axis is 0 of 2; it gathers handles along the last axis, -1"),
        (lambda c, h: c.broadcast(h), trueno.ParameterError, "broadcast: batches record all_reduce and all_gather"),
        (lambda c, h: c.reduce_scatter(h), trueno.ParameterError,
         "reduce_scatter: batches record all_reduce and all_gather; execute, and pass the arrays"),
        (lambda c, h: c.all_reduce([h[0], trueno.to(ONE, "cuda_emulated:1")]), trueno.ParameterError,
         "all_reduce: give arrays, or handles of a batch of each device, not both"),
        (lambda c, h: c.all_reduce(h[:1]), trueno.ParameterError, "1 was given; give a list of 2"),
    ],
)  # fmt: skip
def test_what_batches_do_not_record(pair, send, kind, words):
    batches = [trueno.Batch(name) for name in pair.devices]
    handles = [b.upload(ONE) for b in batches]
    with pytest.raises(kind, match=words):
        send(pair, handles)


def test_handles_of_several_shapes(pair):
    batches = [trueno.Batch(name) for name in pair.devices]
    one, two = (b.upload(x) for b, x in zip(batches, (ONE, TWO), strict=True))
    with pytest.raises(trueno.ShapeError, match="they must agree"):
        pair.all_reduce([one, two])
    with pytest.raises(trueno.ShapeError, match="they must agree"):
        pair.all_gather([one, batches[1].upload(TWO[:3])], -1)


def test_more_than_a_side():
    links = Communicator(*names(2), side=4096)
    batches = [trueno.Batch(name) for name in links.devices]
    links.all_reduce([b.upload(np.ones(1024, np.float32)) for b in batches])
    with pytest.raises(trueno.ParameterError, match="4100 bytes of one GPU; make it with side=4100 or more"):
        links.all_reduce([b.upload(np.ones(1025, np.float32)) for b in batches])


def test_handles_on_the_wrong_device(pair):
    batches = [trueno.Batch(name) for name in pair.devices]
    handles = [b.upload(ONE) for b in batches]
    sums = pair.all_reduce(handles[::-1])
    with pytest.raises(trueno.TruenoError, match="part 1 belongs to another GPU than cuda_emulated"):
        batches[0].execute()
    assert len(sums) == 2


def test_a_result_that_one_gpu_does_not_use(pair, rng):
    """Every GPU sends, even where its own program has no use for the sum."""
    arrays = [rng.standard_normal(6).astype(np.float32) for _ in range(2)]
    batches = [trueno.Batch(name) for name in pair.devices]
    sums = pair.all_reduce([b.upload(x) for b, x in zip(batches, arrays, strict=True)])
    y = batches[0].relu(sums[0])
    other = batches[1].relu(batches[1].upload(arrays[1]))
    at_once(batches)
    assert np.array_equal(batches[0].read(y), np.maximum(arrays[0] + arrays[1], 0))
    assert np.array_equal(batches[1].read(other), np.maximum(arrays[1], 0))


# ---- real GPUs


def gpus():
    """The names of the GPUs that are here, four at most."""
    found = trueno.backends().get("cuda")
    count = len(found.devices) if found is not None and found.available else 0
    return [f"cuda:{i}" for i in range(min(count, 4))]


@pytest.fixture(scope="module")
def real():
    if len(gpus()) < 2:
        pytest.skip("this machine has no two GPUs for CUDA")
    return Communicator(*gpus())


@pytest.mark.gpu
@pytest.mark.parametrize("shape", [(4, 6), (4, 1 << 18)])
def test_arrays_of_gpus(real, rng, shape):
    arrays = [rng.standard_normal((shape[0] * len(real), shape[1])).astype(np.float32) for _ in real.devices]
    given = moved(real, arrays)
    for op in OPS:
        want = arrays[0]
        for x in arrays[1:]:
            want = UFUNCS[op](want, x)
        for y in back(real, real.all_reduce(given, op)):
            np.testing.assert_allclose(y, want, rtol=1e-5, atol=1e-5)
        for y, part in zip(back(real, real.reduce_scatter(given, op)), np.split(want, len(real)), strict=True):
            np.testing.assert_allclose(y, part, rtol=1e-5, atol=1e-5)
    for y in back(real, real.all_gather(given)):
        assert np.array_equal(y, np.concatenate(arrays))
    for root, x in enumerate(arrays):
        for y in back(real, real.broadcast(given, root)):
            assert np.array_equal(y, x)


@pytest.mark.gpu
@pytest.mark.parametrize("n", [1, 7, 4096, 100_003, 1 << 20])
@pytest.mark.parametrize("threads", [False, True])
@pytest.mark.parametrize("precision", ["f32", "bf16"])
@pytest.mark.parametrize("meeting", [1, shares.MEETING, 1 << 40])
def test_batches_of_gpus(real, rng, monkeypatch, n, threads, precision, meeting):
    """Large sums of three GPUs or more by shares, and not."""
    monkeypatch.setattr(shares, "MEETING", meeting)
    links = Communicator(*real.devices)  # a kernel's choices are kept
    form = launches.chosen("sum", len(real), 2 * n, (), precision == "bf16").name

    def sent(x):
        return x.astype(bfloat16).astype(np.float32) if precision == "bf16" else x

    arrays = [rng.standard_normal((2, n)).astype(np.float32) for _ in real.devices]
    batches = [trueno.Batch(name) for name in real.devices]
    given = [b.upload(x) for b, x in zip(batches, arrays, strict=True)]
    rows = links.all_gather(links.all_reduce(given, precision=precision), -1)
    at_once(batches)  # kernels are loaded
    for _ in range(20):
        if threads:
            at_once(batches)
        else:
            for batch in batches:
                batch.execute(wait=False)
        total = sent(arrays[0])
        for x in arrays[1:]:
            total = total + sent(x)
        total = sent(total) if form == "shared" else total
        for batch, h in zip(batches, rows, strict=True):
            assert batch.read(h).tobytes() == np.hstack([total] * len(real)).tobytes()
        arrays = [rng.standard_normal((2, n)).astype(np.float32) for _ in arrays]
        for batch, h, x in zip(batches, given, arrays, strict=True):
            batch.update(h, x)


@pytest.mark.gpu
def test_copies_between_gpus(real, rng):
    x = rng.standard_normal((300, 1000)).astype(np.float32)
    y = trueno.to(x, real.devices[0])
    for turn in range(50):
        y = trueno.to(trueno.scale(y, -1.0), real.devices[(turn + 1) % len(real)])
    assert device_of(y).name == real.devices[50 % len(real)]
    assert np.array_equal(trueno.numpy(y), x)


def test_it_executes_batches_at_once():
    with Communicator(*names(2)) as links:
        batches = [trueno.Batch(name) for name in links.devices]
        sums = links.all_reduce([b.upload(ONE) for b in batches])
        for wait in (True, False, True):
            links.execute(batches, wait=wait)
        assert all(np.array_equal(b.read(h), 2 * ONE) for b, h in zip(batches, sums, strict=True))
        for wrong in (batches[:1], batches[0], None):
            with pytest.raises(trueno.ParameterError, match="execute: give a list of 2 batches, one of each device"):
                links.execute(wrong)


# ---- what a batch keeps of a communicator, and what it refuses


def test_a_batch_outlives_the_communicator(rng):
    arrays = [rng.standard_normal(6).astype(np.float32) for _ in range(2)]
    links = Communicator(*names(2))
    batches = [trueno.Batch(name) for name in links.devices]
    sums = links.all_reduce([b.upload(x) for b, x in zip(batches, arrays, strict=True)])
    links.close()
    del links
    at_once(batches)
    for batch, h in zip(batches, sums, strict=True):
        assert np.array_equal(batch.read(h), arrays[0] + arrays[1])


def test_a_side_of_any_number_of_bytes(rng):
    arrays = [rng.standard_normal(1024).astype(np.float32) for _ in range(2)]
    links = Communicator(*names(2), side=4100)
    batches = [trueno.Batch(name) for name in links.devices]
    sums = links.all_reduce([b.upload(x) for b, x in zip(batches, arrays, strict=True)])
    at_once(batches)
    assert np.array_equal(batches[0].read(sums[0]), arrays[0] + arrays[1])


def test_a_result_that_one_gpu_does_not_keep(rng, monkeypatch):
    monkeypatch.setattr(inboxes, "WAIT_S", 1.0)
    links = Communicator(*names(2))
    arrays = [rng.standard_normal(6).astype(np.float32) for _ in range(2)]
    batches = [trueno.Batch(name) for name in links.devices]
    y = batches[0].relu(links.all_reduce([b.upload(x) for b, x in zip(batches, arrays, strict=True)])[0])
    at_once(batches)
    assert np.array_equal(batches[0].read(y), np.maximum(arrays[0] + arrays[1], 0))


@pytest.mark.parametrize("dtype", ["f8", "i8"])
def test_handles_of_another_dtype(dtype):
    links = Communicator(*names(2))
    batches = [trueno.Batch(name) for name in links.devices]
    handles = [b.upload(ONE.astype(dtype)) for b in batches]
    with pytest.raises(trueno.TruenoError, match="float32"):
        links.all_reduce(handles)


def test_parts_without_elements_beside_others():
    """A GPU that has nothing to send would not launch, and the others would wait for it."""
    with Communicator("cuda_emulated:0", "cuda_emulated:1") as links:
        batches = [trueno.Batch(name) for name in links.devices]
        handles = [b.upload(np.ones((2, n), np.float32)) for b, n in zip(batches, (0, 3), strict=True)]
        with pytest.raises(trueno.errors.ShapeError, match="all of them have elements, or none"):
            links.all_gather(handles, -1)


def test_a_batch_that_failed_ends_the_communicator():
    """What the other GPU has sent would meet a later message."""
    with Communicator("cuda_emulated:0", "cuda_emulated:1") as links:
        batches = [trueno.Batch(name) for name in links.devices]
        for b, h in zip(batches, links.all_reduce([b.upload(np.ones(8, np.float32)) for b in batches]), strict=True):
            b.keep(h)
        links.execute(batches)
        batches[1].close()
        batches[0].close()
        with pytest.raises(trueno.TruenoError):
            links.execute(batches)
        with pytest.raises(trueno.errors.KernelError, match="make a new communicator"):
            links.execute(batches)
