"""Kernels called through the protocol: what they take, what they refuse, and what they leave alone."""

from trueno.ops.op import Op
from trueno.testing.kernels import KERNEL_CHECKS
from trueno.testing.suites.rows import none_of, skip_rejected


def test_kernels(op: Op, backend: str, dtype: str, seed: int, every_layout: bool) -> None:
    """Right results, refusals that wrote nothing, status bits; every check's first fault is listed."""
    skip_rejected(op, backend, dtype)
    wrong = []
    for check in KERNEL_CHECKS.values():
        try:
            check(op, backend, dtype, seed, every_layout)
        except AssertionError as error:
            wrong.append(str(error))
    none_of(wrong)
