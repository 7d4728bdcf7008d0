"""Products on tensor cores against float64 NumPy: bf16, f16 and tf32, both ways that B may lie, any size."""

import ml_dtypes
import numpy as np
import pytest
from trueno.errors import KernelError
from trueno_cuda.kernels.gemm import matmul
from trueno_cuda.kernels.gemm.catalogue import Planned
from trueno_cuda.kernels.gemm.choice import TENSOR, Choice, choose_tensor
from trueno_cuda.kernels.gemm.matmul import launch, product_launches
from trueno_cuda.kernels.gemm.mma import mma
from trueno_cuda.kernels.gemm.problem import Problem
from trueno_cuda.kernels.store import PLAIN, Store
from trueno_cuda.ptx import bf16, f16, f32
from unit.cuda.kernels.products import DEVICE, EMULATED, compute, floats, fresh, measured
from unit.cuda.ptx.assembler import assembled

NUMPY = {bf16: ml_dtypes.bfloat16, f16: np.float16, f32: np.float32}
ELEMENTS = list(NUMPY)
OPERAND = {bf16: 0.0, f16: 0.0, f32: 2.0**-11}
"""How far an operand is rounded before it is multiplied: only tf32 is."""
RESULT = {"bfloat16": 2.0**-8, "float16": 2.0**-11, "float32": 0.0}
TINY = {"float16": 2.0**-25}  # half of the least subnormal


def assert_near(got, a, b, element):
    """Operands rounded to tf32 or not at all, sums in float32 of any order and shorter than that by a bit."""
    x, y = a.astype(np.float64), b.astype(np.float64)
    size = np.abs(x) @ np.abs(y)
    unit = 2 * OPERAND[element] + OPERAND[element] ** 2 + (a.shape[-1] + 4) * 2.0**-23
    slack = unit * size
    slack += RESULT[got.dtype.name] * (np.abs(x @ y) + slack) + TINY.get(got.dtype.name, 0.0)
    error = np.abs(got.astype(np.float64) - x @ y)
    assert (error <= slack).all(), f"worst {np.max(error / slack)}"


def made(device, variant, element, a, b, turned, splits=1, result=None, blocks=1):
    out = device.to_device(np.full((a.shape[0], b.shape[1]), np.nan, result or np.float32))
    operands = device.to_device(a), device.to_device(np.ascontiguousarray(b.T) if turned else b)
    launch(device, *operands, out, variant=variant, turned=turned, splits=splits, blocks=blocks)()
    return device.to_host(out)


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("element", ELEMENTS, ids=str)
@pytest.mark.parametrize("variant, more", [
    ("mma_row", (0, 8, -8)), ("mma_row", (-3, 1, 1)), ("mma_small", (0, 0, 0)), ("mma_small", (-8, 8, 8)),
    ("mma_small", (3, -5, 1)), ("mma", (-8, -8, 8)), ("mma", (-3, -5, 1)), ("mma_thin", (0, 0, 8)),
    ("mma_wide", (-64, -8, 8)), ("mma_deep", (-64, -8, -8)),
], ids=str)  # fmt: skip
def test_every_tile_at_its_seams(variant, more, element, turned):
    """More slices than stages; odd sizes leave no vector whole."""
    tile, rng = TENSOR[variant], fresh()
    m, n, depth = tile.rows + more[0], tile.columns + more[1], 5 * tile.bytes // element.bytes + more[2]
    a, b = floats(rng, NUMPY[element], m, depth), floats(rng, NUMPY[element], depth, n)
    assert_near(made(EMULATED["sm_80"], variant, element, a, b, turned), a, b, element)


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("element", ELEMENTS, ids=str)
@pytest.mark.parametrize("shape", [(1, 1, 1), (2, 7, 3), (130, 70, 40), (70, 136, 16)], ids=str)
def test_sizes_and_tiles(shape, element, turned):
    (m, n, depth), rng = shape, fresh()
    a, b = floats(rng, NUMPY[element], m, depth), floats(rng, NUMPY[element], depth, n)
    assert_near(made(DEVICE, "mma_small", element, a, b, turned), a, b, element)


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("element", ELEMENTS, ids=str)
@pytest.mark.parametrize("blocks", [1, 2])
@pytest.mark.parametrize("shape", [(20, 70, 146), (70, 68, 140), (17, 66, 152), (17, 72, 150)], ids=str)
def test_rows_of_whole_4_and_8_bytes(shape, blocks, element, turned):
    """A copy brings as much of a row as divides all of them; nothing is written beyond the columns."""
    (m, n, depth), rng = shape, fresh()
    a, b = floats(rng, NUMPY[element], m, depth), floats(rng, NUMPY[element], depth, n)
    for variant in ("mma_row", "mma_small"):
        result = NUMPY[element]
        assert_near(made(DEVICE, variant, element, a, b, turned, blocks=blocks, result=result), a, b, element)


