"""Products by wgmma against float64 NumPy: both ways that B may lie, partial tiles, more slices than stages, stacks."""

import numpy as np
import pytest
from trueno.errors import KernelError
from trueno_cuda.device.emulated import Emulator
from trueno_cuda.kernels.epilogue import spliced
from trueno_cuda.kernels.gemm.choice import WARPGROUPS, Choice, choose_tensor
from trueno_cuda.kernels.gemm.matmul import launch, product_launches
from trueno_cuda.kernels.gemm.problem import Problem
from trueno_cuda.kernels.gemm.wgmma import shares, wgmma
from trueno_cuda.kernels.store import PLAIN, Store
from trueno_cuda.ptx import bf16, f16, f32
from trueno_cuda.ptx.emulate import TensorMap
from unit.cuda.kernels.products import DEVICE, called, floats, fresh, measured
from unit.cuda.kernels.test_gemm_epilogue import op_of
from unit.cuda.kernels.test_gemm_mma import NUMPY, assert_near, assert_shared, made
from unit.cuda.ptx.assembler import assembled, run

HOPPER = Emulator("sm_90a")


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("variant, element, shape, narrow", [
    ("wgmma", bf16, (128, 128, 64), True), ("wgmma", f16, (200, 136, 456), False),
    ("wgmma_middle", bf16, (70, 392, 328), True), ("wgmma_wide", f16, (300, 520, 200), True),
    ("wgmma_wide", bf16, (300, 520, 72), False), ("wgmma", f32, (200, 133, 196), True),
    ("wgmma_wide", f32, (130, 264, 100), True), ("wgmma_tall", bf16, (130, 200, 600), True),
    ("wgmma_flat", f16, (70, 392, 600), True), ("wgmma_small", bf16, (130, 200, 456), True),
    ("wgmma_small", f16, (3, 72, 456), False), ("wgmma_flat", f32, (17, 133, 196), True),
], ids=str)  # fmt: skip
def test_sizes(variant, element, shape, narrow, turned):
    """Up to nine tiles for the emulator's four blocks, so that the ring goes on from one tile to the next.

    float32 is rounded to tf32, and transposed first where it is not `turned`.
    """
    (m, n, depth), rng = shape, fresh()
    a, b = floats(rng, NUMPY[element], m, depth), floats(rng, NUMPY[element], depth, n)
    result = NUMPY[element] if narrow else np.float32
    assert_near(made(HOPPER, variant, element, a, b, turned, result=result), a, b, element)


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("variant, blocks, element, shape", [
    ("wgmma_small", 2, bf16, (16, 72, 1000)), ("wgmma_small", 8, f16, (70, 72, 1096)),
    ("wgmma_flat", 4, bf16, (64, 136, 520)), ("wgmma_tall", 8, f16, (130, 72, 72)), ("wgmma", 4, bf16, (65, 136, 584)),
    ("wgmma_middle", 2, f32, (130, 200, 140)), ("wgmma_small", 4, f32, (9, 67, 8)),
], ids=str)  # fmt: skip
def test_blocks_of_a_cluster_share_a_tile(variant, blocks, element, shape, turned):
    """Of some of these shapes, the last blocks have no slice."""
    assert_shared(HOPPER, variant, blocks, element, shape, turned)


@pytest.mark.parametrize("n", [51, 54])
def test_columns_that_are_no_eight_where_b_is_turned(n):
    rng = fresh()
    a, b = floats(rng, NUMPY[bf16], 40, 72), floats(rng, NUMPY[bf16], 72, n)
    assert_near(made(HOPPER, "wgmma", bf16, a, b, True), a, b, bf16)
    assert_near(made(HOPPER, "wgmma", bf16, a, b, True, result=NUMPY[bf16]), a, b, bf16)


@pytest.mark.parametrize("choice", [Choice("wgmma"), Choice("wgmma_small", blocks=2)], ids=str)
@pytest.mark.parametrize("shared", ["neither", "a", "b"])
def test_stacks(shared, choice):
    """Of which each has its own matrix, or all the same one."""
    rng, count, m, n, depth = fresh(), 3, 130, 136, 72
    a = floats(rng, np.float16, 1 if shared == "a" else count, m, depth)
    b = floats(rng, np.float16, 1 if shared == "b" else count, depth, n)
    problem = Problem(m, n, depth, (count,), (0 if shared == "a" else m * depth,), (0 if shared == "b" else depth * n,))
    operands, out = [HOPPER.to_device(x) for x in (a, b)], HOPPER.to_device(np.full((count, m, n), np.nan, np.float16))
    (planned,) = product_launches(HOPPER, problem, f16, PLAIN, True, choice)
    planned.launch([x.data.ptr for x in (*operands, out)])
    for i, got in enumerate(HOPPER.to_host(out)):
        assert_near(got, a[0 if shared == "a" else i], b[0 if shared == "b" else i], f16)


