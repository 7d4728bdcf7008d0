"""The kit's own suites on every backend that is installed here, float32 and float64.

A failure prints the case and its seed; `--trueno-seed` (with `-p trueno.testing.plugin`) draws other operands.
`trueno conformance simd` tries every op in every layout.
"""

from trueno.testing.suites import *  # noqa: F403 - pytest collects what is imported here

APART = ("cuda_emulated",)
"""A launch is milliseconds there: `test_emulated` tries fewer cases."""
SPARING = ("simd",)
"""Each layout is a kernel to compile: some ops stand for all here."""