@pytest.mark.parametrize("element", [bf16, f16], ids=str)
def test_results_as_narrow_as_operands(element):
    rng = fresh()
    a, b = floats(rng, NUMPY[element], 40, 72), floats(rng, NUMPY[element], 72, 56)
    assert_near(made(DEVICE, "mma_small", element, a, b, False, result=NUMPY[element]), a, b, element)


@pytest.mark.parametrize("element", ELEMENTS, ids=str)
def test_splits(element):
    rng = fresh()
    a, b = floats(rng, NUMPY[element], 40, 328), floats(rng, NUMPY[element], 328, 56)
    one, two = (made(DEVICE, "mma_small", element, a, b, False, splits=3) for _ in range(2))
    assert one.tobytes() == two.tobytes()
    assert_near(one, a, b, element)


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("element", ELEMENTS, ids=str)
@pytest.mark.parametrize("variant, blocks, shape", [
    ("mma_row", 2, (16, 64, 512)), ("mma_row", 8, (13, 67, 500)), ("mma_row", 4, (40, 72, 8)),
    ("mma_small", 8, (70, 72, 616)), ("mma_small", 4, (5, 61, 77)), ("mma_small", 2, (64, 64, 1)),
], ids=str)  # fmt: skip
def test_blocks_of_a_cluster_share_a_tile(variant, blocks, shape, element, turned):
    """Of some of these shapes, the last blocks have no terms."""
    assert_shared(DEVICE, variant, blocks, element, shape, turned)


def assert_shared(device, variant, blocks, element, shape, turned):
    """A product by the blocks of a cluster: right in both types of a result, with the same bits each time."""
    (m, n, depth), rng = shape, fresh()
    a, b = floats(rng, NUMPY[element], m, depth), floats(rng, NUMPY[element], depth, n)
    one, two = (made(device, variant, element, a, b, turned, blocks=blocks) for _ in range(2))
    assert one.tobytes() == two.tobytes()
    assert_near(one, a, b, element)
    assert_near(made(device, variant, element, a, b, turned, blocks=blocks, result=NUMPY[element]), a, b, element)


@pytest.mark.parametrize("aligned", [True, False])
def test_a_cluster_of_stacked_products_tells_of_what_it_stores(aligned):
    rng, count, m, n, depth = fresh(), 3, 20, 72, 264
    a, b = floats(rng, np.float16, count, m, depth), floats(rng, np.float16, depth, n)
    a[2, 19], b[:, 71], b[263] = 0, 0, 0
    a[2, 19, 263], b[263, 71] = 6e4, 2  # of the last block's terms, and beyond what float16 holds
    problem = Problem(m, n, depth, (count,), (m * depth,), (0,))
    operands, out = [DEVICE.to_device(x) for x in (a, b)], DEVICE.to_device(np.full((count, m, n), np.nan, np.float16))
    (planned,) = product_launches(DEVICE, problem, f16, Store(True), aligned, Choice("mma_row", blocks=4))
    planned.launch([*(x.data.ptr for x in (*operands, out)), DEVICE.status()])
    got = DEVICE.to_host(out)
    assert DEVICE.take_status() == 2 and got[2, 19, 71] == np.inf
    got[2, 19, 71], a[2, 19, 263] = 0, 0
    assert_near(got, a, b, f16)


