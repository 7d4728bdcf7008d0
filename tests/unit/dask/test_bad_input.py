"""Operands that cannot be right: an error with op, operand and remedy at the call, where shapes and dtypes show it."""

import os
import pickle
import subprocess
import sys

import dask.array as da
import numpy as np
import pytest
import trueno
import trueno_dask
from trueno.errors import DtypeError, GuardError, OutError, ParameterError, ShapeError, TruenoError

F4 = np.float32


def lazy(*shape, dtype=F4, chunks=2):
    return da.ones(shape, dtype=dtype, chunks=chunks)


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: trueno.exp(lazy(3, dtype=int)), DtypeError, "exp: x is int64; float32, float64"),
        (lambda: trueno.exp(lazy(3, dtype=bool)), DtypeError, "exp: x is bool"),
        (lambda: trueno.exp(lazy(3, dtype=complex)), DtypeError, "real numbers only"),
        (lambda: trueno.exp(lazy(3).astype(object)), DtypeError, "exp: x is object"),
        (lambda: trueno.add(lazy(3), lazy(3, dtype=np.float64)), DtypeError, "y is float64, but x is float32"),
        (lambda: trueno.add(lazy(3), np.ones(3)), DtypeError, "y is float64, but x is float32"),
        (lambda: trueno.add(lazy(3), lazy(4)), ShapeError, "add: y has 4 along axis -1, but x has 3"),
        (lambda: trueno.matmul(lazy(3, 4), lazy(5, 2)), ShapeError, r"matmul: b\[k\] is 5, but a\[k\] is 4"),
        (lambda: trueno.softmax(lazy(3), axis=1), ParameterError, "axis is 1, but x has 1"),
        (lambda: trueno.softmax(lazy(3, 3), axis=None), ParameterError, "axis is None"),
        (lambda: trueno.sum(lazy(3, 3), axis=(0, 0)), ParameterError, "each of several once"),
        (lambda: trueno.argmax(lazy(3, 3), axis=(0, 1)), ParameterError, "argmax: axis is"),
        (lambda: trueno.clamp(lazy(3), 2.0, 1.0), ParameterError, "min is 2.0, max is 1.0"),
        (lambda: trueno.exp(lazy(3), out=np.ones(3, F4)), OutError, "lazy results cannot be written"),
        (lambda: trueno.exp(np.ones(3, F4), out=lazy(3)), OutError, "lazy results cannot be written"),
        (lambda: trueno.max(lazy(3, 0)), ShapeError, "empty row"),
        (lambda: trueno.embedding_lookup(lazy(3, 2), lazy(2)), DtypeError, "i is float32; indices"),
        (lambda: trueno.softmax(lazy(3), dim=0), ParameterError, "dim"),
        (lambda: trueno.exp.plan(lazy(3)), DtypeError, "x is a Dask array, which has no memory here"),
        (lambda: trueno.explain("exp", lazy(3)), DtypeError, "trueno_dask.explain"),
    ],
)  # fmt: skip
def test_at_the_call(call, error, text):
    with pytest.raises(error, match=text):
        call()


def test_a_product_of_blocks_says_whose_axis_is_cut():
    q = trueno.quantize(np.ones((4, 32), F4), "q8_0")
    with pytest.raises(
        ShapeError, match=r"^q @ x is quant_matmul\(x\.T, q\)\.T, and there quant_matmul: x has 4 chunks"
    ):
        q @ lazy(32, 3, chunks=8)
    with pytest.raises(ShapeError, match=r"^quant_matmul: x has 4 chunks along axis 1"):
        lazy(3, 32, chunks=8) @ q.T
    assert (q @ lazy(32, 3, chunks=8).rechunk({0: -1})).shape == (4, 3)


def test_masked_chunks_and_tensors_beside():
    with pytest.raises(DtypeError, match="masked array"):
        trueno.exp(da.from_array(np.ma.array([1.0, 2.0], mask=[0, 1]), chunks=1))
    torch = pytest.importorskip("torch")
    with pytest.raises(DtypeError, match=r"y is a Tensor beside a Dask array"):
        trueno.add(lazy(3), torch.ones(3))


