"""The emulated backend through the public API: what its kernels refuse, and what its setting may say."""

import numpy as np
import pytest
import trueno
from trueno.backend import TABLE, Call
from trueno.discovery.protocol import Probe
from trueno_cuda.backend import CudaBackend, EmulatedBackend
from trueno_cuda.kernels import KERNELS
from unit.cuda.kernels.test_gemm_epilogue import call_of, op_of

NAME = "cuda_emulated"


@pytest.mark.parametrize("op", ["matmul", "transpose", "batched_matmul"])
def test_out_may_be_an_operand(op):
    """Products read what they overwrite, so they are computed beside it."""
    host = np.arange(9, dtype=np.float32).reshape((1, 3, 3) if op == "batched_matmul" else (3, 3))
    wanted = host[0] @ host[0] if op == "batched_matmul" else host.T if op == "transpose" else host @ host
    for _ in range(2):
        a = trueno.to(host, NAME)
        operands = (a,) if op == "transpose" else (a, a)
        assert getattr(trueno, op)(*operands, out=a) is a
        np.testing.assert_array_equal(trueno.numpy(a).reshape(3, 3), wanted)


@pytest.mark.parametrize("arch", ["sm_75", "SM_90", "90", "sm_1"])
def test_an_architecture_that_it_cannot_play(monkeypatch, arch):
    trueno.backends()  # whose manifests declare the setting
    monkeypatch.setenv("TRUENO_CUDA_EMULATED_ARCH", arch)
    trueno.settings.settings.reload()
    try:
        answer = EmulatedBackend().probe(1)
        assert isinstance(answer, Probe) and not answer.ok
        assert answer.reason.startswith(f"TRUENO_CUDA_EMULATED_ARCH is {arch!r}; it must be one of sm_80, ")
    finally:
        monkeypatch.undo()
        trueno.settings.settings.reload()


@pytest.mark.parametrize("op", KERNELS)
def test_the_table_of_kernels_answers_for_them(op):
    """Whether a structured op runs in 16 bits, and how fast it is, stands with its kernel and nowhere else."""
    backend = CudaBackend()
    for dtype in ("float32", "float64", "float16", "int32"):
        static = tuple((p.name, "q8_0" if "q8_0" in p.choices else p.default) for p in TABLE[op].params if p.choices)
        call = Call(TABLE[op], np.dtype(dtype), "ee", 2, (4, 4), static)
        refused = backend.supports(call)
        assert (refused is None) == (dtype in KERNELS[op].dtypes)
        assert refused is None or refused.code == "unsupported_dtype"
        assert backend.rates(call) is KERNELS[op].rates


def test_what_16_bit_floats_lack():
    backend = EmulatedBackend()
    call = call_of(op_of("matmul"), np.float16)
    refused = backend.supports(call)
    assert refused.code == "unsupported_dtype" and refused.detail.startswith("float16: an epilogue")
    assert backend.supports(call_of(op_of("matmul"))) is None
    for name in ("matmul", "add"):
        op = TABLE[name]
        guarded = Call(op, np.dtype(np.float16), "ee", 2, (4, 4), guarded=True)
        assert backend.supports(guarded).code == "unguarded"
