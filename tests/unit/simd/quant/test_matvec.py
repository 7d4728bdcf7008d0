"""quant_matvec against float64, the core's decoder and ggml's own products; whatever the bytes, and at every level.

What codes and scales stand for is multiplied exactly and rounded a few times a block: |y - Σ w·a| is at most
(k + 4) · 2⁻²⁴ · Σ |w·a|.  As a script, with `tests` on the path, this runs its checks for the formats named and prints
what went wrong.
"""

import json
import os
import subprocess
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("numba", reason="needs numba")
from trueno.formats import FORMATS, INTERLEAVED, WEIGHTS, decode
from trueno.formats.interleave import interleaved
from trueno_simd.llvm import isa
from unit.simd.structured import structured_kernel

GGML = np.load(Path(__file__).parents[3] / "golden/ggml/quant.npz", allow_pickle=False)
SENTINEL = -77.0
CHILD = """
import runpy, sys
from trueno_simd.llvm import isa
assert isa.apply() is None
del sys.argv[0]
runpy.run_path(sys.argv[0], run_name="__main__")
"""  # the level is fixed when the first kernel is imported
MODES = ("q8", "f32", "rows interleaved")
FLOATED = ("q5_1", "q3_k", "q5_k", "iq4_xs", "mxfp4")  # at other levels: every way to decode a code, a scale, an offset
BITS = {"q8_0": (32, np.float64(127)), "q8_1": (32, np.float64(127)), "q8_k": (256, np.float64(-127))}


def matvec(name, w, x, mode="q8"):
    """The product, between sentinels."""
    n = len(w)
    room = np.full(n + 64, SENTINEL, np.float32)
    out = room[32 : 32 + n]
    out[:] = np.nan  # what was there must not come in
    if mode == "rows interleaved":
        name, w, mode = f"{name}_r16", interleaved(w, FORMATS[name]), "q8"
    assert structured_kernel("quant_matvec", format=name, activations=mode)(w, x, out) == 0
    assert set(room[:32]) | set(room[32 + n :]) == {SENTINEL}, "written beside the result"
    return out.astype(float)


def colmajor(name, w, x):
    """The product with a matrix whose blocks lie along the result."""
    n = FORMATS[name].row_elements(w.shape[1])
    room = np.full(n + 64, SENTINEL, np.float32)
    out = room[32 : 32 + n]
    out[:] = np.nan
    assert structured_kernel("quant_matvec_colmajor", format=name)(w, x, out) == 0
    assert set(room[:32]) | set(room[32 + n :]) == {SENTINEL}, "written beside the result"
    return out.astype(float)


def activations(name, x, mode):
    """What a kernel multiplies with, in float64: codes times scale, as ggml's CPU code quantizes."""
    if mode == "f32":
        return x.astype(float)
    partner = FORMATS[name].activations
    size = FORMATS[partner].elements
    x = x.reshape(-1, size)
    at = np.abs(x).argmax(1)[:, None]
    largest = np.take_along_axis(x, at, 1)
    with np.errstate(all="ignore"):
        if partner == "q8_k":
            factor = np.float32(-127) / largest
            d = np.where(largest == 0, 0, 1 / factor)
        else:
            factor = np.float32(127) / np.abs(largest)
            d = (np.abs(largest) / np.float32(127)).astype(np.float16)
        factor = np.where(np.isinf(factor), np.float32(0), factor)
        codes = np.rint(x * factor).astype(float)
    d = np.where(np.isfinite(x).all(1)[:, None], d.astype(float), np.nan)
    return (codes * d).ravel()


def assert_product(y, w, a):
    """w and a in float64.  Where the exact product is not a number, neither may the result be one."""
    k = len(a)
    with np.errstate(all="ignore"):
        wanted, size = w @ a, np.abs(w) @ np.abs(a)
        numbers = np.isfinite(size)
        assert not np.isfinite(y[~numbers]).any(), "a number where there is none"
        known = numbers & (size < 1e38)
        excess = np.abs(y - wanted) - ((k + 4) * 2.0**-24 * size + (k + 4) * 2.0**-149)
    assert (excess[known] <= 0).all(), f"off by {excess[known].max():g} more than allowed"