def test_what_needs_numbers_now_computes_them():
    assert trueno.Vector(lazy(3)).sum() == 3.0
    assert isinstance(trueno.add(trueno.Vector([1, 2, 3]), lazy(3)), da.Array)


@pytest.mark.parametrize("axis", [0, 1, None])
def test_unknown_sizes(axis):
    rng = np.random.default_rng(8)
    x = rng.standard_normal((40, 6)).astype(F4)
    cut = da.from_array(x, chunks=(7, 3))
    kept = cut[cut[:, 0] > 0]
    real = x[x[:, 0] > 0]
    with trueno.use("reference"):
        for name in ("sum", "mean", "variance", "max", "norm_l2", "sum_kahan"):
            got = getattr(trueno, name)(kept, axis=axis).compute()
            assert np.allclose(got, getattr(trueno, name)(real, axis=axis), rtol=1e-5), name
        if axis is None:
            with pytest.raises(ParameterError, match=r"argmax: a position needs .*compute_chunk_sizes\(\)"):
                trueno.argmax(kept, axis=None)
            return
        assert np.array_equal(trueno.argmax(kept, axis=axis).compute(), real.argmax(axis))
        for name in ("softmax", "zscore"):
            lazy_ = getattr(trueno, name)(kept, axis=axis)
            assert np.isnan(lazy_.shape[0]) and lazy_.shape[1] == 6
            assert np.allclose(lazy_.compute(), getattr(trueno, name)(real, axis=axis), rtol=1e-4, atol=1e-6), name


def test_unknown_sizes_that_must_be_compared():
    x = lazy(8, 3)
    kept = x[x[:, 0] > 0]
    with pytest.raises(ShapeError, match=r"layer_norm: .*x.compute_chunk_sizes\(\)"):
        trueno.layer_norm(kept, np.ones(3, F4), np.ones(3, F4), axis=0)
    with pytest.raises(ParameterError, match=r"convolve2d: .*compute_chunk_sizes"):
        trueno.convolve2d(kept, np.ones((2, 2), F4))


def kept(x, *counts):
    """The first elements of each chunk, as many as `counts` says, along the last axis: Dask does not know how many."""
    chunks = x.chunks[-1]
    mask = np.concatenate([np.arange(n) < count for n, count in zip(chunks, counts, strict=True)])
    return x[..., da.from_array(mask, chunks=chunks)]


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda x: trueno.add(kept(x, 4, 3), kept(x, 4, 1)),
         r"add: y has 1 along axis -1, but x has 3 \(chunks of shapes \(2, 1\) and \(2, 3\).*give x and y"),
        (lambda x: trueno.add(kept(x, 1, 4), kept(x, 4, 4)), "add: y has 4 along axis -1, but x has 1"),
        (lambda x: trueno.mul(kept(x, 4, 0), kept(x[0], 4, 1)), "mul: y has 1 along axis -1, but x has 0"),
        (lambda x: trueno.fma(2.0, kept(x, 4, 4), kept(x, 4, 1)), "fma: z has 1 along axis -1, but y has 4"),
        (lambda x: trueno.sum(trueno.mul(kept(x, 2, 2), kept(x, 2, 1))), "mul: y has 1 along axis -1, but x has 2"),
        (lambda x: trueno.correlation(kept(x, 2, 2), kept(x, 2, 1)), "correlation: y has 1 along axis -1, but x has 2"),
        (lambda x: trueno.matmul(kept(x, 4, 4), kept(x, 4, 1).T), r"matmul: b has 1 along axis -2, but a has 4"),
    ],
)  # fmt: skip
def test_chunks_of_unknown_sizes_are_not_broadcast(call, text):
    """Dask's own `+` repeats a chunk of one element, whichever one the data left."""
    x = da.from_array(np.arange(16, dtype=F4).reshape(2, 8), chunks=(1, 4)).rechunk((2, 4))
    with pytest.raises(ShapeError, match=text):
        call(x).compute()


def test_a_chain_of_chunks_of_unknown_sizes_is_not_broadcast():
    x = da.from_array(np.arange(8, dtype=F4), chunks=4)
    with trueno_dask.fused():
        y = trueno.relu(trueno.add(kept(x, 4, 3), kept(x, 4, 1)))
    with pytest.raises(ShapeError, match=r"add, relu: y has 1 along axis -1, but x has 3 .*in chunk \(1,\)"):
        y.compute()


