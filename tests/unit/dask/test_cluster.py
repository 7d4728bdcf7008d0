"""Two workers in processes, of which each chooses its backend: one has the core alone, the other scalar."""

import gc
import logging
import os
import signal
import time
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError

import dask.array as da
import numpy as np
import pytest
import trueno
from trueno.errors import FileError, GuardError, ParameterError, TruenoError
from trueno.version import __version__

distributed = pytest.importorskip("distributed", reason="distributed is not installed: pip install 'trueno[dask]'")
import trueno_dask  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")
WORKERS = {
    "alone": {"FORCE_CPU": "1", "TRUENO_AUTOLOAD": "0"},
    "scalar": {"TRUENO_BLOCK": "simd,wgpu,cuda,cuda_emulated"},
}


@contextmanager
def started():
    """A client of two worker processes of one thread each."""
    facts = {"nthreads": 1, "memory_limit": 0, "dashboard_address": None, "silence_logs": logging.CRITICAL + 1}
    workers = {name: {"cls": distributed.Nanny, "options": {**facts, "env": env}} for name, env in WORKERS.items()}
    scheduler = {"cls": distributed.Scheduler, "options": {"dashboard": False, "dashboard_address": ":0", "port": 0}}
    with (
        distributed.SpecCluster(workers, scheduler, silence_logs=logging.CRITICAL + 1) as cluster,
        distributed.Client(cluster) as client,
    ):
        client.wait_for_workers(2, timeout=120)
        yield client
    gc.collect()  # sockets that distributed leaves to the collector, while their warnings are ignored


@pytest.fixture(scope="module")
def client():
    """What all tests share that kill no worker."""
    with started() as client:
        yield client


@pytest.fixture(autouse=True)
def synchronous(client):
    """Not here: the client in force computes."""


@pytest.fixture(scope="module")
def x():
    return np.random.default_rng(21).standard_normal((60, 50)).astype(np.float32)


def test_every_worker_chooses_its_own_backend(client, x):
    lazy = da.from_array(x, chunks=(15, 20))
    y = trueno.log_softmax(trueno.gelu(lazy))
    with trueno.use("reference"):
        expected = trueno.log_softmax(trueno.gelu(x))
    explained = trueno_dask.explain(y, client)
    names = {address: facts["name"] for address, facts in client.scheduler_info()["workers"].items()}
    assert {(names[line.worker], line.backend) for line in explained.lines} == {
        ("alone", "reference"),
        ("scalar", "scalar"),
    }
    assert {line.op for line in explained.lines} == {"gelu", "log_softmax"}
    trueno_dask.stats(client, reset=True)
    with trueno_dask.trace(client) as trace:
        assert np.allclose(y.compute(), expected, atol=1e-5)
    ran = {address: {event.backend for event in events} for address, events in trace.workers.items()}
    assert {(names[address], backend) for address, backends in ran.items() for backend in backends} == {
        ("alone", "reference"), ("scalar", "scalar")
    }  # fmt: skip
    assert "gelu" in str(trace) and len(trace.events) >= 2 * 12
    stats = trueno_dask.stats(client)
    assert {b for s in stats.workers.values() for b in s.decisions} == {"reference", "scalar"}
    assert sum(stats.total.decisions.values()) == sum(sum(s.decisions.values()) for s in stats.workers.values())
    assert "reference" in str(stats) and stats.json().keys() == stats.workers.keys()


def test_workers_use_the_threads_that_dask_grants(client):
    da.from_array(np.ones(8, np.float32), chunks=1).map_blocks(trueno.exp).compute()
    trueno.exp(da.from_array(np.ones(8, np.float32), chunks=1)).compute()
    assert set(client.run(lambda: __import__("trueno").settings.get("TRUENO_THREADS")).values()) <= {1, None}


def test_a_guard_stops_the_call_with_op_chunk_and_index(client, x):
    bad = x.copy()
    bad[40, 33] = -2.0
    with trueno.JidokaGuard().on(trueno.Condition.NAN, trueno.Action.STOP):
        y = trueno.ln(trueno.abs(da.from_array(x, chunks=(15, 20))))
        z = trueno.sqrt(da.from_array(np.where(bad == -2, bad, np.abs(bad)), chunks=(15, 20)))
    assert np.isfinite(y.compute()).all()
    with pytest.raises(
        GuardError, match=r"sqrt on .* made 1 NaN: the first is y\[10, 13\].*in chunk \(2, 1\)"
    ) as caught:
        z.compute()
    error = caught.value
    assert (error.op, error.index, error.chunk, error.start) == ("sqrt", (10, 13), (2, 1), (30, 20))
    guards = trueno_dask.stats(client).total.guards
    assert guards["sqrt", "nan", "stop"] >= 1


