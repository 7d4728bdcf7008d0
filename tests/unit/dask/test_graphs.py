"""What Dask's users expect of a graph: names, sizes, fusion, and that it holds no data."""

import inspect
import pickle
import subprocess
import sys

import dask
import dask.array as da
import numpy as np
import pytest
import trueno


def _x(rows=40, columns=30, size=10):
    return da.random.default_rng(3).standard_normal((rows, columns), dtype=np.float32, chunks=(size, size))


def test_equal_calls_have_equal_names_and_others_not():
    x, again = (da.from_array(np.arange(12, dtype=np.float32).reshape(3, 4), chunks=2) for _ in range(2))
    assert trueno.softmax(x).name == trueno.softmax(again).name
    names = [trueno.softmax(x), trueno.softmax(x, axis=0), *(trueno.elu(x, alpha=a) for a in (1.0, 2.0, 0.0, -0.0)),
             trueno.add(x, 1.0), trueno.add(x, 2.0), trueno.add(1.0, x), trueno.sub(x, 1.0), trueno.sub(1.0, x),
             trueno.sum(x), trueno.sum(x, keepdims=True), trueno.sum(x, axis=None)]  # fmt: skip
    with trueno.use("reference"):
        names.append(trueno.softmax(x))
    with trueno.JidokaGuard().on(trueno.Condition.NAN, trueno.Action.STOP):
        names.append(trueno.softmax(x))
    assert len({y.name for y in names}) == len(names)
    assert trueno.sum(x).name.startswith("sum-") and all(y.name in y.dask.layers for y in names)


def _named():
    x = da.from_array(np.arange(12, dtype=np.float32).reshape(3, 4), chunks=2)
    w = np.ones(4, np.float32)
    return [trueno.layer_norm(x, w, w).name, trueno.softmax(x, axis=0).name]


def test_names_are_the_same_in_other_processes():
    code = "import dask.array as da, numpy as np, trueno\n" + inspect.getsource(_named) + "print(*_named())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == _named()


@pytest.mark.parametrize("name", ["exp", "softmax", "sum", "variance"])
def test_the_graph_grows_with_chunks_and_holds_no_data(name):
    small, large = (getattr(trueno, name)(_x(size * 4, size * 3, size)) for size in (10, 1000))
    assert len(dict(small.dask)) == len(dict(large.dask)) <= 12 * 5
    assert abs(len(pickle.dumps(dict(small.dask))) - len(pickle.dumps(dict(large.dask)))) < 2000


def test_an_array_beside_is_in_the_graph_once():
    w = np.ones(30, np.float32)
    y = trueno.rms_norm(_x(40, 30, 10).rechunk((1, 30)), w)
    held = [v for v in dict(y.dask).values() if isinstance(v, np.ndarray) or type(v).__name__ == "DataNode"]
    assert len([v for v in held if getattr(getattr(v, "value", v), "shape", None) == (30,)]) == 1
    assert len(pickle.dumps(w)) * 3 < len(pickle.dumps(dict(y.dask)))


def test_elementwise_chains_become_one_task_for_each_chunk():
    x = _x()
    y = trueno.relu(trueno.scale(trueno.add(x, x), 2.0))
    (graph,) = (dict(dask.optimize(y)[0].dask),)
    assert len(graph) <= 2 * x.npartitions  # and the seeds of the random numbers


def test_mixed_chains_of_dask_and_of_ours():
    x = _x()
    with trueno.use("reference"):
        y = trueno.softmax(da.exp(x) + 1).sum(axis=1)
    assert np.allclose(y.compute(), 1)


def test_chunks_are_not_written_to():
    """Tasks may be repeated, and share what they read: a tree that adds in place must not."""
    a = np.ones((6, 8), np.float32)
    parts = da.from_array(a, chunks=(3, 2)).persist()
    before = trueno.matmul(parts, parts.T).compute()
    assert np.array_equal(before, trueno.matmul(parts, parts.T).compute()) and np.array_equal(parts.compute(), a)
