"""Random chains, compiled: fused results and single calls within one bound.

Each new chain costs seconds of compiling, so they are few.  CHAIN_SEED=7 CHAINS=100 python -m pytest … draws others.
"""

import os

import numpy as np
import pytest
import trueno
from trueno.discovery import registry
from unit import chains

pytest.importorskip("numba")

SEED, COUNT = int(os.environ.get("CHAIN_SEED", "20")), int(os.environ.get("CHAINS", "12"))
SHAPES = ((300,), (3, 5), (4, 5, 6), (70, 9), (70, 33), (1, 40))
"""One row; few rows; stacked ones; narrow rows in tiles, and such as are too long for that."""
LONGEST = 6


@pytest.mark.parametrize("seed", range(SEED, SEED + COUNT))
def test_a_random_chain_stays_within_its_bound(seed):
    rng = np.random.default_rng(seed)
    shape = SHAPES[rng.integers(len(SHAPES))]
    steps = chains.drawn(rng, LONGEST)
    dtype = "f4" if rng.random() < 0.7 else "f8"
    print(f"seed {seed}: {dtype} {shape} {steps}")
    with trueno.use("simd"), trueno.Batch("simd") as b:
        run = chains.Run(b, shape, steps, dtype, seed, registry.load("simd").accuracy)
        if rng.random() < 0.5:
            b.keep(run.handles[rng.integers(len(run.handles))])
        b.execute()
        print(b)
        seen = [k for k, h in enumerate(run.handles) if h.value in b._replay.schedule.results]
        assert seen or len(run.handles) == 4
        for k in range(len(run.handles)):
            run.judge(k, run.plain[k])
        for k in seen:
            run.judge(k, b.read(run.handles[k]))
