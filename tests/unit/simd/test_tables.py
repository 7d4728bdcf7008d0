"""What kernels say about themselves beside their rates: products that take an epilogue, environments, encoders."""

import numpy as np
import pytest
from trueno.backend import TABLE, Call, Reject

pytest.importorskip("numba", reason="needs numba")
from trueno.formats import FORMATS, WEIGHTS
from trueno_simd.backend import SimdBackend
from trueno_simd.kernels import KERNELS, PRODUCTS
from trueno_simd.kernels.quant.quantize.encoders import ENCODERS

BACKEND = SimdBackend()


def call(op: str, dtype: str = "float32", *, guarded: bool = False) -> Call:
    return Call(TABLE[op], np.dtype(dtype), "", 2, (4, 4), guarded=guarded)


def test_every_kernel_is_of_a_structured_op_and_goes_by_its_name() -> None:
    assert all(TABLE[op].structured for op in KERNELS)
    assert {op for op in KERNELS if TABLE[op].single} == {op for op in KERNELS if "float64" not in KERNELS[op].dtypes}
    assert PRODUCTS.keys() < set(KERNELS)


@pytest.mark.parametrize("op", list(KERNELS))
def test_lapack_alone_runs_in_the_callers_environment(op: str) -> None:
    from trueno_simd.llvm import environment

    assert BACKEND.own_environment(call(op)) == (environment.known() and op != "symmetric_eigen")


def test_the_backend_refuses_what_the_table_does() -> None:
    assert BACKEND.supports(call("matmul", "float64")) is None
    refused = BACKEND.supports(call("quant_matvec", "float64"))
    assert refused == Reject("unsupported_dtype", "float64: quant_matvec computes in float32")
    assert BACKEND.supports(call("matmul", guarded=True)) == Reject("unguarded", "matmul has no guarded kernel")
    assert BACKEND.supports(call("matmul", "float16")) is None
    assert BACKEND.supports(call("matvec", "float16")).code == "unsupported_dtype"
    assert BACKEND.supports(call("add", "float16")) == Reject("unsupported_dtype", "float16: float32 or float64")


def test_every_format_of_weights_has_an_encoder_with_a_matrix_and_without() -> None:
    of_weights = {FORMATS[name].encoder for name in WEIGHTS}
    assert ENCODERS.keys() >= {(encoder, weighted) for encoder in of_weights for weighted in (False, True)}
    assert {encoder for encoder, _ in ENCODERS} == {f.encoder for f in FORMATS.values()}
    assert {encoder for encoder, weighted in ENCODERS if weighted} == of_weights
