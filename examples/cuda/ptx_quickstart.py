"""From Python to PTX to a GPU: y = factor · x + y, in three steps.  `python examples/cuda/ptx_quickstart.py`

A kernel is a Python function that runs once, when it is built, and writes PTX as it runs.  No compiler of C takes part:
the driver of the GPU turns the text into machine code.
"""
# mypy: disable-error-code="valid-type"

import re

import numpy as np
import trueno
import trueno_cuda
from measure import BACKEND, GPU, check, describe, device, measure, say_where
from trueno_cuda.ptx import f32, kernel, ptr, u32


# 1. Write it.  A thread has V neighbours: four float32 are 16 bytes, the most that one instruction moves.
@kernel(threads=256)
def scale_add(k, x: ptr(f32), y: ptr(f32), n: u32, factor: f32, *, V: int = 4):
    """y = factor · x + y.   Floor: 12 bytes an element, two reads and a write."""
    first = (k.ctaid * k.threads + k.tid) * V
    live = first < n  # a predicate of the GPU: masked threads read zeros, and write nothing
    xs, ys = x.load(first, vec=V, where=live), y.load(first, vec=V, where=live)
    y.store(first, [k.fma(a, factor, b) for a, b in zip(xs, ys, strict=True)], where=live)


def main() -> None:
    say_where()
    n = 1 << 26 if GPU else 4000

    # 2. Build it, for the architecture that is here.  V is a constant: another value is another text.
    built = scale_add.build(arch=device().arch)
    describe(built)
    head, _, body = built.text.partition("\n{\n")
    print("\n".join(f"    {line}" for line in head.splitlines()[5:]))
    print("\n".join(f"    {line.strip()}" for line in body.splitlines() if re.search(r"(ld|st)\.global|fma", line)))

    # 3. Launch it.  `prepared` fixes the grid and the whole numbers; arrays and floats go with each call.
    rng = np.random.default_rng()
    x, y = (rng.standard_normal(n).astype(np.float32) for _ in range(2))
    there_x, there_y = trueno.to(x, BACKEND), trueno.to(y, BACKEND)
    blocks = -(-n // (built.threads[0] * 4))
    launch = trueno_cuda.prepared(built, blocks, (n,), backend=BACKEND)
    launch(there_x, there_y, 0.5)

    # One rounding: half a unit in the last place of float32.
    wanted = 0.5 * x.astype(np.float64) + y
    check("0.5 x + y", there_y, wanted, 2.0**-24 * np.abs(wanted) + 1e-45)
    measure(lambda: launch(there_x, there_y, 0.5), nbytes=12 * n)


if __name__ == "__main__":
    main()
