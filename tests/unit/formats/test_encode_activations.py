"""Activations are quantized to the bytes of ggml's CPU backend, and of its reference functions."""

from pathlib import Path

import numpy as np
import pytest
from trueno.errors import ParameterError, ShapeError
from trueno.formats import FORMATS, decode, encode_activations
from trueno.formats.decode import codes, field

GGML = np.load(Path(__file__).parents[2] / "golden/ggml/quant.npz", allow_pickle=False)


@pytest.mark.parametrize("name", ["q8_0", "q8_1", "q8_k"])
@pytest.mark.parametrize("way, reference", [("cpu", False), ("ref", True)])
@pytest.mark.parametrize("data", ["act", "x"])
def test_gives_the_bytes_of_ggml(name: str, way: str, reference: bool, data: str) -> None:
    got = encode_activations(FORMATS[name], GGML[data], reference=reference)
    wanted = GGML[f"{data}_{way}_{name.upper()}"]
    assert got.shape == wanted.shape
    wrong = np.nonzero((got != wanted).any(axis=1))[0]
    assert not len(wrong), f"rows {wrong.tolist()} differ"


@pytest.mark.parametrize("name", ["q8_0", "q8_1", "q8_k"])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("reference", [False, True])
def test_a_block_with_what_is_no_number_has_a_scale_that_is_none(name: str, bad: float, reference: bool) -> None:
    f = FORMATS[name]
    x = np.ones((2, 3 * f.elements), np.float32)
    x[1, f.elements + 5] = bad
    row = encode_activations(f, x, reference=reference)
    blocks = row.reshape(-1, f.nbytes)
    d = field(f, blocks, "d")[:, 0]
    assert np.isnan(d).tolist() == [False] * 4 + [True, False]
    assert not codes(f, blocks)[4].any()
    if name == "q8_1":
        assert np.isnan(field(f, blocks, "s")[4, 0])
    y = decode(f, row)
    assert np.isnan(y[1, f.elements : 2 * f.elements]).all()
    assert np.isfinite(np.delete(y[1], np.s_[f.elements : 2 * f.elements])).all()


@pytest.mark.parametrize("name", ["q8_0", "q8_1", "q8_k"])
def test_is_within_half_a_step(name: str) -> None:
    f = FORMATS[name]
    print("seed 20")
    x = np.random.default_rng(20).standard_normal((7, 4 * f.elements)).astype(np.float32)
    peaks = np.abs(x).reshape(7, 4, -1).max(axis=2, keepdims=True).astype(np.float64)
    error = np.abs(decode(f, encode_activations(f, x)).astype(np.float64) - x).reshape(7, 4, -1)
    # half a step, and the rounding of d to half precision times 127 steps
    assert (error <= peaks / 127 * (0.5 + 127 * (0 if name == "q8_k" else 2.0**-11) + 1e-4)).all()


def test_sums_of_q8_k_are_those_of_its_codes() -> None:
    f = FORMATS["q8_k"]
    print("seed 21")
    x = np.random.default_rng(21).standard_normal((3, 512)).astype(np.float32)
    x[1] = 0
    blocks = encode_activations(f, x).reshape(-1, f.nbytes)
    sums = codes(f, blocks).view(np.int8).reshape(-1, 16, 16).sum(axis=2, dtype=np.int16)
    assert np.array_equal(field(f, blocks, "bsums"), sums)
    assert not blocks[2:4].any()


def test_checks_format_and_length() -> None:
    with pytest.raises(ParameterError, match="q4_k holds no activations; these do: q8_0, q8_1, q8_k"):
        encode_activations(FORMATS["q4_k"], np.zeros(256, np.float32))
    with pytest.raises(ShapeError, match="a row of 100 elements"):
        encode_activations(FORMATS["q8_k"], np.zeros(100, np.float32))
    assert encode_activations(FORMATS["q8_0"], np.zeros((0, 64), np.float32)).shape == (0, 68)
    assert encode_activations(FORMATS["q8_0"], np.zeros((2, 0), np.float32)).shape == (2, 0)