@pytest.mark.parametrize("choice", [Choice("wgmma_wide"), Choice("wgmma_flat", blocks=4)], ids=str)
@pytest.mark.parametrize("special", [np.inf, np.nan, 6e4])
def test_guarded_stores_tell_of_what_they_store(special, choice):
    """60 000 · 2 is finite in float32, and Inf as a float16."""
    rng = fresh()
    a, b = np.full((3, 8), 0.5, np.float16), floats(rng, np.float16, 8, 136)
    a[1], b[:, 130] = 0, 0
    a[1, 0], b[0, 130] = special, 2
    operands, out = [HOPPER.to_device(x) for x in (a, b)], HOPPER.to_device(np.zeros((3, 136), np.float16))
    (planned,) = product_launches(HOPPER, Problem(3, 136, 8), f16, Store(True), True, choice)
    planned.launch([*(x.data.ptr for x in (*operands, out)), HOPPER.status()])
    got = HOPPER.to_host(out)
    assert HOPPER.take_status() & (1 if np.isnan(special) else 2)
    assert np.isnan(got[1, 130]) if np.isnan(special) else got[1, 130] == np.inf


@pytest.mark.parametrize("choice", [Choice("wgmma_wide"), Choice("wgmma_tall", blocks=2)], ids=str)
def test_an_epilogue(choice):
    """abs(abs(-1.25 a b + e) + w): what lies beside the sums is read where they are stored."""
    (m, n, depth), rng = (130, 264, 72), fresh()
    a, b = floats(rng, NUMPY[bf16], m, depth), floats(rng, NUMPY[bf16], depth, n)
    beside = floats(rng, np.float32, m, n), floats(rng, np.float32, n)
    operands, out = [HOPPER.to_device(x) for x in (a, b)], HOPPER.to_device(np.full((m, n), np.nan, np.float32))
    store, more = Store(epilogue=spliced(op_of("matmul", "eew"))), [HOPPER.to_device(x) for x in beside]
    (planned,) = product_launches(HOPPER, Problem(m, n, depth), bf16, store, True, choice, result=f32)
    planned.launch([x.data.ptr for x in (*operands, out, *more)], (-1.25,))
    x, y = a.astype(np.float64), b.astype(np.float64)
    want = np.abs(np.abs(-1.25 * (x @ y) + beside[0]) + beside[1])
    slack = 1.25 * (depth + 8) * 2.0**-23 * (np.abs(x) @ np.abs(y)) + 2.0**-22 * (np.abs(beside[0]) + want)
    assert (np.abs(HOPPER.to_host(out) - want) <= slack).all()


@pytest.mark.parametrize("turned", [False, True])
def test_no_bank_is_hit_twice(turned):
    m, n, depth, tile = 128, 256, 128, WARPGROUPS["wgmma_wide"]
    rng = fresh()
    a, b = floats(rng, np.float16, 1, m, depth), floats(rng, np.float16, 1, depth, n)
    out, operands = np.zeros((1, m, n), np.float16), np.ascontiguousarray(b.transpose(0, 2, 1)) if turned else b
    maps = [TensorMap(x, box, 128) for x, box in zip((a, operands), tile.boxes(m, f16, turned), strict=True)]
    kernel = wgmma(f16, f16, tile, turned, 8, PLAIN)
    report = measured(kernel, (1, 1, 1), (*maps, out), (m, n, depth, n, 1, 1, 1, tile.height(m), 0, 0))
    assert_near(out[0], a[0], b[0], f16)
    assert all(c.conflicts == 0 for c in report.bank_conflicts.values()), report
    assert report.bank_conflicts


def test_where_it_does_not_run():
    x, odd = (HOPPER.to_device(np.ones((16, n), np.float16)) for n in (16, 12))
    out = HOPPER.to_device(np.ones((16, 12), np.float32))
    with pytest.raises(KernelError, match="multiples of 8 elements"):
        launch(HOPPER, x, odd, out, variant="wgmma")
    y = DEVICE.to_device(np.ones((16, 16), np.float16))
    with pytest.raises(KernelError, match="this is f16 on sm_90"):
        launch(DEVICE, y, y, DEVICE.to_device(np.ones((16, 16), np.float32)), variant="wgmma")


