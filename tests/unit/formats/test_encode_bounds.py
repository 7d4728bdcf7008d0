"""What encoding loses, on any finite data: never more than follows from the scale that the data call for.

A search keeps the codes of least weighted error, starting from those of the plain scale; so the weighted error of a
group is at most that of the plain scale, plus what the rounding of scales and mins adds.
"""

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from trueno.formats import FORMATS, WEIGHTS, decode, encode
from trueno.formats.decode import codes, field, group_scales, offsets, scale

BLOCKS = 3


@dataclass(frozen=True)
class Loss:
    """`plain`: the largest error under the plain scale, as a share of the group's range; the range is that of the
    magnitudes (`symmetric`), of the elements, or of the elements and zero (`from_zero`).  `norm`: what the search
    minimizes: nothing (each element is bounded), the mean of weight · error, or of weight · error².
    """

    plain: float
    range: str
    norm: int = 0


LOSS = {
    "q4_0": Loss(1 / 8, "symmetric"),  # the extreme of the other sign lies beyond the last code
    "q5_0": Loss(1 / 16, "symmetric"),
    "q8_0": Loss(0.5 / 127, "symmetric"),
    "q4_1": Loss(0.5 / 15, "elements"),
    "q5_1": Loss(0.5 / 31, "elements"),
    "q2_k": Loss(0.5 / 3, "from_zero", 1),
    "q4_k": Loss(0.5 / 15, "from_zero", 2),
    "q5_k": Loss(0.5 / 31, "from_zero", 2),
    "q3_k": Loss(1 / 4, "symmetric", 2),
    "q6_k": Loss(1 / 32, "symmetric", 2),
    "iq4_nl": Loss(14 / 127, "symmetric", 2),  # the table ends at −127 and 113
    "iq4_xs": Loss(14 / 127, "symmetric", 2),
    "mxfp4": Loss(0.5, "symmetric"),  # the largest code, 6, for what is nearly 8
}


def rounding(unit: np.ndarray) -> np.ndarray:
    """How far a number is from what float16 holds of it, `unit`."""
    return np.maximum(np.abs(unit) * 2.0**-11, 2.0**-25) * 1.01


@st.composite
def data(draw: st.DrawFn) -> np.ndarray:
    """[2, 768]: normal, shifted, constant, sparse, whole numbers, of many sizes."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    normal = rng.standard_normal((2, 256 * BLOCKS))
    kind = draw(st.sampled_from(["normal", "uniform", "constant", "sparse", "whole", "heavy"]))
    x = {
        "normal": lambda: normal,
        "uniform": lambda: rng.uniform(-1, 1, normal.shape),
        "constant": lambda: np.repeat(rng.standard_normal((2, 16 * BLOCKS)), 16, axis=1),
        "sparse": lambda: np.where(rng.random(normal.shape) < 0.05, normal, 0),
        "whole": lambda: rng.integers(-8, 9, normal.shape) * 1.0,
        "heavy": lambda: np.clip(rng.standard_t(2, normal.shape), -50, 50),
    }[kind]()
    shift = draw(st.sampled_from([0, 0, 1, -1, 30, -30]))
    if draw(st.booleans()):
        x = x * np.repeat(10.0 ** rng.integers(-4, 1, (2, 16 * BLOCKS)), 16, axis=1)
    size = 10.0 ** draw(st.integers(-9, 3))
    return ((x * draw(st.sampled_from([1.0, 0.05])) + shift) * size).astype(np.float32)


def bound(name: str, blocks: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """The bound of a group's error, [blocks, groups], by its elements `groups` and the scales that were stored."""
    f, loss = FORMATS[name], LOSS[name]
    low, high = groups.min(axis=2), groups.max(axis=2)
    if loss.range == "symmetric":
        reach = np.maximum(-low, high)
    elif loss.range == "elements":
        reach = high - low
    else:
        reach = np.maximum(high, 0) - np.minimum(low, 0)
    found = loss.plain * reach * (1 + 1e-3) + 1e-13
    if f.e8m0:
        return found
    levels = max(abs(v) for v in f.values) if f.values else f.bias or (127 if f.signed else (1 << f.code_bits) - 1)
    unit = np.abs(scale(f, blocks)).astype(np.float64)
    if f.scales:  # a group's scale is one of so many multiples; where signs differ, the last may be missing
        most = 1 << (8 if f.scale_signed else sum(p.bits for p in f.scales[0]))
        found = found + levels * (unit * (0.5 if f.mins else 1) + most * 2 * rounding(unit))
    else:
        found = found + levels * 2 * rounding(unit)
    if f.m:
        m = np.abs(field(f, blocks, f.m)).astype(np.float64)
        most = 1 << sum(p.bits for p in f.mins[0]) if f.mins else 1
        found = found + (m / 2 if f.mins else 0) + most * rounding(m)
    return found