def test_what_is_known_to_have_one_element_is_broadcast_to_unknown_sizes():
    x = da.from_array(np.arange(8, dtype=F4), chunks=4)
    for y in (da.ones(1, dtype=F4), np.ones(1, F4), 1.0):
        assert trueno.add(kept(x, 3, 1), y).compute().tolist() == [1, 2, 3, 5]
    assert trueno.add(kept(x, 3, 1), kept(x, 3, 1)).compute().tolist() == [0, 2, 4, 8]
    columns = da.from_array(np.arange(8, dtype=F4)[:, None], chunks=(4, 1))
    assert trueno.add(columns, kept(x, 3, 1)).compute().shape == (8, 4)
    with trueno_dask.fused():
        assert trueno.relu(trueno.add(kept(x, 3, 1), np.ones(1, F4))).compute().tolist() == [1, 2, 3, 5]


def test_rows_of_unknown_size_that_turn_out_empty():
    x = lazy(8, 3)
    kept = x[x[:, 0] > 5]
    assert trueno.sum(kept, axis=0).compute().tolist() == [0, 0, 0]
    assert trueno.softmax(kept, axis=0).compute().shape == (0, 3)
    with pytest.raises(ShapeError, match="empty row"):
        trueno.max(kept, axis=0).compute()


def test_guards_where_rows_are_cut():
    x = da.from_array(np.repeat(np.array([1, 3e38], F4), [18, 18]).reshape(4, 9), chunks=(2, 4))
    stop = trueno.JidokaGuard().on(trueno.Condition.OVERFLOW, trueno.Action.STOP)
    with stop:
        y = trueno.sum(x)
    with pytest.raises(GuardError, match=r"sum made 2 Inf.*in chunk \(1,\)") as caught:
        y.compute()
    assert (caught.value.op, caught.value.index, caught.value.chunk) == ("sum", (0,), (1,))
    with stop:
        inf = trueno.sum(da.full((4, 9), F4(np.inf), chunks=(2, 4)))
        part = trueno.softmax(da.from_array(np.array([[-np.inf, -np.inf, 1, 2]], F4), chunks=(1, 2)))
    assert np.isinf(inf.compute()).all() and part.compute()[0, 0] == 0  # the operands explain it; only a part is NaN
    with (
        trueno.JidokaGuard().on(trueno.Condition.OVERFLOW, trueno.Action.PROMOTE_F64),
        pytest.raises(ParameterError, match=r"variance: a guard with .* computes a call again"),
    ):
        trueno.variance(x)


def test_a_backend_that_a_worker_lacks():
    with trueno.use("reference"):
        assert trueno.exp(lazy(3)).compute().shape == (3,)
    from trueno.deferred import Scopes
    from trueno.select.decision import Request
    from trueno_dask.task import Call

    task = Call("exp", Scopes(Request(("absent",), (), False, "trueno.use")), {}, {})
    with pytest.raises(TruenoError, match=r"absent"):
        task(np.ones(3, F4), ((0,), (0,)))


def test_a_task_of_another_version():
    from trueno.deferred import Scopes
    from trueno_dask.task import Call

    task = pickle.loads(pickle.dumps(Call("exp", Scopes(), {}, {})))
    task.version = "0.1.7"
    with pytest.raises(
        TruenoError, match=r"exp: the task was made by trueno 0\.1\.7, but this process has .*install one version"
    ):
        task(np.ones(3, F4), ((0,), (0,)))


def test_importing_trueno_imports_no_dask():
    code = "import sys, numpy as np, trueno; trueno.add(np.ones(3, 'f4'), [1, 2, 3]); print('dask' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


def test_without_the_plugin_a_dask_array_is_computed():
    code = "import dask.array as da, trueno; print(type(trueno.exp(da.zeros(3, dtype='f4'))).__name__)"
    env = {**os.environ, "TRUENO_AUTOLOAD": "0"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=env)
    assert done.stdout == "ndarray\n"
