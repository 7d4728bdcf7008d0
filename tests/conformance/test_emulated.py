"""The kit on the PTX emulator: every op in float32, with few cases, and some in the other types.

A launch takes milliseconds there.  `trueno conformance cuda_emulated` judges every type with every case, in an hour;
`trueno conformance cuda` does in two minutes where there is a GPU.
"""

import pytest

pytest.importorskip("trueno_cuda")

from trueno.ops import TABLE
from trueno.testing.suites import *  # noqa: F403 - pytest collects what is imported here

BACKEND = "cuda_emulated"
QUICK = True
SPARING = (BACKEND,)
BLOCKS = ("quant_embedding_lookup", "quantize_rows", "quantize_rows_weighted")
PRODUCTS = ("quant_matvec",)
CACHES = ("attention_decode", "kv_cache_scatter")
"""With sinks attention is the same but for its last kernel, which a unit test has."""
SLOW = ("symmetric_eigen", "lz4_compress")
"""Minutes on the emulator: unit tests have smaller matrices, and fewer pages."""
SAMPLE = {
    "float32": tuple(
        name
        for name, op in TABLE.items()
        if name not in SLOW and (not op.quantized or name in BLOCKS + CACHES + PRODUCTS)
    ),
    "float64": ("layer_norm", "sum", "transpose"),
    "float16": ("matmul", "softmax"),
    "bfloat16": ("embedding_lookup", "argmax"),
}
