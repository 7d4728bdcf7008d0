"""Activations in 8 bits are ggml's, bit for bit, and a block that holds no number yields none."""

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("numba", reason="needs numba")
from numba import types
from trueno.formats import FORMATS
from trueno.formats.decode import codes, scale
from trueno_simd.codecache.entry import kernel_entry
from trueno_simd.kernels.quant.activations import quantized
from trueno_simd.kernels.tile import address

GGML = np.load(Path(__file__).parents[3] / "golden/ggml/quant.npz", allow_pickle=False)
PARTNERS = ("q8_0", "q8_1", "q8_k")


def _kernel(partner: str):
    row = quantized(partner)

    def kernel(x, found, d, sums):
        return row(address(x), x.size, address(found), address(d), address(sums))

    arrays = (types.Array(t, 1, "C") for t in (types.float32, types.int8, types.float32, types.int16))
    return kernel_entry(types.intp(*arrays), cache=False)(kernel)


KERNELS = {partner: _kernel(partner) for partner in PARTNERS}


def quantize(partner: str, x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    block = FORMATS[partner].elements
    guard = np.full(x.size + 64, 77, np.int8), np.full(x.size // block + 8, 7, "f4"), np.full(x.size // 16 + 8, 7, "i2")
    found = tuple(a[: a.size - margin] for a, margin in zip(guard, (64, 8, 8), strict=True))
    assert KERNELS[partner](x, *found) == 0
    assert all(len(set(a[-8:].tolist())) == 1 for a in guard), "written past the end"
    return found


@pytest.mark.parametrize("partner", PARTNERS)
@pytest.mark.parametrize("rows, expected", [("act", "act_cpu"), ("x", "x_cpu")])
def test_they_are_ggmls(partner: str, rows: str, expected: str) -> None:
    f = FORMATS[partner]
    for name, x, wanted in zip(range(99), GGML[rows], GGML[f"{expected}_{partner.upper()}"], strict=False):
        blocks = wanted.reshape(-1, f.nbytes)
        found, d, sums = quantize(partner, x)
        assert np.array_equal(d.view("u4"), scale(f, blocks).ravel().view("u4")), name
        wanted_codes = codes(f, blocks).view(np.int8).ravel()
        # where 127/amax overflows ggml's codes come of converting an infinity; they count for nothing, as d is 0
        largest = np.abs(x).reshape(-1, f.elements).max(1)
        tiny = np.repeat((largest > 0) & (largest < 127 / np.finfo("f4").max), f.elements)
        assert np.array_equal(found[~tiny], wanted_codes[~tiny]), name
        assert not found[tiny].any()
        assert np.array_equal(sums, found.reshape(-1, 16).sum(1, dtype="i4"))


@pytest.mark.parametrize("partner", PARTNERS)
@pytest.mark.parametrize("bad", [np.nan, -np.nan, np.inf, -np.inf])
def test_a_block_without_numbers_has_no_scale(partner: str, bad: float) -> None:
    seed = 5
    print("seed", seed)
    x = np.random.default_rng(seed).standard_normal(1024).astype("f4")
    x[300] = bad
    _, d, _ = quantize(partner, x)
    assert np.flatnonzero(np.isnan(d)).tolist() == [300 // FORMATS[partner].elements]


@pytest.mark.parametrize("partner", PARTNERS)
@pytest.mark.parametrize("blocks", [1, 2, 3, 5])
def test_any_number_of_blocks(partner: str, blocks: int) -> None:
    """Also the first of two numbers of one magnitude decides the sign of q8_k's scale."""
    n = FORMATS[partner].elements
    x = np.zeros(n * blocks, "f4")
    x[::n], x[n - 1 :: n] = 3, -3
    found, d, sums = quantize(partner, x)
    signs = -1 if partner == "q8_k" else 1
    assert np.all(np.sign(d) == signs)
    assert np.array_equal(found[::n], np.full(blocks, 127 * signs))
    assert np.array_equal(sums, found.reshape(-1, 16).sum(1, dtype="i4"))


@pytest.mark.parametrize("partner", ["q8_0", "q8_1"])
def test_a_scale_too_large_for_float16_is_infinite(partner: str) -> None:
    x = np.full(32, 127 * 65520.0, "f4")
    assert np.isinf(quantize(partner, x)[1]).all()
    assert quantize(partner, x * np.float32(1 - 2**-20))[1][0] == 65504
