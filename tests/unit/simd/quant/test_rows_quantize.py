"""Encoders write ggml's bytes, with and without an importance matrix; what holds no numbers is refused whole."""

import ctypes
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("numba", reason="needs numba")
from seeds import fresh_seed
from trueno.formats import FORMATS, WEIGHTS, encode
from trueno_simd.threads import pool
from unit.simd.structured import structured_kernel

GGML = np.load(Path(__file__).parents[3] / "golden/ggml/quant.npz", allow_pickle=False)
PLAIN, WEIGHTED = "quantize_rows", "quantize_rows_weighted"
BOTH = pytest.mark.parametrize("op", [PLAIN, WEIGHTED])


def quantize(op: str, name: str, x: np.ndarray, imatrix: np.ndarray) -> np.ndarray:
    kernel = structured_kernel(op, format=name)
    m, b = len(x), FORMATS[name].row_bytes(x.shape[1])
    room = np.full(m * b + 128, 99, np.uint8)
    out = room[64 : 64 + m * b].reshape(m, b)
    assert (kernel(x, out) if op == PLAIN else kernel(x, imatrix, out)) == 0
    assert set(room[:64]) | set(room[64 + m * b :]) == {99}, "written beside the result"
    return out


def same(name: str, got: np.ndarray, wanted: np.ndarray) -> None:
    wrong = np.flatnonzero((got != wanted).any(1))
    assert not wrong.size, f"{name}: rows {wrong}, first at bytes {np.flatnonzero(got[wrong[0]] != wanted[wrong[0]])}"


@BOTH
@pytest.mark.parametrize("name", WEIGHTS)
def test_the_bytes_are_ggmls(op: str, name: str) -> None:
    wanted = GGML[("q_" if op == PLAIN else "qim_") + name.upper()]
    same(name, quantize(op, name, GGML["x"], GGML["imatrix"]), wanted)


@pytest.mark.parametrize("name", ["q8_1", "q8_k"])
def test_so_are_those_of_activation_formats(name: str) -> None:
    wanted = GGML[f"x_ref_{name.upper()}"].copy()
    if name == "q8_k":  # ggml leaves the sums of a block of zeros unwritten
        blocks = wanted.reshape(-1, FORMATS[name].nbytes)
        blocks[~GGML["x"].reshape(-1, 256).any(1), 260:] = 0
    same(name, quantize(PLAIN, name, GGML["x"], GGML["imatrix"]), wanted)
    with pytest.raises(KeyError):
        structured_kernel(WEIGHTED, format=name)


@pytest.mark.parametrize("name", ["q4_1", "q5_1"])
def test_zeros_of_either_sign_have_a_scale_of_zero_and_the_first_ones_sign(name: str) -> None:
    """ggml keeps the first of equal numbers as least and as greatest, so the scale is 0 − 0 or −0 − −0, which is 0."""
    rng = np.random.default_rng(20261122)
    x = np.where(rng.random((64, 64)) < 0.5, np.float32(0), np.float32(-0.0))
    f = FORMATS[name]
    wanted = np.zeros((64, 2, f.nbytes), np.uint8)
    m = f.fields["m"].offset
    wanted[:, :, m : m + 2] = x[:, ::32].astype("<f2").view(np.uint8).reshape(64, 2, 2)
    same(name, quantize(PLAIN, name, x, np.ones(64, "f4")), wanted.reshape(64, -1))
    same(name, encode(f, x), wanted.reshape(64, -1))


