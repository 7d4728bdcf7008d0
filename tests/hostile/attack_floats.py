"""The caller's rounding and flushing changed at any moment: every CPU backend gives the bits of a clean process.

Trueno computes in the IEEE default environment (round to nearest even, subnormals kept), whatever the caller has set,
and restores the caller's.  What was compiled meanwhile and kept is read by a clean process at the end.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

from . import environments
from .attack import CPU, Tally
from .children import folder
from .driver import ROOT, environment

BACKENDS = CPU
SHARE = 1.5
LIMIT = 400.0
MOMENTS = ("import", "first", "later", "between", "thread")


def case(rng: np.random.Generator, backend: str, tally: Tally) -> None:
    if not environments.available():
        return
    seed = int(rng.integers(1 << 30))
    moment, mode = str(rng.choice(MOMENTS)), str(rng.choice(list(environments.MODES)))
    with folder() as clean, folder() as changed:
        wanted = _bits(clean, backend, seed, "never", "up")
        for place, when in ((changed, moment), (changed, "never")):
            got = _bits(place, backend, seed, when, mode)
            tally.calls, tally.states = tally.calls + len(got), tally.states + 1
            wrong = [key for key in wanted if got.get(key) != wanted[key]]
            said = f"under {mode!r} ({moment})" if when == moment else f"after {mode!r} ({moment}) was there to compile"
            assert not wrong, f"{backend} {said}, seed {seed}, differs from a clean process: {wrong[:4]}"


def _bits(place: Path, backend: str, seed: int, moment: str, mode: str) -> dict[str, Any]:
    given = [backend, str(seed), moment, mode]
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-m", f"{__package__}.floats_child", *given], cwd=ROOT,
        env=environment(TRUENO_CACHE_DIR=str(place)), capture_output=True, text=True, timeout=200,
    )  # fmt: skip
    assert done.returncode == 0, f"floats_child {' '.join(given)}: exit code {done.returncode}\n{done.stderr[-1500:]}"
    report: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return report
