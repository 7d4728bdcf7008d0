"""Products of many rows with blocks, and what decodes them: against float64, by the core's decoder and its rounding.

The catalogue's samples have every format; here are bands, views that begin anywhere, epilogues, guards and bad input.
"""

import ml_dtypes
import numpy as np
import pytest
import trueno
from trueno.backend import FORMATS, decode, rounded_activations, rounded_weights
from trueno_cuda.device.emulated import Emulator
from trueno_cuda.kernels.quant import decoding
from trueno_cuda.kernels.quant.fragments import sharing
from trueno_cuda.kernels.quant.many import Many
from trueno_cuda.kernels.quant.parts import RIGHT
from trueno_cuda.kernels.quant.task import Task
from trueno_cuda.kernels.quant.tiling import Tiled, Tuning, alone
from trueno_cuda.ptx import bf16, f32
from unit.cuda.kernels.products import fresh

EMULATED = {arch: Emulator(arch) for arch in ("sm_80", "sm_90a")}
DEVICE = EMULATED["sm_80"]


def operands(name, m, n, k):
    rng = fresh()
    x = rng.standard_normal((m, k)).astype(np.float32)
    x[1], x[2] = x[1] * 1e-30, x[2] * 1e6
    return x, trueno.quantize(rng.standard_normal((n, k)).astype(np.float32), name).bytes


def assert_near(got, x, w, name, activations, more=0.0):
    """Within (k + 4) roundings of the terms' size, of operands as the product sees them, and `more`."""
    f = FORMATS[name]
    a, b = (v.astype(np.float64) for v in (rounded_activations(x, f, activations), rounded_weights(w, f, activations)))
    bound = (x.shape[1] + 4) * 2.0**-24 * (np.abs(a) @ np.abs(b.T)) + more
    assert (np.abs(got - a @ b.T) <= bound).all()


def made(device, run, w, x, n):
    there, out = [device.to_device(v) for v in (w, x)], device.to_device(np.full((len(x), n), np.nan, np.float32))
    memory = device.scratch(run.nbytes)
    run.run(memory.data.ptr, *(v.data.ptr for v in there), out.data.ptr)
    return device.to_host(out)


def tiled(name, w, x, wide, *tuning):
    """The product by int8 tensor cores."""
    run = alone(DEVICE, FORMATS[name], len(x), len(w), x.shape[1], wide, tuning=Tuning(*tuning))
    there, out = [DEVICE.to_device(v) for v in (w, x)], DEVICE.to_device(np.full((len(x), len(w)), np.nan, np.float32))
    memory = DEVICE.scratch(run.nbytes)
    run.run(memory.data.ptr, there[1].data.ptr, [there[0].data.ptr], [out.data.ptr])
    return DEVICE.to_host(out)


@pytest.mark.parametrize("arch, name, activations", [
    ("sm_80", "q4_k", "bf16"), ("sm_90a", "q6_k", "f32"), ("sm_90a", "q5_0", "q8"),
])  # fmt: skip
def test_bands(arch, name, activations):
    """Two of them, of which the second is not whole, into a result with an odd number of columns."""
    m, n, k = 18, 273, 256
    x, w = operands(name, m, n, k)
    device, slots = EMULATED[arch], 1 if activations == "bf16" else len(RIGHT)
    run = Many(device, FORMATS[name], activations, m, n, k, True, band=2 * 256 * k * slots)
    assert len(run.bands) == 2
    assert_near(made(device, run, w, x, n), x, w, name, activations)


@pytest.mark.parametrize("warps", [1, 4])
@pytest.mark.parametrize("name", ["q4_0", "q3_k"])
def test_tiles_of_more_rows_than_a_launch_takes(name, warps):
    m, n, k = 70, 19, 256
    x, w = operands(name, m, n, k)
    assert_near(tiled(name, w, x, False, 1, warps, 1, 0), x, w, name, "q8")