@pytest.mark.parametrize("arch, element, given, problem", [
    ("sm_90", np.float16, {"variant": "mma", "blocks": 2}, "no ring holds its sums"),
    ("sm_90", np.float32, {"variant": "mma_row", "blocks": 2, "splits": 2}, "split, or shared by a cluster, not both"),
    ("sm_90", np.float32, {"variant": "small", "blocks": 2}, "blocks are 1, 2, 4, 8 for tensor cores on sm_90, else 1"),
    ("sm_90", np.float32, {"variant": "naive", "blocks": 2}, "blocks are 1, 2, 4, 8 for tensor cores"),
    ("sm_80", np.float16, {"variant": "mma_row", "blocks": 2}, "2 blocks of a cluster on sm_80"),
    ("sm_90", np.float16, {"variant": "mma_row", "blocks": 0}, "by 0 blocks"),
    ("sm_90", np.float16, {"variant": "mma_row", "blocks": 3}, "by 3 blocks"),
    ("sm_90", np.float32, {"variant": "small", "splits": 0}, "splits are 1 or more"),
], ids=str)  # fmt: skip
def test_parts_that_no_kernel_sums(arch, element, given, problem):
    device = EMULATED[arch]
    x = device.to_device(np.ones((16, 16), element))
    with pytest.raises(KernelError, match=problem):
        launch(device, x, x, x, **given)


@pytest.mark.parametrize("m, n", [(0, 16), (16, 0), (0, 0)])
def test_nothing_to_compute(m, n):
    a, b, out = (DEVICE.to_device(np.ones(s, np.float16)) for s in ((m, 8), (8, n), (m, n)))
    launch(DEVICE, a, b, out)()
    assert choose_tensor(Problem(m, n, 8), f16, Sized()) == Choice("mma_row")


