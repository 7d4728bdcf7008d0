"""Ops on caches of keys and values, against PyTorch in float64 on the tokens of each sequence."""

from contextlib import nullcontext, suppress

import numpy as np
import pytest
import trueno
from hypothesis import given, settings
from hypothesis import strategies as st
from trueno.errors import BatchError, DtypeError, OutError, ParameterError, ShapeError, TruenoError
from trueno.ops import TABLE
from trueno.testing.shapes import structured_cases
from trueno.testing.subject import rejected
from unit.caches import DTYPES, FORMS, by_torch, problem, stored

BACKENDS = [name for name in ("reference", "scalar", "simd") if name in trueno.backends()]
SHAPES = [  # b, t, hq, hk, d, e, pages, page, blocks: below, at and above the sizes of blocks, tasks and tiles
    (1, 1, 1, 1, 32, 32, 1, 1, 1),
    (3, 1, 14, 2, 64, 64, 3, 300, 1),
    (2, 1, 8, 8, 128, 96, 90, 16, 40),
    (2, 5, 6, 2, 32, 64, 9, 130, 4),
    (1, 3, 4, 1, 96, 32, 7, 64, 7),
]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_decode_against_pytorch(backend, form, shape):
    rng = np.random.default_rng([1, *shape])
    for options in ({}, {"window": 33}, {"softcap": 3.0, "scale": 0.2}):
        (q, k, v, table, lengths), keys, values = problem(rng, shape, form)
        with trueno.use(backend):
            named = {"format": form} if form == "q8_0" else {}
            got = trueno.attention_decode(q, k, v, table, lengths, **named, **options)
        assert got.dtype == np.float32
        for i, length in enumerate(lengths):
            at = table[i, np.arange(length) // shape[7]], np.arange(length) % shape[7]
            np.testing.assert_allclose(got[i], by_torch(q[i], keys[at], values[at], **options), rtol=0, atol=6e-6)


@pytest.mark.parametrize("backend", BACKENDS)
def test_paged_is_contiguous(backend):
    """The same tokens on pages of 16, in any order, and in one piece."""
    rng = np.random.default_rng(3)
    whole_k, whole_v = (rng.normal(size=(2, 320, 2, 64)).astype(np.float16) for _ in range(2))
    q, lengths = rng.normal(size=(2, 2, 6, 64)).astype(np.float32), np.array([320, 117])
    order = rng.permutation(40)
    k, v = (np.empty((40, 16, 2, 64), np.float16) for _ in range(2))
    k[order], v[order] = whole_k.reshape(40, 16, 2, 64), whole_v.reshape(40, 16, 2, 64)
    with trueno.use(backend):
        one = trueno.attention_decode(q, whole_k, whole_v, np.arange(2)[:, None], lengths)
        two = trueno.attention_decode(q, k, v, order.reshape(2, 20), lengths)
    np.testing.assert_allclose(two, one, rtol=0, atol=1e-6)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_query_before_the_first_token_gives_zero(backend):
    rng = np.random.default_rng(5)
    (q, k, v, *_), keys, values = problem(rng, (2, 4, 2, 1, 32, 32, 2, 8, 1), "f32")
    with trueno.use(backend):
        got = trueno.attention_decode(q, k, v, table=[[1], [0]], lengths=[0, 2])
    assert not got[0].any() and not got[1, :2].any()
    np.testing.assert_allclose(got[1, 2:], by_torch(q[1, 2:], keys[0, :2], values[0, :2]), atol=1e-6)


@pytest.mark.parametrize("backend", BACKENDS)
def test_nan_reaches_the_queries_that_see_it(backend):
    rng = np.random.default_rng(6)
    (q, k, v, _, _), _, _ = problem(rng, (2, 2, 4, 2, 64, 32, 2, 300, 1), "f16")
    k[0, 299, 1, 3] = np.nan
    k[1, 250, 0, 3] = np.nan
    with trueno.use(backend):
        got = trueno.attention_decode(q, k, v, [[0], [1]], [300, 200])
    assert np.isnan(got[0, 1, 2:]).all() and np.isfinite(got[0, :, :2]).all() and np.isfinite(got[1]).all()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("form", FORMS)
def test_scatter(backend, form):
    """Rows land in their slots in the cache's format; the last of two counts, and −1 leaves a row out."""
    rng = np.random.default_rng(8)
    cache, _ = stored(rng.normal(size=(3, 5, 2, 64)).astype(np.float32), form)
    x = (rng.normal(size=(6, 2, 64)) * 10.0 ** rng.integers(-9, 5, (6, 2, 1))).astype(np.float32)
    x[1, 0, 7], x[2, 1, 3] = np.nan, -np.inf
    slots = np.array([14, 3, -1, 0, 14, 8])
    rows = np.where(np.isfinite(x).reshape(6, 2, 2, 32).all(-1, keepdims=True), x.reshape(6, 2, 2, 32), 0) \
        if form == "q8_0" else x  # fmt: skip
    with np.errstate(over="ignore"):
        kept, _ = stored(rows.reshape(6, 2, 64).astype(np.float32), form)
    want = cache.copy()
    flat = want.reshape(15, 2, -1)
    for i, slot in enumerate(slots):
        if slot >= 0:
            flat[slot] = kept[i]
    if form == "q8_0":
        flat[3, 0, :2] = np.array([np.nan], np.float16).view(np.uint8)
    named = {"format": form} if form == "q8_0" else {}
    before = cache.copy()
    with trueno.use(backend):
        copy = trueno.kv_cache_scatter(cache, x, slots, **named)
        np.testing.assert_array_equal(cache.view(np.uint8), before.view(np.uint8))
        np.testing.assert_array_equal(copy, want.view(np.uint8))
        assert trueno.kv_cache_scatter(cache, x, slots, **named, out=cache) is cache
        np.testing.assert_array_equal(cache.view(np.uint8), want.view(np.uint8))
        none = trueno.kv_cache_scatter(cache, x[:0], slots[:0], **named)
        np.testing.assert_array_equal(none, want.view(np.uint8))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("n", "heads", "d"), [(300, 4, 160), (150, 1, 1056), (60, 27, 43)])
