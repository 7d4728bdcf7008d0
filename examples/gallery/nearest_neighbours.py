"""Nearest neighbours among quantized vectors, by `quant_matmul` and `topk`.

A search engine keeps millions of vectors.  In blocks of 8 bits or fewer an element they take a quarter of the memory
or less, and products are computed from the blocks.  The price is that a few of the ten nearest are missed.
"""

import matplotlib.pyplot as plt
import numpy as np
import trueno

COUNT, DIMENSIONS, QUERIES, NEAREST = 20_000, 256, 200, 10
FORMATS = ("q8_0", "q6_k", "q5_k", "q4_k", "q3_k", "q2_k")
rng = np.random.default_rng(11)

# Vectors lie around 500 topics, as embeddings of texts do; a query lies near one of them.
topics = rng.standard_normal((500, DIMENSIONS)).astype(np.float32)
vectors = topics[rng.integers(0, 500, COUNT)] + 0.7 * rng.standard_normal((COUNT, DIMENSIONS)).astype(np.float32)
vectors = trueno.normalize(vectors)
queries = vectors[rng.choice(COUNT, QUERIES)] + 0.03 * rng.standard_normal((QUERIES, DIMENSIONS)).astype(np.float32)

_, exact = trueno.topk(trueno.matmul(queries, vectors.T), NEAREST)


def recall(found):
    """The share of the exact nearest that `found` has."""
    return np.mean([len(np.intersect1d(a, b)) / NEAREST for a, b in zip(found, exact, strict=True)])


points = {}
for name in FORMATS:
    blocks = trueno.quantize(vectors, name)
    _, found = trueno.topk(trueno.quant_matmul(queries, blocks), NEAREST)
    # Twice as many candidates, ordered again by float32: what engines do when they have the vectors on a disk.
    _, many = trueno.topk(trueno.quant_matmul(queries, blocks), 2 * NEAREST)
    again = [
        row[np.argsort(-(vectors[row] @ q), kind="stable")[:NEAREST]] for row, q in zip(many, queries, strict=True)
    ]
    points[name] = blocks.nbytes / vectors.nbytes, recall(found), recall(again)
    print("{}: {:4.0%} of the bytes, {:5.1%} of the ten nearest, {:5.1%} after reordering".format(name, *points[name]))

sizes, found, again = np.array(list(points.values())).T
figure, panel = plt.subplots(figsize=(6.5, 3.8), constrained_layout=True)
panel.plot(sizes * 32, again, "o-", label="20 candidates, reordered in float32")
panel.plot(sizes * 32, found, "o-", label="10 candidates")
for name, size, y in zip(points, sizes * 32, found, strict=True):
    panel.annotate(name, (size, y), (4, -12), textcoords="offset points", fontsize=8)
panel.margins(0.08)  # room for the names at the edges
panel.set(xlabel="bits an element", ylabel="recall of the ten nearest", ylim=(None, 1.01))
panel.grid(alpha=0.3)
panel.legend()
plt.show()