@pytest.mark.parametrize("name", WEIGHTS)
@settings(max_examples=40, deadline=None)
@given(x=data())
def test_error_is_within_what_the_scale_allows(name: str, x: np.ndarray) -> None:
    f, loss = FORMATS[name], LOSS[name]
    rows = encode(f, x)
    blocks = rows.reshape(-1, f.nbytes)
    groups = x.astype(np.float64).reshape(len(blocks), f.groups, -1)
    error = np.abs(decode(f, rows).reshape(groups.shape) - groups)
    if loss.norm == 0:
        lost = error.max(axis=2)
    else:
        w = np.abs(groups) if name == "q2_k" else groups**2
        if f.mins and name != "q2_k":
            w = np.sqrt(w.mean(axis=2, keepdims=True)) + np.abs(groups)
        w = w / np.maximum(w.sum(axis=2, keepdims=True), 1e-300)
        lost = (w * error**loss.norm).sum(axis=2) ** (1 / loss.norm)
    limit = bound(name, blocks, groups)
    worst = np.unravel_index(np.argmax(lost - limit), lost.shape)
    assert (lost <= limit).all(), f"group {worst}: {lost[worst]} > {limit[worst]}"


@pytest.mark.parametrize("name", WEIGHTS)
@settings(max_examples=40, deadline=None)
@given(x=data())
def test_every_element_has_the_nearest_code(name: str, x: np.ndarray) -> None:
    """Given the scale and min that are stored, no other code is nearer, but for what rounding the scale allows."""
    f = FORMATS[name]
    blocks = encode(f, x).reshape(-1, f.nbytes)
    table = np.array(f.values or np.arange(1 << f.code_bits) - f.bias, np.float64)
    if f.signed:
        table = np.arange(-127.0, 128.0)
    factor = (scale(f, blocks).astype(np.float64) * group_scales(f, blocks))[:, :, None]
    added = offsets(f, blocks)
    below = 0.0 if added is None else added.astype(np.float64)[:, :, None]
    groups = x.astype(np.float64).reshape(len(blocks), f.groups, -1)
    code = codes(f, blocks).reshape(groups.shape)
    value = code.view(np.int8).astype(np.float64) if f.signed else table[code]
    error = np.abs(factor * value + below - groups)
    best = np.min([np.abs(factor * v + below - groups) for v in table], axis=0)
    # q4_k and its like round by the stored scale; others by the scale before it is rounded to half precision
    most = np.abs(group_scales(f, blocks)).astype(np.float64)[:, :, None]
    slack = 2 * np.abs(table).max() * most * rounding(scale(f, blocks).astype(np.float64))[:, :, None]
    slack = 0 if f.e8m0 else slack + (2 * rounding(field(f, blocks, f.m).astype(np.float64))[:, :, None] if f.m else 0)
    assert (error <= best + slack + 1e-6 * (np.abs(groups) + np.abs(below))).all()


@pytest.mark.parametrize("name", WEIGHTS)
def test_blocks_far_from_zero_keep_their_offset(name: str) -> None:
    f = FORMATS[name]
    print("seed 50")
    x = (1 + 0.05 * np.random.default_rng(50).uniform(-1, 1, (4, 512))).astype(np.float32)
    for sign in (1, -1):
        y = decode(f, encode(f, sign * x))
        assert np.abs(y - sign * x).max() < (0.11 if name == "q2_k" else 0.08)
        assert abs(y.mean() / (sign * x.mean()) - 1) < (0.04 if name == "q2_k" else 0.01)


@pytest.mark.parametrize("name", WEIGHTS)
@pytest.mark.parametrize("value", [1.0, -1.0, 0.3, -77.7, 0.02])
def test_constant_blocks_come_back(name: str, value: float) -> None:
    f = FORMATS[name]
    y = decode(f, encode(f, np.full((1, 512), value, np.float32)))
    assert np.abs(y / value - 1).max() < (0.26 if name == "mxfp4" else 0.02)


@pytest.mark.parametrize("name", WEIGHTS)
def test_zeros_stay_zeros(name: str) -> None:
    for zero in (0.0, -0.0):
        assert not decode(FORMATS[name], encode(FORMATS[name], np.full((2, 256), zero, np.float32))).any()


@pytest.mark.parametrize("name", ["q4_0", "q5_0", "q8_0", "mxfp4"])
@settings(max_examples=40, deadline=None)
@given(x=data())
def test_what_was_encoded_once_stays(name: str, x: np.ndarray) -> None:
    """Where the scale is the block's extreme, and one code stands for that, encoding again changes nothing."""
    f = FORMATS[name]
    once = encode(f, x)
    y = decode(f, once)
    again = encode(f, y)
    nonzero = y.reshape(-1, f.elements).any(axis=1)
    assert np.array_equal(again.reshape(-1, f.nbytes)[nonzero], once.reshape(-1, f.nbytes)[nonzero])
    assert np.array_equal(decode(f, again), y)


NORMAL = {  # relative root mean square errors that ggml had on single rows of 768 normal numbers: good to 6 %
    "q4_0": 8.6e-2, "q4_1": 7.7e-2, "q5_0": 4.1e-2, "q5_1": 3.6e-2, "q8_0": 5.2e-3, "q2_k": 0.295, "q3_k": 0.152,
    "q4_k": 7.1e-2, "q5_k": 3.6e-2, "q6_k": 1.7e-2, "iq4_nl": 7.5e-2, "iq4_xs": 7.6e-2, "mxfp4": 0.115,
}  # fmt: skip


@pytest.mark.parametrize("name", WEIGHTS)
def test_error_on_normal_data_is_what_is_known_of_the_format(name: str) -> None:
    f = FORMATS[name]
    print("seed 51")
    x = np.random.default_rng(51).standard_normal((64, 1024)).astype(np.float32)
    y = decode(f, encode(f, x))
    assert np.sqrt(((y - x) ** 2).mean() / (x**2).mean()) == pytest.approx(NORMAL[name], rel=0.06)