def test_repeated_calls_make_their_maps_once(monkeypatch):
    device, rng, made = Emulator("sm_90a"), fresh(), []
    tensor_map = device.tensor_map
    monkeypatch.setattr(device, "tensor_map", lambda *given: made.append(given) or tensor_map(*given))
    a, b = floats(rng, np.float16, 20, 72), floats(rng, np.float16, 72, 64)
    x, y = map(device.to_device, (a, b))
    out, kernel = device.to_device(np.zeros((20, 64), np.float16)), called(device, "matmul", a, b)
    for turn in range(5):
        device.write(a * (turn + 1), x)
        assert kernel(x, y, out) == 0
        assert_near(device.to_host(out), a * (turn + 1), b, f16)
    assert len(made) == 2 * 3, "the third call is bound"


class H200:
    """What is asked of a device before anything runs."""

    arch, sms, shared = "sm_90a", 132, 227 * 1024


@pytest.mark.parametrize("side, name", [
    (128, "wgmma_small"), (512, "wgmma_small"), (1024, "wgmma_flat"), (1536, "wgmma_middle"), (2048, "wgmma_wide"),
    (3072, "wgmma_middle"), (4096, "wgmma_wide"), (8192, "wgmma_wide"),
], ids=str)  # fmt: skip
def test_the_quickest_tile_is_chosen(side, name):
    """As measured on an H200."""
    assert choose_tensor(Problem(side, side, side), bf16, H200()).name == name


@pytest.mark.parametrize("shape, choice", [
    ((16, 4096, 4096), Choice("wgmma_small", blocks=2)), ((16, 1024, 4096), Choice("wgmma_small", blocks=4)),
    ((256, 4096, 4096), Choice("wgmma_flat")), ((512, 4096, 4096), Choice("wgmma")),
], ids=str)  # fmt: skip
def test_a_cluster_shares_a_tile_that_leaves_the_gpu_idle(shape, choice):
    """m, n, depth; as measured on an H200."""
    assert choose_tensor(Problem(*shape), bf16, H200()) == choice


def test_what_tensor_maps_do_not_reach_goes_elsewhere():
    assert choose_tensor(Problem(4096, 4096, 4096), bf16, H200(), aligned=False).name.startswith("mma")
    assert choose_tensor(Problem(4096, 4092, 4096), bf16, H200()).name.startswith("mma")
    assert choose_tensor(Problem(4096, 4092, 4096), bf16, H200(), turned=True).name.startswith("wgmma")
    assert choose_tensor(Problem(4096, 4096, 4090), f16, H200(), turned=True).name.startswith("mma")
    spread = Problem(4096, 4096, 64, (2,), (4096 * 128,), (0,))
    assert choose_tensor(spread, bf16, H200()).name.startswith("mma")
    assert choose_tensor(Problem(4096, 4096, 4094), f32, H200()).name.startswith("mma")
    stacked = Problem(1024, 1024, 1024, (2,), (1 << 20,), (1 << 20,))
    assert choose_tensor(stacked, f32, H200()).name.startswith("mma")
    assert choose_tensor(stacked, f32, H200(), turned=True).name.startswith("wgmma")


@pytest.mark.parametrize("store", [PLAIN, Store(guarded=True)], ids=["plain", "guarded"])
@pytest.mark.parametrize("turned, result, unit", [(False, bf16, 8), (True, f32, 2), (True, bf16, 1)])
@pytest.mark.parametrize("variant, blocks", [
    *((name, 1) for name in WARPGROUPS), *((name, 4) for name, tile in WARPGROUPS.items() if shares(tile, 4)),
])  # fmt: skip
def test_ptxas_takes_them(variant, blocks, turned, result, unit, store):
    kernel = wgmma(bf16, result, WARPGROUPS[variant], turned, unit, store, blocks)
    report = assembled(kernel)
    print(f"{kernel.name}: {report.registers} registers, {report.spilled} bytes spilled")
    assert report.spilled == 0
    assert report.registers * kernel.max_threads <= 65536
    assert kernel.shared_bytes <= H200.shared
    _, log = run(kernel.text, "sm_90a")
    assert "serialized" not in log and "C75" not in log, log
