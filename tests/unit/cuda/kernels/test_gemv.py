"""matvec, vecmat and thin products against wider NumPy: teams, vectors, splits, guards."""

import numpy as np
import pytest
from trueno_cuda.kernels import gemv
from trueno_cuda.kernels.gemm.matmul import ELEMENTS
from trueno_cuda.kernels.store import PLAIN, Store
from trueno_cuda.ptx import f32, f64
from unit.cuda.kernels.products import (
    DEVICE,
    FLOATS,
    assert_product,
    assert_right,
    called,
    compute,
    floats,
    fresh,
    run,
)
from unit.cuda.ptx.assembler import assembled

STORES = {"plain": PLAIN, "guarded": Store(guarded=True), "part": Store(partial=True)}


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("team", [32, 256])
@pytest.mark.parametrize("m, depth", [(1, 1), (9, 7), (19, 1300), (17, 2052), (3, 5001)], ids=str)
@pytest.mark.parametrize("splits", [1, 3])
def test_rows(dtype, team, m, depth, splits):
    rng = fresh()
    a, x = floats(rng, dtype, m, depth), floats(rng, dtype, depth)
    launches = gemv.row_launches(DEVICE, ELEMENTS[a.dtype.name], m, depth, PLAIN, True, team=team, splits=splits)
    assert (launches[0].then is not None) == (splits > 1 and depth > 4)
    assert_product(run(DEVICE, launches, a, x, (m,)), a, x)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("count", [1, 2, 4])
@pytest.mark.parametrize("m, depth", [(1, 1), (7, 9), (130, 100), (260, 35), (129, 71)], ids=str)
@pytest.mark.parametrize("splits", [1, 3])
def test_columns(dtype, count, m, depth, splits):
    rng = fresh()
    x, a = floats(rng, dtype, count, depth), floats(rng, dtype, depth, m)
    launches = gemv.column_launches(DEVICE, ELEMENTS[a.dtype.name], count, m, depth, PLAIN, True, splits=splits)
    assert_product(run(DEVICE, launches, x, a, (count, m)), x, a)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("m, n", [(1, 1), (3, 0), (0, 5), (5, 3), (70, 66), (4, 20000), (600, 33)], ids=str)
def test_the_ops(dtype, m, n):
    rng = fresh()
    a, x, y = floats(rng, dtype, m, n), floats(rng, dtype, n), floats(rng, dtype, m)
    assert_right("matvec", compute(DEVICE, "matvec", (m,), a, x), a, x)
    assert_right("vecmat", compute(DEVICE, "vecmat", (n,), y, a), y, a)


@pytest.mark.parametrize("m, n, depth", [(1, 70, 300), (4, 65, 80), (3, 64, 33), (50, 1, 300), (1, 1, 9000)], ids=str)
@pytest.mark.parametrize("guarded", [False, True])
def test_thin_matrices(m, n, depth, guarded):
    rng = fresh()
    a, b = floats(rng, np.float32, m, depth), floats(rng, np.float32, depth, n)
    assert_right("matmul", compute(DEVICE, "matmul", (m, n), a, b, guarded=guarded), a, b)
    assert DEVICE.take_status() == 0


@pytest.mark.parametrize("value, bit", [(np.nan, 1), (np.inf, 2)])
@pytest.mark.parametrize("n", [40, 9000])
def test_guards(value, bit, n):
    rng = fresh()
    a, x, y = np.abs(floats(rng, np.float32, 5, n)), np.ones(n, np.float32), np.ones(5, np.float32)
    for op, shape, operands in (("matvec", (5,), (a, x)), ("vecmat", (n,), (y, a))):
        compute(DEVICE, op, shape, *operands, guarded=True)
        assert DEVICE.take_status() == 0
    a[4, n - 1] = value
    for op, shape, operands in (("matvec", (5,), (a, x)), ("vecmat", (n,), (y, a))):
        got = compute(DEVICE, op, shape, *operands, guarded=True)
        assert not np.isfinite(got[-1]) and np.isfinite(got[:-1]).all()
        assert DEVICE.take_status() == bit


def test_shapes_that_do_not_agree():
    a, x = np.ones((3, 4), np.float32), np.ones(4, np.float32)
    p, q, out = DEVICE.to_device(a), DEVICE.to_device(x), DEVICE.to_device(np.full(3, 7, np.float32))
    assert called(DEVICE, "matvec", a, x)(p, out, out) == -1
    assert called(DEVICE, "matvec", a, x)(p, q, q) == -1
    assert called(DEVICE, "vecmat", x, a)(q, p, out) == -1
    assert (DEVICE.to_host(out) == 7).all()


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("element", [f32, f64], ids=str)
@pytest.mark.parametrize("vectors", [True, False])
def test_ptxas_takes_them(arch, store, element, vectors):
    for kernel in (
        gemv.rows(arch, element, 32, vectors, False, STORES[store]),
        gemv.rows(arch, element, 256, vectors, True, STORES[store]),
        gemv.columns(arch, element, 1, vectors, STORES[store]),
        gemv.columns(arch, element, 4, vectors, STORES[store]),
    ):
        report = assembled(kernel)
        print(f"{kernel.name} {arch}: {report.registers} registers, {report.spilled} bytes spilled")
        assert report.spilled == 0 and report.registers <= 64
