"""Kernels of quantized matrices read and write no byte beside their arrays: these lie against pages without access."""

import ctypes
import mmap
import sys

import numpy as np
import pytest

pytest.importorskip("numba", reason="needs numba")
from trueno.formats import FORMATS, WEIGHTS, decode
from trueno.formats.interleave import interleaved
from trueno.formats.samples import random_rows
from unit.simd.structured import structured_kernel

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="mprotect of glibc")
PAGE = mmap.PAGESIZE
F4 = np.dtype("f4")


class Pages:
    """Copies of arrays that end, or begin, where memory does."""

    def __init__(self):
        self._maps = []
        self._protect = ctypes.CDLL(None).mprotect

    def put(self, x, last):
        size = -(-x.nbytes // PAGE) * PAGE
        whole = mmap.mmap(-1, size + 2 * PAGE)
        self._maps.append(whole)
        start = ctypes.addressof(ctypes.c_char.from_buffer(whole))
        for at in (start, start + PAGE + size):
            assert self._protect(ctypes.c_void_p(at), ctypes.c_size_t(PAGE), 0) == 0
        first = PAGE + (size - x.nbytes if last else 0)
        there = np.frombuffer(whole, np.uint8)[first : first + x.nbytes].view(x.dtype).reshape(x.shape)
        there[...] = x
        return there


@pytest.mark.slow
@pytest.mark.parametrize("last", [True, False], ids=["end", "begin"])
@pytest.mark.parametrize("name", WEIGHTS)
def test_nothing_beside_the_arrays_is_touched(name, last):
    """A wrong address ends the process."""
    f, rng, pages = FORMATS[name], np.random.default_rng(20261122), Pages()

    def kernel(op, laid="", **static):
        return structured_kernel(op, format=name + laid, **static)

    def floats(*shape):
        return pages.put(rng.standard_normal(shape).astype(np.float32), last)

    def run(wanted, made, *given):
        out = pages.put(np.full_like(wanted, np.nan), last)
        assert made(*given, out) == 0
        assert np.allclose(out, wanted, rtol=0, atol=0.02 * np.abs(wanted).max())

    for rows, blocks, m in [(1, 1, 1), (3, 5, 2), (7, 2, 5), (33, 3, 19)]:
        k = blocks * f.elements
        w = pages.put(random_rows(f, (rows, blocks * f.nbytes), rng), last)
        numbers, x, left = decode(f, w), floats(m, k), floats(m, rows)
        run(numbers, kernel("dequantize"), w)
        for activations in ("q8", "f32"):
            run(numbers @ x[0], kernel("quant_matvec", activations=activations), w, pages.put(x[0], last))
            run(x @ numbers.T, kernel("quant_matmul", activations=activations), x, w)
        laid = pages.put(interleaved(w, f), last)
        run(numbers @ x[0], kernel("quant_matvec", "_r16"), laid, pages.put(x[0], last))
        run(x @ numbers.T, kernel("quant_matmul", "_r16"), x, laid)
        run(numbers, kernel("dequantize", "_r16"), laid)
        run(left[0] @ numbers, kernel("quant_matvec_colmajor"), w, pages.put(left[0], last))
        run(left @ numbers, kernel("quant_matmul_colmajor"), left, w)
