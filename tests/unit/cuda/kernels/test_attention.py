"""Attention of the CUDA backend on the emulator, against float64: what conformance on sm_90 does not reach."""

import numpy as np
import pytest
from ml_dtypes import bfloat16
from trueno.attending import attended
from trueno.judge.attention import attention_bound, ragged_bound
from trueno_cuda.device.emulated import Emulator
from trueno_cuda.kernels.attention import mma, plan, prefill, simt, wgmma
from trueno_cuda.kernels.attention.fragments import Parts
from trueno_cuda.kernels.operands import FLOATS
from trueno_cuda.ptx import f32
from unit.cuda.kernels.moves import call, random, unwritten

BF16 = np.dtype(bfloat16)
HALVES = [np.dtype(np.float16), BF16]
DTYPES = [np.dtype(np.float32), *HALVES]
DEFAULT = {"causal": False, "window": 0, "scale": 0.0, "softcap": 0.0}


@pytest.fixture(scope="module")
def hopper():
    return Emulator("sm_90a")


def drawn(rng, dtype, q, k, v, extra="", more=()):
    operands = [rng.standard_normal(shape).astype(dtype) for shape in (q, k, v)]
    if extra == "sinks":
        operands.append(rng.standard_normal(q[-2]).astype(dtype))
    if extra == "mask":
        operands.append(np.where(rng.random(more) < 0.2, -np.inf, rng.standard_normal(more)).astype(dtype))
    if extra == "ragged":
        operands += [np.array(offsets, np.int64) for offsets in more]
    return operands


def within(got, operands, extra, settings):
    """Inside the op's bound of float32, each end rounded to the result's type."""
    dtype = got.dtype.name
    wide = [x if x.dtype == np.int64 else x.astype(np.float32 if dtype != "float64" else np.float64) for x in operands]
    accuracy = type("Accuracy", (), {"subnormals": True})
    if extra == "ragged":
        (bound,) = ragged_bound(wide, settings, wide[0].dtype, accuracy)
    else:
        (bound,) = attention_bound(wide, settings, wide[0].dtype, accuracy, extra)
    low, high = (end.astype(np.float32).astype(got.dtype).astype(np.float64) for end in (bound.low, bound.high))
    if dtype in ("float32", "float64"):
        low, high = bound.low, bound.high
    value = got.astype(np.float64)
    assert ((low <= value) & (value <= high)).all(), np.abs(value - bound.value).max()


def attend(device, operands, shape, extra="", choice=None, shift=0, **settings):
    settings = DEFAULT | settings
    q, k, v, *more = operands
    sizes = plan.sizes_of(extra, q.shape, k.shape, v.shape, [x.shape for x in more], shape)
    element = FLOATS[q.dtype.name]
    planned = plan.plan(
        device, sizes, element, extra, settings["causal"], settings["window"],
        capped=settings["softcap"] > 0, aligned=not shift, choice=choice,
    )  # fmt: skip
    arrays = [
        unwritten(device, x.shape, x.dtype, shift) if x.dtype != np.int64 else device.to_device(x) for x in operands
    ]
    for array, x in zip(arrays, operands, strict=True):
        array.elements[...] = x
    out = unwritten(device, shape, q.dtype, shift)
    pointers = [x.data.ptr for x in (*arrays, out)]
    prefill.run(device, planned, pointers, q.dtype.itemsize, q.shape[-1], settings["scale"], settings["softcap"])
    return out.elements.copy()


def check(device, dtype, q, k, v, extra="", more=(), choice=None, shift=0, **settings):
    operands = drawn(random(), dtype, q, k, v, extra, more)
    lead = np.broadcast_shapes(q[:-3], k[:-3], v[:-3], more[:-3] if extra == "mask" else ())
    got = attend(device, operands, (*lead, *q[-3:-1], v[-1]), extra, choice, shift, **settings)
    within(got, operands, extra, DEFAULT | settings)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_tensor_cores_of_sm_90a(hopper, dtype):
    check(hopper, dtype, (70, 2, 40), (75, 1, 40), (75, 1, 72), causal=True)


@pytest.mark.parametrize("turns", [False, True])
@pytest.mark.parametrize("groups, keys, stages", [(2, 64, 1), (2, 128, 2), (3, 64, 2)])
def test_tiles_of_warpgroups(hopper, groups, keys, stages, turns):
    """Several tiles of keys, and rows of which some see nothing of the last ones."""
    choice = plan.Choice(wgmma.Tile(groups, keys, stages, 64, 64, turns), Parts(1, 2, 1))
    check(hopper, BF16, (200, 1, 64), (300, 1, 64), (300, 1, 64), choice=choice, causal=True)


@pytest.mark.parametrize(
    "extra, more, settings",
    [
        ("sinks", (), {"window": 9}),
        ("mask", (2, 1, 40, 80), {"softcap": 2.0}),
        ("ragged", ([3, 30, 30, 70], [0, 40, 50, 79]), {"causal": True}),
    ],
)
def test_sinks_masks_and_sequences_of_16_bits(hopper, extra, more, settings):
    lead = (2,) if extra == "mask" else ()
    check(
        hopper, BF16, (*lead, 80 if extra == "ragged" else 40, 2, 16), (80, 1, 16), (80, 1, 16), extra, more, **settings
    )


def test_leading_axes_that_no_launch_knows(hopper):
    shapes = (2, 1, 2, 1, 9, 1, 8), (1, 2, 1, 2, 9, 1, 8), (2, 1, 1, 2, 9, 1, 8)
    check(hopper, DTYPES[0], *shapes, causal=True)
    check(
        hopper,
        DTYPES[0],
        *((*s[:-3], 40, 1, 8) for s in shapes),
        choice=plan.Choice(mma.Tile(4, 1, 16, 16, 16), Parts(3, 3, 3)),
    )


