"""Kernels called through the protocol: what they take, what they refuse, and what they leave alone."""

import numpy as np
import pytest

from trueno.discovery import registry
from trueno.dispatch.half import is_half
from trueno.ops.op import Op
from trueno.testing.kernels import KERNEL_CHECKS, check_guarded
from trueno.testing.suites.rows import none_of, skip_rejected


def test_kernels(op: Op, backend: str, dtype: str, seed: int, every_layout: bool) -> None:
    """Right results, refusals that wrote nothing, status bits; every check's first fault is listed."""
    skip_rejected(op, backend, dtype)
    if is_half(np.dtype(dtype)) and not registry.half(registry.entries()[backend], op.name):
        pytest.skip(f"the manifest of {backend} names no kernel for 16-bit floats of {op.name}, which are widened")
    wrong = []
    for check in KERNEL_CHECKS.values():
        try:
            count = check(op, backend, dtype, seed, every_layout)
            if is_half(np.dtype(dtype)) and not count and check is not check_guarded:
                wrong.append(f"the manifest names {op.name} under half, and supports() takes no call of it in {dtype}")
        except AssertionError as error:
            wrong.append(str(error))
    none_of(wrong)
