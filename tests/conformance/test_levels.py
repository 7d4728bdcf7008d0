"""The SIMD backend limited to each ISA level of this machine, each in a child process.

The level is fixed when the first kernel is compiled.  A representative list of ops covers every element
kind and every fold; every op at the native level is test_ops' business.
"""

import json
import os
import subprocess
import sys

import pytest

pytest.importorskip("trueno_simd")
import trueno
from trueno.ops import TABLE
from trueno.programs.program import ELEMENTS, FOLDS

# fmt: off
FLOAT32 = (
    "add", "sub", "mul", "div", "neg", "maximum", "minimum", "copysign", "fma", "pow",
    "abs", "sqrt", "rsqrt", "exp", "exp2", "expm1", "ln", "log1p", "log2", "log10",
    "sin", "cos", "atan", "tanh", "floor", "ceil", "round", "trunc", "fract", "gelu",
    "hardswish", "leaky_relu", "softplus", "asinh", "sinh", "softmax", "layer_norm", "argmax", "argmin", "min",
    "max", "variance", "sum", "sum_kahan", "matmul", "transpose", "convolve2d",
)
FLOAT64 = (
    "gelu", "softplus", "pow", "sin", "ln", "softmax", "argmax", "sum", "variance", "matmul",
)
# fmt: on
LEVELS = ("sse2", "avx", "avx2", "avx512")
CHILD = """
import json, sys
from trueno.ops import TABLE
from trueno.testing.checks import check_in_place, check_values
import trueno
entry = trueno.backends()["simd"]
assert entry.available, entry.reason
CASES = "kinds, 7", "kinds, 65", "kinds, 1023", "one row of 4097", "normal", "long row", "3-D"
wrong = []
for dtype, names in json.loads(sys.argv[1]).items():
    for name in names:
        try:
            long = name in ("gelu", "sum", "softmax")
            check_values(TABLE[name], "simd", dtype, long=long, chosen=lambda c: any(w in c.label for w in CASES))
            if name in ("gelu", "softmax", "add"):
                check_in_place(TABLE[name], "simd", dtype)
        except Exception as error:
            wrong.append(f"{name} {dtype}: {error}")
from trueno_simd.llvm import isa  # now that Numba has its target: what it really compiled for
assert entry.devices[0].isa == isa.level(), (entry.devices, isa.level())
print(json.dumps({"isa": isa.level(), "wrong": wrong}))
"""


def _host_levels() -> list[str]:
    entry = trueno.backends().get("simd")
    if entry is None or not entry.available or not entry.devices:
        return []
    isa = entry.devices[0].isa
    return list(LEVELS[: LEVELS.index(isa) + 1]) if isa in LEVELS else [isa]


def test_the_list_covers_every_kind() -> None:
    """Every element kind and fold that the table uses is compiled at every level."""
    used: dict[str, set[str]] = {}
    for op in TABLE.values():
        if not op.structured:
            used[op.name] = {n.kind for n in op.program().nodes} & {*ELEMENTS, *FOLDS}
    everything = set().union(*used.values())
    covered = set().union(*(used[name] for name in FLOAT32 if name in used))
    assert everything - covered == set()


@pytest.mark.slow
@pytest.mark.skipif(not _host_levels(), reason="simd is not available")
@pytest.mark.parametrize("level", _host_levels())
def test_level(level: str) -> None:
    """Right at this level, and really limited to it; at the machine's own level the values are test_ops' business."""
    own = level == _host_levels()[-1]
    given = {"float32": FLOAT32[:1], "float64": FLOAT64[:1]} if own else {"float32": FLOAT32, "float64": FLOAT64}
    environment = {k: v for k, v in os.environ.items() if k != "TRUENO_BACKEND"} | {"TRUENO_MAX_ISA": level}
    child = subprocess.run(
        [sys.executable, "-c", CHILD, json.dumps(given)], env=environment, capture_output=True, text=True, timeout=900
    )
    assert child.returncode == 0, child.stderr[-2000:]
    report = json.loads(child.stdout.splitlines()[-1])
    assert report["isa"] == level
    assert report["wrong"] == [], "\n".join(report["wrong"])