def random_bytes(rng, name, rows, blocks):
    """Every kind of scale: subnormal, infinite, NaN; and some blocks of zeros."""
    f = FORMATS[name]
    w = rng.integers(0, 256, (rows * blocks, f.nbytes), dtype=np.uint8)
    w[::7] = 0
    if f.e8m0:
        w[:, f.fields["d"].offset] = rng.integers(0, 250, len(w))  # 12 · 2^127 is not a float32
    return w.reshape(rows, blocks * f.nbytes)


def sane_bytes(rng, name, rows, blocks):
    """Random codes and scales of blocks, but finite ones."""
    f = FORMATS[name]
    w = rng.integers(0, 256, (rows * blocks, f.nbytes), dtype=np.uint8)
    for word in {f.d, f.m} - {""}:
        spec = f.fields[word]
        scales = (rng.standard_normal(len(w)) * 0.01).astype("<f2").view(np.uint8).reshape(-1, 2)
        w[:, spec.offset : spec.offset + spec.nbytes] = rng.integers(100, 140, (len(w), 1)) if f.e8m0 else scales
    return w.reshape(rows, blocks * f.nbytes)


def check_golden(name, mode):
    """ggml's bytes and activations: within 2e-6 of its own dot products, which its order of summation explains."""
    key, x = name.upper(), GGML["act"]
    w = GGML[f"q_{key}"]
    wide = decode(FORMATS[name], w).astype(float)
    for j in range(len(x)):
        y, a = matvec(name, w, x[j], mode), activations(name, x[j], mode)
        assert_product(y, wide, a)
        if mode != "f32":
            loose = 1e-3 if FORMATS[name].m == "m" else 2e-6  # q8_1 keeps its sum in float16
            assert (np.abs(y - GGML[f"vd_{key}"][:, j]) <= loose * (np.abs(wide) @ np.abs(a))).all()


def check_shapes(name, mode):
    """Row counts that are not a multiple of anything, and lengths from one block on."""
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    size = FORMATS[name].elements
    for rows, blocks in [(1, 1), (2, 2), (3, 3), (4, 4), (5, 5), (7, 9), (9, 1), (16, 2), (70, 6), (513, 16)]:
        w = sane_bytes(rng, name, rows, blocks)
        w.flags.writeable = False
        x = rng.standard_normal(blocks * size).astype(np.float32)
        y = matvec(name, w, x, mode)
        assert_product(y, decode(FORMATS[name], w).astype(float), activations(name, x, mode))
        if mode != "rows interleaved":
            assert np.array_equal(y[-1:], matvec(name, w[-1:], x, mode)), "a row depends on its neighbours"


def check_bytes(name, mode):
    rng = np.random.default_rng(5)
    size = FORMATS[name].elements
    for _ in range(3):
        w = random_bytes(rng, name, 40, 8)
        x = (rng.standard_normal(8 * size) * 10.0 ** rng.integers(-3, 4)).astype(np.float32)
        x[rng.random(x.size) < 0.2] = 0
        with np.errstate(all="ignore"):
            wide = decode(FORMATS[name], w).astype(float)
        assert_product(matvec(name, w, x, mode), wide, activations(name, x, mode))


