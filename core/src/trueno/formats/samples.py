"""Random rows of blocks, for tests and measurements: any bits for codes, and scales that make the numbers about 1."""

import numpy as np
import numpy.typing as npt

from trueno.formats.decode import stored
from trueno.formats.interleave import interleaved
from trueno.formats.table import FORMATS, Format


def random_rows(f: Format | None, shape: tuple[int, ...], rng: np.random.Generator) -> npt.NDArray[np.uint8]:
    """Rows of blocks as uint8 of `shape`, whose last extent is a whole number of blocks.

    Quantizing random numbers would reach only the codes that a quantizer writes, and would be slower than the product.
    """
    assert f is not None
    if f.plain:
        return interleaved(random_rows(FORMATS[f.plain], shape, rng), f)
    if f.cells:
        return stored(f, rng.standard_normal((*shape[:-1], f.row_elements(shape[-1])), np.float32))
    data = rng.integers(0, 256, shape, np.uint8)
    blocks = data.reshape(-1, f.nbytes)
    code = max(map(abs, f.values)) if f.values else 1 << (f.code_bits - bool(f.bias or f.signed))
    bits = max((p.to + p.bits for group in f.scales for p in group), default=0)
    size = 1.0 / (code << max(bits - bool(f.scale_bias or f.scale_signed), 0))

    def put(name: str, values: npt.NDArray[np.float64]) -> None:
        spec = f.fields[name]
        blocks[:, spec.offset : spec.offset + spec.nbytes] = values.astype(spec.dtype)[:, None].view(np.uint8)

    n = len(blocks)
    if f.e8m0:  # a power of two, from 2^(d − 128)
        put(f.d, rng.integers(123, 126, n).astype(np.float64))
        return data
    put(f.d, rng.uniform(0.5, 2.0, n) * size * rng.choice([-1.0, 1.0], n))
    if f.m:
        put(f.m, rng.uniform(0.0, 1.0, n) * (code * size if f.mins else 1.0))
    return data
