"""Large products, and conversions, let other Python threads run."""

import sys
import threading
import time

import numpy as np
import pytest

pytest.importorskip("numba", reason="needs numba")
from trueno.formats import FORMATS
from trueno.formats.samples import random_rows
from unit.simd.structured import structured_kernel

N = 4096
STATIC = {
    "quant_matvec": {"activations": "q8"}, "quant_matvec_colmajor": {}, "quant_matmul": {"activations": "q8"},
    "quant_matmul_colmajor": {}, "dequantize": {}, "quantize_rows": {}, "quantize_rows_weighted": {},
}  # fmt: skip


def arguments(op, name):
    f, rng = FORMATS[name], np.random.default_rng(20261204)
    w, x = random_rows(f, (N, f.row_bytes(N)), rng), rng.standard_normal((N, N)).astype(np.float32)
    return {
        "quant_matvec": (w, x[0], np.empty(N, np.float32)),
        "quant_matvec_colmajor": (w, x[0], np.empty(N, np.float32)),
        "quant_matmul": (x[:4], w, np.empty((4, N), np.float32)),
        "quant_matmul_colmajor": (x[:4], w, np.empty((4, N), np.float32)),
        "dequantize": (w, x),
        "quantize_rows": (x[:64], w[:64]),
        "quantize_rows_weighted": (x[:64], abs(x[0]), w[:64]),
    }[op]


@pytest.mark.parametrize("op", STATIC)
def test_another_thread_runs_while_a_kernel_does(op):
    """The interpreter takes the lock from no thread, so the other thread runs where a kernel lets it."""
    kernel, args = structured_kernel(op, format="q4_0", **STATIC[op]), arguments(op, "q4_0")
    assert kernel(*args) == 0  # threads are started
    seen, end = [0], threading.Event()

    def count():
        while not end.is_set():
            seen[0] += 1
            time.sleep(0)  # and hands the lock back

    other, interval = threading.Thread(target=count, daemon=True), sys.getswitchinterval()
    other.start()
    try:
        sys.setswitchinterval(1000)
        for _ in range(500):
            before = seen[0]
            kernel(*args)
            if seen[0] != before:
                return
        raise AssertionError(f"{op} holds the interpreter's lock all along")
    finally:
        sys.setswitchinterval(interval)
        end.set()
        other.join()