def check_extremes(name, mode):
    """Codes at either end against activations at either end: what a sum in too few bits would get wrong."""
    f, rng = FORMATS[name], np.random.default_rng(6)
    blocks = max(1, 1024 // f.elements)
    for byte in (0x00, 0xFF, 0x80, 0x7F, 0x0F, 0xF0, 0x55):
        w = np.full((5 * blocks, f.nbytes), byte, np.uint8)
        for word in {f.d, f.m} - {""}:
            spec = f.fields[word]
            w[:, spec.offset : spec.offset + spec.nbytes] = [0x01, 0x3C][: spec.nbytes] if not f.e8m0 else [127]
        w = w.reshape(5, -1)
        wide = decode(f, w).astype(float)
        for x in (np.full(1024, 1.0), np.full(1024, -1.0), rng.choice([-1.0, 1.0], 1024), np.zeros(1024)):
            x = x[: blocks * f.elements].astype(np.float32)
            assert_product(matvec(name, w, x, mode), wide, activations(name, x, mode))


def check_cancelling(name, mode):
    """Values of zero give exactly zero, however large their codes: biases come off in whole numbers."""
    f = FORMATS[name]
    zero = f.values.index(0) if 0 in f.values else f.bias
    if f.m or (f.values and 0 not in f.values):
        return
    w = sane_bytes(np.random.default_rng(7), name, 4, 8).reshape(-1, f.nbytes)
    for plane in f.planes:
        spec = f.fields[plane.field]
        bits = zero >> plane.to & ((1 << plane.bits) - 1)
        w[:, spec.offset : spec.offset + spec.nbytes] = sum(bits << (i * plane.bits) for i in range(plane.ways))
    w = w.reshape(4, -1)
    assert not decode(f, w).any()
    x = np.random.default_rng(8).standard_normal(8 * f.elements).astype(np.float32)
    assert not matvec(name, w, x, mode).any()


def check_not_numbers(name, mode):
    """NaN or Inf among the activations leave no finite row, except where all weights of a block are zero numbers."""
    f = FORMATS[name]
    w = sane_bytes(np.random.default_rng(9), name, 6, 8)
    for bad in (np.nan, np.inf, -np.inf):
        x = np.random.default_rng(10).standard_normal(8 * f.elements).astype(np.float32)
        x[3 * f.elements // 2] = bad
        assert not np.isfinite(matvec(name, w, x, mode)).any()


def check_columns(name):
    """Column-major matrices: odd numbers of rows, whole numbers of blocks along them; and whatever bytes."""
    f, rng = FORMATS[name], np.random.default_rng(11)
    for rows, blocks in [(1, 1), (2, 3), (3, 5), (4, 8), (70, 9), (257, 3 * 1024 // f.elements + 1)]:
        for made in (sane_bytes, random_bytes):
            w = made(rng, name, rows, blocks)
            w.flags.writeable = False
            x = rng.standard_normal(rows).astype(np.float32)
            with np.errstate(all="ignore"):
                wide = decode(f, w).astype(float).reshape(rows, -1)
            assert_product(colmajor(name, w, x), wide.T, x.astype(float))


CHECKS = (check_golden, check_shapes, check_bytes, check_extremes, check_cancelling, check_not_numbers)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", WEIGHTS)
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__.removeprefix("check_"))
def test_products(check, name, mode):
    check(name, mode)


@pytest.mark.parametrize("name", WEIGHTS)
def test_columns(name):
    check_columns(name)


@pytest.mark.parametrize("name", ["q4_0", "q4_k"])
def test_columns_that_do_not_fit_are_refused(name):
    f = FORMATS[name]
    run = structured_kernel("quant_matvec_colmajor", format=name)
    w, x = np.zeros((3, 2 * f.nbytes), np.uint8), np.ones(3, np.float32)
    out = np.full(2 * f.elements, SENTINEL, np.float32)
    for bad_w, bad_x, bad_out in [
        (w, x[:2], out), (w[:2], x, out), (w, x, out[:-1]), (w, x, out[: f.elements]), (w[:, :0].copy(), x, out),
        (np.zeros((3, 2 * f.nbytes + 1), np.uint8), x, out),
    ]:  # fmt: skip
        assert run(bad_w, bad_x, bad_out) == -1
        assert (out == SENTINEL).all()
    assert run(w, out[:3], out) == -1
    with pytest.raises(TypeError):
        run(w, x.astype(float), out)
    assert run(w[:, :0].copy(), x, out[:0]) == 0
    assert run(w[:0], x[:0], out) == 0
    assert (out == 0).all(), "the sum of nothing"


@pytest.mark.parametrize("mode", MODES[:2])
@pytest.mark.parametrize("name", ["q4_0", "q4_k", "q4_k_r16"])
@pytest.mark.parametrize("rows", [3, 33])
def test_what_does_not_fit_is_refused(name, mode, rows):
    f = (FORMATS | INTERLEAVED)[name]
    run = structured_kernel("quant_matvec", format=name, activations=mode)
    w, x = np.zeros((rows, 2 * f.nbytes), np.uint8), np.ones(2 * f.elements, np.float32)
    out = np.full(rows, SENTINEL, np.float32)
    for bad_w, bad_x, bad_out in [
        (w, x[:-1], out), (w, x[: f.elements], out), (w, x, out[:-1]), (w[:-1], x, out),
        (w, np.ones(0, np.float32), out), (np.zeros((rows, 2 * f.nbytes + 1), np.uint8), x, out),
        (np.zeros((rows, f.nbytes), np.uint8), x, out),
    ]:  # fmt: skip
        assert run(bad_w, bad_x, bad_out) == -1
        assert (out == SENTINEL).all()
    both = np.zeros(4096, np.float32)
    assert run(w, both[: x.size], both[x.size - 1 : x.size - 1 + rows]) == -1
    assert run(both.view(np.uint8)[: w.size].reshape(w.shape), x, both[:rows]) == -1
    fixed = out.copy()
    fixed.flags.writeable = False
    for args in (
        (w.view(np.int8), x, out), (w, x.astype(float), out), (w[:, ::2], x, out), (w, x, out.astype(float)),
        (w, x, np.repeat(out, 2)[::2]), (w, x, fixed), (w, x, x.astype(">f4")[:rows]),
    ):  # fmt: skip
        with pytest.raises(TypeError):
            run(*args)
    assert (out == SENTINEL).all()
    assert run(w[:0], x, out[:0]) == 0
    assert run(w[:, :0], x[:0], out) == 0
    assert (out == 0).all()


def test_a_format_that_is_not_there_is_a_key_error():
    with pytest.raises(KeyError):
        structured_kernel("quant_matvec", format="q4_2")


def _levels():
    """Environments for each level below the host's, and for features of the same level that may be missing."""
    host = isa.detect()
    found = {
        level: {"TRUENO_MAX_ISA": level} for level in isa.X86[: isa.X86.index(host.level)] if host.level in isa.X86
    }
    if host.has("avx512vnni"):
        found["avx512 without VNNI"] = {"NUMBA_CPU_FEATURES": "-avx512vnni,-avxvnni,-avx512vbmi"}
        if host.has("avxvnni"):
            off = [f"-{f}" for f in host.features if f.startswith("avx512")]
            found["avx2 with VNNI"] = {"NUMBA_CPU_FEATURES": ",".join([*off, "+avxvnni"])}
        for name in found:
            if "NUMBA_CPU_FEATURES" in found[name]:
                found[name]["NUMBA_CPU_NAME"] = host.cpu
    return found


@pytest.mark.slow
@pytest.mark.slow
@pytest.mark.parametrize("level", _levels())
def test_level(level):
    """Right at this level too, in a child process."""
    given = [sys.executable, "-W", "error", "-c", CHILD, __file__, level, *WEIGHTS]
    path = {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    run = subprocess.run(given, env=os.environ | path | _levels()[level], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr[-2000:]
    assert json.loads(run.stdout.splitlines()[-1]) == []


def main(level, *names):
    assert isa.level() == level.split()[0], (isa.level(), level)
    wrong = []
    for name in names:
        modes = MODES if name in FLOATED else (MODES[0], MODES[2])
        runs = [(check, mode) for check in CHECKS for mode in modes]
        for check, *mode in runs + [(check_columns,)] * (name in FLOATED):
            try:
                check(name, *mode)
            except AssertionError as error:
                wrong.append(f"{name} {mode} {check.__name__}: {error}")
    print(json.dumps(wrong))


if __name__ == "__main__":
    main(*sys.argv[1:])
