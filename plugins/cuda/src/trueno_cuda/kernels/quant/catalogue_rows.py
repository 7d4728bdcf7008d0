"""The catalogue's entries of products with a few vectors: one for each format."""

from functools import partial
from typing import Any

import numpy as np
from trueno.backend import FORMATS, unit_shape

from trueno_cuda.catalogue.entry import GUARDED, CatalogueEntry, Constant, Parity, Sample, Want
from trueno_cuda.device.protocol import Device
from trueno_cuda.kernels.epilogue import scaled_late
from trueno_cuda.kernels.quant.rows import MOST_COLUMNS, MOST_SUMS, Form, Part, rows
from trueno_cuda.ptx import Kernel

ROWS, SHARE, EPS = 16, 6, 0.5
VECTORS = 3
"""Of the batched form that is compared with the product of one vector."""
BATCHED = ("q4_k", "q6_k")
"""Formats of the mixtures that most models have: their products have a batched form that is compared."""


def _build(
    arch: str, *, name: str, activations: str, columns: int, threads: int, ahead: int, access: int, guarded: bool,
    norm: bool = False,
) -> Kernel:  # fmt: skip
    part = Part(name, access, 1)
    return rows(arch, Form(((part,),), activations, columns, threads, 1, 1, ahead, True, guarded, norm=norm))


def _sample(
    rng: np.random.Generator, *, name: str, activations: str, columns: int, threads: int, ahead: int, access: int,
    guarded: bool, norm: bool = False,
) -> Sample:  # fmt: skip
    """Small whole numbers in x, which 8 bits hold exactly, and random blocks with scales of about 1."""
    f = FORMATS[name]
    k = f.elements * min(max(threads // unit_shape(name).units - 1, 1), 4)
    w, values = _matrix(rng, name, k)
    x = rng.integers(-127, 128, (columns, k // 32, 32)).astype(np.float32)
    x[..., 0] = 127.0  # the scale is then 1, or -1
    x = x.reshape(columns, k)
    seen, weights = x.astype(np.float64), rng.choice(np.float32([-2, 2]), k)
    if norm:
        seen = seen * weights / np.sqrt((seen**2).mean(axis=1, keepdims=True) + EPS)
    want, size = seen @ values.T, np.abs(seen) @ np.abs(values).T
    operands: dict[str, Any] = {"x": x, "w0": w, "out0": np.full((columns, ROWS), np.nan, np.float32)}
    if norm:
        operands |= {"norm": weights, "eps": EPS}
    wants = {"out0": Want(want, (size + 1e3) * 2.0**-16)}
    if guarded:
        operands["status"], wants["status"] = np.zeros(1, np.uint32), Want(np.zeros(1, np.uint32))
    operands |= {"depth": k, "row_bytes0": w.shape[1], "rows0": ROWS, "share0": SHARE, "start0": 0}
    return Sample((-(-ROWS // SHARE), 1, 1), operands, wants)


def _matrix(rng: np.random.Generator, name: str, k: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Random blocks with moderate scales, and the float64 numbers that they stand for, element by element."""
    f = FORMATS[name]
    data = rng.integers(0, 256, (ROWS, f.row_bytes(k)), np.uint8)
    blocks = data.reshape(-1, f.nbytes)
    for field in filter(None, (f.d, f.m)):
        spec = f.fields[field]
        moderate = rng.integers(124, 130, len(blocks)) if f.e8m0 else rng.uniform(0.5, 2.0, len(blocks))
        blocks[:, spec.offset : spec.offset + spec.nbytes] = moderate.astype(spec.dtype)[:, None].view(np.uint8)
    elements = [[_element(f, block, e) for e in range(f.elements)] for block in blocks]
    return data, np.array(elements).reshape(ROWS, k)


def _element(f: Any, block: Any, e: int) -> float:
    """What element e of a block stands for, by the definition of the table of formats."""
    code = 0
    for p in f.planes:
        chunk, rest = divmod(e, p.run * p.ways)
        way, r = divmod(rest, p.run)
        byte = int(block[f.fields[p.field].offset + chunk * p.run + r])
        code |= (byte >> way * p.bits & (1 << p.bits) - 1) << p.to

    def whole(pieces: Any) -> int:
        return sum((int(block[p.byte]) >> p.shift & (1 << p.bits) - 1) << p.to for p in pieces[e // f.group])

    def number(field: str) -> float:
        spec = f.fields[field]
        return float(block[spec.offset : spec.offset + spec.nbytes].view(spec.dtype)[0])

    value = f.values[code] if f.values else (code + 128) % 256 - 128 if f.signed else code - f.bias
    scale = whole(f.scales) if f.scales else 1
    scale = (scale + 128) % 256 - 128 if f.scale_signed else scale - (f.scale_bias if f.scales else 0)
    d = 2.0 ** (number(f.d) - 128) if f.e8m0 else number(f.d)
    added = 0.0 if not f.m else -number(f.m) * whole(f.mins) if f.mins else number(f.m)
    return d * scale * value + added


def _both(
    device: Device, rng: np.random.Generator, batched: Kernel, single: Kernel, *, name: str
) -> tuple[Any, Any]:  # fmt: skip
    """Products of some vectors by one launch, and by one launch each."""
    f = FORMATS[name]
    k = f.elements * 3
    w, _ = _matrix(rng, name, k)
    x, arrays = rng.standard_normal((VECTORS, k)).astype(np.float32), []
    numbers = (k, w.shape[1], ROWS, SHARE, 0)

    def launched(kernel: Kernel, some: Any) -> Any:
        out = device.empty((len(some), ROWS), np.dtype(np.float32))
        arrays[:] = [device.to_device(some), device.to_device(w)]  # alive until the result has been fetched
        device.prepare(kernel, (-(-ROWS // SHARE), 1, 1), numbers)([a.data.ptr for a in (*arrays, out)])
        return device.to_host(out)

    return launched(batched, x), np.concatenate([launched(single, x[i : i + 1]) for i in range(VECTORS)])


def _entry(name: str) -> CatalogueEntry:
    more = (
        {"activations": "f32", "columns": 2, "access": 4},
        {"columns": 3, "threads": 64, "ahead": 1, "guarded": True},
        {"threads": 64, "norm": True},
    )
    return CatalogueEntry(
        f"quant_rows_{name}",
        "products",
        f"a few vectors times a matrix in {name}, a unit of each row a lane",
        partial(_build, name=name),
        partial(_sample, name=name),
        (
            Constant("activations", "q8", "x in 8 bits, or as it is", tuple(MOST_COLUMNS)),
            Constant("columns", 1, "vectors", tuple(range(1, max(MOST_COLUMNS.values()) + 1))),
            Constant("threads", 32, "of a block, one for each unit of a row", tuple(range(32, 1025, 32))),
            Constant("ahead", 2, "rows on their way at once", tuple(range(1, MOST_SUMS + 1))),
            Constant("access", 16, "what divides the matrix' address and its bytes", (16, 4, 1)),
            GUARDED,
            *([Constant("norm", False, "whether x is normalized first", (False, True))] if scaled_late(name) else []),
        ),
        variants=({}, *(more if name == "q4_k" else more[::2] if name == "q6_k" else ())),
        parity=Parity("register_unroll", {"columns": VECTORS}, partial(_both, name=name)) if name in BATCHED else None,
    )


CATALOGUE = [_entry(name) for name, f in FORMATS.items() if f.weights]
