"""Constants: the bits of a Python number, by an independent count of the representable ones."""

import math
import struct

import numpy as np
import pytest
from seeds import fresh_seed
from trueno_cuda.ptx import BuildError, bf16, bf16x2, f16, f16x2, f32, f64, ptr, s32, u8, u32, u64
from trueno_cuda.ptx.types import literal


def nearest_bf16(numbers: np.ndarray) -> np.ndarray:
    """Bits of the nearest finite bfloat16 above zero, ties to the even one, by search among all of them."""
    all_bits = np.arange(0x7F80, dtype=np.uint32)
    values = (all_bits << 16).view(np.float32).astype(np.float64)
    above = np.clip(np.searchsorted(values, numbers), 1, len(values) - 1)
    low, high = values[above - 1], values[above]
    upward = (numbers - low > high - numbers) | ((numbers - low == high - numbers) & (above % 2 == 0))
    return np.where(upward, above, above - 1)


def test_bfloat16_is_rounded_once() -> None:
    seed = fresh_seed()
    print("seed", seed)
    rng = np.random.default_rng(seed)
    numbers = np.ldexp(rng.uniform(1, 2, 2000), rng.integers(-140, 127, 2000))
    ties = (1 + (2 * rng.integers(0, 64, 200) + 1) / 256) * 2.0 ** rng.integers(-100, 100, 200)
    barely = np.nextafter(ties, np.inf)  # rounding to float32 first would make ties of these
    numbers = np.concatenate([numbers, ties, barely, np.nextafter(ties, 0)])
    ours = [int(literal(bf16, float(x)), 16) for x in numbers]
    np.testing.assert_array_equal(ours, nearest_bf16(numbers))
    assert [int(literal(bf16, -float(x)), 16) for x in numbers[:50]] == [b | 0x8000 for b in ours[:50]]


def test_other_floats_are_numpy_s() -> None:
    seed = fresh_seed()
    print("seed", seed)
    for x in np.random.default_rng(seed).standard_normal(500) * 100:
        assert literal(f16, float(x)) == f"0x{np.float16(x).view(np.uint16):04X}"
        assert literal(f32, float(x)) == f"0f{np.float32(x).view(np.uint32):08X}"
        assert literal(f64, float(x)) == f"0d{np.float64(x).view(np.uint64):016X}"


def test_special_numbers() -> None:
    assert literal(f32, math.inf) == "0f7F800000"
    assert literal(f32, -0.0) == "0f80000000"
    assert literal(f32, 3) == "0f40400000"
    assert math.isnan(struct.unpack(">f", bytes.fromhex(literal(f32, math.nan)[2:]))[0])
    assert [literal(bf16, x) for x in (math.inf, -math.inf, -0.0, 1)] == ["0x7F80", "0xFF80", "0x8000", "0x3F80"]
    assert math.isnan(struct.unpack(">f", bytes.fromhex(literal(bf16, math.nan)[2:] + "0000"))[0])
    assert literal(f16x2, 1) == "0x3C003C00"
    assert literal(bf16x2, 1) == "0x3F803F80"
    assert literal(u64, 2**64 - 1) == str(2**64 - 1)
    assert literal(s32, -(2**31)) == "-2147483648"


@pytest.mark.parametrize(
    "kind, number", [(f16, 65520), (bf16, 3.4e38), (f32, 1e39), (u8, 256), (u32, -1), (s32, 2**31)]
)
def test_what_does_not_fit(kind, number) -> None:
    with pytest.raises(BuildError, match=r"too large for|does not fit into"):
        literal(kind, number)


def test_pointers_name_their_element() -> None:
    assert repr(ptr(f32)) == "ptr(f32)"
    with pytest.raises(BuildError, match="the element must be a type such as f32"):
        ptr(float)  # type: ignore[arg-type]
