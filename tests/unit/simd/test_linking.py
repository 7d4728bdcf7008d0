"""A kernel is whole: the code is the same just compiled and from disk, and it shares no name."""

import os
import subprocess
import sys

import numpy as np
import pytest

pytest.importorskip("numba", reason="needs numba")
from numba import float64, int64, types
from trueno_simd.codecache.entry import kernel_entry
from trueno_simd.llvm.calls import address_of, pack, unpack
from trueno_simd.llvm.jit import inner, outer
from trueno_simd.llvm.memory import load, pointer, store
from trueno_simd.rows import float64 as functions
from trueno_simd.threads.pool import parallel_for

HALF = 50_000


@inner
def shifted(x):
    return functions.sin(x) + 1.0


@outer
def total(x, start, stop):
    s = 0.0
    for i in range(start, stop):
        s += shifted(load(x, i, 0))
    return s


unpacked = unpack(types.Tuple((types.CPointer(float64), types.CPointer(float64), int64)))


@outer
def piece(args, i):
    x, sums, step = unpacked(args)
    store(sums, i, total(x, i * step, i * step + step), 1)
    return 0


@kernel_entry(int64(float64[::1], float64[::1]), cache=False)
def kernel(x_, sums_):
    x, sums, step = pointer(x_), pointer(sums_), x_.size // 2
    return parallel_for(address_of(piece), pack((x, sums, step)), 2)


def test_all_that_is_linked_into_a_kernel_is_hidden_in_it():
    (overload,) = kernel.overloads.values()
    seen = {"external": set(), "internal": set()}
    for function in overload.library.get_defined_functions():
        seen[function.linkage.name].add(function.name)
    assert seen["external"] == {overload.fndesc.llvm_func_name, overload.fndesc.llvm_cpython_wrapper_name}
    assert any("piece" in name for name in seen["internal"]), "the piece is not a separate function: this tests nothing"


def test_what_only_kernels_call_is_not_compiled_alone():
    for function in (piece, total):
        (overload,) = function.overloads.values()
        with pytest.raises(RuntimeError, match="no compiled object"):
            overload.library._get_compiled_object()
    (overload,) = kernel.overloads.values()
    assert overload.library._get_compiled_object()


def test_a_kernel_of_pieces_is_right():
    x, sums = np.linspace(-9, 9, 2 * HALF), np.zeros(2)
    assert kernel(x, sums) == 0
    np.testing.assert_allclose(sums, (np.sin(x) + 1).reshape(2, -1).sum(1), rtol=1e-12)


BITS = """
import hashlib
import numpy as np
from trueno.ops import TABLE
from trueno_simd.llvm import isa
assert isa.apply() is None
from trueno_simd.rows.rowprogram import compiled
rng, digest, hits = np.random.default_rng(29), hashlib.md5(), 0
for dtype in ("float32", "float64"):
    kernel = compiled(TABLE["softmax"], dtype, "e", 1, (), True, False)
    hits += sum(kernel.stats.cache_hits.values())
    for _ in range(12):
        x, out = rng.normal(size=150_001).astype(dtype), np.empty(150_001, dtype)
        assert kernel(x, out) == 0
        digest.update(out.tobytes())
print(hits, digest.hexdigest())
"""


def test_a_kernel_from_disk_gives_the_bits_that_it_gave_when_it_was_compiled(tmp_path):
    """Pieces were once called as they had been compiled alone, and from disk as copies optimized a second time."""
    environment = os.environ | {"TRUENO_CACHE_DIR": str(tmp_path)}
    environment["PYTHONPATH"] = os.pathsep.join(p for p in sys.path if p)
    print("seed 29")
    said = []
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", BITS], env=environment, capture_output=True, text=True, timeout=300
        )
        assert done.returncode == 0, done.stderr
        said.append(done.stdout.split())
    (first, compiled), (second, loaded) = said
    assert (first, second) == ("0", "2")
    assert compiled == loaded
