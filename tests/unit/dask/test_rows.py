"""Every elementwise op and every row op on random chunkings, by the tolerance that follows from its body in float64."""

import dask.array as da
import numpy as np
import pytest
import trueno
from hypothesis import given, settings
from trueno.discovery import registry
from trueno.ops import TABLE
from trueno.testing.cases import grid, keywords
from trueno.testing.expected import verdict
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
    v = verdict(op, operands, given_, dtype, results, registry.load(backend).accuracy)
    assert v.ok, f"{op.name} {dtype} {given_} {[getattr(x, 'chunks', None) for x in lazy]}: {v}"


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
