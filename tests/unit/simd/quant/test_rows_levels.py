"""Rows are decoded and encoded to the same bits at each ISA level below the host's, each in a child process."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("llvmlite", reason="needs llvmlite")
from trueno_simd.llvm import isa

HOST = isa.detect().level
BELOW = isa.X86[: isa.X86.index(HOST)] if HOST in isa.X86 else ()
GOLDEN = Path(__file__).parents[3] / "golden/ggml/quant.npz"
CHILD = """
import json, sys
import numpy as np
from trueno_simd.llvm import isa
assert isa.apply() is None
from trueno.formats import WEIGHTS
from unit.simd.structured import structured_kernel
g, wrong = np.load(sys.argv[1]), []
def made(op, name): return structured_kernel(op, format=name)
for name in WEIGHTS:
    T = name.upper()
    for data, values in (("q", "dq"), ("rb", "rbdq")):
        y = np.empty(g[f"{values}_{T}"].shape, "f4")
        assert made("dequantize", name)(g[f"{data}_{T}"], y) == 0
        if y.tobytes() != g[f"{values}_{T}"].tobytes():
            wrong.append(f"dequantize {name}")
    w = np.empty_like(g[f"q_{T}"])
    assert made("quantize_rows", name)(g["x"], w) == 0
    if not np.array_equal(w, g[f"q_{T}"]):
        wrong.append(f"quantize_rows {name}")
for name in ("q2_k", "q3_k", "q5_0", "q5_1", "iq4_nl"):  # one of each way to search
    w = np.empty_like(g[f"qim_{name.upper()}"])
    assert made("quantize_rows_weighted", name)(g["x"], g["imatrix"], w) == 0
    if not np.array_equal(w, g[f"qim_{name.upper()}"]):
        wrong.append(f"quantize_rows_weighted {name}")
print(json.dumps({"isa": isa.level(), "wrong": wrong}))
"""


@pytest.mark.slow
@pytest.mark.parametrize("level", BELOW)
def test_the_bits_are_the_same(level: str) -> None:
    environment = os.environ | {"TRUENO_MAX_ISA": level, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    words = [sys.executable, "-c", CHILD, str(GOLDEN)]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == {"isa": level, "wrong": []}
