"""A matrix in 4.5 bits an element: quantize, multiply from the blocks, look at the error."""

import numpy as np
import trueno

rng = np.random.default_rng(0)
W = rng.standard_normal((256, 1024), np.float32)
x = rng.standard_normal(1024, np.float32)
exact = W @ x

for name in ("q8_0", "q6_k", "q4_k", "q2_k"):
    q = trueno.quantize(W, name)
    off = np.linalg.norm(q @ x - exact) / np.linalg.norm(exact)
    print(f"{name}: {q.nbytes / W.nbytes:.0%} of the bytes, {off:.1%} off: {q}")

q = trueno.quantize(W, "q4_k")
print("x @ q.T is q @ x:  ", np.allclose(x @ q.T, q @ x))
print("a view, not a copy:", np.shares_memory(q.T.bytes, q.bytes))
