"""Rows shorter than a loop's vectors, which are taken in tiles: every length, and rows that fill no tile."""

import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

pytest.importorskip("numba", reason="needs numba")

import trueno
from seeds import fresh_seed
from trueno_simd.llvm import isa

SEED = fresh_seed(__name__)


def check(dtype: str, seed: int) -> None:
    """Compare each length with NumPy's results in float64."""
    rng = np.random.default_rng(seed)
    close = {"rtol": 1e-5, "atol": 1e-6} if dtype == "float32" else {"rtol": 1e-12, "atol": 1e-13}
    with trueno.use("simd"):
        for n in range(1, 67):
            x = (rng.random((int(rng.integers(64, 200)), n)) * 6 - 2).astype(dtype)
            w, b = rng.random(n).astype(dtype), rng.random(n).astype(dtype)
            exact: Any = x.astype(np.float64)
            powers = np.exp(exact - exact.max(-1, keepdims=True))
            centred = exact - exact.mean(-1, keepdims=True)
            spread = np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5)
            expected = {
                "sum": exact.sum(-1), "max": exact.max(-1), "argmin": exact.argmin(-1),
                "softmax": powers / powers.sum(-1, keepdims=True),
            }  # fmt: skip
            for name, values in expected.items():
                result = getattr(trueno, name)(x)
                assert np.allclose(result, values, **close), f"seed {seed}: {name} of {x.shape}"
            result = trueno.layer_norm(x, w, b, eps=1e-5)
            if n > 1:
                assert np.allclose(result, centred / spread * w + b, rtol=1e-4, atol=1e-5), f"seed {seed}: {x.shape}"


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_every_length(dtype: str) -> None:
    check(dtype, SEED)


@pytest.mark.slow
@pytest.mark.parametrize("level", ["sse2", "avx2"])
def test_every_length_at_other_levels(level: str) -> None:
    if isa.detect().level not in isa.X86 or isa.X86.index(level) >= isa.X86.index(isa.detect().level):
        pytest.skip(f"{isa.detect().level} has no level {level} below it")
    code = f"from unit.simd.test_short_rows import check; check('float32', {SEED})"
    places = os.pathsep.join(path for path in sys.path if path)
    subprocess.run([sys.executable, "-c", code], env=os.environ | {"TRUENO_MAX_ISA": level, "PYTHONPATH": places},
                   check=True, timeout=300)  # fmt: skip


def test_a_row_beside_a_tile_keeps_its_neighbours() -> None:
    """Squares write nothing beside their tile."""
    with trueno.use("simd"):
        for n in (2, 4, 7, 8, 15, 16, 31, 32, 63, 64):
            room = np.full((64 * n + 2 * n,), 7.0, np.float32)
            out = room[n:-n].reshape(64, n)
            trueno.softmax(np.ones((64, n), np.float32), out=out)
            assert np.all(room[:n] == 7.0) and np.all(room[-n:] == 7.0)
            assert np.allclose(out, 1 / n)
