"""What a kernel says when LAPACK gives up; and kernels of a Python without docstrings."""

import subprocess
import sys

import numpy as np
import pytest
import trueno


@pytest.mark.parametrize("backend", ["scalar", "simd"])
def test_eigenvalues_that_lapack_does_not_find(backend, monkeypatch):
    """Numbers near the largest float may end LAPACK's iteration; whether they do depends on the LAPACK."""

    def gives_up(a):
        raise np.linalg.LinAlgError("Eigenvalues did not converge")

    monkeypatch.setattr(np.linalg, "eigh", gives_up)
    with (
        trueno.use(backend),
        pytest.raises(trueno.KernelError, match=r"symmetric_eigen: .*did not converge.*divide it"),
    ):
        trueno.symmetric_eigen(np.eye(17))


def test_printing_a_kernel_without_docstrings():
    code = """
from trueno.ops import TABLE
from trueno_simd.rows.source import printed
text = printed(TABLE["add"], "float32", "ee", 1)
assert "add: " in text
compile(text, "kernel", "exec")
"""
    done = subprocess.run([sys.executable, "-OO", "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
