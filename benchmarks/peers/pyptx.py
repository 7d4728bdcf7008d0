"""pyptx's kernels for Hopper, as its wheel brings them among its examples, on PyTorch's tensors.

An optional peer: every function gives None where it is not installed (`pip install pyptx[torch]`), or where what it
computes is wrong, which is said.  Its kernels allocate their results, and its matrix product writes (A · Bᵀ)ᵀ.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any
from warnings import warn

import numpy as np

from benchmarks.timing import Thunk

Array = np.ndarray[Any, Any]
NAME = "pyptx"
CLOSE = {"rms_norm": 1e-4, "matmul": 1e-2}  # of the largest value; its product is rounded to bfloat16
FEW = 8
"""Rows that are compared."""


def rms_norm(x: Any, w: Any) -> Thunk | None:
    """Of float32 tensors, along the rows of `x`."""

    def make(example: Any) -> tuple[Thunk, Callable[[], Array]]:
        kernel = example.build_rms_norm(*x.shape)
        return lambda: kernel(x, w), lambda: kernel(x, w)[:FEW].double().cpu().numpy()

    some = x[:FEW].double().cpu().numpy()
    wanted = some / np.sqrt((some**2).mean(-1, keepdims=True) + 1e-6) * w.double().cpu().numpy()
    return _checked("rms_norm", "rms_norm", make, wanted)


def matmul(a: Any, b: Any) -> Thunk | None:
    """A · Bᵀ of square bfloat16 tensors."""

    def make(example: Any) -> tuple[Thunk, Callable[[], Array]]:
        import torch

        tiles = a.shape[0] // (example.BM * example.CLUSTER_M), b.shape[0] // example.BN
        order = torch.tensor(example.create_hilbert_schedule(*tiles), dtype=torch.int32, device=a.device)
        run = example.gemm_warp_specialized
        return lambda: run(a, b, order), lambda: run(a, b, order).T[:FEW].double().cpu().numpy()

    wanted = (a[:FEW].double() @ b.double().T).cpu().numpy()
    return _checked("matmul", "gemm_highperf_hopper", make, wanted)


def _checked(
    what: str, example: str, make: Callable[[Any], tuple[Thunk, Callable[[], Array]]], wanted: Array
) -> Thunk | None:
    """The call, where pyptx is there, and computes what is wanted."""
    if find_spec(NAME) is None:
        return None
    try:
        with _without_jax():
            module = import_module(f"pyptx.examples.hopper.{example}")
        call, result = make(module)
        error = np.abs(result() - wanted).max() / np.abs(wanted).max()
    except Exception as failure:  # whatever a peer that is not ours raises
        warn(f"pyptx's {what} fails, and is left out: {type(failure).__name__}: {failure}", stacklevel=3)
        return None
    if not error <= CLOSE[what]:
        warn(f"pyptx's {what} is left out: its result is off by {error:.1e} of the largest value", stacklevel=3)
        return None
    return call


@contextmanager
def _without_jax() -> Iterator[None]:
    """Its examples import JAX at the top, for their own tests alone."""
    stand_ins = {} if find_spec("jax") else {name: ModuleType(name) for name in ("jax", "jax.numpy")}
    sys.modules.update(stand_ins)
    try:
        yield
    finally:
        for name in stand_ins:
            del sys.modules[name]
