"""16-bit floats in the kit: the bounds of an op on them follow from those in float32.

The meaning is the float32 op on the widened operands, each floating result rounded once.  Rounding keeps order, so a
result is correct if it is between the rounded ends of the float32 bound: that bound, and half a last place.
"""

from dataclasses import replace
from importlib.util import find_spec
from typing import Any

import numpy as np
import numpy.typing as npt

from trueno.discovery import registry
from trueno.dispatch.half import NAMES, WIDE, is_half, rounded
from trueno.judge.bound import Bound

__all__ = ["SAMPLE", "computing", "declare", "finfo", "known", "native", "rounded_bound"]

SAMPLE = {
    "float16": ("mul", "softmax", "argmax", "matmul"),
    "bfloat16": ("rms_norm", "sum", "matmul", "embedding_lookup"),
}
"""Ops judged by default: some of each kind; `--trueno-dtype float16,bfloat16` judges all."""


def known() -> list[str]:
    """The names of the 16-bit floats that are available: bfloat16 needs ml_dtypes."""
    return [name for name in NAMES if name != "bfloat16" or find_spec("ml_dtypes") is not None]


def declare(name: str) -> None:
    """Register a dtype with NumPy by its name; ImportError if bfloat16 is not installed."""
    if name == "bfloat16":
        import ml_dtypes  # noqa: F401 - registers it


def native(backend: str) -> bool:
    """Whether it has its own kernels for some of them."""
    manifest = registry.entries()[backend].manifest
    return manifest is not None and bool(manifest.half)


def computing(dtype: npt.DTypeLike) -> np.dtype[Any]:
    """The dtype in which an op on this one computes."""
    T = np.dtype(dtype)
    return WIDE if is_half(T) else T


def finfo(dtype: npt.DTypeLike) -> Any:
    """The limits of a float type."""
    T = np.dtype(dtype)
    if T.name != "bfloat16":
        return np.finfo(T)
    import ml_dtypes

    limits: Any = ml_dtypes.finfo
    return limits(T)


def rounded_bound(b: Bound, dtype: npt.DTypeLike) -> Bound:
    """The allowed values of a float32 result inside `b` after rounding; positions stay."""
    T = np.dtype(dtype)
    if not is_half(T) or b.allowed is not None:
        return b
    low, high = (rounded(rounded(x, WIDE), T).astype(x.dtype) for x in (b.low, b.high))
    return replace(b, low=low, high=high)
