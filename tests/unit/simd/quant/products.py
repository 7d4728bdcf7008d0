"""Products with quantized matrices in float64, and how far a float32 sum may be from them."""

import numpy as np
from trueno.formats import FORMATS, decode
from trueno.formats.table import Format


def weights(rng: np.random.Generator, f: Format, n: int, k: int) -> np.ndarray:
    """Random bytes, but for scales of either sign between 0.1 and 1."""
    w = rng.integers(0, 256, (n, k // f.elements, f.nbytes), dtype=np.uint8)
    for name in {f.d, f.m} - {""}:
        at = f.fields[name].offset
        if f.e8m0:
            w[:, :, at] = rng.integers(110, 140, w.shape[:2])
        else:
            scale = rng.uniform(0.1, 1, w.shape[:2]) * rng.choice([-1, 1], w.shape[:2])
            w[:, :, at : at + 2] = scale.astype("<f2").view(np.uint8).reshape(*w.shape[:2], 2)
    return w.reshape(n, -1)


def set_scale(f: Format, w: np.ndarray, row: int, block: int, value: float, name: str = "") -> None:
    at = block * f.nbytes + f.fields[name or f.d].offset
    w[row, at : at + 2] = np.array([value], "<f2").view(np.uint8)


def activations(f: Format, x: np.ndarray) -> np.ndarray:
    """What x stands for once quantized as ggml's CPU code does, in float64."""
    blocks = x.reshape(len(x), -1, FORMATS[f.activations].elements)
    with np.errstate(all="ignore"):
        if f.activations == "q8_k":
            first = np.abs(blocks).argmax(-1)[..., None]
            factor = np.float32(-127) / np.take_along_axis(blocks, first, -1)
            factor[~np.isfinite(factor)] = 0
            d = np.where(factor == 0, np.float32(0), np.float32(1) / factor)
        else:
            most = np.abs(blocks).max(-1, keepdims=True)
            factor = np.float32(127) / most
            factor[~np.isfinite(factor)] = 0
            d = (most / np.float32(127)).astype("<f2").astype("<f4")
        bad = ~np.isfinite(blocks).all(-1, keepdims=True)
        codes = np.where(bad, 1, np.rint(blocks * factor)).astype("f8")
        return (np.where(bad, np.nan, d).astype("f4") * codes.astype("f4")).astype("f8").reshape(x.shape)


def product(f: Format, way: str, x: np.ndarray, w: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """y in float64, how far a float32 sum of k terms may be from it, and whether float32 has room for the terms."""
    a = activations(f, x) if way == "q8" else x.astype("f8")
    v = decode(f, w).astype("f8")
    with np.errstate(all="ignore"):
        k = x.shape[1]
        fits = np.abs(np.where(np.isfinite(a), a, 0)) @ np.abs(np.where(np.isfinite(v), v, 0)).T < 3e38
        return a @ v.T, (k + 4) * (2.0**-24 * (np.abs(a) @ np.abs(v).T) + 2.0**-149), fits


def right(f: Format, way: str, x: np.ndarray, w: np.ndarray, got: np.ndarray) -> None:
    """Fail where a product is not within the bound of its sum."""
    want, bound, fits = product(f, way, x, w)
    finite, special = np.isfinite(want) & fits, ~np.isfinite(want) & fits
    assert np.array_equal(got[special], want[special].astype("f4"), equal_nan=True), "NaN and infinities"
    excess = np.abs(got[finite] - want[finite]) - bound[finite]
    assert (excess <= 0).all(), f"{f.name}, {way}, {x.shape} x {w.shape}: worst excess {excess.max()}"
