"""Every elementwise op and every row op on random chunkings, by the tolerance that follows from its body in float64."""

from dataclasses import replace

import dask.array as da
import numpy as np
import pytest
import trueno
from hypothesis import given, settings
from trueno.discovery import registry
from trueno.judge.bound import judge
from trueno.ops import TABLE
from trueno.testing.cases import grid, keywords
from trueno.testing.expected import expected, verdict
from trueno.testing.halves import finfo
from unit.dask.chunking import DRAWN, chunked, computed

ROWS = [op for op in TABLE.values() if not op.structured and op.over is not None]
ELEMENTS = [op for op in TABLE.values() if not op.structured and op.over is None]
DTYPES = (np.float32, np.float32, np.float64, np.float16)


def check(op, random, backend):
    """A call of an op on random operands in random chunks, along the last axis or the first."""
    rng = np.random.default_rng(random.getrandbits(32))
    dtype = np.dtype(random.choice(DTYPES))
    operands = grid(op, dtype, rng, random.choice([1, 2, 7, 30]))
    given_ = random.choice(keywords(op))
    turned = op.over is not None and random.random() < 0.4
    lazy = [x.T if turned and x.ndim == 2 else x for x in operands]
    lazy = [chunked(random, x) if random.random() < 0.8 or i == 0 else x for i, x in enumerate(lazy)]
    axis = {"axis": 0} if turned else {}
    with trueno.use(backend):
        results = computed(getattr(trueno, op.name)(*lazy, **given_, **axis))
    results = [r.T if turned and r.ndim == 2 else r for r in results]
    bounds = expected(op, operands, given_, dtype, registry.load(backend).accuracy)
    for y, b in zip(results, bounds, strict=True):
        v = judge(y, nearly(b, dtype) if op.over else b)
        assert v.ok, f"{op.name} {dtype} {given_} {[getattr(x, 'chunks', None) for x in lazy]}: {v}"


def nearly(bound, dtype):
    """The bound of the op on whole rows, and a few of the smallest numbers: a part has a centre of its own."""
    if bound.allowed is not None:
        return bound
    some, least = bound.low <= bound.high, 8 * float(finfo(dtype).smallest_subnormal)
    low, high = np.where(some, bound.low - least, bound.low), np.where(some, bound.high + least, bound.high)
    return replace(bound, low=low, high=high)


@pytest.mark.parametrize("op", ROWS, ids=lambda op: op.name)
@settings(max_examples=8, deadline=None)
@given(random=DRAWN)
def test_rows(op, random):
    check(op, random, "reference")


@pytest.mark.parametrize("op", ELEMENTS, ids=lambda op: op.name)
@settings(max_examples=2, deadline=None)
@given(random=DRAWN)
def test_elements(op, random):
    check(op, random, "reference")


def test_parts_are_compiled():
    """By a backend that prints row programs; the parts of an op are programs as any other."""
    pytest.importorskip("trueno_simd")
    x = np.random.default_rng(4).standard_normal((40, 90)).astype(np.float32)
    lazy = da.from_array(x, chunks=(20, 30))
    for name in ("softmax", "variance"):
        with trueno.use("simd"):
            (y,) = computed(getattr(trueno, name)(lazy))
        v = verdict(TABLE[name], (x,), {}, np.float32, [y], registry.load("simd").accuracy)
        assert v.ok, f"{name}: {v}"