def test_scopes_go_with_the_tasks(client, x):
    with trueno.use("reference"):
        y = trueno.exp(da.from_array(x, chunks=(15, 20)))
    with trueno_dask.trace(client) as trace:
        y.compute()
    assert {event.backend for event in trace.events} == {"reference"}
    with trueno.use("scalar"):
        z = trueno.exp(da.from_array(x, chunks=(15, 20)))
    assert "scalar" in {line.backend for line in trueno_dask.explain(z, client).lines}
    with pytest.raises(TruenoError, match="scalar"):  # on the worker that has the core alone
        z.compute()


def test_a_worker_that_dies_loses_nothing(x):
    """Its chunks are computed again: one of two workers is killed while both hold results that are still needed."""
    big = np.tile(x, (4, 4))
    expected = trueno.variance(trueno.softmax(np.abs(big)), axis=0)
    slow = da.from_array(big, chunks=(40, 40)).map_blocks(lambda b: time.sleep(0.05) or b, dtype=np.float32)
    with started() as client:
        future = client.compute(trueno.variance(trueno.softmax(trueno.abs(slow)), axis=0))
        pids = client.run(os.getpid)
        while min((len(keys) for keys in client.has_what().values()), default=0) < 2 and not future.done():
            time.sleep(0.01)
        os.kill(next(iter(pids.values())), signal.SIGKILL)
        assert np.allclose(future.result(timeout=240), expected, rtol=1e-4, atol=1e-9)


def test_quantized_rows_are_read_by_the_workers(client, tmp_path, x):
    q = trueno.quantize(np.tile(x, (2, 2))[:, :64], "q8_0")
    path = tmp_path / "w.gguf"
    trueno.gguf.write(path, {"w": q}, {"general.architecture": "test"})
    w = trueno_dask.open_gguf(path, chunks="1 kiB")["w"]
    v = np.ones(64, np.float32)
    assert w.bytes.numblocks[0] > 2 and np.allclose((w @ v).compute(), q @ v)
    assert np.array_equal(trueno.dequantize(w).compute(), trueno.dequantize(q))
    lazy = w @ v
    path.unlink()
    with pytest.raises(FileError, match="every worker reads the file by this path"):
        lazy.compute()


def test_a_persisted_array_is_simulated_from_where_it_is(client, x):
    kept = da.from_array(x, chunks=(15, 20)).persist()
    y = trueno.log_softmax(trueno.gelu(kept))
    costs = trueno_dask.measure(y, repeat=1)  # one chunk is copied from a worker
    assert {"gelu", "log_softmax"} <= costs.keys()
    result = trueno_dask.simulate(y, trueno_dask.Workers(2), costs=dict.fromkeys(costs, trueno_dask.Cost(1.0)))
    assert result.tasks == 12 + 12 + 4 + 12  # gelu, the parts of rows, their merges, and the elements
    assert result.seconds == result.tasks and 20 <= result.makespan <= 40


def test_versions(client):
    assert set(trueno_dask.check(client).values()) == {__version__}

    class Other:
        """A client whose workers answer so."""

        def __init__(self, **answers):
            self.answers = answers

        def run(self, *_, **__):
            return self.answers

    with pytest.raises(TruenoError, match=f"not installed on b; pip install trueno-dask=={__version__} there"):
        trueno_dask.stats(Other(a=__version__, b=PackageNotFoundError("trueno-dask")))
    with pytest.raises(TruenoError, match=r"b has 0\.1\.9, but the client .*; install one version on all"):
        trueno_dask.explain(trueno.exp(da.ones(3, dtype="f4")), Other(a=__version__, b="0.1.9"))


def test_wrong_arguments():
    with pytest.raises(ParameterError, match="ndarray is not a Dask array"):
        trueno_dask.explain(np.ones(3))
    with pytest.raises(ParameterError, match="there is no kind 'runs'"), trueno_dask.trace(kinds=["runs"]):
        pass
