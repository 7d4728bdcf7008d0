"""fma is rounded once at every level: by the instruction, or where the CPU has none by the C library's function."""

import os
import subprocess
import sys

import numpy as np
import pytest

pytest.importorskip("numba", reason="needs numba")
import trueno
from seeds import fresh_seed
from trueno_simd.llvm import isa
from unit.fused import exact, operands, same


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_one_rounding(dtype):
    seed = fresh_seed()
    arrays = operands(np.dtype(dtype), np.random.default_rng(seed))
    with trueno.use("simd"):
        assert same(trueno.fma(*arrays), exact(*arrays)), f"seed {seed} at {isa.level()}"


@pytest.mark.skipif(isa.detect().level not in ("avx2", "avx512"), reason="no level here lacks the instruction")
def test_without_the_instruction():
    environment = os.environ | {"TRUENO_MAX_ISA": "sse2", "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    arguments = ["-q", "-x", "-p", "no:cacheprovider", __file__, "-k", "one_rounding"]
    code = f"import pytest; exit(pytest.main({arguments}))"
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0 and "2 passed" in done.stdout, done.stdout[-3000:]
