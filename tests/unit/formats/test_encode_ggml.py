"""Encoding against ggml's own shared library, on fresh data of many kinds; skipped where it is not installed."""

import ctypes
import importlib.util
import platform
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from trueno.formats import FORMATS, WEIGHTS, encode, encode_activations
from trueno.formats.table import Format

N, K = 12, 768
SEED = 40


def _library(name: str) -> ctypes.CDLL:
    spec = importlib.util.find_spec("llama_cpp")
    if spec is None or spec.origin is None:
        pytest.skip("llama_cpp, which brings ggml, is not installed")
    if platform.machine().lower() not in ("x86_64", "amd64"):
        pytest.skip("ggml's encoders contract to fused multiply-adds on other machines than x86-64")
    found = sorted((Path(spec.origin).parent / "lib").glob(f"*{name}.*"))
    if not found:
        pytest.skip(f"llama_cpp has no library {name}")
    return ctypes.CDLL(str(found[0]))


@pytest.fixture(scope="module")
def quantize_chunk() -> Callable[..., np.ndarray]:
    call = _library("ggml-base").ggml_quantize_chunk
    call.restype = ctypes.c_size_t
    call.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, *[ctypes.c_int64] * 3, ctypes.c_void_p]

    def quantized(f: Format, x: np.ndarray, imatrix: np.ndarray | None) -> np.ndarray:
        out = np.zeros((len(x), f.row_bytes(x.shape[1])), np.uint8)
        weights = None if imatrix is None else imatrix.ctypes.data
        assert call(f.type_id, x.ctypes.data, out.ctypes.data, 0, *x.shape, weights) == out.nbytes
        return out

    return quantized


def rows(kind: str, rng: np.random.Generator) -> np.ndarray:
    normal = rng.standard_normal((N, K))
    signs = rng.choice([-1.0, 1.0], (N, K))
    x = {
        "normal": lambda: normal,
        "above": lambda: 1 + 0.05 * normal,
        "below": lambda: -1 + 0.05 * normal,
        "ties": lambda: rng.integers(-8, 9, (N, K)) / 2,
        "few values": lambda: rng.integers(-1, 2, (N, K)) * 1.0,
        "spikes": lambda: np.where(rng.random((N, K)) < 0.03, normal, 0),
        "constant": lambda: np.repeat(rng.standard_normal((N, K // 16)), 16, axis=1),
        "wide": lambda: np.exp(rng.uniform(-20, 20, (N, K))) * signs,
        "blocks of all sizes": lambda: np.repeat(10.0 ** rng.uniform(-12, 4, (N, K // 16)), 16, axis=1) * normal,
        "rows of all sizes": lambda: normal * 10.0 ** rng.uniform(-44, 37, (N, 1)),
        "tiny": lambda: normal * 1e-9,
        "subnormal": lambda: normal * 1e-39,
        "scales subnormal in half": lambda: normal * 1e-6,
        "zeros of both signs": lambda: 0.0 * signs,
        "powers of two": lambda: 2.0 ** rng.integers(-130, 120, (N, K)) * signs,
        "just below powers of two": lambda: np.nextafter(np.exp2(rng.integers(-120, 127, (N, K))).astype("f4"), 0),
        "any bits": lambda: rng.integers(0, 2**32, (N, K), np.uint32).view(np.float32),
    }[kind]()
    with np.errstate(all="ignore"):
        x = np.asarray(x).astype(np.float32)
    return np.where(np.isfinite(x), x, np.float32(0))


KINDS = ["normal", "above", "below", "ties", "few values", "spikes", "constant", "wide", "blocks of all sizes",
         "rows of all sizes", "tiny", "subnormal", "scales subnormal in half", "zeros of both signs", "powers of two",
         "just below powers of two", "any bits"]  # fmt: skip


def importances(rng: np.random.Generator) -> dict[str, np.ndarray | None]:
    lone = rng.integers(0, 32, K // 32) + 32 * np.arange(K // 32)
    found = {
        "uniform": rng.random(K),
        "wide": np.exp(rng.uniform(-30, 10, K)),
        "zero": np.zeros(K),
        "one a group": np.isin(np.arange(K), lone) * 1.0,  # lines through one point: scales of rounding noise
        "sparse": (rng.random(K) < 0.1) * rng.random(K),
        "runs of 16": rng.random(K) * np.repeat(rng.random(K // 16) < 0.6, 16),
        "runs of 32": rng.random(K) * np.repeat(rng.random(K // 32) < 0.6, 32),
        "blocks": rng.random(K) * np.repeat(rng.permutation(3) > 0, 256),
        "nearly runs": np.repeat(np.where(rng.random(K // 32) < 0.6, 1, 1e-38), 32),
        "huge": rng.random(K) * 1e30,
        "tiny": rng.random(K) * 1e-40,
    }
    return {"none": None, **{name: weights.astype(np.float32) for name, weights in found.items()}}


@pytest.mark.parametrize("name", WEIGHTS)
@pytest.mark.parametrize("kind", KINDS)
def test_gives_the_bytes_of_the_library(name: str, kind: str, quantize_chunk: Callable[..., np.ndarray]) -> None:
    print("seed", SEED)
    rng = np.random.default_rng([SEED, KINDS.index(kind)])
    x, f = rows(kind, rng), FORMATS[name]
    wrong = {}
    for weights, imatrix in importances(rng).items():
        differ = (encode(f, x, imatrix) != quantize_chunk(f, x, imatrix)).reshape(-1, f.nbytes).any(axis=1)
        if differ.any():
            wrong[weights] = np.flatnonzero(differ)
    assert not wrong


@pytest.mark.parametrize("name", ["q8_0", "q8_1", "q8_k"])
@pytest.mark.parametrize("kind", KINDS)
def test_activations_are_those_of_the_cpu_backend(name: str, kind: str) -> None:
    library = _library("ggml-cpu")
    call = getattr(library, f"quantize_row_{name.replace('k', 'K')}")
    call.argtypes, call.restype = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64], None
    print("seed", SEED)
    x, f = rows(kind, np.random.default_rng([SEED, KINDS.index(kind)])), FORMATS[name]
    wanted = np.zeros((N, f.row_bytes(K)), np.uint8)  # zero, for ggml writes no sums of a block of zeros
    for row, out in zip(x, wanted, strict=True):
        call(row.ctypes.data, out.ctypes.data, K)
    assert np.array_equal(encode_activations(f, x), wanted)