@pytest.mark.parametrize("dtype", [*DTYPES, np.dtype(np.float64)], ids=str)
def test_fma_takes_every_type(hopper, dtype):
    check(hopper, dtype, (5, 2, 9), (7, 1, 9), (7, 1, 5), softcap=1.5, choice=plan.Choice(simt.Tile(16, 1)))


@pytest.mark.parametrize("rows", [16, 64])
@pytest.mark.parametrize("e", [5, 64, 130, 200])
def test_slices_of_values_that_are_no_whole_turns_of_the_threads(hopper, rows, e):
    """64 rows are 256 threads, and a slice of 8 keys in float64 is 128 fours of columns, or 384."""
    tile = simt.Tile(rows, simt.tile_for(rows, e).columns)
    check(hopper, np.dtype(np.float64), (66, 1, 6), (70, 1, 6), (70, 1, e), choice=plan.Choice(tile))


def test_heads_wider_than_a_block(hopper):
    check(hopper, DTYPES[0], (3, 2, 270), (6, 1, 270), (6, 1, 300), causal=True)


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_addresses_of_no_16_bytes(hopper, dtype):
    check(hopper, dtype, (40, 1, 16), (40, 1, 16), (40, 1, 16), shift=1, causal=True)


def test_values_of_every_size(hopper):
    """Parts of the largest do not overflow, and those of subnormal ones are not lost."""
    for exponent in (-140, -60, 60, 118):
        q, k, v = drawn(random(), DTYPES[0], (40, 1, 16), (40, 1, 16), (40, 1, 16))
        operands = [q, k, np.ldexp(v, exponent).astype(np.float32)]
        within(attend(hopper, operands, (40, 1, 16)), operands, "", DEFAULT)


def test_a_nan_in_a_sink_and_rows_without_keys(hopper):
    q, k, v, sinks = drawn(random(), DTYPES[0], (40, 2, 16), (20, 1, 16), (20, 1, 16), "sinks")
    sinks[1] = np.nan
    got = attend(hopper, [q, k, v, sinks], (40, 2, 16), "sinks", causal=True)
    assert not got[:20].any() and np.isnan(got[20:, 1]).all()
    want = attended(q, k, v, **DEFAULT | {"causal": True}, sinks=sinks)
    np.testing.assert_allclose(got[:, 0], want[:, 0], rtol=1e-5, atol=1e-6)


def test_no_keys_give_zeros(hopper):
    for dtype in DTYPES:
        kernel = prefill.attention(
            hopper, call("attention", dtype, *[np.zeros((3, 1, 4), dtype)] * 3, causal=False, window=0)
        )
        given = [hopper.to_device(np.ones(s, dtype)) for s in ((3, 1, 4), (0, 1, 4), (0, 1, 5))]
        out = unwritten(hopper, (3, 1, 5), dtype)
        assert kernel(*given, 0.0, 0.0, out) == 0 and not out.elements.any()


def test_shapes_that_do_not_agree_are_refused(hopper):
    kernel = prefill.attention(hopper, call("attention", "float32", *[np.zeros((3, 1, 4))] * 3, causal=False, window=0))
    x, out = hopper.to_device(np.ones((3, 1, 4), "f4")), unwritten(hopper, (3, 1, 4), "f4")
    assert kernel(x, x, hopper.to_device(np.ones((2, 1, 4), "f4")), 0.0, 0.0, out) == -1
    assert kernel(out, x, x, 0.0, 0.0, out) == -1 and np.isnan(out.elements).all()


def test_a_launch_for_benchmarks(hopper):
    q = hopper.to_device(np.ones((40, 1, 16), bfloat16))
    out = unwritten(hopper, (40, 1, 16), bfloat16)
    prefill.launch(hopper, q, q, q, out, causal=True, parts=Parts(1, 1, 1))()
    assert (out.elements == 1).all()
    with pytest.raises(ValueError, match="do not agree"):
        prefill.launch(hopper, q, q, hopper.to_device(np.ones((40, 1, 16), "f4")), out)


def test_tiles_that_do_not_fit_are_passed_over():
    small = type("Device", (), {"arch": "sm_86", "shared": 101_376})
    sizes = plan.Sizes(4096, 4096, 28, 4, 128, 128)
    choice = plan.choose(small, sizes, f32)
    assert isinstance(choice.tile, mma.Tile) and choice.tile.shared_bytes(choice.parts) <= small.shared


def test_weights_are_rounded_where_a_setting_allows_it(hopper, monkeypatch):
    q, k, v = drawn(random(), BF16, (70, 1, 64), (70, 1, 64), (70, 1, 64))
    results = []
    for allowed in (False, True):
        monkeypatch.setattr(prefill, "rough", lambda allowed=allowed: allowed)
        out = unwritten(hopper, (70, 1, 64), BF16)
        kernel = prefill.attention(hopper, call("attention", BF16, q, k, v, causal=True, window=0))
        assert kernel(*map(hopper.to_device, (q, k, v)), 0.0, 0.0, out) == 0
        results.append(out.elements.astype(np.float64))
    exact = attended(*(x.astype(np.float64) for x in (q, k, v)), **DEFAULT | {"causal": True})
    errors = [np.abs(y - exact).max() for y in results]
    assert (results[0] != results[1]).any() and errors[1] < 2.0**-6
