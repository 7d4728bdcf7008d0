"""Calls of hand-written CUDA kernels on the emulator, with NumPy arrays."""

from types import SimpleNamespace
from typing import Any

import numpy as np
from seeds import fresh_seed
from trueno.discovery.protocol import Call
from trueno.ops import TABLE
from trueno_cuda.device.emulated import Array, Emulator

FLOATS = (np.dtype(np.float32), np.dtype(np.float64))


def random() -> np.random.Generator:
    """Fresh numbers; pytest shows the seed of a test that fails."""
    seed = fresh_seed()
    print(f"seed {seed}")
    return np.random.default_rng(seed)


def call(op: str, dtype: Any, *operands: Any, guarded: bool = False, **static: Any) -> Call:
    """The key of a call with operands like these."""
    sizes = tuple(int(np.size(x)).bit_length() for x in operands)
    rank, static_ = np.ndim(operands[0]), tuple(static.items())
    return Call(TABLE[op], np.dtype(dtype), "e" * len(operands), rank, sizes, static_, "cuda_emulated", guarded)


def part(whole: Array, shape: tuple[int, ...], first: int) -> Array:
    """An array in another one's memory, from its element number `first` on."""
    skipped = first * whole.dtype.itemsize
    memory = SimpleNamespace(
        ptr=whole.data.ptr + skipped, bytes=whole.data.bytes[skipped:], device_id=whole.data.device_id, kept=whole.data
    )
    return Array(shape, whole.dtype, memory)  # type: ignore[arg-type]


def shifted(device: Emulator, x: Any, elements: int) -> Array:
    """A copy of `x` that lies so many elements behind an aligned address."""
    made = part(device.to_device(np.zeros(x.size + elements, x.dtype)), x.shape, elements)
    made.elements[...] = x
    return made


def unwritten(device: Emulator, shape: tuple[int, ...], dtype: Any, shift: int = 0) -> Array:
    """A result whose memory holds NaN, so that unwritten elements show."""
    return shifted(device, np.full(shape, np.nan, dtype), shift)


def compute(
    device: Emulator, factory: Any, op: str, shape: tuple[int, ...], *operands: Any, guarded: bool = False,
    shift: int = 0, options: dict[str, Any] | None = None, **static: Any,
) -> Any:  # fmt: skip
    """Result of a kernel.  shift: elements between an aligned address and every array; options: of the factory."""
    dtype = operands[0].dtype
    kernel = factory(device, call(op, dtype, *operands, guarded=guarded, **static), **(options or {}))
    given = [shifted(device, x, shift) for x in operands]
    out = unwritten(device, shape, dtype, shift)
    assert kernel(*given, out) == 0
    for x, array in zip(operands, given, strict=True):
        assert array.elements.tobytes() == np.ascontiguousarray(x).tobytes(), "an operand was changed"
    return out.elements.copy()


def assert_within(got: Any, want: Any, weight: Any, terms: int) -> None:
    """|got - want| <= gamma · weight, want and weight = Σ|a · b| in float64, for `terms` products in any order."""
    u = float(np.finfo(got.dtype).eps) / 2
    assert got.shape == want.shape
    gamma = (terms + 3) * u / (1 - (terms + 3) * u)
    wide = np.longdouble if got.dtype == np.float64 else np.float64
    error = np.abs(got.astype(wide) - want)
    allowed = gamma * weight + (terms + 3) * float(np.finfo(got.dtype).smallest_subnormal)
    assert np.isfinite(error).all() and (error <= allowed).all(), f"worst error {np.max(error / allowed)} of allowed"
