"""The kit on the PTX emulator, for a sample of ops: each program shape, each family, and every kernel written by hand.

A launch takes milliseconds there.  `trueno conformance cuda_emulated` judges every op with every case, in an hour;
`trueno conformance cuda` does in two minutes where there is a GPU.
"""

import pytest

pytest.importorskip("trueno_cuda")

from conformance.shapes import program_shapes
from trueno.ops import TABLE
from trueno.testing.suites import *  # noqa: F403 - pytest collects what is imported here
from trueno_cuda.kernels import KERNELS

BACKEND = "cuda_emulated"
QUICK = True
SPARING = (BACKEND,)
# fmt: off
ROWS = (
    "gelu", "pow", "fma", "softmax", "layer_norm", "rms_norm", "residual_rms_norm", "normalize", "zscore",
    "minmax_normalize", "dot", "sum", "sum_kahan", "min", "max", "argmin", "argmax", "variance", "covariance",
    "correlation", "sin",
)
# fmt: on
BY_HAND = tuple(KERNELS)
SAMPLE = {
    "float32": (*ROWS, *BY_HAND),
    "float64": ("layer_norm", "sum", "transpose"),
    "float16": ("matmul", "softmax"),
    "bfloat16": ("embedding_lookup", "argmax"),
}


def test_the_sample_covers_every_shape_and_every_kernel():
    programs = [name for name, op in TABLE.items() if not op.structured]
    assert program_shapes(programs) == program_shapes(ROWS)
    taken = {TABLE[name].family for name in (*ROWS, *BY_HAND)}
    assert {op.family for op in TABLE.values() if not op.quantized} == taken
