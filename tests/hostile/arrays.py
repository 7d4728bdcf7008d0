"""Unwelcome arrays: every layout NumPy can express, filled with every kind of value.

`laid(rng, values, layout)` gives an array equal to `values` whose memory is arranged as the layout says, and the buffer
that holds it, so that a caller can see whether anybody wrote there.
"""

import tempfile
from collections.abc import Callable

import ml_dtypes
import numpy as np
import numpy.typing as npt
from trueno.testing.cases import EDGES, kinds
from trueno.testing.halves import finfo

Array = npt.NDArray

DTYPES = tuple(map(np.dtype, (np.float32, np.float64, np.float16, ml_dtypes.bfloat16)))
SHARES = (0.5, 0.25, 0.125, 0.125)
LENGTHS = (0, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33, 63, 64, 65, 127, 129, 255, 1000, 1023, 1025, 4097)
SHORT = (0, 1, 1, 2, 3, 4, 5, 7, 8, 9, 16, 17, 33)
LONG = (10_007, 40_000, 70_001, 131_073)


class Odd(np.ndarray):
    """A subclass that adds nothing."""


def shape(
    rng: np.random.Generator, largest: int, ranks: tuple[int, ...] = (0, 1, 1, 1, 2, 2, 2, 3, 4, 5)
) -> tuple[int, ...]:
    """A shape of at most `largest` elements."""
    rank = int(rng.choice(ranks))
    if rank == 1 and rng.random() < 0.05:
        found = [int(rng.choice(LONG))]
    else:
        found = [int(rng.choice(SHORT)) for _ in range(rank)]
        if rank and rng.random() < 0.7:
            found[int(rng.integers(rank))] = int(rng.choice(LENGTHS))
    while np.prod(found, dtype=int) > largest:
        found[int(np.argmax(found))] //= 2
    return tuple(found)


def typed(values: Array, dtype: np.dtype) -> Array:
    with np.errstate(all="ignore"):
        return np.ascontiguousarray(values).astype(dtype)


VALUES = ("natural", "normal", "tiny", "subnormal", "huge", "nonfinite", "zeros", "constant", "whole", "wide", "edges",
          "near", "bits")  # fmt: skip
TAME = ("normal", "constant", "whole", "natural", "near")
"""Kinds with which nothing overflows or vanishes on the way."""


def values(rng: np.random.Generator, kind: str, shape: tuple[int, ...], dtype: np.dtype, op=None) -> Array:
    """Numbers of one kind in `dtype`."""
    info, n = finfo(dtype), int(np.prod(shape, dtype=int))
    normal, signs = rng.standard_normal(n), rng.choice([-1.0, 1.0], n)
    few = rng.random(n) < rng.choice([0.01, 0.1, 0.5, 1.0])
    if kind == "natural" and op is not None:
        found = kinds(op, dtype, rng, max(n, 1))["natural"][:n]
    elif kind == "tiny":
        found = normal * float(info.smallest_normal) * 10.0 ** rng.uniform(0, 8)
    elif kind == "subnormal":
        found = normal * float(info.smallest_subnormal) * float(rng.choice([1, 10, 500, 1e5]))
    elif kind == "huge":
        found = signs * float(info.max) * rng.uniform(0.1, 1, n) ** float(rng.choice([1, 4, 20]))
    elif kind == "nonfinite":
        found = np.where(few, rng.choice([np.nan, np.inf, -np.inf], n), normal)
    elif kind == "zeros":
        found = np.where(few, rng.choice([0.0, -0.0], n), normal)
    elif kind == "constant":
        found = np.full(n, rng.choice([1.1, 1234.5, 1e-4, 3.0, -0.3, rng.standard_normal()]))
    elif kind == "whole":
        found = np.rint(normal * float(rng.choice([2, 20, 1000])))
    elif kind == "wide":
        span = 0.95 * float(np.log(info.max))
        found = signs * np.exp(rng.uniform(-span, span, n))
    elif kind == "edges":
        found = rng.choice(EDGES, n)
    elif kind == "near":
        found = float(rng.choice([1, 100, -7])) + 1e-3 * normal
    elif kind == "bits":
        raw = rng.integers(0, 256, n * dtype.itemsize, np.uint8)
        return raw.view(dtype).reshape(shape)
    else:
        found = normal * 10.0 ** rng.uniform(-2, 2)
    return typed(found.reshape(shape), dtype)


def _within(rng: np.random.Generator, x: Array, before: int, after: int) -> Array:
    """The elements of x inside a larger buffer, in C order."""
    raw = typed(rng.standard_normal(x.size + before + after), x.dtype)
    inside = raw[before : before + x.size].reshape(x.shape)
    inside[...] = x
    return inside


