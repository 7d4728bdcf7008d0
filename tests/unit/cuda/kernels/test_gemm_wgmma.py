"""Products by wgmma against float64 NumPy: both ways that B may lie, partial tiles, more slices than stages."""

import numpy as np
import pytest
from trueno.errors import KernelError
from trueno_cuda.emulated import Emulator
from trueno_cuda.kernels.gemm import WARPGROUPS, launch
from trueno_cuda.kernels.gemm_wgmma import Tile, wgmma
from trueno_cuda.kernels.store import PLAIN, Store
from trueno_cuda.ptx import bf16, f16, f32
from unit.cuda.kernels.products import DEVICE, floats, fresh, measured
from unit.cuda.kernels.test_gemm_mma import NUMPY, assert_near, made
from unit.cuda.ptx.assembler import assembled, run

HOPPER = Emulator("sm_90a")


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("variant, element, shape", [
    ("wgmma", bf16, (128, 128, 64)), ("wgmma", f16, (200, 136, 392)), ("wgmma_wide", bf16, (70, 264, 200)),
], ids=str)  # fmt: skip
def test_sizes(variant, element, shape, turned):
    (m, n, depth), rng = shape, fresh()
    a, b = floats(rng, NUMPY[element], m, depth), floats(rng, NUMPY[element], depth, n)
    assert_near(made(HOPPER, variant, element, a, b, turned), a, b, element)


def test_columns_that_are_odd_where_b_is_turned():
    rng = fresh()
    a, b = floats(rng, NUMPY[bf16], 40, 72), floats(rng, NUMPY[bf16], 72, 51)
    assert_near(made(HOPPER, "wgmma", bf16, a, b, True), a, b, bf16)


def test_splits_and_narrow_results():
    rng = fresh()
    a, b = floats(rng, NUMPY[bf16], 40, 328), floats(rng, NUMPY[bf16], 328, 56)
    assert_near(made(HOPPER, "wgmma", bf16, a, b, False, splits=2), a, b, bf16)
    assert_near(made(HOPPER, "wgmma", bf16, a, b, False, result=NUMPY[bf16]), a, b, bf16)


@pytest.mark.parametrize("turned", [False, True])
def test_no_bank_is_hit_twice(turned):
    rng = fresh()
    a, b = floats(rng, np.float16, 128, 128), floats(rng, np.float16, 128, 128)
    out = np.zeros((128, 128), np.float32)
    kernel = wgmma(f16, f32, Tile(128), turned, True, PLAIN)
    report = measured(kernel, (1, 1, 1), (a, b, out), (128, 128, 128, 128, 1, 1, 0, 0, 0, 0))
    assert_near(out, a, b.T if turned else b, f16)
    assert all(c.conflicts == 0 for c in report.bank_conflicts.values()), report


def test_where_it_does_not_run():
    x, odd = (HOPPER.to_device(np.ones((16, n), np.float16)) for n in (16, 12))
    out = HOPPER.to_device(np.ones((16, 12), np.float32))
    with pytest.raises(KernelError, match="multiples of 8 elements"):
        launch(HOPPER, x, odd, out, variant="wgmma")
    y = DEVICE.to_device(np.ones((16, 16), np.float16))
    with pytest.raises(KernelError, match="this is f16 on sm_90"):
        launch(DEVICE, y, y, DEVICE.to_device(np.ones((16, 16), np.float32)), variant="wgmma")


@pytest.mark.parametrize("store", [PLAIN, Store(guarded=True)], ids=["plain", "guarded"])
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("variant", WARPGROUPS)
def test_ptxas_takes_them(variant, turned, store):
    kernel = wgmma(bf16, f32, WARPGROUPS[variant], turned, True, store)
    report = assembled(kernel)
    print(f"{kernel.name}: {report.registers} registers, {report.spilled} bytes spilled")
    # 128 sums and 40 more: the guard of the wide tile spills some words behind the last sum, once a tile.
    assert report.spilled <= (32 if store.guarded and variant == "wgmma_wide" else 0)
    assert report.registers * kernel.max_threads <= 65536
    _, log = run(kernel.text, "sm_90a")
    assert "serialized" not in log and "C75" not in log, log
