"""quant_matmul on AMX's int8 tiles, over the emulated instructions: the same kernels as over the CPU's own.

The expected products are float64's, of what the bytes and the quantized activations stand for.
"""

import os
import subprocess
import sys
import zlib

import numpy as np
import pytest

pytest.importorskip("numba", reason="needs numba")
import llvmlite.binding as llvm
from trueno.formats import FORMATS, WEIGHTS
from trueno.formats.decode import decode
from trueno_simd.kernels.quant import matmul
from trueno_simd.kernels.quant.amx import choice, product
from trueno_simd.kernels.quant.amx.records import COLUMNS, DEPTH, Records
from trueno_simd.llvm import amx, isa
from trueno_simd.threads import pool
from unit.simd.quant.products import right, set_scale, weights
from unit.simd.structured import structured_kernel

SENTINEL = -77.0
SHAPES = [(1, 1, 1), (16, 32, 1), (3, 33, 2), (17, 67, 4), (50, 100, 3)]  # m, n, blocks of 256
FLAT = [name for name in WEIGHTS if not FORMATS[name].scales]
CHOSEN = ("q5_1", "q8_0", "q4_k", "q6_k")


@pytest.fixture
def rng(request):
    seed = zlib.crc32(request.node.name.encode())
    print("seed", seed)
    return np.random.default_rng(seed)


def multiply(name, x, w):
    m, n = len(x), len(w)
    room = np.full(m * n + 64, SENTINEL, "f4")
    out = room[32 : 32 + m * n].reshape(m, n)
    out.fill(np.nan)  # what was there must not come in
    assert product.tiled(name, amx.EMULATED)(x, w, out) == 0
    assert set(room[:32]) | set(room[32 + m * n :]) == {SENTINEL}, "written beside the result"
    return out


def usual(name, x, w):
    out = np.full((len(x), len(w)), np.nan, "f4")
    assert matmul._kernel(name, "q8")(x, w, out) == 0
    return out


@pytest.mark.parametrize("name", WEIGHTS)
def test_any_shape(name, rng):
    f = FORMATS[name]
    shapes = [(m, n, 256 * blocks) for m, n, blocks in SHAPES]
    if f.elements < 256:
        shapes += [(5, 35, f.elements), (18, 35, 256 + 3 * f.elements), (18, 35, 6 * f.elements)]
    for m, n, k in shapes:
        x, w = rng.standard_normal((m, k)).astype("f4"), weights(rng, f, n, k)
        got = multiply(name, x, w)
        right(f, "q8", x, w, got)
        if name in FLAT:
            np.testing.assert_array_equal(got, usual(name, x, w))


