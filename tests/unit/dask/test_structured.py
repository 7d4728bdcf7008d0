"""Every structured op on random chunkings: the right result, or a sentence whose remedy works."""

import re
from functools import cache

import dask.array as da
import numpy as np
import pytest
import trueno
from hypothesis import given, settings
from trueno.discovery import registry
from trueno.errors import DtypeError, ParameterError, ShapeError
from trueno.ops import TABLE
from trueno.testing.expected import verdict
from trueno.testing.shapes import structured_cases
from unit.dask.chunking import DRAWN, chunked, computed

OPS = [op for op in TABLE.values() if op.structured]
CACHES = [op for op in OPS if op.caches or op.updates]
OTHERS = [op for op in OPS if op not in CACHES]
SMALL = 20_000


@cache
def cases(name):
    """The small cases of an op, in float32, with operands that can be wrong in no way but the split."""
    rng = np.random.default_rng(7)
    drawn = (case for case in structured_cases(TABLE[name], np.dtype(np.float32), rng))
    return [c for c in drawn if all(isinstance(x, np.ndarray) and x.size < SMALL for x in c.operands)]


def called(op, operands, given_, remedies):
    """The lazy result, after following every remedy that an error names."""
    operands = list(operands)
    for _ in range(12):
        try:
            return getattr(trueno, op.name)(*operands, **given_), operands
        except ShapeError as error:
            said = re.search(r"give (\w+)\.rechunk\(\{(\d): (-?\d+)\}\)$", str(error))
            if said is None:
                raise
            remedies.append(str(error))
            i = op.operands.index(said[1])
            operands[i] = operands[i].rechunk({int(said[2]): int(said[3])})
    raise AssertionError(f"{op.name}: no remedy ends this: {remedies}")


@pytest.mark.parametrize("op", OTHERS, ids=lambda op: op.name)
@settings(max_examples=6, deadline=None)
@given(random=DRAWN)
def test_structured(op, random):
    case = random.choice(cases(op.name))
    first = random.randrange(len(case.operands))
    lazy = [chunked(random, x, 2) if i == first or random.random() < 0.7 else x for i, x in enumerate(case.operands)]
    remedies = []
    with trueno.use("reference"):
        try:
            result, _ = called(op, lazy, case.kwargs, remedies)
        except ParameterError:
            if op.shapes is None:  # whose results' shapes only the op itself knows
                raise
            return
        results = computed(result)
    v = verdict(op, case.operands, case.kwargs, case.dtype, results, registry.load("reference").accuracy)
    assert v.ok, f"{case}, {[getattr(x, 'chunks', None) for x in lazy]}, {remedies}: {v}"


@pytest.mark.parametrize("op", CACHES, ids=lambda op: op.name)
def test_caches_belong_to_one_process(op):
    operands = [da.zeros((1,) * max(len(spec.dims), 1), dtype="f4") for spec in op.signature.inputs]
    with pytest.raises(DtypeError, match="Dask array, but a cache of keys and values"):
        getattr(trueno, op.name)(*operands)


@pytest.mark.parametrize(
    ("name", "symbols"),
    [("matmul", "mnk"), ("matvec", "mk"), ("vecmat", "nk"), ("batched_matmul", "mnk"), ("transpose", "mn"),
     ("outer", "mn"), ("dequantize", "m"), ("quantize_rows", "m"), ("quant_matvec", "n"), ("quant_matmul", "mn"),
     ("quant_matvec_colmajor", "k"), ("quant_matmul_colmajor", "mk"), ("symmetric_eigen", ""), ("attention", ""),
     ("rope", ""), ("topk", ""), ("quant_experts", "")],
)  # fmt: skip
def test_what_the_table_lets_be_split(name, symbols):
    from trueno_dask.structured import contracted, free

    assert free(TABLE[name], contracted(TABLE[name])) == set(symbols)


def test_products_of_halves_are_rounded_once():
    rng = np.random.default_rng(3)
    a, b = (rng.standard_normal(s).astype(np.float16) for s in ((4, 4000), (4000, 3)))
    lazy = trueno.matmul(da.from_array(a, chunks=(2, 100)), da.from_array(b, chunks=(100, 2))).compute()
    exact = (a.astype(np.float64) @ b.astype(np.float64)).astype(np.float16)
    assert lazy.dtype == np.float16 and np.abs(lazy.view(np.int16) - exact.view(np.int16)).max() <= 1


@pytest.mark.parametrize("mode", ["valid", "same"])
@settings(max_examples=12, deadline=None)
@given(random=DRAWN)
def test_convolutions(mode, random):
    rng = np.random.default_rng(random.getrandbits(32))
    many = random.random() < 0.4
    h, w = random.randint(1, 14), random.randint(1, 14)
    p, q = (random.randint(1, n if mode == "valid" else n + 3) for n in (h, w))
    x = rng.standard_normal((2, h, w) if many else (h, w)).astype(np.float32)
    kernel = rng.standard_normal((3, 2, p, q) if many else (p, q)).astype(np.float32)
    lazy = chunked(random, x).rechunk({0: -1}) if many else chunked(random, x)
    filters = da.from_array(kernel, chunks=(2, 2, -1, -1)) if many else kernel
    (y,) = computed(trueno.convolve2d(lazy, filters, mode=mode))
    op = TABLE["convolve2d"]
    v = verdict(op, (x, kernel), {"mode": mode}, np.float32, [y], registry.load("reference").accuracy)
    assert v.ok, f"{x.shape} {kernel.shape} {lazy.chunks}: {v}"


def test_lookups_in_a_table_of_many_chunks():
    rng = np.random.default_rng(5)
    table, i = rng.standard_normal((23, 6)).astype(np.float32), rng.integers(0, 23, (5, 4))
    lazy = trueno.embedding_lookup(da.from_array(table, chunks=(4, 4)), da.from_array(i, chunks=(2, 3)))
    assert np.array_equal(lazy.compute(), table[i])
    i[3, 2] = 23
    wrong = trueno.embedding_lookup(da.from_array(table, chunks=(4, 6)), da.from_array(i, chunks=(2, 3)))
    with pytest.raises(
        ParameterError, match=r"i\[1, 2\] is 23; rows of table are 0 to 22 .in chunk \(1, 0, 0\), whose"
    ):
        wrong.compute()
