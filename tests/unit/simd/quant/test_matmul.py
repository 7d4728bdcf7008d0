"""quant_matmul against float64 products of what the bytes and the quantized activations stand for."""

import json
import os
import subprocess
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("numba", reason="needs numba")
from trueno.formats import FORMATS, WEIGHTS
from trueno.formats.table import Format
from trueno_simd.llvm import isa
from unit.simd.quant.products import activations, right, set_scale, weights
from unit.simd.structured import structured_kernel

GGML = np.load(Path(__file__).parents[3] / "golden/ggml/quant.npz", allow_pickle=False)
SENTINEL = -77.0
WAYS = ("q8", "f32")
SHAPES = [(1, 1, 1), (2, 3, 1), (3, 33, 2), (8, 32, 3), (13, 67, 4), (33, 100, 3)]  # m, n, blocks of 256


@pytest.fixture
def rng(request: pytest.FixtureRequest) -> np.random.Generator:
    seed = zlib.crc32(request.node.name.encode())
    print("seed", seed)
    return np.random.default_rng(seed)


def multiply(f: Format, way: str, x: np.ndarray, w: np.ndarray) -> np.ndarray:
    m, n = len(x), len(w)
    room = np.full(m * n + 64, SENTINEL, "f4")
    out = room[32 : 32 + m * n].reshape(m, n)
    out.fill(np.nan)  # what was there must not come in
    assert structured_kernel("quant_matmul", format=f.name, activations=way)(x, w, out) == 0
    assert set(room[:32]) | set(room[32 + m * n :]) == {SENTINEL}, "written beside the result"
    return out


def check(f: Format, way: str, x: np.ndarray, w: np.ndarray) -> None:
    right(f, way, x, w, multiply(f, way, x, w))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", WEIGHTS)
def test_any_shape(name: str, way: str, rng: np.random.Generator) -> None:
    f = FORMATS[name]
    for m, n, blocks in SHAPES:
        x = rng.standard_normal((m, 256 * blocks)).astype("f4")
        check(f, way, x, weights(rng, f, n, 256 * blocks))
    if f.elements < 256:
        for k in (f.elements, 256 + 3 * f.elements):  # the last panel is not a whole one
            check(f, way, rng.standard_normal((5, k)).astype("f4"), weights(rng, f, 35, k))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", WEIGHTS)
