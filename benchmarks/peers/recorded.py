"""ggml's speed as it was once measured, for machines where it is not installed: marked `recorded`, and scaled.

Measured on two cores of an AMD EPYC (Zen 5, AVX-512 VNNI), llama.cpp of autumn 2026, each the better of its plain and
its rearranged layout.  Another machine is taken to be as much faster as it reads memory faster: from cache for what was
in cache and for whatever is bound by arithmetic, which is rough, and from memory for what was streamed.
"""

from collections.abc import Callable
from functools import cache

import numpy as np
import trueno

from benchmarks.timing import bind, once

NAME = "ggml (recorded)"
CACHE, MEMORY = "cache", "streaming"
READ = {(CACHE, 1): 113e9, (CACHE, 2): 200e9, (MEMORY, 1): 41e9, (MEMORY, 2): 79e9}
"""Bytes a second that one and two threads of that machine read."""

MATVEC_US: dict[tuple[str, int, str], tuple[int, int]] = {  # format, columns, where from: one thread, two; 4 096 rows
    ("q4_k", 4096, CACHE): (275, 146), ("q4_k", 4096, MEMORY): (326, 183),
    ("q4_k", 11008, CACHE): (801, 415), ("q4_k", 11008, MEMORY): (946, 513),
    ("q5_k", 4096, CACHE): (458, 235), ("q5_k", 4096, MEMORY): (488, 308),
    ("q5_k", 11008, CACHE): (1246, 634), ("q5_k", 11008, MEMORY): (1352, 785),
    ("q6_k", 4096, CACHE): (334, 177), ("q6_k", 4096, MEMORY): (436, 294),
    ("q6_k", 11008, CACHE): (1107, 487), ("q6_k", 11008, MEMORY): (1290, 767),
    ("q8_0", 4096, CACHE): (459, 230), ("q8_0", 4096, MEMORY): (573, 361),
    ("q8_0", 11008, CACHE): (1570, 806), ("q8_0", 11008, MEMORY): (1628, 970),
    ("q4_0", 4096, CACHE): (329, 169), ("q4_0", 4096, MEMORY): (358, 186),
    ("q4_0", 11008, CACHE): (921, 480), ("q4_0", 11008, MEMORY): (981, 511),
    ("iq4_xs", 4096, CACHE): (471, 242), ("iq4_xs", 4096, MEMORY): (499, 319),
    ("iq4_xs", 11008, CACHE): (1264, 650), ("iq4_xs", 11008, MEMORY): (1340, 783),
}  # fmt: skip
MATMUL_GFLOPS: dict[tuple[str, int], tuple[int, int]] = {  # format, rows of x: one thread, two; 4096×4096
    ("q4_k", 8): (195, 368), ("q4_k", 32): (466, 906), ("q4_k", 128): (515, 1059), ("q4_k", 512): (541, 1069),
    ("q6_k", 8): (110, 212), ("q6_k", 32): (287, 558), ("q6_k", 128): (409, 791), ("q6_k", 512): (406, 791),
}  # fmt: skip
MILLION_A_SECOND: dict[str, dict[str, float]] = {  # elements, one thread
    "dequantize": {
        "q4_0": 3120, "q5_0": 1806, "q8_0": 10244, "q2_k": 1539, "q3_k": 1105, "q4_k": 9142, "q5_k": 6441,
        "q6_k": 1442, "iq4_xs": 1400,
    },
    "quantize_rows": {
        "q4_0": 800, "q8_0": 385, "q2_k": 22, "q3_k": 95, "q4_k": 20, "q5_k": 24, "q6_k": 39, "iq4_nl": 5.8,
    },
}  # fmt: skip


@cache
def faster(where: str, threads: int, count: Callable[[int], None]) -> float:
    """By how much this machine reads faster than that one did; `count` sets the threads of our kernels."""
    x = np.ones((8 if where == CACHE else 256) << 18, np.float32)
    call = bind(trueno.sum, x)
    call()
    count(threads)
    best = min(once(call) for _ in range(20))
    return x.nbytes / best / READ[where, min(threads, 2)]


def matvec(name: str, k: int, where: str, threads: int) -> float | None:
    """Seconds that a mat-vec took, 4 096 rows of k; None if it was not measured."""
    microseconds = MATVEC_US.get((name, k, where))
    return microseconds and microseconds[threads - 1] * 1e-6


def matmul(name: str, m: int, threads: int) -> float | None:
    """Seconds of x[m, 4096] times a matrix of 4 096 rows."""
    gflops = MATMUL_GFLOPS.get((name, m))
    return gflops and 2 * m * 4096 * 4096 / gflops[threads - 1] / 1e9


def rows(op: str, name: str, elements: int) -> float | None:
    """Seconds to quantize or dequantize so many elements."""
    rate = MILLION_A_SECOND[op].get(name)
    return rate and elements / rate / 1e6
