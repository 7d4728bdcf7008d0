"""Guarded kernels: their status says exactly what the results hold, and looking at them costs no vector register."""

import json
import os
import re
import subprocess
import sys

import numpy as np
import pytest

pytest.importorskip("numba", reason="needs numba")
from trueno.discovery.protocol import Call
from trueno.ops import TABLE
from trueno.testing import verdict
from trueno_simd.backend import SimdBackend

BACKEND = SimdBackend()
SHAPES = [(1,), (70,), (5000,), (150_001,), (3, 5), (200, 4), (70, 31), (9, 130), (6, 30_000), (40_000, 4)]
"""One row and many, narrow ones, and those that the thread pool takes; a tile has 64 rows, a piece 49 152 elements."""
OPS = ["add", "exp", "softmax", "sum", "max", "argmax", "residual_rms_norm", "minmax_normalize", "sum_kahan"]


def kernel_of(name, shape, dtype, guarded, layout=None):
    op = TABLE[name]
    size = int(np.prod(shape)).bit_length()
    static = tuple((p.name, p.default) for p in op.static)
    return BACKEND.kernel(Call(op, np.dtype(dtype), layout or op.layout, len(shape), (size,), static, "host", guarded))


def results_of(op, shape, dtype):
    seen = []
    for spec in op.signature.outputs:
        along = op.over is None or op.over in spec.dims
        seen.append(np.full(shape if along else shape[:-1], 7, np.int64 if spec.index else dtype))
    return seen


def bits(results):
    floats = [r for r in results if r.dtype.kind == "f"]
    return any(np.isnan(r).any() for r in floats) * 1 | any(np.isinf(r).any() for r in floats) * 2


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", OPS)
def test_status_is_exactly_what_the_results_hold(name, shape):
    rng = np.random.default_rng(23)
    print("seed 23")
    op = TABLE[name]
    params = [p.default for p in op.params if p.symbolic]
    plain, guarded = (kernel_of(name, shape, "f4", g) for g in (False, True))
    for special in ([], [np.nan], [np.inf], [-np.inf], [np.nan, np.inf], [3e38, 3e38]):
        for _ in range(3):  # where in the array: a lane, a tile, a piece
            kinds = {"e": shape, "w": shape[-1:], "r": shape[:-1]}
            operands = [rng.normal(size=kinds[k]).astype("f4") for k in op.layout]
            flat = operands[int(rng.integers(len(operands)))].reshape(-1)
            flat[rng.integers(flat.size, size=len(special))] = special
            wanted, got = results_of(op, shape, "f4"), results_of(op, shape, "f4")
            assert plain(*operands, *params, *wanted) == 0
            status = guarded(*operands, *params, *got)
            assert status == bits(got) == bits(wanted)
            # With fewer registers one may add in another order than the other: each is judged by the op's own bound.
            for results in (got, wanted):
                judged = verdict(op, operands, {}, "f4", results, BACKEND.accuracy)
                assert judged.ok, str(judged)


@pytest.mark.parametrize("layout", ["ee", "eu", "er", "ew"])
@pytest.mark.parametrize("shape", [(300, 3), (40, 40), (3, 50_000)], ids=str)
def test_status_of_operands_of_every_kind(shape, layout):
    kinds = {"e": shape, "w": shape[-1:], "r": shape[:-1], "u": ()}
    kernel = kernel_of("div", shape, "f8", True, layout)
    x, y = (np.full(kinds[k], 2.0) for k in layout)
    out = np.empty(shape)
    assert kernel(x, y, out) == 0
    y.reshape(-1)[-1] = 0
    assert kernel(x, y, out) == bits([out]) == 2
    x[:] = 0
    assert kernel(x, y, out) == bits([out]) == 1


@pytest.mark.parametrize("n", [100, 200_000])
def test_status_in_place(n):
    x = np.full(n, 4.0, "f4")
    x[-1] = -1
    assert kernel_of("sqrt", (n,), "f4", True)(x, x) == 1
    assert x[0] == 2 and np.isnan(x[-1])


ASSEMBLY = """
import json
from trueno.ops import TABLE
from trueno.testing import verdict
from trueno_simd.llvm import isa
isa.apply()
from trueno_simd.rows.rowprogram import compiled
def assembly(name, guarded):
    op = TABLE[name]
    kernel = compiled(op, "float32", op.layout, 1, (), False, guarded)
    return kernel.inspect_asm(kernel.signatures[0])
print(json.dumps({name: [assembly(name, g) for g in (False, True)] for name in ("relu", "add", "exp", "softmax")}))
"""


def test_flags_keep_to_the_vector_registers(tmp_path):
    """A guarded kernel has every packed instruction of the bare one, and packed comparisons besides."""
    environment = os.environ | {"TRUENO_CACHE_DIR": str(tmp_path)}  # cached code cannot be inspected
    environment["PYTHONPATH"] = os.pathsep.join(p for p in sys.path if p)
    done = subprocess.run(
        [sys.executable, "-c", ASSEMBLY], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    for name, (bare, guarded) in json.loads(done.stdout).items():
        packed = [len(re.findall(r"\tv?\w+p[sd]\t|\tf\w+\s+v\d+\.4s", text)) for text in (bare, guarded)]
        compared = [len(re.findall(r"\tv?cmp\w*p[sd]\t|\tfcm\w+\s+v\d+\.4s", text)) for text in (bare, guarded)]
        assert packed[1] > packed[0] * 0.8, f"{name}: {packed[1]} packed instructions, {packed[0]} unguarded"
        assert compared[1] > compared[0], f"{name}: no packed comparison more than unguarded"
