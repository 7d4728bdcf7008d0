"""Every attack for some seconds, with a seed of its own each time; `make hostile` goes on for longer.

TRUENO_HOSTILE_SEED gives the seed.  All together take about two minutes of one core.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from seeds import fresh_seed

from hostile.attack import names

ROOT = Path(__file__).parents[2]
SECONDS = {"calls": 24.0, "structured": 16.0, "batches": 10.0, "threads": 10.0}
"""How long an attack goes on; each of its backends has at least one turn."""


@pytest.mark.skipif(sys.platform != "linux", reason="forks, signals, and processes by their group")
@pytest.mark.parametrize("name", names())
def test_attack(name: str) -> None:
    seed = os.environ.get("TRUENO_HOSTILE_SEED") or str(fresh_seed() or 1)
    minutes = SECONDS.get(name, 6.0) / 60
    done = subprocess.run(
        [sys.executable, "-m", "tests.hostile", "--attack", name, "--seed", seed, "--minutes", str(minutes)],
        cwd=ROOT, capture_output=True, text=True, timeout=900,
    )  # fmt: skip
    assert done.returncode == 0, f"TRUENO_HOSTILE_SEED={seed}\n{done.stdout[-6000:]}\n{done.stderr[-2000:]}"
