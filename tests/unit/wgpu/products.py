"""Calls of wgpu's kernels on NumPy arrays, and what their sums of products may be off by."""

from typing import Any

import numpy as np
from trueno.discovery.protocol import Call
from trueno.ops import TABLE
from trueno_wgpu.device.array import Array
from trueno_wgpu.kernels import KERNELS
from trueno_wgpu.kernels.dispatches import run

FLOAT32 = np.dtype(np.float32)


def floats(rng: np.random.Generator, *shape: int) -> Any:
    return rng.standard_normal(shape).astype(np.float32)


def kernel(gpu: Any, op: str, *operands: Any, guarded: bool = False, **static: Any) -> Any:
    """The kernel for operands like these."""
    sizes = tuple(int(np.size(x)).bit_length() for x in operands)
    call = Call(TABLE[op], FLOAT32, "e" * len(operands), np.ndim(operands[0]), sizes, tuple(static.items()), "wgpu",
                guarded)  # fmt: skip
    return KERNELS[op](gpu, call)


def unwritten(gpu: Any, shape: tuple[int, ...]) -> Array:
    """A result whose memory holds NaN, so that unwritten elements show."""
    return Array.of(gpu, np.full(shape, np.nan, np.float32))


def compute(gpu: Any, op: str, shape: tuple[int, ...], *operands: Any, guarded: bool = False, **static: Any) -> Any:
    """Result of an op's kernel."""
    out = unwritten(gpu, shape)
    given = [Array.of(gpu, x) for x in operands]
    assert kernel(gpu, op, *operands, guarded=guarded, **static)(*given, out) == 0
    for x, array in zip(operands, given, strict=True):
        assert array.numpy().tobytes() == np.ascontiguousarray(x).tobytes(), "an operand was changed"
    return out.numpy()


def planned(gpu: Any, dispatches: Any, shape: tuple[int, ...], *operands: Any) -> Any:
    """Result of planned dispatches."""
    out = unwritten(gpu, shape)
    assert run(gpu, dispatches, [Array.of(gpu, x) for x in operands], out) == 0
    return out.numpy()


def assert_within(got: Any, want: Any, weight: Any, terms: int) -> None:
    """|got − want| ≤ gamma · weight, want and weight = Σ|a · b| in float64, for `terms` products in any order."""
    assert got.shape == want.shape and got.dtype == np.float32
    u = 2.0**-24
    gamma = (terms + 3) * u / (1 - (terms + 3) * u)
    smallest = (terms + 3) * float(np.finfo(np.float32).smallest_normal)  # subnormals may be flushed
    error = np.abs(got.astype(np.float64) - want)
    excess = np.where(np.isfinite(error), error, np.inf) - (gamma * weight + smallest)
    assert (excess <= 0).all(), f"worst excess {excess.max()} where the error is {error.max()}"


def assert_product(got: Any, a: Any, b: Any) -> None:
    a, b = a.astype(np.float64), b.astype(np.float64)
    assert_within(got, a @ b, np.abs(a) @ np.abs(b), a.shape[-1])