def test_scatter_of_many_rows(backend, form, n, heads, d):
    """Rows that threads share: of rows with the same slot the last one counts, in every part of it."""
    if form == "q8_0":
        d = (d + 31) // 32 * 32
    rng = np.random.default_rng(12)
    x = (rng.normal(size=(n, heads, d)) * 10.0 ** rng.integers(-9, 6, (n, heads, 1))).astype(np.float32)
    if form != "q8_0":
        x.reshape(-1)[rng.integers(0, x.size, 40)] = rng.choice([np.inf, -np.inf, np.nan, -0.0, 65520, 1e-40], 40)
    slots = rng.integers(-1, 40, n)
    with np.errstate(over="ignore"):
        want, _ = stored(np.zeros((5, 8, heads, d), np.float32), form)
        rows, _ = stored(x, form)
    cache, flat = want.copy(), want.reshape(40, heads, -1)
    for slot, row in zip(slots, rows, strict=True):
        if slot >= 0:
            flat[slot] = row
    with trueno.use(backend):
        trueno.kv_cache_scatter(cache, x, slots, **({"format": form} if form == "q8_0" else {}), out=cache)
    if form == "q8_0":
        np.testing.assert_array_equal(cache, want)
    else:
        np.testing.assert_array_equal(cache.astype(np.float32), want.astype(np.float32))  # any NaN is a NaN
        np.testing.assert_array_equal(np.signbit(cache[cache == 0]), np.signbit(want[want == 0]))


