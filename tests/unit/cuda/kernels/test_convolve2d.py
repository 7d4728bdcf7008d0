"""convolve2d of the CUDA backend, on the emulator, against SciPy's correlate and PyTorch in float64."""

from types import SimpleNamespace

import numpy as np
import pytest
from trueno_cuda.device.emulated import Emulator
from trueno_cuda.kernels import convolve2d
from unit.cuda.kernels.moves import assert_within, call, compute, part, random, unwritten

SHAPES = [
    ((1, 1), (1, 1)),
    ((7, 9), (2, 4)),
    ((33, 65), (3, 3)),
    ((9, 70), (9, 1)),
    ((70, 9), (1, 9)),
    ((20, 41), (7, 7)),
    ((1, 6, 6), (1, 1, 1, 1)),
    ((3, 9, 11), (2, 3, 3, 3)),
    ((2, 21, 40), (4, 2, 3, 5)),
]
PRODUCTS = [
    ((4, 11, 17), (17, 4, 2, 3)),
    ((3, 10, 13), (65, 3, 3, 3)),
    ((17, 8, 8), (16, 17, 1, 1)),
    ((2, 9, 9), (16, 2, 5, 2)),
]


@pytest.fixture(scope="module")
def device():
    return Emulator("sm_90")


def correlated(x, weights, mode):
    """By SciPy, a channel at a time, in float64: value, and sum of absolute products."""
    signal = pytest.importorskip("scipy.signal")
    x, weights = x.astype("f8"), weights.astype("f8")
    p, q = weights.shape[-2:]
    if mode == "same":
        top, left = (p - 1) // 2, (q - 1) // 2
        x = np.pad(x, [(0, 0)] * (x.ndim - 2) + [(top, p - 1 - top), (left, q - 1 - left)])
    planes = x[None] if x.ndim == 2 else x
    filters = weights[None, None] if x.ndim == 2 else weights
    both = (
        np.array(
            [
                sum(signal.correlate(f(planes[c]), f(w[c]), "valid", "direct") for c in range(len(planes)))
                for w in filters
            ]
        )
        for f in (np.asarray, np.abs)
    )
    return tuple(v[0] if x.ndim == 2 else v for v in both)


def check(device, x_shape, shape, mode, dtype, guarded=False, shift=0, **options):
    rng = random()
    x, weights = (rng.standard_normal(s).astype(dtype) for s in (x_shape, shape))
    want, size = correlated(x, weights, mode)
    got = compute(
        device, convolve2d.convolve2d, "convolve2d", want.shape, x, weights, mode=mode, guarded=guarded, shift=shift,
        options=options,
    )  # fmt: skip
    terms = int(np.prod(shape[-3:]))
    assert_within(got, want, size, 2 * terms if dtype == np.float64 else terms)  # the oracle's own rounding
    assert device.take_status() == 0


@pytest.mark.parametrize("mode", ["valid", "same"])
@pytest.mark.parametrize("x, weights", SHAPES, ids=str)
def test_taps(device, x, weights, mode):
    check(device, x, weights, mode, np.float32)
    check(device, x, weights, mode, np.float32, guarded=True, shift=1)


@pytest.mark.parametrize("mode", ["valid", "same"])
@pytest.mark.parametrize("x, weights", SHAPES[:1] + SHAPES[1:2] + SHAPES[7:8], ids=str)
def test_float64(device, x, weights, mode):
    check(device, x, weights, mode, np.float64, guarded=True)


@pytest.mark.parametrize("mode", ["valid", "same"])
@pytest.mark.parametrize(
    "constants", [{"P": 0, "Q": 0, "R": 1}, {"P": 0, "Q": 0, "R": 4}, {"P": 3, "Q": 5, "R": 8}], ids=str
)
def test_every_build_of_taps(device, constants, mode):
    check(device, (2, 21, 40), (3, 2, 3, 5), mode, np.float32, schedule="taps", constants=constants)


@pytest.mark.parametrize("mode", ["valid", "same"])
@pytest.mark.parametrize("x, weights", PRODUCTS, ids=str)
def test_product(device, x, weights, mode):
    check(device, x, weights, mode, np.float32, schedule="product")
    check(device, x, weights, mode, np.float32, schedule="product", guarded=True, shift=1)


def test_product_in_float64_and_in_large_tiles(device):
    check(device, (1, 7, 9), (3, 1, 3, 2), "same", np.float64, schedule="product")
    check(
        device,
        (2, 12, 12),
        (130, 2, 2, 2),
        "same",
        np.float32,
        schedule="product",
        constants={"M": 128, "N": 128, "V": 4},
    )


def test_a_kernel_larger_than_x(device):
    for options in ({}, {"schedule": "product"}):
        check(device, (3, 4), (6, 7), "same", np.float32, **options)


@pytest.mark.parametrize("mode", ["valid", "same"])
@pytest.mark.filterwarnings("ignore:Using padding")  # about a copy that PyTorch makes
def test_agrees_with_pytorch(device, mode):
    torch = pytest.importorskip("torch")
    rng = random()
    x, weights = rng.standard_normal((3, 12, 19)).astype("f4"), rng.standard_normal((18, 3, 4, 3)).astype("f4")
    args = torch.from_numpy(x.astype("f8"))[None], torch.from_numpy(weights.astype("f8"))
    sizes = torch.from_numpy(np.abs(args[0].numpy())), torch.from_numpy(np.abs(args[1].numpy()))
    want, size = (torch.nn.functional.conv2d(*a, padding=mode)[0].numpy() for a in (args, sizes))
    for schedule in ("taps", "product"):
        options = {"schedule": schedule}
        got = compute(device, convolve2d.convolve2d, "convolve2d", want.shape, x, weights, mode=mode, options=options)
        assert_within(got, want, size, 36)