def hard_rows(seed: int, k: int) -> np.ndarray:
    """Rows at which a search goes astray if a single operation is not ggml's."""
    rng = np.random.default_rng(seed)
    x = (rng.standard_normal((20, k)) * rng.lognormal(size=(20, 1))).astype("f4")
    x[3] = np.round(x[3] * 4) / 4
    x[4] = np.abs(x[4])
    x[5, ::3] = 0
    x[6] = rng.standard_cauchy(k)
    x[7] *= 1e30
    x[8] *= 1e-30
    x[9] = np.where(rng.random(k) < 0.9, 0, x[9])
    x[10] *= np.float32(2) ** rng.integers(-140, 100, k)
    x[11] *= 1e19  # squares overflow
    x[12] = x[12] / np.abs(x[12]).max() * 1e38
    x[13] = 3e38 * np.sign(x[13])
    x[14] = rng.integers(0, 2**32, k, dtype=np.uint64).astype("u4").view("f4")
    x[14][~np.isfinite(x[14])] = 0
    x[15] *= 1e-16
    x[16] = -np.abs(x[16])
    x[17] = -0.0
    x[18] = np.repeat(rng.standard_normal(k // 16), 16)
    x[19] = np.tile([1, -1, 0.5, -0.5], k // 4)
    return x


@pytest.fixture(scope="module")
def library() -> ctypes.CDLL:
    spec = find_spec("llama_cpp")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("llama-cpp-python is not installed: no ggml to compare with")
    folder = Path(spec.submodule_search_locations[0]) / "lib"
    for file in (*folder.glob("libggml-base.so"), *folder.glob("libggml-base.dylib"), *folder.glob("ggml-base.dll")):
        ggml = ctypes.CDLL(str(file))
        ggml.ggml_quantize_chunk.restype = ctypes.c_size_t
        return ggml
    pytest.skip(f"no shared library of ggml in {folder}")


@BOTH
@pytest.mark.parametrize("name", WEIGHTS)
def test_fresh_rows_too(op: str, name: str, library: ctypes.CDLL) -> None:
    seed = fresh_seed()
    print("seed", seed)
    x = hard_rows(seed, 2304)
    imatrix = np.random.default_rng(seed).lognormal(size=2304).astype("f4")
    f = FORMATS[name]
    wanted = np.zeros((len(x), f.row_bytes(2304)), np.uint8)
    pointer, number = ctypes.c_void_p, ctypes.c_int64
    library.ggml_quantize_chunk(
        ctypes.c_int(f.type_id), pointer(x.ctypes.data), pointer(wanted.ctypes.data), number(0), number(len(x)),
        number(2304), pointer(imatrix.ctypes.data) if op == WEIGHTED else None,
    )  # fmt: skip
    same(name, quantize(op, name, x, imatrix), wanted)


@pytest.mark.parametrize("name", WEIGHTS)
def test_weights_of_zero_give_the_bytes_of_the_reference(name: str) -> None:
    """Lines through one point have scales of rounding noise; groups and blocks without weight have none."""
    seed, k = fresh_seed(), 2304
    print("seed", seed)
    rng = np.random.default_rng(seed)
    x, f = hard_rows(seed, k).clip(-1e8, 1e8), FORMATS[name]
    lone = rng.integers(0, 32, k // 32) + 32 * np.arange(k // 32)
    found = {
        "one a group": np.isin(np.arange(k), lone),
        "sparse": (rng.random(k) < 0.1) * rng.random(k),
        "wide": np.exp(rng.uniform(-30, 10, k)),
        "runs of 16": rng.random(k) * np.repeat(rng.random(k // 16) < 0.6, 16),
        "runs of 32": rng.random(k) * np.repeat(rng.random(k // 32) < 0.6, 32),
        "blocks": rng.random(k) * np.repeat(np.arange(k // 256) % 2, 256),
        "nothing": np.zeros(k),
        "next to nothing": rng.random(k) * 1e-40,
    }
    for weights in found.values():
        imatrix = weights.astype("f4")
        same(name, quantize(WEIGHTED, name, x, imatrix), encode(f, x, imatrix))


@BOTH
@pytest.mark.parametrize("name", WEIGHTS)
def test_a_row_is_the_same_alone_and_among_others(op: str, name: str) -> None:
    """Also where a batch of groups or blocks is not full, and whatever the number of threads."""
    seed, n = 23, FORMATS[name].elements
    print("seed", seed)
    imatrix = np.random.default_rng(seed).lognormal(size=100 * n).astype("f4")
    for m, blocks in ((1, 1), (3, 1), (2, 7), (21, 9), (2, 100)):
        k = n * blocks
        x = np.random.default_rng(seed).standard_normal((m, k)).astype("f4")
        together = quantize(op, name, x, imatrix[:k])
        apart = [quantize(op, name, row[None], imatrix[:k])[0] for row in x]
        same(name, together, np.array(apart))
        count = pool.count()
        try:
            pool.set_count(1 if count > 1 else 2)
            same(name, quantize(op, name, x, imatrix[:k]), together)
        finally:
            pool.set_count(count)


@BOTH
@pytest.mark.parametrize("name", ["q4_0", "q4_k", "q8_0"])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_no_number_is_refused_before_anything_is_written(op: str, name: str, bad: float) -> None:
    kernel, f = structured_kernel(op, format=name), FORMATS[name]
    k = 512
    for m, where in ((1, 0), (1, 511), (300, 150_000)):
        x, imatrix = np.ones((m, k), "f4"), np.ones(k, "f4")
        x.ravel()[where] = bad
        out = np.full((m, f.row_bytes(k)), 7, np.uint8)
        assert (kernel(x, out) if op == PLAIN else kernel(x, imatrix, out)) == -1
        assert np.all(out == 7)
    if op == WEIGHTED:
        imatrix[17] = bad
        assert kernel(np.ones((1, k), "f4"), imatrix, out[:1]) == -1
        assert np.all(out == 7)


@BOTH
@pytest.mark.parametrize("name", ["q4_1", "q6_k"])
def test_what_does_not_fit_is_refused(op: str, name: str) -> None:
    kernel, f = structured_kernel(op, format=name), FORMATS[name]

    def run(x: np.ndarray, out: np.ndarray, imatrix: np.ndarray | None = None) -> int:
        return (
            kernel(x, out) if op == PLAIN else kernel(x, np.ones(x.shape[1], "f4") if imatrix is None else imatrix, out)
        )

    x = np.ones((2, 2 * f.elements), "f4")
    for shape in (2, f.nbytes), (2, 2 * f.nbytes + 1), (1, 2 * f.nbytes), (3, 2 * f.nbytes):
        out = np.full(shape, 3, np.uint8)
        assert run(x, out) == -1
        assert np.all(out == 3)
    assert run(np.ones((2, 100), "f4"), np.empty((2, f.nbytes), np.uint8)) == -1
    shared = np.ones((2, 2 * f.elements), "f4")
    assert run(shared, shared.view(np.uint8).ravel()[: 4 * f.nbytes].reshape(2, -1)) == -1
    out = np.empty((2, 2 * f.nbytes), np.uint8)
    if op == WEIGHTED:
        assert run(x, out, np.ones(2 * f.elements + 1, "f4")) == -1
    with pytest.raises(TypeError):
        run(x.astype("f8"), out)
    assert run(x[:0], out[:0]) == 0
    assert run(x[:, :0], out[:, :0]) == 0
    x.flags.writeable = False
    assert run(x, out) == 0