def test_nan_and_inf_survive_the_rounding_to_tf32():
    """A NaN whose bits are all ones would become -0 if its rounding carried."""
    a, b = np.ones((16, 16), np.float32), np.ones((16, 16), np.float32)
    a[2, 3] = np.inf
    a.view(np.uint32)[5, 6] = 0x7FFFFFFF
    got = made(DEVICE, "mma_small", f32, a, b, False)
    assert np.isposinf(got[2]).all() and np.isnan(got[5]).all()
    assert (np.delete(got, [2, 5], 0) == 16).all()


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("element", ELEMENTS, ids=str)
@pytest.mark.parametrize("variant", TENSOR)
def test_no_bank_is_hit_twice(variant, element, turned):
    tile, rng = TENSOR[variant], fresh()
    m, n, depth = tile.rows, tile.columns, 2 * tile.bytes // element.bytes
    a, b = floats(rng, NUMPY[element], m, depth), floats(rng, NUMPY[element], *((n, depth) if turned else (depth, n)))
    out = np.zeros((m, n), np.float32)
    report = measured(
        mma("sm_80", element, f32, tile, turned, 16 // element.bytes, PLAIN), (1, 1, 1),
        (*(x.view(f"V{x.itemsize}") for x in (a, b)), out), (m, n, depth, n, depth, 1, 1, 0, 0, 0, 0),
    )  # fmt: skip
    assert_near(out, a, b.T if turned else b, element)
    assert all(c.conflicts == 0 for c in report.bank_conflicts.values()), report
    loads = [c for c in report.coalescing.values() if c.text.startswith("cp.async")]
    assert loads and all(c.efficiency == 1.0 for c in loads)


def test_the_setting_lets_the_op_round(monkeypatch):
    rng = fresh()
    a, b = floats(rng, np.float32, 70, 80), floats(rng, np.float32, 80, 72)
    exact = compute(DEVICE, "matmul", (70, 72), a, b)
    monkeypatch.setattr(matmul, "tf32", lambda: True)
    rounded = compute(DEVICE, "matmul", (70, 72), a, b, guarded=True)
    assert DEVICE.take_status() == 0
    assert_near(rounded, a, b, f32)
    size = np.abs(a).astype(np.float64) @ np.abs(b)
    assert np.max(np.abs(rounded - exact) / size) > 2.0**-16, "these were not rounded"


def test_what_a_variant_has_not():
    x, y = (DEVICE.to_device(np.ones((4, 4), d)) for d in (np.float32, np.float64))
    h = DEVICE.to_device(np.ones((4, 4), np.float16))
    with pytest.raises(ValueError, match="do not agree"):
        launch(DEVICE, x, y, x)
    with pytest.raises(ValueError, match="mma does not give float64"):
        launch(DEVICE, y, y, y, variant="mma")
    with pytest.raises(ValueError, match="wide does not give float16"):
        launch(DEVICE, h, h, h, variant="wide")
    with pytest.raises(ValueError, match="go with a variant"):
        launch(DEVICE, h, h, h, blocks=2)
    with pytest.raises(ValueError, match="turned=True"):
        launch(DEVICE, y, y, y, turned=True)
    with pytest.raises(ValueError, match="turned=True"):
        launch(DEVICE, x, x, x, variant="small", turned=True)


class Sized:
    sms, shared, arch = 132, 227 * 1024, "sm_90"


def test_the_choice():
    assert choose_tensor(Problem(8192, 8192, 8192), bf16, Sized()).name == "mma"
    assert choose_tensor(Problem(8192, 8192, 8192), f32, Sized()).name == "mma_deep"
    hopper = Sized()
    hopper.arch = "sm_90a"
    assert choose_tensor(Problem(8192, 8192, 8192), bf16, hopper).name == "wgmma_wide"
    assert choose_tensor(Problem(8192, 8191, 8192), bf16, hopper).name == "mma"  # rows of b that begin anywhere
    assert choose_tensor(Problem(64, 64, 64), bf16, Sized()) == Choice("mma_row")
    assert choose_tensor(Problem(333, 555, 777), bf16, Sized()) == Choice("mma_small", blocks=4)
    assert choose_tensor(Problem(16, 4095, 4095), bf16, Sized()) == Choice("mma_row", blocks=2)
    ampere = Sized()
    ampere.arch = "sm_80"  # has no clusters
    assert choose_tensor(Problem(333, 555, 777), bf16, ampere) == Choice("mma_small")


@pytest.mark.parametrize("element", [bf16, f16], ids=str)
def test_what_ops_take_for_16_bit_floats(element):
    """Tensor cores whatever the shape; arrays that begin anywhere are not for wgmma."""
    device = Planned("sm_90a")
    for m, n, depth, aligned, wanted in (
        (1024, 1024, 256, True, "wgmma"), (1024, 1024, 256, False, "mma"), (1024, 1023, 256, True, "mma"),
        (512, 512, 64, True, "wgmma"), (1, 1, 1, True, "mma"),
    ):  # fmt: skip
        device.kernels.clear()
        matmul.launches_for(device, Problem(m, n, depth), element, PLAIN, aligned)
        (name,) = device.kernels
        assert name.startswith(f"gemm_{wanted}_{element}_{element}_"), name


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(
    "element, divisor", [(e, d) for e in ELEMENTS for d in (1, 2, 4, 8) if d * e.bytes <= 16], ids=str
)
@pytest.mark.parametrize("variant", TENSOR)
@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_ptxas_takes_every_tile(arch, variant, element, divisor, turned):
    tile, store = TENSOR[variant], Store(guarded=variant == "mma" or not turned)
    blocks = 2 if arch == "sm_90" and variant in ("mma_row", "mma_small") else 1
    report = assembled(mma(arch, element, f32, tile, turned, divisor, store, blocks))
    print(f"{element} {variant} {arch}: {report.registers} registers, {report.spilled} bytes spilled")
    assert report.spilled == 0 or divisor == 1  # single elements are slow anyhow
    assert report.registers * tile.threads * tile.blocks_per_sm <= 65536