@pytest.mark.parametrize("stages, high", [(0, 2), (2, 1), (3, 2)])
@pytest.mark.parametrize("name, k", [("q4_k", 1024), ("q6_k", 768), ("q6_k", 2048), ("q8_0", 608), ("mxfp4", 352)])
def test_a_warp_goes_on_from_one_tile_to_the_next(name, k, stages, high):
    """Several tiles of a block, whose last is not whole, more spans than warps, and a last span that is short.

    Rows of q6_k, q8_0 and mxfp4 begin at other places than multiples of 16 bytes; 16 rows of them do.
    """
    m, n = 9, 80
    x, w = operands(name, m, n, k)
    assert_near(tiled(name, w, x, True, high, 3, 1, stages), x, w, name, "q8")


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("name, k", [("q4_k", 2560), ("q5_1", 608)])
def test_blocks_share_the_rows_of_x(name, k, wide):
    """The second has fewer groups of x than the first, and not all of its warps have one."""
    m, n = 9, 5
    x, w = operands(name, m, n, k)
    assert sharing(DEVICE.sms, 16, k // FORMATS[FORMATS[name].activations].elements) == 2
    assert_near(tiled(name, w, x, wide), x, w, name, "q8")


@pytest.mark.parametrize("name", ["q6_k", "q5_k", "q8_0"])
def test_a_matrix_that_begins_anywhere(name):
    """Its second row on: neither the blocks nor the results are at multiples of 16 bytes."""
    f, rows, k = FORMATS[name], 3, 512
    _, w = operands(name, 3, rows + 1, k)
    there, want = DEVICE.to_device(w), decode(f, w)[1:]
    for kind, dtype in ((f32, np.float32), (bf16, ml_dtypes.bfloat16)):
        out = DEVICE.to_device(np.zeros(rows * k + 1, dtype))
        for launch, _ in decoding.launches(DEVICE, f, rows, k, kind, False):
            launch((there.data.ptr + w.shape[1], out.data.ptr + kind.bytes))
        np.testing.assert_array_equal(DEVICE.to_host(out)[1:].reshape(rows, k), want.astype(dtype))


@pytest.mark.parametrize("activations, m, up_format", [
    ("bf16", 20, "q6_k"), ("q8", 20, "q6_k"), ("q8", 4, "q4_k"), ("q8", 37, "q4_k"), ("q8", 20, "q8_0"),
])  # fmt: skip
def test_a_batch_of_many_rows(activations, m, up_format):
    """Gate, up and what follows them, a bias and a residual: one kernel object each, right as single calls are.

    In 8 bits gate and up are one product; the last two leave the first result in memory, for they have too many sums,
    or see another x.
    """
    rng, n, k = fresh(), 37, 256
    x, bias, residual = (rng.standard_normal(s).astype(np.float32) for s in ((m, k), (n,), (m, n)))
    gate, up, down = (
        trueno.quantize(rng.standard_normal((n, k)).astype(np.float32), f) for f in ("q4_k", up_format, "q5_k")
    )
    with trueno.Batch("cuda_emulated") as b:
        given = b.upload(x)
        products = [b.quant_matmul(given, b.upload(w), activations=activations) for w in (gate, up, down)]
        hidden = b.swiglu(*products[:2])
        added = b.add(b.add(products[2], b.upload(bias)), b.upload(residual))
        b.execute()
        got, sums = b.read(hidden), b.read(added)
    with trueno.use("reference"):
        g, u, d = (trueno.quant_matmul(x, w, activations=activations) for w in (gate, up, down))
        want = trueno.swiglu(g, u)
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4 * np.abs(want).max())
    np.testing.assert_allclose(sums, d + bias + residual, rtol=1e-4, atol=1e-4 * np.abs(d).max())


def test_matrices_of_one_x_are_one_launch():
    """Queries, keys and values: other heights, formats and orders of x, each with its bias; x is rounded once."""
    rng, m, k, heights, formats = fresh(), 9, 512, (70, 19, 16), ("q4_k", "q5_k", "q6_k")
    x = rng.standard_normal((m, k)).astype(np.float32)
    matrices = [
        trueno.quantize(rng.standard_normal((n, k)).astype(np.float32), f)
        for n, f in zip(heights, formats, strict=True)
    ]
    biases = [rng.standard_normal(n).astype(np.float32) for n in heights]
    with trueno.Batch("cuda_emulated") as b:
        given = b.upload(x)
        made = [b.quant_matmul(given, b.upload(w), activations="q8") for w in matrices]
        handles = [b.add(y, b.upload(bias)) for y, bias in zip(made, biases, strict=True)]
        b.execute()
        got = [b.read(h) for h in handles]
        assert len(b._schedule().steps) == 1
    for w, bias, y in zip(matrices, biases, got, strict=True):
        assert_near(y - bias, x, w.bytes, w.format, "q8", 2 * np.abs(y).max() * 2.0**-24)


