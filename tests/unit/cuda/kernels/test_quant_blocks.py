"""Blocks decoded inside a kernel: bit for bit as the core's decoder, which is ggml's."""

from typing import Any

import numpy as np
import pytest
from trueno.formats.decode import decode
from trueno.formats.samples import random_rows
from trueno.formats.table import FORMATS, WEIGHTS
from trueno.formats.units import COLUMN, unit_shape
from trueno_cuda.kernels.quant.blocks import Blocks, access_of
from trueno_cuda.ptx import Kernel, Source, f32, kernel, ptr, u8, u32, u64
from trueno_cuda.ptx.emulate import load
from unit.cuda.kernels.moves import random

ROWS, BLOCKS = 3, 3


def floats_of(name: str, access: int, fixed: bool) -> Kernel:
    """Every element as float32: a unit a thread.  fixed: Python knows where the unit lies in its block."""
    f, s = FORMATS[name], unit_shape(name)

    @kernel(threads=64)
    def decoded(k: Any, w: ptr(u8), y: ptr(f32), units: u32, row_bytes: u32) -> None:  # type: ignore[valid-type]
        blocks = Blocks(k, f, w, access)

        def unit(row: Any, number: Any, within: Any) -> None:
            block = blocks.line(row.to(u64) * row_bytes.to(u64)).block(number)
            e = blocks.first(within)
            raws, head = blocks.raws(block, e), blocks.head(block)
            start = (row * BLOCKS + number) * f.elements
            for way in range(s.ways):
                g = blocks.group(e, way)
                factor, added = blocks.factor(head, g), blocks.offset(head, g)
                words = blocks.codes(raws, e, way)
                signed = k.unpack(blocks.values(words)[1], f32)
                for i, word in enumerate(words):
                    for j, v in enumerate(blocks.floats(word)):
                        if i == 1:  # the same by both ways
                            v = k.select(v == signed[j], v, k.const(f32, float("nan")))
                        v = v * factor
                        y.store(start + e + (way * s.run + 4 * i + j), v if added is None else v + added)

        at = k.ctaid * 64 + k.tid
        with k.when(at < units):
            if fixed:
                for within in range(s.units):
                    unit(at // BLOCKS, at % BLOCKS, within)
            else:
                unit(at // (BLOCKS * s.units), at // s.units % BLOCKS, at % s.units)

    assert isinstance(decoded, Source)
    return decoded.build("sm_80")


@pytest.mark.parametrize("name", WEIGHTS)
@pytest.mark.parametrize(("offset", "rows"), [(0, 16), (0, 4), (4, 4), (1, ROWS)])
def test_bit_for_bit(name: str, offset: int, rows: int) -> None:
    """Of aligned matrices, of views that begin anywhere, and with scales of all bits, NaN and subnormal ones too."""
    f, s, rng = FORMATS[name], unit_shape(name), random()
    room = rng.integers(0, 256, rows * BLOCKS * f.nbytes + 32, np.uint8)
    start = -room.ctypes.data % 16 + offset
    w = room[start : start + rows * BLOCKS * f.nbytes].reshape(rows, -1)
    if offset:
        w[:] = random_rows(f, w.shape, rng)
    access = access_of(f, w.ctypes.data, w.nbytes)
    assert access == {0: 16 if w.nbytes % 16 == 0 else 4, 4: 4, 1: 1}[offset]
    y = np.zeros((rows, BLOCKS * f.elements), np.float32)
    fixed = offset == 4
    units = rows * BLOCKS * (1 if fixed else s.units)
    built = floats_of(name, access, fixed)
    report = load(built).launch(built.name, grid=-(-units // 64), block=64, args=[w, y, units, w.shape[1]])
    assert not report.findings
    want = decode(f, w)
    np.testing.assert_array_equal(np.isnan(y), np.isnan(want))
    np.testing.assert_array_equal(y.view(np.uint32)[~np.isnan(want)], want.view(np.uint32)[~np.isnan(want)])
    assert s.elements == s.ways * COLUMN
