"""The kit on the PTX emulator: every op of the CUDA backend, as its kernels' text says, without a GPU.

Fewer cases than elsewhere, because a launch takes milliseconds.  `trueno conformance cuda_emulated` tries all, and
`trueno conformance cuda` does where there is a GPU.
"""

import pytest

pytest.importorskip("trueno_cuda")

from trueno.testing.suites import *  # noqa: F403 - pytest collects what is imported here

BACKEND = "cuda_emulated"
QUICK = True
SPARING = (BACKEND,)
