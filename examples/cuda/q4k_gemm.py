"""A linear layer with 4-bit weights: y = x wᵀ, w in ggml's q4_k.  `python examples/cuda/q4k_gemm.py`

In q4_k, 256 weights are a block of 144 bytes: codes of 4 bits, and for each 32 of them a scale and a least value of 6
bits.  How fast w is read limits a product with a few rows of x, so its kernel decodes the blocks in registers: they are
a seventh of float32's bytes.  With many rows arithmetic decides, and tensor cores multiply.  The backend chooses the
kernel by the number of rows.  In small, as on the emulator, most of what is read is x, which each block reads again.

x may be rounded, too: `activations="q8"`, the default and what ggml does, multiplies integers; "f32" takes x as it is.
"""

import sys

import numpy as np
import trueno
from measure import BACKEND, GPU, measure, say_where

ALLOWED = {"f32": 1e-6, "q8": 3e-4}
"""The error's share of the result, both squared and summed (NMSE), by what is done to x."""


def main() -> None:
    say_where()
    rows, columns, counts = (18944, 3584, (1, 8, 512)) if GPU else (64, 256, (1, 3, 16))
    rng = np.random.default_rng()
    w = trueno.quantize(rng.standard_normal((rows, columns)).astype(np.float32) / columns**0.5, "q4_k")
    there = trueno.to(w, BACKEND)
    print(f"w is {rows} x {columns}: {w.nbytes:,} bytes in q4_k, {4 * rows * columns:,} in float32")
    decoded = trueno.dequantize(w).astype(np.float64)  # what the blocks mean, which the product is compared with

    right = True
    for count in counts:
        x = rng.standard_normal((count, columns)).astype(np.float32)
        x_there, wanted = trueno.to(x, BACKEND), x.astype(np.float64) @ decoded.T
        for activations, allowed in ALLOWED.items():
            print(f"{count} row{'s' * (count > 1)}, activations {activations}:")
            y = measure(
                lambda x=x_there, how=activations: trueno.quant_matmul(x, there, activations=how),
                nbytes=w.nbytes + x.nbytes + wanted.size * 4,
                flops=2 * count * rows * columns,
            )
            error = trueno.numpy(y).astype(np.float64) - wanted
            nmse = float((error**2).sum() / (wanted**2).sum())
            good = nmse <= allowed  # a NaN is not
            right = right and good
            print(f"  NMSE {nmse:.2g}, {allowed:.2g} allowed: {'right' if good else 'WRONG'}")
    if not right:
        sys.exit(1)


if __name__ == "__main__":
    main()