@pytest.mark.parametrize("backend", BACKENDS)
def test_scatter_touches_only_its_rows(backend):
    """In place nothing is copied: pages that no slot names are read-only memory's bytes, and stay."""
    cache = np.zeros((64, 16, 2, 64), np.float16)
    x = np.ones((2, 2, 64), np.float32)
    with trueno.use(backend):
        view = cache[10:20]
        trueno.kv_cache_scatter(view, x, [0, 159], out=view)
    assert cache[10, 0].all() and cache[19, 15].all()
    assert np.count_nonzero(cache) == 2 * 2 * 64


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_random_caches(seed):
    """Random shapes, pages and lengths: every backend gives what NumPy gives on the gathered tokens."""
    rng = np.random.default_rng(seed)
    hk, group, blocks = (int(rng.integers(1, n)) for n in (4, 9, 6))
    form = FORMS[rng.integers(4)]
    d, e = (32 * int(rng.integers(1, 4)) if form == "q8_0" else int(rng.integers(1, 90)) for _ in range(2))
    page = int(rng.choice((1, 3, 16, 64, 100)))
    shape = (int(rng.integers(1, 4)), int(rng.integers(1, 4)), hk * group, hk, d, e, blocks + 3, page, blocks)
    (q, k, v, table, lengths), keys, values = problem(rng, shape, form)
    window = int(rng.choice((0, 0, 5, 70)))
    for backend in BACKENDS[1:]:
        with trueno.use(backend):
            got = trueno.attention_decode(
                q, trueno.Pages(k, form), trueno.Pages(v, form), table, lengths, window=window
            )
        for i, length in enumerate(lengths):
            at = table[i, np.arange(length) // page], np.arange(length) % page
            want = by_torch(q[i], keys[at], values[at], window=window)
            np.testing.assert_allclose(
                got[i], want, rtol=0, atol=1e-5, err_msg=f"{backend}, seed {seed}: {shape} {form}"
            )


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_is_wrong_is_named(backend):
    q, k, v = (np.zeros(s, np.float32) for s in ((2, 1, 4, 32), (3, 8, 2, 32), (3, 8, 2, 16)))
    table, lengths = np.array([[0, 1], [2, 9]]), np.array([16, 8])
    with trueno.use(backend):
        trueno.attention_decode(q, k, v, table, lengths)
        with pytest.raises(ParameterError, match=r"lengths\[0\] is 17; its row of table has 2 pages of 8 tokens"):
            trueno.attention_decode(q, k, v, table, [17, 8])
        with pytest.raises(ParameterError, match=r"lengths\[1\] is -1; "):
            trueno.attention_decode(q, k, v, table, [16, -1])
        with pytest.raises(ParameterError, match=r"table\[1, 1\] is 9, but k has pages 0 to 2"):
            trueno.attention_decode(q, k, v, table, [16, 9])
        with pytest.raises(ShapeError, match=r"hq is 3, hk is 2, but hq % max\(hk, 1\) == 0 must hold"):
            trueno.attention_decode(q[:, :, :3], k, v, table, lengths)
        with pytest.raises(
            ParameterError, match=r"v is in f32, but format is 'f16'; caches of one call have one dtype"
        ):
            trueno.attention_decode(q, k.astype(np.float16), v, table, lengths)
        with pytest.raises(DtypeError, match=r"q is float64; ops on caches require float32: convert it"):
            trueno.attention_decode(q.astype(np.float64), k, v, table, lengths)
        with pytest.raises(DtypeError, match=r"k is float64; a cache is float32, float16 or bfloat16"):
            trueno.attention_decode(q, k.astype(np.float64), v, table, lengths)
        with pytest.raises(ParameterError, match=r"k has no format; give Pages, or bytes and format='f32'"):
            trueno.attention_decode(q, k.view(np.uint8), v.view(np.uint8), table, lengths)
        with pytest.raises(ShapeError, match=r"k: q8_0: a row of 33 bytes is not a whole number of blocks"):
            trueno.attention_decode(q, *[np.zeros((3, 8, 2, 33), np.uint8)] * 2, table, lengths, format="q8_0")
        x = np.ones((2, 2, 32), np.float32)
        for slot in (24, -2):
            with pytest.raises(
                ParameterError, match=rf"slots\[1\] is {slot}, but the cache has slots 0 to 23; -1 leaves"
            ):
                trueno.kv_cache_scatter(k, x, [0, slot], out=k)
        assert not k.any(), "something was written"
        with pytest.raises(OutError, match=r"out is float16, .*; the cache is f32"):
            trueno.kv_cache_scatter(k, x, [0, 1], out=k.astype(np.float16))
        with pytest.raises(OutError, match=r"out is float32, strides .*; the cache is f32, in rows without gaps"):
            trueno.kv_cache_scatter(k, x, [0, 1], out=np.zeros((3, 8, 2, 64), np.float32)[..., ::2])


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("form", ["f32", "f16", "bf16"])
def test_an_array_that_is_updated_in_place_is_the_result(backend, form):
    """By the fast path, by the general one (lists), under a guard, and as Pages; a read-only one is not written."""
    x, slots = np.arange(128, dtype=np.float32).reshape(2, 2, 32), np.array([3, 17])
    want = np.zeros((3, 8, 2, 32), DTYPES[form])
    want.reshape(24, 2, 32)[slots] = x
    guard = trueno.JidokaGuard().on(trueno.Condition.NAN, trueno.Action.STOP)
    with trueno.use(backend):
        for rows, places in ((x, slots), (x.tolist(), slots.tolist()), (x, slots.astype(np.int32))):
            for around in (nullcontext(), guard):
                cache = np.zeros_like(want)
                with around:
                    assert trueno.kv_cache_scatter(cache, rows, places, out=cache) is cache
                np.testing.assert_array_equal(cache, want)
        pages = trueno.Pages(np.zeros_like(want))
        assert trueno.kv_cache_scatter(pages, x, slots, out=pages) is pages
        np.testing.assert_array_equal(pages.numpy(), want.astype(np.float32))
        frozen = np.zeros_like(want)
        frozen.flags.writeable = False
        with pytest.raises(OutError, match="out for y is read-only"):
            trueno.kv_cache_scatter(frozen, x, slots, out=frozen)
        assert not frozen.any()
        other, gaps = np.zeros_like(want), np.zeros((3, 8, 4, 32), DTYPES[form])[:, :, ::2]
        assert trueno.kv_cache_scatter(np.zeros_like(want), x, slots, out=other) is other
        assert trueno.kv_cache_scatter(gaps, x, slots, out=gaps) is gaps
        np.testing.assert_array_equal(other, want)
        np.testing.assert_array_equal(gaps, want)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_batch_updates_the_cache_and_is_replayed(backend):
    """One recording serves every token: writes and reads keep their order, and the user's own arrays are written."""
    rng = np.random.default_rng(9)
    k, v = (np.zeros((2, 8, 2, 32), np.float16) for _ in range(2))
    tokens = rng.normal(size=(12, 1, 2, 32)).astype(np.float32)
    with trueno.Batch(backend) as b:
        keys, values = b.upload(trueno.Pages(k)), b.upload(trueno.Pages(v))
        x, q = b.upload(tokens[0]), b.upload(rng.normal(size=(1, 1, 4, 32)).astype(np.float32))
        slot, length, table = b.upload(np.array([8])), b.upload(np.array([1])), b.upload(np.array([[1, 0]]))
        before = b.attention_decode(q, keys, values, table, length)
        keys_after = b.kv_cache_scatter(keys, b.mul(x, 2.0), slot)
        after = b.attention_decode(q, keys_after, b.kv_cache_scatter(values, x, slot), table, length)
        for n, token in enumerate(tokens):
            b.update(x, token)
            b.update(slot, np.array([8 + n if n < 8 else n - 8]))
            b.update(length, np.array([n + 1]))
            b.execute()
            seen = tokens[: n + 1, 0]
            held = [(f * seen).astype(np.float16).astype(np.float32) for f in (2, 1)]
            np.testing.assert_allclose(b.read(after)[0], by_torch(b.read(q)[0], *held), rtol=0, atol=1e-5)
            held[0][-1] = held[1][-1] = 0  # not there yet
            np.testing.assert_allclose(b.read(before)[0], by_torch(b.read(q)[0], *held), rtol=0, atol=1e-5)
        np.testing.assert_array_equal(b.read(keys_after).view(np.float16), k)
        assert k[1].any() and k[0, :4].any() and not k[0, 4:].any()
        with trueno.JidokaGuard().on(trueno.Condition.NAN, trueno.Action.STOP):
            whole = k.copy()
            b.execute()  # the last token again, computed beside the cache and copied
        np.testing.assert_array_equal(k, whole)
        fresh = np.zeros_like(k)
        b.update(keys, trueno.Pages(fresh))
        b.execute()
        assert np.count_nonzero(fresh) == 64, "the new array is written, in one slot"
        b.update(slot, np.array([99]))
        with pytest.raises(ParameterError, match=r"slots\[0\] is 99, but the cache has slots 0 to 15"):
            b.execute()


def test_a_batch_names_a_cache_that_it_cannot_update():
    k, x = np.zeros((2, 8, 2, 32), np.float16), np.zeros((1, 2, 32), np.float32)
    with trueno.Batch("reference") as b:
        cache = b.upload(trueno.Pages(k))
        rows, slots = b.upload(x), b.upload(np.array([0]))
        b.kv_cache_scatter(cache, rows, slots)
        with pytest.raises(BatchError, match="cache was updated by kv_cache_scatter; use the handle that it returned"):
            b.kv_cache_scatter(cache, rows, slots)
        b.execute()  # nobody holds the result: it is written all the same


INDEXED = [name for name, op in TABLE.items() if op.check is not None and any(s.index for s in op.signature.inputs)]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", INDEXED)
def test_a_kernel_of_the_host_refuses_an_index_outside(backend, name):
    """A batch relies on it: the kernel itself runs there, without the core's check, and nothing is written."""
    op = TABLE[name]
    if rejected(op, backend, np.float32) is not None:
        pytest.skip(f"{backend} has no kernel for {name}")
    case = next(
        c for c in structured_cases(op, np.dtype(np.float32), np.random.default_rng(0)) if c.operands[0].size > 64
    )
    operands = [
        np.full_like(x, -(1 << 40)) if s.index else x for s, x in zip(op.signature.inputs, case.operands, strict=True)
    ]
    static = {p.name: case.kwargs[p.name] for p in op.static}
    shapes = op.result_shapes(tuple(x.shape for x in operands), static)
    outs = [
        np.full(shape, 7, s.holds(np.dtype(np.float32))) for s, shape in zip(op.signature.outputs, shapes, strict=True)
    ]
    kernel = getattr(trueno, name).plan(*operands, backend=backend, **static)
    params = [case.kwargs.get(p.name, p.default) for p in op.params if p.symbolic]
    with suppress(TruenoError):  # as the reference does
        assert kernel(*operands, *params, *outs) == -1
    assert all((out == 7).all() for out in outs)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_batch_runs_kernels_of_indices_itself(backend):
    """No general path: a recorded step of a decoder costs little more than its kernels; a bad index is still named."""
    rng = np.random.default_rng(1)
    with trueno.Batch(backend) as b:
        table, i = b.upload(rng.normal(size=(9, 64)).astype(np.float32)), b.upload(np.array([3]))
        position = b.upload(np.array([5]))
        x = b.rope(b.upload(rng.normal(size=(1, 2, 32)).astype(np.float32)), position)
        rows = b.embedding_lookup(table, i)
        b.execute()
        assert "general path" not in str(b)
        b.update(i, np.array([9]))
        with pytest.raises(ParameterError, match=r"embedding_lookup: i.* is 9; rows of table are 0 to 8"):
            b.execute()
        b.update(i, np.array([8]))
        b.execute()
        np.testing.assert_array_equal(b.read(rows), b.read(table)[8:])
        assert np.isfinite(b.read(x)).all()


def test_pages():
    k = np.arange(2 * 4 * 2 * 32).reshape(2, 4, 2, 32).astype(np.float16)
    pages = trueno.Pages(k)
    assert (pages.shape, pages.format, pages.nbytes) == (k.shape, "f16", k.nbytes)
    assert np.shares_memory(pages.bytes, k)
    np.testing.assert_array_equal(pages.numpy(), k.astype(np.float32))
    assert repr(pages) == "<Pages 2x4x2x32 f16>"
    assert trueno.Pages(np.zeros((1, 2, 3, 68), np.uint8), "Q8_0").shape == (1, 2, 3, 64)
    for wrong, kind, why in (
        ((k.astype(np.float64),), DtypeError, "x is float64; give an array of float32, float16, bfloat16, or uint8"),
        ((k, "f32"), DtypeError, "x is float16, but format is 'f32'"),
        ((k.view(np.uint8),), DtypeError, "format is ''; a cache is in f32, f16, bf16, q8_0"),
        ((k.view(np.uint8), "q4_0"), DtypeError, "format is 'q4_0'; a cache is in"),
        ((k[:, ::2],), ShapeError, "x has gaps"),
        ((k[0],), ShapeError, r"x has shape \(4, 2, 32\)"),
        (([1.0],), DtypeError, "x is list"),
    ):
        with pytest.raises(kind, match=why):
            trueno.Pages(*wrong)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_guard_lets_a_batch_update_the_cache(backend):
    """A guarded kernel writes over no operand, so the general path updates the cache."""
    pages, x = np.zeros((2, 8, 2, 32), np.float16), np.ones((1, 2, 32), np.float32)
    with trueno.Batch(backend) as b, trueno.JidokaGuard().on(trueno.Condition.NAN, trueno.Action.STOP):
        after = b.kv_cache_scatter(b.upload(trueno.Pages(pages)), b.upload(x), b.upload(np.array([3])))
        for _ in range(3):
            b.execute()
        assert (b.read(after).view(np.float16) == pages).all()
    assert (pages[0, 3] == 1).all()
    assert np.count_nonzero(pages) == 64


def test_what_a_batch_has_moved_on_from_is_not_read():
    """A fused handle is computed again when it is read, which must not write, nor read what is written since."""
    pages, rng = np.zeros((1, 8, 1, 32), np.float32), np.random.default_rng(3)
    q, x1, x2 = (rng.normal(size=(1, 1, 1, 32)).astype(np.float32) for _ in range(3))
    with trueno.Batch("reference") as b:
        first = b.upload(trueno.Pages(pages))
        slot, table, length = b.upload(np.array([2])), b.upload(np.array([[0]])), b.upload(np.array([3]))
        query = b.upload(q)
        second = b.kv_cache_scatter(first, b.upload(x1[0]), slot)
        seen = b.attention_decode(query, second, second, table, length)
        used = b.neg(seen)
        third = b.kv_cache_scatter(second, b.upload(x2[0]), slot)
        b.execute()
        for h in (first, second, seen):
            with pytest.raises(BatchError, match=r"updated.*read the handle|b\.keep\(h\) before"):
                b.read(h)
        assert (pages[0, 2] == x2[0, 0]).all()
        assert (b.read(third).view(np.float32) == pages).all()
        assert np.isfinite(b.read(used)).all()


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_query_that_sees_no_key_gives_zero_whatever_its_sink(backend):
    rng = np.random.default_rng([2, len(backend)])
    (q, k, v, *_), *_ = problem(rng, (2, 3, 4, 2, 32, 32, 2, 8, 1), "f32")
    sinks = np.array([np.nan, 0.5, -np.inf, np.nan], np.float32)
    with trueno.use(backend):
        y = trueno.attention_decode_sinks(q, k, v, [[1], [0]], [0, 2], sinks)
    assert not y[0].any() and not y[1, 0].any()
    assert np.isnan(y[1, 1:][:, [0, 3]]).all() and np.isfinite(y[1, 1:][:, [1, 2]]).all()
