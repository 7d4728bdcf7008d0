"""Kernels called through the protocol: what they accept, what they refuse, and what they must not change."""

import numpy as np
import pytest

from trueno.discovery import registry
from trueno.dispatch.half import is_half
from trueno.ops.op import Op
from trueno.testing.kernels import KERNEL_CHECKS, check_guarded
from trueno.testing.suites.rows import none_of, skip_rejected


def test_kernels(op: Op, backend: str, dtype: str, seed: int, every_layout: bool) -> None:
    """Correct results, refusals that wrote nothing, status bits; the first error of every check is listed."""
    skip_rejected(op, backend, dtype)
    entry, half = registry.entries()[backend], is_half(np.dtype(dtype))
    widened = f"{backend} has no kernel for 16-bit floats of {op.name}, which are widened"
    if half and not entry.half(op.name):
        pytest.skip(widened)
    wrong, taken = [], not half
    for check in KERNEL_CHECKS.values():
        try:
            count = check(op, backend, dtype, seed, every_layout)
            taken = taken or (bool(count) and check is not check_guarded)
        except AssertionError as error:
            wrong.append(str(error))
    if not taken and not wrong and entry.manifest is not None and op.name in entry.manifest.half:
        wrong.append(f"the manifest names {op.name} under half, and supports() takes no call of it in {dtype}")
    none_of(wrong)
    if not taken:
        pytest.skip(widened)
