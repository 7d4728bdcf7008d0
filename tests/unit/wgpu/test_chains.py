"""Random chains of row ops in one kernel each: fused results and single calls within one bound.

Each new chain is a shader to compile, so they are few.  CHAIN_SEED=7 CHAINS=100 python -m pytest … draws others.
"""

import os
from typing import Any

import numpy as np
import pytest
import trueno
from unit import chains

pytest.importorskip("wgpu")

SEED, COUNT = int(os.environ.get("CHAIN_SEED", "20")), int(os.environ.get("CHAINS", "8"))
SHAPES = ((300,), (3, 5), (4, 5, 6), (70, 9), (7, 133), (1, 40), (2, 1100))
"""One row; few rows; stacked ones; narrow rows, and such as more lanes take."""
LONGEST = 6


@pytest.mark.parametrize("seed", range(SEED, SEED + COUNT))
def test_a_random_chain_stays_within_its_bound(seed: int, chosen: None) -> None:
    from trueno.discovery import registry

    rng = np.random.default_rng(seed)
    shape = SHAPES[rng.integers(len(SHAPES))]
    steps: list[Any] = [step for step in chains.drawn(rng, LONGEST) if step[0] not in chains.PRODUCTS]
    print(f"seed {seed}: {shape} {steps}")
    with trueno.use("wgpu"), trueno.Batch("wgpu") as b:
        run = chains.Run(b, shape, steps, "f4", seed, registry.load("wgpu").accuracy)
        b.execute()
        print(b)
        seen = [k for k, h in enumerate(run.handles) if h.value in b._replay.schedule.results]
        for k in range(len(run.handles)):
            run.judge(k, run.plain[k])
        for k in seen:
            run.judge(k, b.read(run.handles[k]))