def test_any_bytes(name: str, way: str, rng: np.random.Generator) -> None:
    """Random bytes hold every kind of scale; what is NaN or infinite in float64 is so here, and nothing else."""
    f = FORMATS[name]
    w = rng.integers(0, 256, (131, 512 // f.elements * f.nbytes), dtype=np.uint8)
    if not f.e8m0:
        for row in range(0, 131, 3):
            set_scale(f, w, row, 0, (np.inf, -np.inf, np.nan, 0.0, 5.96e-8, -6e-5)[row // 3 % 6])
        if f.m:
            for row in range(1, 131, 3):
                set_scale(f, w, row, 0, (np.inf, -np.inf, np.nan, 0.0, 5.96e-8)[row // 3 % 5], f.m)
    w[5::7] = 0  # no scale, no code
    w.flags.writeable = False
    x = rng.standard_normal((9, 512)).astype("f4")
    x[4, :256] = 0
    check(f, way, x, w)
    zeros = np.zeros_like(x)  # 0 · inf
    check(f, way, zeros, w)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", ["q4_0", "q5_1", "q4_k", "q6_k", "mxfp4"])
def test_special_activations(name: str, way: str, rng: np.random.Generator) -> None:
    """A NaN or an infinity spoils its row alone; a scale that float16 cannot hold is infinite."""
    f = FORMATS[name]
    x = rng.standard_normal((11, 512)).astype("f4")
    x[1, 300], x[3, 7] = np.nan, np.inf
    x[5, :32] *= np.float32(1e9)  # one block: two would be inf - inf, whatever each is
    x[6, 256:] *= np.float32(1e-40)
    x[7] = 0
    x[8, :256] = np.float32(1e-9)
    w = weights(rng, f, 40, 512)
    if way == "f32":
        x[3, 7] = 1
    check(f, way, x, w)


@pytest.mark.parametrize("name", WEIGHTS)
def test_near_ggmls_own_products(name: str) -> None:
    """ggml's dot products of the golden rows: only the order of its sums differs.

    Where its activations hold sums in float16 (q8_1), ours are exact, and its error is 9e-4.
    """
    f, word = FORMATS[name], name.upper()
    w, x = GGML[f"q_{word}"], GGML["act"]
    weight = np.abs(activations(f, x)) @ np.abs(GGML[f"dq_{word}"].astype("f8")).T
    bound = (1e-3 if f.activations == "q8_1" else 2e-6) * weight
    assert (np.abs(multiply(f, "q8", x, w) - GGML[f"vd_{word}"].T) <= bound + 1e-30).all()


@pytest.mark.parametrize("way", WAYS)
def test_many_rows_on_any_threads(way: str, rng: np.random.Generator) -> None:
    """More rows than pass over a panel at once, and too few panels to go round: x is cut as well."""
    from trueno_simd.threads import pool

    f = FORMATS["q4_k"]
    x = rng.standard_normal((1303, 256)).astype("f4")
    w = weights(rng, f, 5, 256)
    check(f, way, x, w)
    before = pool.count()
    try:
        results = []
        for count in (1, 3):
            pool.set_count(count)
            results.append(multiply(f, way, x, w).tobytes())
    finally:
        pool.set_count(before)
    assert results[0] == results[1]


@pytest.mark.parametrize("way", WAYS)
def test_what_does_not_fit_is_refused(way: str) -> None:
    f = FORMATS["q4_k"]
    run = structured_kernel("quant_matmul", format="q4_k", activations=way)
    x, w = np.ones((3, 512), "f4"), np.zeros((4, 2 * f.nbytes), np.uint8)
    for a, b, shape in [
        (x, w, (3, 5)), (x, w, (4, 4)), (x, w, (4, 3)), (x[:, :256].copy(), w, (3, 4)),
        (x[:, :500].copy(), w, (3, 4)), (x, np.zeros((4, 2 * f.nbytes - 1), np.uint8), (3, 4)),
    ]:  # fmt: skip
        out = np.full(shape, SENTINEL, "f4")
        assert run(a, b, out) == -1
        assert (out == SENTINEL).all()
    room = np.zeros(4096, "f4")
    a, out = room[:1536].reshape(3, 512), room[1530:1542].reshape(3, 4)
    assert run(a, w, out) == -1
    b = room.view(np.uint8)[64 : 64 + w.size].reshape(w.shape)
    assert run(x, b, room[:12].reshape(3, 4)) == 0
    assert run(x, b, room[16:28].reshape(3, 4)) == -1
    assert not room.any()
    for a, b in [(x.astype("f8"), w), (x, w.view("i1")), (x[:, ::2], w[:, : f.nbytes])]:
        with pytest.raises(TypeError):
            run(a, b, np.empty((3, 4), "f4"))


@pytest.mark.parametrize("way", WAYS)
def test_nothing_to_do(way: str) -> None:
    run = structured_kernel("quant_matmul", format="q4_k", activations=way)
    assert run(np.empty((0, 256), "f4"), np.zeros((3, 144), np.uint8), np.empty((0, 3), "f4")) == 0
    assert run(np.ones((2, 256), "f4"), np.zeros((0, 144), np.uint8), np.empty((2, 0), "f4")) == 0
    out = np.full((2, 3), np.nan, "f4")
    assert run(np.empty((2, 0), "f4"), np.zeros((3, 0), np.uint8), out) == 0
    assert not out.any()


def test_unknown_formats() -> None:
    with pytest.raises(KeyError):
        structured_kernel("quant_matmul", format="q9_k")
    with pytest.raises(KeyError):
        structured_kernel("quant_matmul", format="q4_k", activations="q4")


# ---- other levels, each in a child process

LEVELS = isa.X86[: isa.X86.index(isa.level())] if isa.level() in isa.X86 else ()
OTHERS = ("plain avx512", "avx vnni", "no x86") if isa.current().has("avx512vnni", "avxvnni") else ("no x86",)
CHOSEN = ("q4_0", "q5_1", "q8_0", "q2_k", "q4_k", "q6_k", "iq4_xs", "mxfp4")
CHILD = """
import json, sys
import numpy as np
from trueno_simd.llvm import isa
assert isa.apply() is None
sys.path[:0] = json.loads(sys.argv[2])
from trueno_simd.kernels.quant.tile import layout, words
for name in json.loads(sys.argv[3]):  # what this machine is said to lack
    for module in layout, words:
        if hasattr(module, name):
            setattr(module, name, False)
import test_matmul as t
for name in json.loads(sys.argv[1]):
    f = t.FORMATS[name]
    for way in t.WAYS:
        rng = np.random.default_rng(5)
        for m, n, blocks in t.SHAPES[2:5]:
            t.check(f, way, rng.standard_normal((m, 256 * blocks)).astype("f4"), t.weights(rng, f, n, 256 * blocks))
        w = rng.integers(0, 256, (70, 512 // f.elements * f.nbytes), dtype=np.uint8)
        if not f.e8m0:
            for row in range(0, 70, 3):
                t.set_scale(f, w, row, 0, (np.inf, np.nan, 5.96e-8)[row // 3 % 3])
        x = rng.standard_normal((7, 512)).astype("f4")
        x[3] *= np.float32(1e9)
        t.check(f, way, x, w)
print(isa.level(), "vnni" if layout.VNNI else "")
"""


def child(without: tuple[str, ...] = (), **environment: str) -> list[str]:
    """Check the chosen formats in a new process; what it says of its level."""
    arguments = [json.dumps(CHOSEN), json.dumps([str(Path(__file__).parent)]), json.dumps(without)]
    path = os.pathsep.join(p for p in sys.path if p)
    done = subprocess.run(
        [sys.executable, "-c", CHILD, *arguments], env=os.environ | {"PYTHONPATH": path} | environment,
        capture_output=True, text=True, timeout=1200,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.split()


@pytest.mark.slow
@pytest.mark.parametrize("level", LEVELS)
def test_lower_levels(level: str) -> None:
    assert child(TRUENO_MAX_ISA=level) == [level]


@pytest.mark.slow
@pytest.mark.parametrize("machine", OTHERS)
def test_other_machines(machine: str, tmp_path: Path) -> None:
    """AVX-512 without VNNI, VNNI without AVX-512, and neither x86's instructions nor those that help decoding."""
    folder = {"TRUENO_CACHE_DIR": str(tmp_path)}  # what is made here must not be found on disk by anyone else
    if machine == "plain avx512":
        assert child(("VNNI",), **folder) == ["avx512"]
    elif machine == "no x86":
        assert child(("VNNI", "AVX2", "X86", "SHUFFLE", "HALF"), **folder) == [isa.level()]
    else:
        import llvmlite.binding as llvm

        words = [f"{'-' if name.startswith('avx512') or not on else '+'}{name}"
                 for name, on in llvm.get_host_cpu_features().items()]  # fmt: skip
        found = child(NUMBA_CPU_NAME=llvm.get_host_cpu_name(), NUMBA_CPU_FEATURES=",".join(words), **folder)
        assert found == ["avx2", "vnni"]
