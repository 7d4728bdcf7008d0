"""quant_matmul_colmajor against float64 products of what the bytes stand for."""

import zlib

import numpy as np
import pytest

pytest.importorskip("numba", reason="needs numba")
from trueno.formats import FORMATS, WEIGHTS, decode
from trueno.formats.table import Format
from unit.simd.structured import structured_kernel

SENTINEL = -77.0


@pytest.fixture
def rng(request: pytest.FixtureRequest) -> np.random.Generator:
    seed = zlib.crc32(request.node.name.encode())
    print("seed", seed)
    return np.random.default_rng(seed)


def check(f: Format, x: np.ndarray, w: np.ndarray) -> None:
    m, n = len(x), f.row_elements(w.shape[1])
    room = np.full(m * n + 64, SENTINEL, "f4")
    out = room[32 : 32 + m * n].reshape(m, n)
    out.fill(np.nan)
    assert structured_kernel("quant_matmul_colmajor", format=f.name)(x, w, out) == 0
    assert set(room[:32]) | set(room[32 + m * n :]) == {SENTINEL}, "written beside the result"
    a, v, k = x.astype("f8"), decode(f, w).astype("f8"), len(w)
    with np.errstate(all="ignore"):
        want, weight = a @ v, np.abs(a) @ np.abs(v)
    # else float32 has no room for the finite terms, whatever their sum
    fits = np.abs(np.where(np.isfinite(a), a, 0)) @ np.abs(np.where(np.isfinite(v), v, 0)) < 3e38
    finite, special = np.isfinite(want) & fits, ~np.isfinite(want) & fits
    assert np.array_equal(out[special], want[special].astype("f4"), equal_nan=True), "NaN and infinities"
    excess = np.abs(out[finite] - want[finite]) - (k + 4) * (2.0**-24 * weight[finite] + 2.0**-149)
    assert (excess <= 0).all(), f"{f.name}, {x.shape} x {w.shape}: worst excess {excess.max()}"


@pytest.mark.parametrize("name", WEIGHTS)
def test_any_shape_and_bytes(name: str, rng: np.random.Generator) -> None:
    """Random bytes hold every kind of scale, and every seventh row has none."""
    f = FORMATS[name]
    for m, k, blocks in [(1, 1, 1), (2, 3, 1), (9, 129, 3), (31, 260, 11)]:
        w = rng.integers(0, 256, (k, blocks * f.nbytes), dtype=np.uint8)
        w[2::7] = 0
        for row in range(0, k, 50):
            if not f.e8m0:
                at = f.fields[f.d].offset
                w[row, at : at + 2] = np.array([(np.inf, np.nan, 5.96e-8)[row // 50 % 3]], "<f2").view(np.uint8)
        w.flags.writeable = False
        x = rng.standard_normal((m, k)).astype("f4")
        check(f, x, w)
        x[0, k // 2] = np.inf
        x[m - 1, 0] = np.nan
        check(f, x, w)


@pytest.mark.parametrize("m", [600, 1303])
def test_many_rows(m: int, rng: np.random.Generator) -> None:
    f = FORMATS["q4_0"]
    w = rng.integers(0, 256, (70, 3 * f.nbytes), dtype=np.uint8)
    w[:, 1 :: f.nbytes] &= 0xBF  # scales below 2
    check(f, rng.standard_normal((m, 70)).astype("f4"), w)


def test_what_does_not_fit_is_refused() -> None:
    f = FORMATS["q4_0"]
    run = structured_kernel("quant_matmul_colmajor", format="q4_0")
    x, w = np.ones((3, 5), "f4"), np.zeros((5, 2 * f.nbytes), np.uint8)
    for a, b, shape in [
        (x, w, (3, 65)), (x, w, (3, 32)), (x, w, (2, 64)), (x[:, :4].copy(), w, (3, 64)),
        (x, np.zeros((5, 2 * f.nbytes + 1), np.uint8), (3, 64)),
    ]:  # fmt: skip
        out = np.full(shape, SENTINEL, "f4")
        assert run(a, b, out) == -1
        assert (out == SENTINEL).all()
    room = np.zeros(4096, "f4")
    a, out = room[:15].reshape(3, 5), room[10:202].reshape(3, 64)
    assert run(a, w, out) == -1
    b = room.view(np.uint8)[: w.size].reshape(w.shape)
    assert run(x, b, room[:192].reshape(3, 64)) == -1
    assert not room.any()
    assert run(np.empty((3, 0), "f4"), np.zeros((0, 36), np.uint8), np.full((3, 64), np.nan, "f4")) == 0
    assert run(np.empty((0, 5), "f4"), w, np.empty((0, 64), "f4")) == 0
    with pytest.raises(TypeError):
        run(x.astype("f8"), w, np.empty((3, 64), "f4"))
    with pytest.raises(KeyError):
        structured_kernel("quant_matmul_colmajor", format="q9_k")
