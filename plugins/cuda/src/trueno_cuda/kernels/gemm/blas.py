"""cuBLAS as another variant of a product: both variants are tried once per shape, and the faster one is kept."""

from collections.abc import Sequence
from time import perf_counter
from typing import Any

import numpy as np
from trueno.errors import OutOfMemory

from trueno_cuda.device.protocol import Device, Launch
from trueno_cuda.kernels.product import ProductLaunch

LEAST = 1 << 24
"""Multiply-adds from which on a product is worth the launches that tell which way is quicker."""
ROUNDS = 3


def worth_trying(device: Device, m: int, n: int, depth: int) -> bool:
    """Whether a product is large enough, and the device has a library of products at all: an emulator has none."""
    return m * n * depth >= LEAST and hasattr(device, "blas")


def quickest(
    device: Any, sizes: tuple[int, int, int], dtype: np.dtype[Any], ours: Sequence[ProductLaunch], alone: Launch
) -> Sequence[ProductLaunch]:
    """Our launches of a product of m, n, depth, or cuBLAS'.  alone: one launch of ours, for recordings.

    Tried on memory of their own, whose content does not matter.
    """
    m, n, depth = sizes
    theirs = device.blas(dtype, m, n, depth, alone)
    if theirs is None:
        return ours
    rival = [ProductLaunch(theirs, (0, 0, 0, 0))]
    try:
        arrays = [device.empty(shape, dtype) for shape in ((m, depth), (depth, n), (m, n))]
        return min(
            (_seconds(device, launches, arrays, dtype), i, launches) for i, launches in enumerate((ours, rival))
        )[2]
    except OutOfMemory:  # no room to try: the product is large, and cuBLAS the better guess
        return rival


def _seconds(device: Device, launches: Sequence[ProductLaunch], arrays: Sequence[Any], dtype: np.dtype[Any]) -> float:
    a, b, out = (x.data.ptr for x in arrays)
    best = float("inf")
    for _ in range(ROUNDS):
        device.wait()
        start = perf_counter()
        for planned in launches:
            if planned.then is None:
                planned.launch((a, b, out))
            else:
                parts = device.empty((planned.scratch,), dtype)
                planned.launch((a, b, parts.data.ptr))
                planned.then((parts.data.ptr, out))
        device.wait()
        best = min(best, perf_counter() - start)
    return best