@pytest.mark.parametrize("schedule", ["taps", "product"])
def test_what_is_not_finite_stays_where_it_is(device, schedule):
    """An Inf reaches the places whose window holds it, and no other; 0 outside times Inf is NaN, as in NumPy."""
    x, weights = np.ones((2, 9, 11), "f4"), np.ones((17, 2, 3, 3), "f4")
    x[1, 4, 5] = np.inf
    weights[3, 0, 0, 0] = np.nan
    options = {"schedule": schedule}
    got = compute(
        device, convolve2d.convolve2d, "convolve2d", (17, 9, 11), x, weights, mode="same", guarded=True, options=options
    )
    hit = np.zeros((9, 11), bool)
    hit[3:6, 4:7] = True
    rest = np.delete(got, 3, 0)
    assert (np.isinf(rest) == hit).all() and not np.isnan(rest).any() and np.isnan(got[3]).all()
    assert device.take_status() == 3
    weights[3, 0, 0, 0] = np.inf
    x[1, 4, 5] = 1
    got = compute(device, convolve2d.convolve2d, "convolve2d", (17, 9, 11), x, weights, mode="same", options=options)
    assert np.isnan(got[3, 0]).all() and np.isnan(got[3, :, 0]).all() and np.isinf(got[3, 1:, 1:]).all()


def test_the_schedule_that_is_chosen():
    chosen = convolve2d.launch
    image = chosen((4096, 4096), (5, 5), (4096, 4096), True, 4, 132, True)
    assert image[:2] == ("taps", {"P": 5, "Q": 5, "R": 8})
    assert chosen((4096, 4096), (31, 31), (4066, 4066), False, 4, 132, True)[1] == {"P": 0, "Q": 0, "R": 8}
    layer = chosen((64, 56, 56), (128, 64, 3, 3), (128, 56, 56), True, 4, 132, True)
    assert layer[:2] == ("product", {"M": 64, "N": 64, "V": 4})  # 128 x 128 would leave most of 132 SMs idle
    assert chosen((64, 224, 224), (128, 64, 3, 3), (128, 224, 224), True, 4, 132, True)[1]["M"] == 128
    assert chosen((64, 55, 55), (128, 64, 3, 3), (128, 55, 55), True, 4, 132, True)[1]["V"] == 1
    huge = chosen((16, 1 << 16, 1 << 16), (16, 16, 3, 3), (16, 1 << 16, 1 << 16), True, 4, 132, True)
    assert huge[0] == "taps"


@pytest.mark.parametrize(
    "x, weights, out, mode",
    [
        ((5, 5), (3, 3), (5, 5), "valid"),
        ((5, 5), (3, 3), (3, 3), "same"),
        ((5, 5), (6, 3), (0, 3), "valid"),
        ((2, 5, 5), (3, 4, 3, 3), (3, 3, 3), "valid"),
        ((2, 5, 5), (3, 3), (2, 3, 3), "valid"),
        ((5,), (3,), (3,), "valid"),
        ((5, 5), (0, 3), (5, 5), "same"),
    ],
)
def test_shapes_that_do_not_agree_are_refused(device, x, weights, out, mode):
    operands = np.zeros(x, "f4"), np.zeros(weights, "f4")
    result = unwritten(device, out, "f4")
    kernel = convolve2d.convolve2d(device, call("convolve2d", "f4", *operands, mode=mode))
    assert kernel(*map(device.to_device, operands), result) == -1
    assert np.isnan(result.elements).all()


def test_a_result_over_an_operand_is_refused(device):
    whole = device.to_device(np.ones(60, "f4"))
    x, weights = part(whole, (5, 5), 0), part(whole, (3, 3), 25)
    kernel = convolve2d.convolve2d(device, call("convolve2d", "f4", np.ones((5, 5)), np.ones((3, 3))))
    assert kernel(x, weights, part(whole, (3, 3), 34)) == 0
    assert kernel(x, weights, part(whole, (3, 3), 33)) == -1
    assert kernel(x, weights, part(whole, (3, 3), 24)) == -1


def test_no_channels_give_zeros(device):
    for options in ({}, {"schedule": "product"}):
        x, weights = np.ones((0, 5, 5), "f4"), np.ones((2, 0, 3, 3), "f4")
        got = compute(device, convolve2d.convolve2d, "convolve2d", (2, 3, 3), x, weights, options=options)
        assert got.tobytes() == np.zeros((2, 3, 3), "f4").tobytes()


def test_an_axis_beyond_32_bits_is_left_to_others(device):
    kernel = convolve2d.convolve2d(device, call("convolve2d", "f4", np.ones((1, 1)), np.ones((1, 1))))
    x, weights, out = (
        SimpleNamespace(shape=shape, nbytes=4, data=SimpleNamespace(ptr=address))
        for shape, address in (((1, 1 << 31), 0), ((1, 1), 256), ((1, 1 << 31), 512))
    )
    assert kernel(x, weights, out) == -1