@pytest.mark.parametrize("name", WEIGHTS)
def test_extreme_codes_and_scales(name, rng):
    """Bytes of one value hold the extremes of codes and of scales; rows of one value the largest sums."""
    f = FORMATS[name]
    w = np.empty((len(FILLED) + 30, 512 // f.elements * f.nbytes), np.uint8)
    w[:] = rng.integers(0, 256, w.shape)
    w[: len(FILLED)] = np.array(FILLED, np.uint8)[:, None]
    for row in range(len(w)):
        for block in range(512 // f.elements):
            if f.e8m0:
                w[row, block * f.nbytes] = 120 + row % 16
            else:
                set_scale(f, w, row, block, 0.5)
            if f.m:
                set_scale(f, w, row, block, -0.25, f.m)
    x = rng.standard_normal((20, 512)).astype("f4")
    x[3], x[4], x[5, ::2] = 1, -1, -3
    x[6] = 0
    right(f, "q8", x, w, multiply(name, x, w))


FILLED = (0x00, 0x07, 0x08, 0x0F, 0x70, 0x77, 0x7F, 0x80, 0x88, 0x8F, 0xF0, 0xF7, 0xF8, 0xFF)


@pytest.mark.parametrize("name", WEIGHTS)
def test_records_hold_every_product(name):
    """The span of codes times scales is derived from the table; here random blocks are decoded with d = 1."""
    f, records = FORMATS[name], Records(FORMATS[name])
    rng = np.random.default_rng(0)
    w = rng.integers(0, 256, (4000, f.nbytes), np.uint8)
    for row in range(len(w)):
        if f.e8m0:
            w[row, 0] = 128  # the table's values are doubled
        else:
            set_scale(f, w, row, 0, 1)
        if f.m:
            set_scale(f, w, row, 0, 0, f.m)
    least, most = records.span
    values = decode(f, w)
    assert least <= values.min() and values.max() <= most
    bits = (values.max() - values.min()) / (most - least)
    assert bits > 0.8  # the span is no wider than it must be
    if records.parts == 1:
        assert (records.sign * values).min() >= -128 and (records.sign * values).max() <= 127
    assert records.parts == {"q4_k": 2, "q5_k": 2, "q6_k": 2, "iq4_xs": 2}.get(name, 1)


@pytest.mark.parametrize("name", CHOSEN)
def test_infinite_scales_are_left_to_others(name, rng):
    """Of W and of x; a NaN is a NaN in any sum."""
    f, kernel = FORMATS[name], product.tiled(name, amx.EMULATED)
    x, w = rng.standard_normal((40, 512)).astype("f4"), weights(rng, f, 70, 512)
    out = np.empty((40, 70), "f4")
    x[5, 300], x[7, 9], x[9, :256] = np.nan, np.inf, 0
    right(f, "q8", x, w, multiply(name, x, w))
    other = w.copy()
    set_scale(f, other, 69, 1, np.nan)
    right(f, "q8", x, other, multiply(name, x, other))
    set_scale(f, other, 69, 1, -np.inf)
    assert kernel(x, other, out) == product.LEFT
    if f.m:
        other = w.copy()
        set_scale(f, other, 3, 0, np.inf, f.m)
        assert kernel(x, other, out) == product.LEFT
    if f.activations != "q8_k":  # whose scale is float32
        x[39, 500] = 1e8
        assert kernel(x, w, out) == product.LEFT


@pytest.mark.parametrize("name", ["q4_0", "q4_k"])
def test_many_rows_on_any_threads(name, rng, monkeypatch):
    """More rows than pass over a panel at once, and k in slabs, between which sums are in y."""
    f, before = FORMATS[name], pool.count()
    x, w = rng.standard_normal((530, 2048)).astype("f4"), weights(rng, f, 35, 2048)
    assert -(-530 // 16) > product.BLOCKS > product.SLAB // (2048 // DEPTH * Records(f).x_bytes)
    results = []
    try:
        for count in (1, 3):
            pool.set_count(count)
            results.append(multiply(name, x, w))
    finally:
        pool.set_count(before)
    right(f, "q8", x, w, results[0])
    np.testing.assert_array_equal(*results)


def test_what_does_not_fit_is_refused():
    f, run = FORMATS["q4_k"], product.tiled("q4_k", amx.EMULATED)
    x, w = np.ones((3, 512), "f4"), np.zeros((4, 2 * f.nbytes), np.uint8)
    for a, b, shape in [
        (x, w, (3, 5)), (x, w, (4, 4)), (x[:, :256].copy(), w, (3, 4)), (x[:, :500].copy(), w, (3, 4)),
        (x, np.zeros((4, 2 * f.nbytes - 1), np.uint8), (3, 4)),
    ]:  # fmt: skip
        out = np.full(shape, SENTINEL, "f4")
        assert run(a, b, out) == -1 and (out == SENTINEL).all()
    room = np.zeros(4096, "f4")
    assert run(room[:1536].reshape(3, 512), w, room[1530:1542].reshape(3, 4)) == -1 and not room.any()
    out = np.full((2, 3), np.nan, "f4")
    assert run(np.empty((2, 0), "f4"), np.zeros((3, 0), np.uint8), out) == 0 and not out.any()
    assert run(np.empty((0, 256), "f4"), np.zeros((3, f.nbytes), np.uint8), np.empty((0, 3), "f4")) == 0


# ---- which kernel multiplies


def test_large_products_go_to_tiles(rng, monkeypatch):
    monkeypatch.setattr(choice, "LEAST", 40 * 70 * 512)
    f, plain, asked = FORMATS["q4_k"], matmul._kernel("q4_k", "q8"), []
    run = choice.with_tiles("q4_k", plain, amx.EMULATED, lambda name, kernel: asked.append((name, kernel)) or 40)
    x, w = rng.standard_normal((40, 512)).astype("f4"), weights(rng, f, 70, 512)

    def results(x, w):
        out = np.full((len(x), len(w)), np.nan, "f4")
        assert run(x, w, out) == 0
        return out, usual("q4_k", x, w)

    np.testing.assert_array_equal(*results(x[:31], w))
    np.testing.assert_array_equal(*results(x, w[:69]))
    assert not asked  # whether tiles are faster takes seconds to measure, which small products shall not wait for
    for _ in range(2):
        np.testing.assert_array_equal(results(x, w)[0], multiply("q4_k", x, w))
    assert asked == [("q4_k", plain)]
    more = weights(rng, f, 80, 512)
    np.testing.assert_array_equal(*results(x[:39], more))  # the rows measured are more
    set_scale(f, w, 69, 1, np.inf)
    np.testing.assert_array_equal(*results(x, w))
    assert run(x, w, np.empty((40, 71), "f4")) == -1


def test_where_tiles_are_slower_they_are_not_compiled(rng, monkeypatch):
    monkeypatch.setattr(choice, "LEAST", 1)
    monkeypatch.setattr(choice, "tiled", lambda *_: pytest.fail("it compiled the tiles"))
    run = choice.with_tiles("q8_0", matmul._kernel("q8_0", "q8"), amx.EMULATED, lambda *_: choice.NEVER)
    x, w = rng.standard_normal((40, 64)).astype("f4"), weights(rng, FORMATS["q8_0"], 70, 64)
    out = np.empty((40, 70), "f4")
    assert run(x, w, out) == 0
    np.testing.assert_array_equal(out, usual("q8_0", x, w))


def test_in_a_sequence_small_products_are_machine_code(rng, monkeypatch):
    run = choice.with_tiles("q8_0", matmul._kernel("q8_0", "q8"), amx.EMULATED, lambda *_: choice.NEVER)
    x, out = rng.standard_normal((choice.ROWS[0], 64), np.float32), np.empty((choice.ROWS[0], 5), np.float32)
    w = weights(rng, FORMATS["q8_0"], 5, 64)
    for m in (1, 3, choice.ROWS[0]):
        kernel, arguments, _ = run.resolve(x[:m], w, out[:m])
        assert kernel.passed[0] and arguments[0].shape == (m, 64)
    monkeypatch.setattr(choice, "LEAST", 1)
    assert run.resolve(x, w, out) is None, "Python chooses where tiles may be faster"
    assert run.resolve(x[:-1], w, out[:-1]) is not None


def test_the_rows_from_which_on_tiles_win_are_measured(monkeypatch):
    words = []
    for wins in ("32", "128", "none"):
        monkeypatch.setattr(choice, "faster", lambda word, *_, wins=wins: words.append(word) or word.endswith(wins))
        least = choice.least_rows.__wrapped__("q4_k", print)
        assert least == {"32": 32, "128": 128, "none": choice.NEVER}[wins]
    assert words == [f"quant_matmul q4_k {rows}" for rows in (32, 32, 128, 32, 128)]


@pytest.mark.parametrize("name", WEIGHTS)
def test_what_is_measured_is_finite_and_normal(name):
    x, w, out = choice.operands(name, 32)
    assert usual(name, x, w).shape == out.shape and len(w) % COLUMNS == 0
    size = np.abs(usual(name, x, w))
    assert np.isfinite(size).all() and size.max() > 1e-6


@pytest.mark.parametrize("there", [True, False])
def test_only_amx_with_int8_is_asked(there, monkeypatch):
    asked = []
    monkeypatch.setattr(matmul.amx, "available", lambda *more: asked.append(more) or there)
    monkeypatch.setattr(choice, "with_tiles", lambda name, kernel: (name, kernel))
    plain = matmul._kernel("q4_k", "q8")
    assert structured_kernel("quant_matmul", format="q4_k") == (("q4_k", plain) if there else plain)
    assert asked == [("amx-int8",)]
    structured_kernel("quant_matmul", format="q4_k", activations="f32")
    assert len(asked) == 1


# ---- the instructions, and other levels

ASSEMBLY = """
from trueno_simd.codecache.entry import kernel_entry
from trueno_simd.kernels.quant.amx import product
from trueno_simd.llvm import amx
compiled = []
def kept(signature):
    return lambda function: compiled.append(kernel_entry(signature, cache=False)(function)) or compiled[-1]
product.kernel_entry = kept
product.tiled("q4_k", amx.HARDWARE)
print(*compiled[0].inspect_asm().values())
"""


@pytest.mark.slow
@pytest.mark.skipif(isa.detect().level not in isa.X86, reason="AMX is x86's")
def test_the_hardwares_form_is_one_instruction_each():
    """Compiled for a CPU that has them; nothing of it runs."""
    features = ",".join(f"{'+' if on else '-'}{name}" for name, on in llvm.get_host_cpu_features().items()
                        if not name.startswith("amx")) + ",+amx-tile,+amx-bf16,+amx-int8"  # fmt: skip
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("TRUENO_", "NUMBA_"))}
    environment |= {"NUMBA_CPU_NAME": "sapphirerapids", "NUMBA_CPU_FEATURES": features}
    words = child(ASSEMBLY, environment)
    assert words.count("tdpbssd") % 4 == 0 and words.count("tdpbssd") > 0
    assert words.count("tdpbf16ps") % 2 == 0 and words.count("tdpbf16ps") > 0
    for word in ("ldtilecfg", "tilerelease", "tilezero", "tileloadd", "tilestored"):
        assert word in words, word


LEVELS = isa.X86[: isa.X86.index(isa.level())] if isa.level() in isa.X86 else ()
LEVEL = """
from trueno_simd.llvm import isa
assert isa.apply() is None
from unit.simd.quant import test_amx as t
rng = t.np.random.default_rng(5)
for name in ("q4_1", "q4_k"):
    f = t.FORMATS[name]
    for m, n, k in ((17, 67, 512), (5, 35, 256)):
        x, w = rng.standard_normal((m, k)).astype("f4"), t.weights(rng, f, n, k)
        got = t.multiply(name, x, w)
        t.right(f, "q8", x, w, got)
        if name in t.FLAT:
            t.np.testing.assert_array_equal(got, t.usual(name, x, w))
print(isa.level())
"""


@pytest.mark.slow
@pytest.mark.parametrize("level", LEVELS)
def test_lower_levels(level):
    assert child(LEVEL, os.environ | {"TRUENO_MAX_ISA": level}) == [level]


def child(code, environment):
    environment = environment | {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.split()
