"""Messages inside batches at their edges: what a batch keeps of a communicator, and what it refuses."""

from threading import Thread

import numpy as np
import pytest
import trueno
from seeds import fresh_seed
from trueno_cuda.kernels import exchange
from trueno_cuda.nccl import Communicator

ONE = np.ones((4, 2), np.float32)


def names(count):
    return [f"cuda_emulated:{i}" for i in range(count)]


@pytest.fixture
def rng():
    seed = fresh_seed()
    print("seed", seed)
    return np.random.default_rng(seed)


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
    monkeypatch.setattr(exchange, "WAIT_S", 1.0)
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