@pytest.mark.parametrize("x, want", [(1e-25, 0.0), (1e-3, None)])
def test_a_large_power_of_two_meets_a_small_x(x, want):
    """mxfp4 of codes 6 and scales 2^121: neither an Inf nor a NaN where the product is finite."""
    w = np.full((3, 17), 0x77, np.uint8)
    w[:, 0] = 249
    with trueno.use("reference"):
        expected = trueno.quant_matmul(
            np.full((3, 32), x, np.float32), trueno.QuantizedMatrix(w, (3, 32), "mxfp4"), activations="q8"
        )
    got = tiled("mxfp4", w, np.full((3, 32), x, np.float32), True)
    np.testing.assert_allclose(got, expected, rtol=1e-6)
    assert np.isfinite(got).all() and (want is None or (got == want).all())


@pytest.mark.parametrize("m, groups, result, launches", [
    (9, (0, 1, 2), 0, 1), (32, (0, 0, 2), -1, 1), (40, (0, 0, 2), -1, 2), (70, (0, 1, 2), 0, 2),
])  # fmt: skip
def test_what_is_launched_together(m, groups, result, launches):
    """Three matrices; the second reads the first one's result where they are a group, which is not kept then."""
    tasks = [
        (
            i,
            Task(
                "q4_k", None, i, (("result", 0),) if i == 1 and group == 0 else (), i or result, 16, slice(0, 0), group
            ),
        )
        for i, group in enumerate(groups)
    ]
    tiled = Tiled(DEVICE, tasks, m, 256, True)
    assert len(tiled.launches) == launches
    stored = {i for launch in tiled.launches for i in launch.stored}
    assert stored == ({1, 2} if (m, result) == (32, -1) else {0, 1, 2})


def test_a_recording_has_one_scratch():
    """Of the size that its largest call needs, however many there are."""
    with DEVICE.recording() as recording:
        sizes = [DEVICE.scratch(n).nbytes for n in (1000, 500, 2000, 100)]
    assert sizes == [1000, 1000, 2000, 2000] and len(recording.held) == 2


@pytest.mark.parametrize("activations", ["bf16", "f32", "q8"])
def test_a_nan_is_reported(activations):
    x, w = operands("q4_k", 9, 5, 256)
    f = FORMATS["q4_k"]
    x[7, 3] = np.nan
    there, out = [DEVICE.to_device(v) for v in (w, x)], DEVICE.to_device(np.zeros((9, 5), np.float32))
    pointers, status = [v.data.ptr for v in (*there, out)], DEVICE.status()
    if activations == "q8":
        run = alone(DEVICE, f, 9, 5, 256, True, guarded=True)
        memory = DEVICE.scratch(run.nbytes)
        run.run(memory.data.ptr, pointers[1], pointers[:1], pointers[2:], status=(status,))
    else:
        run = Many(DEVICE, f, activations, 9, 5, 256, True, guarded=True)
        memory = DEVICE.scratch(run.nbytes)
        run.run(memory.data.ptr, *pointers, status=(status,))
    assert DEVICE.take_status() == 1 and np.isnan(DEVICE.to_host(out)).any(1).nonzero()[0].tolist() == [7]


def test_an_index_outside_is_a_row_of_nan():
    """On a device no one checks indices before."""
    _, w = operands("q4_k", 3, 4, 256)
    f = FORMATS["q4_k"]
    there, i = DEVICE.to_device(w), DEVICE.to_device(np.array([1, -1, 4, 3]).astype(np.uint64))
    out = DEVICE.to_device(np.zeros((4, 256), np.float32))
    for launch, _ in decoding.launches(DEVICE, f, 4, 256, f32, True, v=4):
        launch((there.data.ptr, i.data.ptr, out.data.ptr))
    want = decode(f, w)[[1, 0, 0, 3]]
    want[1:3] = np.nan
    np.testing.assert_array_equal(DEVICE.to_host(out), want)


def test_searched_formats_are_quantized_elsewhere():
    x = fresh().standard_normal((2, 256)).astype(np.float32)
    with trueno.use("cuda_emulated"), pytest.raises(trueno.TruenoError, match="search"):
        trueno.quantize_rows(x, format="q4_k")
