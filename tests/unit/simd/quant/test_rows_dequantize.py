"""dequantize gives ggml's bits for every format, whatever the bytes, and touches nothing else."""

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("numba", reason="needs numba")
from trueno.formats import FORMATS, WEIGHTS, decode
from unit.simd.structured import structured_kernel

GGML = np.load(Path(__file__).parents[3] / "golden/ggml/quant.npz", allow_pickle=False)


def kernel(name: str):
    return structured_kernel("dequantize", format=name)


def dequantize(name: str, w: np.ndarray) -> np.ndarray:
    m, k = w.shape[0], FORMATS[name].row_elements(w.shape[1])
    room = np.full(m * k + 64, 7.5, "f4")
    out = room[32 : 32 + m * k].reshape(m, k)
    assert kernel(name)(w, out) == 0
    assert set(room[:32]) | set(room[32 + m * k :]) == {7.5}, "written beside the result"
    return out


@pytest.mark.parametrize("name", WEIGHTS)
@pytest.mark.parametrize("data, values", [("q", "dq"), ("rb", "rbdq")])
def test_the_bits_are_ggmls(name: str, data: str, values: str) -> None:
    got = dequantize(name, GGML[f"{data}_{name.upper()}"])
    assert got.tobytes() == GGML[f"{values}_{name.upper()}"].tobytes()


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("rows, blocks", [(1, 1), (3, 5), (2, 700)])
def test_any_bytes(name: str, rows: int, blocks: int) -> None:
    """Random bytes hold every kind of scale: subnormal, infinite, NaN.  The core's decoder is the witness."""
    seed = 11
    print("seed", seed)
    f = FORMATS[name]
    w = np.random.default_rng(seed).integers(0, 256, (rows, blocks * f.nbytes), dtype=np.uint8)
    w.reshape(-1, f.nbytes)[::7] = 0
    w.flags.writeable = False
    got, wanted = dequantize(name, w), decode(f, w)
    numbers = ~np.isnan(wanted)
    assert np.array_equal(got[numbers].view("u4"), wanted[numbers].view("u4"))
    assert np.isnan(got[~numbers]).all()


@pytest.mark.parametrize("name", ["q4_0", "q4_k", "q8_k"])
def test_what_does_not_fit_is_refused(name: str) -> None:
    f, run = FORMATS[name], kernel(name)
    w = np.zeros((2, 2 * f.nbytes), np.uint8)
    for shape in (2, f.elements), (2, 2 * f.elements + 1), (1, 2 * f.elements), (3, 2 * f.elements):
        out = np.full(shape, 3, "f4")
        assert run(w, out) == -1
        assert np.all(out == 3)
    assert run(np.zeros((2, f.nbytes + 1), np.uint8), np.empty((2, f.elements), "f4")) == -1
    shared = np.zeros(4096, "f4")
    assert run(shared.view(np.uint8)[: 2 * f.nbytes].reshape(2, -1), shared[: 2 * f.elements].reshape(2, -1)) == -1
    with pytest.raises(TypeError):
        run(w.view(np.int8), np.empty((2, 2 * f.elements), "f4"))
    with pytest.raises(TypeError):
        run(w, np.empty((2, 2 * f.elements), "f8"))
    assert run(w[:0], np.empty((0, 2 * f.elements), "f4")) == 0
    assert run(w[:, :0], np.empty((2, 0), "f4")) == 0


def test_a_format_that_is_not_there_is_a_key_error() -> None:
    with pytest.raises(KeyError):
        kernel("q4_2")