def _strided(rng: np.random.Generator, x: Array) -> Array:
    steps = rng.integers(1, 4, x.ndim)
    raw = typed(rng.standard_normal([n * s + 1 for n, s in zip(x.shape, steps, strict=True)]), x.dtype)
    inside = raw[tuple(slice(0, n * s, s) for n, s in zip(x.shape, steps, strict=True))]
    inside[...] = x
    return inside


def _reversed(rng: np.random.Generator, x: Array) -> Array:
    turn = tuple(slice(None, None, int(rng.choice([-1, 1]))) for _ in x.shape)
    return x[turn].copy()[turn] if x.ndim else x


def _permuted(rng: np.random.Generator, x: Array) -> Array:
    order = rng.permutation(x.ndim)
    return np.ascontiguousarray(x.transpose(order)).transpose(np.argsort(order)) if x.ndim else x


def _broadcast(rng: np.random.Generator, x: Array) -> Array:
    """An axis of stride 0; its values are those of the first."""
    if not x.ndim or not x.size:
        return x
    axis = int(rng.integers(x.ndim))
    return np.broadcast_to(np.take(x, [0], axis), x.shape)


def _unaligned(rng: np.random.Generator, x: Array) -> Array:
    odd = int(rng.integers(1, x.dtype.itemsize))
    raw = np.zeros(x.nbytes + odd, np.uint8)
    raw[odd:] = np.frombuffer(x.tobytes(), np.uint8)
    return np.ndarray(x.shape, x.dtype, raw.data, offset=odd)


def _overlapping(rng: np.random.Generator, x: Array) -> Array:
    """Windows into one another: element i of a row is element i + 1 of the row before."""
    if x.ndim < 2 or not x.size:
        return x
    raw = x.reshape(-1)[: x.shape[-1] + x.shape[-2]].copy()
    windows = np.lib.stride_tricks.sliding_window_view(raw, x.shape[-1])[: x.shape[-2]]
    return np.broadcast_to(windows, x.shape)


def _mapped(rng: np.random.Generator, x: Array) -> Array:
    with tempfile.TemporaryFile() as file:
        file.write(bytes(int(rng.integers(0, 64))) + x.tobytes())
        file.flush()
        return np.memmap(file, x.dtype, "r+", file.tell() - x.nbytes, x.shape) if x.size and x.ndim else x


def _field(rng: np.random.Generator, x: Array) -> Array:
    """A field of records of an odd size."""
    records = np.zeros(x.shape, [("before", f"V{int(rng.integers(0, 6))}"), ("x", x.dtype), ("after", "V3")])
    records["x"] = x
    return records["x"]


def _complex(rng: np.random.Generator, x: Array) -> Array:
    return (
        (x + 1j * rng.standard_normal(x.shape)).astype(f"c{2 * x.dtype.itemsize}").real if x.ndim and _plain(x) else x
    )


def _read_only(rng: np.random.Generator, x: Array) -> Array:
    return np.frombuffer(x.tobytes(), x.dtype).reshape(x.shape) if x.size else x


def _plain(x: Array) -> bool:
    return x.dtype in (np.float32, np.float64) and bool(np.isfinite(x).all())


def _listed(rng: np.random.Generator, x: Array):
    return x.tolist() if x.dtype == np.float32 and x.ndim and 0 < x.size < 5000 else x


LAYOUTS: dict[str, Callable[[np.random.Generator, Array], Array]] = {
    "plain": lambda rng, x: x,
    "offset": lambda rng, x: _within(rng, x, int(rng.integers(1, 20)), 5),
    "Fortran": lambda rng, x: np.asfortranarray(x),
    "reversed": _reversed,
    "permuted": _permuted,
    "strided": _strided,
    "broadcast": _broadcast,
    "unaligned": _unaligned,
    "overlapping": _overlapping,
    "read-only": _read_only,
    "big-endian": lambda rng, x: x.astype(x.dtype.newbyteorder()) if x.dtype.name != "bfloat16" else x,
    "memmap": _mapped,
    "subclass": lambda rng, x: x.view(Odd),
    "field": _field,
    "complex": _complex,
    "reversed strided": lambda rng, x: _strided(rng, x[..., ::-1])[..., ::-1] if x.ndim else x,
    "list": _listed,
}


def laid(rng: np.random.Generator, x: Array, layout: str = "") -> tuple[Array, str]:
    """An array like `x` in that layout (a random one unless given), and its name; some layouts change the values."""
    layout = layout or str(rng.choice(list(LAYOUTS)))
    return LAYOUTS[layout](rng, x), layout


def bytes_of(x) -> bytes:
    """Of the whole buffer that an array lies in, so that a write beside it shows."""
    if not isinstance(x, np.ndarray):
        return repr(x).encode()
    base = x
    while isinstance(base.base, np.ndarray):
        base = base.base
    return base.tobytes() + x.tobytes()
