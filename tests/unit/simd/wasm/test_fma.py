"""The fused multiply-add of pages: every result is the exact one, rounded once."""

import base64
import json
import shutil
import subprocess
from fractions import Fraction

import numpy as np
import pytest

pytest.importorskip("numba", reason="needs numba")
from seeds import fresh_seed
from trueno_simd.wasm import linker
from trueno_simd.wasm.program import HOST

from .test_linker import object_of

TEXT = (
    HOST
    + """
declare float @llvm.fma.f32(float, float, float)
define float @fused(float %a, float %b, float %c) {
  %y = call float @llvm.fma.f32(float %a, float %b, float %c)
  ret float %y }
"""
)
RUN = """
const { code, x } = JSON.parse(require("fs").readFileSync(0));
const { fused } = new WebAssembly.Instance(new WebAssembly.Module(Buffer.from(code, "base64")), {}).exports;
const number = (word) => word === "nan" ? NaN : word === "inf" ? Infinity : word === "-inf" ? -Infinity : word;
console.log(JSON.stringify(x.map((row) => String(fused(...row.map(number))))));
"""
SPECIAL = [("inf", 1.0, "-inf"), ("inf", 0.0, 1.0), (1.0, "inf", "-inf"), ("nan", 1.0, 1.0), (2.0, 3.0, "-inf"),
           (3e38, 2.0, -3e38), (3e38, 2.0, 3e38), (-0.0, 1.0, -0.0), (0.0, 1.0, -0.0)]  # fmt: skip


def rounded(q: Fraction) -> float:
    """The float32 nearest to a number, ties to even."""
    if q == 0:
        return 0.0
    size = abs(q)
    power = size.numerator.bit_length() - size.denominator.bit_length()
    power = max(power - (Fraction(2) ** power > size), -126)
    unit = Fraction(2) ** (power - 23)
    value = round(size / unit) * unit  # Python rounds ties to even
    return (-1 if q < 0 else 1) * (float(value) if value < Fraction(2) ** 128 else np.inf)


def numbers(rng: np.random.Generator, count: int) -> np.ndarray:
    """Random ones, ones whose sum cancels, ones next to a tie, and ones whose result is subnormal."""
    x = rng.choice([-1, 1], (count, 3)) * (1 + rng.integers(0, 1 << 23, (count, 3)) / 2**23)
    x *= 2.0 ** rng.integers(-60, 60, (count, 3))
    cancels, ties, small = (slice(i * count // 4, (i + 1) * count // 4) for i in (1, 2, 3))
    x = x.astype(np.float32).astype(np.float64)
    x[cancels, 2] = -(x[cancels, 0] * x[cancels, 1]).astype(np.float32) * (1 + rng.integers(-3, 4, count // 4) / 2**23)
    x[ties, :2] = 1 + rng.integers(0, 1 << 12, (count // 4, 2)) / 2**12
    x[ties, 2] = rng.choice([-1, 1], count // 4) * 2.0 ** -rng.integers(40, 60, count // 4)
    x[small] *= [2.0**-70, 2.0**-60, 2.0**-100]
    return x.astype(np.float32)


def test_every_result_is_rounded_once() -> None:
    if (node := shutil.which("node")) is None:
        pytest.skip("no node: apt-get install nodejs")
    seed = fresh_seed()
    print("seed", seed)
    x = numbers(np.random.default_rng(seed), 4000)
    code = linker.link(object_of(TEXT), ("fused",), 1 << 17, 1 << 16)
    rows = [*([float(v) for v in row] for row in x), *SPECIAL]
    request = json.dumps({"code": base64.b64encode(code).decode(), "x": rows})
    done = subprocess.run([node, "-e", RUN], input=request, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    got = [float(word.replace("Infinity", "inf")) for word in json.loads(done.stdout)]
    for (a, b, c), y in zip(rows[: len(x)], got, strict=False):
        assert y == rounded(Fraction(a) * Fraction(b) + Fraction(c)), (a, b, c)
    wanted = [np.nan, np.nan, np.nan, np.nan, -np.inf, 3e38, np.inf, 0.0, 0.0]
    assert np.array_equal(got[len(x) :], np.float32(wanted), equal_nan=True)
