"""`trueno.KVCache` against plain lists: whatever is done to sequences, each keeps its own tokens."""

import ml_dtypes
import numpy as np
import pytest
import trueno
from hypothesis import given, settings
from hypothesis import strategies as st
from seeds import fresh_seed
from trueno.errors import DtypeError, OutOfMemory, ParameterError, ShapeError, TruenoError
from trueno.formats import FORMATS, decode
from trueno.formats.encoders import encode

BACKENDS = [name for name in ("reference", "scalar", "simd") if name in trueno.backends()]
DTYPES = ("float32", "float16", "bfloat16", "q8_0")


def kept(x, dtype):
    """The numbers that a cache keeps of x."""
    if dtype == "q8_0":
        return decode(FORMATS[dtype], encode(FORMATS[dtype], x))
    return x.astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype).astype(np.float32)


class Lists:
    """What a cache must hold: the keys and values of each sequence and layer, one after another."""

    def __init__(self, layers, shapes):
        self.layers, self.shapes, self.held = layers, shapes, {}

    def rows(self, sequence, layer):
        return [np.array([t[i] for t in self.held[sequence][layer]], np.float32).reshape(-1, *shape)
                for i, shape in enumerate(self.shapes)]  # fmt: skip


def same(cache, lists):
    assert set(cache.sequences) == set(lists.held)
    for sequence, layers in lists.held.items():
        assert cache.length(sequence) == min(map(len, layers))
        for layer in range(lists.layers):
            for got, want in zip(cache.read(layer, sequence), lists.rows(sequence, layer), strict=True):
                np.testing.assert_array_equal(got, want)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_random_lives(seed):
    """Append, fork, truncate, release and defragment at random; an error of a full cache changes nothing."""
    with trueno.use("scalar"):
        live(seed, 40)


@pytest.mark.parametrize("seed", range(6))
def test_random_lives_on_a_device(fake, seed):
    live(seed, 30, "fake")


def there(x, device):
    return trueno.to(x, device) if device else x


def live(seed, steps, device=""):
    rng = np.random.default_rng(seed)
    dtype, page, layers = str(rng.choice(DTYPES)), int(rng.choice((0, 1, 3, 8))), int(rng.integers(1, 4))
    cache = trueno.KVCache(layers, 2, 32, value_dim=64, dtype=dtype, capacity=20, sequences=3, page=page, device=device)
    lists = Lists(layers, ((2, 32), (2, 64)))
    for _ in range(steps):
        act = rng.choice(("new", "append", "append", "append", "fork", "truncate", "release", "defragment"))
        known = list(lists.held)
        if act == "new" or not known:
            lists.held[cache.new()] = [[] for _ in range(layers)]
            continue
        some = int(rng.choice(known))
        if act == "append":
            many = [some, *(s for s in known if s != some and rng.random() < 0.3 and
                            len(lists.held[s][0]) == len(lists.held[s][-1]))]  # fmt: skip
            tokens, before = int(rng.integers(0, 7)), cache.used
            for layer in range(layers):
                k, v = (rng.normal(size=(len(many), tokens, 2, d)).astype(np.float32) for d in (32, 64))
                one = len(many) == 1
                rows = [there(x[0] if one else x, device) for x in (k, v)]
                try:
                    cache.append(layer, *rows, many[0] if one else many)
                except OutOfMemory:
                    assert layer == 0 and cache.used == before, f"seed {seed}"
                    break
                for i, s in enumerate(many):
                    lists.held[s][layer] += list(zip(kept(k[i], dtype), kept(v[i], dtype), strict=True))
        elif act == "fork":
            lists.held[cache.fork(some)] = [list(tokens) for tokens in lists.held[some]]
        elif act == "truncate":
            length = int(rng.integers(0, 21))
            cache.truncate(some, length)
            lists.held[some] = [tokens[:length] for tokens in lists.held[some]]
        elif act == "release":
            cache.release(some)
            del lists.held[some]
        else:
            cache.defragment()
        same(cache, lists)
    for s in list(lists.held):
        cache.release(s)
    assert cache.used == 0, f"seed {seed}: pages were lost"


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("page", [0, 16])
def test_attention_is_that_of_the_tokens(backend, dtype, page):
    """Prefill and decode, one sequence and several, give what attention gives on the rows themselves."""
    rng = np.random.default_rng(4)
    cache = trueno.KVCache(2, 2, 32, dtype=dtype, capacity=64, sequences=3, page=page)
    lists = Lists(2, ((2, 32), (2, 32)))
    with trueno.use(backend):
        first = cache.new()
        lists.held[first] = [[], []]

        def step(sequences, tokens, **options):
            for layer in range(2):
                k, v = (rng.normal(size=(len(sequences), tokens, 2, 32)).astype(np.float32) for _ in range(2))
                q = rng.normal(size=(len(sequences), tokens, 6, 32)).astype(np.float32)
                cache.append(layer, k, v, sequences)
                got = cache.attend(layer, q, sequences, **options)
                for i, s in enumerate(sequences):
                    lists.held[s][layer] += list(zip(kept(k[i], dtype), kept(v[i], dtype), strict=True))
                    want = trueno.attention(q[i], *lists.rows(s, layer), causal=True, **options)
                    np.testing.assert_allclose(got[i], want, rtol=0, atol=1e-5)
                    np.testing.assert_allclose(cache.attend(layer, q[i], s, **options), want, rtol=0, atol=1e-5)

        step([first], 21)
        step([first], 1, window=5)
        second = cache.fork(first)
        lists.held[second] = [list(tokens) for tokens in lists.held[first]]
        step([first, second], 1)
        step([second], 9, softcap=4.0)
        step([second, first], 2, scale=0.3)
    same(cache, lists)


def test_a_fork_shares_pages_until_one_writes():
    cache = trueno.KVCache(3, 2, 32, capacity=64, page=8, sequences=1)
    x = np.ones((20, 2, 32), np.float32)
    whole = cache.nbytes
    assert whole == 3 * 2 * 64 * 2 * 32 * 2 and cache.used == 0
    s = cache.new()
    for layer in range(3):
        cache.append(layer, x, x, s)
    assert cache.used == whole * 3 // 8
    forks = [cache.fork(s) for _ in range(3)]
    assert cache.used == whole * 3 // 8, "a fork takes no page"
    cache.append(0, x[:1], x[:1], forks[0])
    assert cache.used == whole * 4 // 8, "the last page is copied, and the two full ones are shared"
    cache.append(1, x[:1], x[:1], forks[0])
    assert cache.used == whole * 4 // 8
    cache.truncate(forks[0], 16)
    assert cache.used == whole * 3 // 8
    for sequence in (s, *forks):
        cache.release(sequence)
    assert cache.used == 0 and cache.sequences == ()


def test_views_of_float32_are_not_copied():
    cache = trueno.KVCache(1, 2, 32, dtype="float32", capacity=64, page=16)
    x = np.random.default_rng(0).normal(size=(40, 2, 32)).astype(np.float32)
    s = cache.new()
    cache.append(0, x, x, s)
    keys, values = cache._held(0, s)
    assert np.shares_memory(keys, cache.pages(0)[0].bytes) and np.shares_memory(values, cache.pages(0)[1].bytes)
    np.testing.assert_array_equal(keys, x)
    other = cache.fork(s)
    cache.truncate(other, 8)
    cache.release(s)
    cache.append(0, x[:30], x[:30], other)  # the pages that s had are taken again
    cache.defragment()
    keys, _ = cache._held(0, other)
    assert np.shares_memory(keys, cache.pages(0)[0].bytes), "defragment puts pages side by side"
    np.testing.assert_array_equal(keys, np.concatenate([x[:8], x[:30]]))


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_recorded_step_serves_every_token(backend):
    rng = np.random.default_rng(2)
    cache, lists = trueno.KVCache(1, 2, 32, capacity=40, page=8), Lists(1, ((2, 32), (2, 32)))
    s = cache.new()
    lists.held[s] = [[]]
    keys, values = cache.pages(0)
    with trueno.Batch(backend) as b:
        k, v = (b.upload(np.zeros((1, 2, 32), np.float32)) for _ in range(2))
        query = b.upload(np.zeros((1, 1, 6, 32), np.float32))
        slots, table, lengths = (
            b.upload(np.zeros(1, np.int64)),
            b.upload(cache.table([s])),
            b.upload(np.ones(1, np.int64)),
        )
        held = [b.kv_cache_scatter(b.upload(p), x, slots) for p, x in ((keys, k), (values, v))]
        y = b.attention_decode(query, *held, table, lengths)
        for _ in range(20):
            rows = [rng.normal(size=(1, 2, 32)).astype(np.float32) for _ in range(2)]
            token = rng.normal(size=(1, 1, 6, 32)).astype(np.float32)
            b.update(slots, cache.reserve([s], 1))
            for handle, x in ((k, rows[0]), (v, rows[1]), (query, token)):
                b.update(handle, x)
            b.update(table, cache.table([s]))
            b.update(lengths, cache.lengths([s]) + 1)
            b.execute()
            cache.commit([s], 1)
            lists.held[s][0].append(tuple(kept(x[0], "float16") for x in rows))
            want = trueno.attention(token[0], *lists.rows(s, 0))
            np.testing.assert_allclose(b.read(y)[0], want, rtol=0, atol=1e-5)
    same(cache, lists)


def test_errors_say_what_is_needed_and_what_there_is():
    cache = trueno.KVCache(2, 2, 32, capacity=32, page=8, sequences=2)
    s, t = cache.new(), cache.new()
    x = np.ones((30, 2, 32), np.float32)
    cache.append(0, x, x, s)
    cache.append(1, x, x, s)
    cache.append(0, x[:20], x[:20], t)
    cases = (
        (lambda: cache.append(0, x[:3], x[:3], s), OutOfMemory,
         "sequence 0 has 30 tokens, and 3 more need room for 33, but the capacity is 32; truncate it"),
        (lambda: cache.append(0, x[:9], x[:9], cache.new()), OutOfMemory,
         "9 more tokens need 2 pages of 8 tokens, but 1 of 8 are free; release or truncate a sequence"),
        (lambda: cache.append(0, x, x, 9), ParameterError, "there is no sequence 9; those there are: 0, 1"),
        (lambda: cache.append(2, x, x, s), ParameterError, "layer is 2; there are layers 0 to 1"),
        (lambda: cache.append(0, x[:1, :1], x[:1], s), ShapeError, r"k has shape \[1, 1, 1, 32\], but \[1, 1, 2, 32\]"),
        (lambda: cache.append(0, x[:2], x[:1], s), ShapeError, r"v has shape \[1, 1, 2, 32\], but \[1, 2, 2, 32\]"),
        (lambda: cache.append(0, x[0], x[0], s), ShapeError, r"k has shape \[2, 32\], but \[tokens, heads"),
        (lambda: cache.append(0, *[x[:1].astype(np.float64)] * 2, s), DtypeError, "k is float64; rows .* a tensor"),
        (lambda: trueno.KVCache(1, 2, 32, capacity=8).append(0, x[:1], x[:1], 0), ParameterError,
         r"there is no sequence 0; there are none yet: call new\(\)"),
        (lambda: cache.append(0, *[x[None, :1].repeat(2, 0)] * 2, [s, s]), ParameterError, "each may be there once"),
        (lambda: cache.truncate(s, -1), ParameterError, "length is -1; give a whole number, 0 or more"),
        (lambda: cache.commit([s], 9), ParameterError, "9 more tokens of sequence 0 were not reserved: it has 30, and"),
        (lambda: trueno.KVCache(1, 2, 32, capacity=0), ParameterError, "capacity is 0; give a whole number, 1 or more"),
        (lambda: trueno.KVCache(1, 2, 32, capacity=8, dtype="q4_0"), ParameterError, "dtype is 'q4_0'; it must be"),
        (lambda: trueno.KVCache(1, 2, 40, capacity=8, dtype="q8_0"), ShapeError,
         "KVCache: head_dim is 40, but q8_0 stores blocks of 32 numbers; give a multiple, or another dtype"),
        (lambda: trueno.KVCache(1, 2, 32, value_dim=33, capacity=8, dtype="q8_0"), ShapeError, "value_dim is 33, but"),
        (lambda: trueno.KVCache(1, 2, 32, capacity=8, dtype=np.int8), ParameterError, "dtype is .*int8.*; it must be"),
        (lambda: trueno.KVCache(1, 2, 32, capacity=8, dtype=None), ParameterError, "dtype is None; it must be float32"),
        (lambda: cache.append(0, x[None], x, [s]), ShapeError,
         r"append: v has shape \[30, 2, 32\], but \[1, tokens, heads"),
        (lambda: cache.attend(0, x[:1], [s, t]), ShapeError, r"attend: q has shape \[1, 2, 32\], but \[2, tokens"),
        (lambda: cache.attend(0, x, t), ShapeError, "sequence 1 has 20 tokens in layer 0, which is too few for 30"),
        (lambda: cache.attend(0, x[None, :0], []), ParameterError, r"attend: sequences is \[\]; give one of them, or"),
        (lambda: cache.attend(0, x, "zz"), ParameterError, r"sequences is 'zz'; give a list of what new\(\) returned"),
        (lambda: cache.attend(0, x, ["z"]), ParameterError, "there is no sequence 'z'; those there are: 0, 1"),
        (lambda: cache.attend(0, x, None), ParameterError, r"sequences is None; give a list of what new\(\) returned"),
        (lambda: cache.append(0, x[None], x[None], [1.0]), ParameterError, "there is no sequence 1.0; those"),
        (lambda: cache.reserve([s], True), ParameterError, "tokens is True; give a whole number"),
        (lambda: cache.append(0, np.ma.masked_all_like(x[:1]), x[:1], s), DtypeError, "k is a masked array, whose"),
        (lambda: cache.fork([s]), ParameterError, r"there is no sequence \[0\]; those there are"),
        (lambda: cache.truncate(True, 1), ParameterError, "there is no sequence True; those there are"),
        (lambda: cache.table(s), ParameterError, r"sequences is 0; give a list of what new\(\) returned"),
        (lambda: cache.lengths(None), ParameterError, "sequences is None; give a list"),
        (lambda: trueno.KVCache(1, 2, 32, capacity=1 << 60), OutOfMemory, "there is no room for .* give a smaller"),
    )  # fmt: skip
    for call, kind, why in cases:
        used = cache.used
        with pytest.raises(kind, match=why) as caught:
            call()
        assert isinstance(caught.value, TruenoError)
        assert cache.used == used, "the call took pages"
    np.testing.assert_array_equal(cache.read(0, s)[0], x)
    assert (cache.length(s), cache.length(t)) == (30, 0) and cache.lengths([s, t], 0).tolist() == [30, 20]
    assert repr(cache).startswith("<KVCache 2 layers, f16, 3 sequences, 7 of 8 pages of 8 tokens used, ")


def test_a_single_page_is_counted_as_one():
    cache = trueno.KVCache(1, 2, 32, capacity=4)
    x = np.ones((4, 2, 32), np.float32)
    cache.append(0, x, x, cache.new())
    with pytest.raises(OutOfMemory, match="2 more tokens need 1 page of 4 tokens, but 0 of 1 are free"):
        cache.append(0, x[:2], x[:2], cache.new())
    assert repr(cache).startswith("<KVCache 1 layer, f16, 2 sequences, 1 of 1 page of 4 tokens used, ")


@pytest.mark.parametrize("dtype", [np.float32, np.dtype(np.float16), ml_dtypes.bfloat16])
def test_dtypes_of_numpy(dtype):
    cache = trueno.KVCache(1, 2, 32, capacity=4, dtype=dtype)
    assert cache.pages(0)[0].format == {"float32": "f32", "float16": "f16", "bfloat16": "bf16"}[np.dtype(dtype).name]


def test_moving_pages_keeps_what_sequences_hold():
    rng = np.random.default_rng(fresh_seed())
    cache = trueno.KVCache(2, 1, 32, dtype="float32", capacity=64, sequences=4, page=4)
    held = {cache.new(): [] for _ in range(4)}
    for step in range(40):
        s = int(rng.choice(list(held)))
        rows = rng.normal(size=(int(rng.integers(1, 4)), 1, 32)).astype(np.float32)
        for layer in range(2):
            cache.append(layer, rows, -rows, s)
        held[s].append(rows)
        if step % 10 == 9:
            gone = next(iter(held))
            cache.release(gone)
            del held[gone]
            held[cache.new()] = []
            cache.defragment()
            for number, parts in held.items():
                whole = np.concatenate(parts) if parts else np.zeros((0, 1, 32), np.float32)
                for layer in range(2):
                    k, v = cache.read(layer, number)
                    assert np.array_equal(k, whole)
                    assert np.array_equal(v, -whole)


def test_what_was_not_reserved_is_not_counted():
    cache = trueno.KVCache(1, 1, 32, capacity=100, page=16)
    s = cache.new()
    cache.reserve([s], 100)
    for sequences, tokens, layer in (([s], -5, None), ([s, s], 10, None), ([s], 112, None), ([s], 1, 5), ([s], 1, -1)):
        with pytest.raises(ParameterError, match="KVCache: "):
            cache.commit(sequences, tokens, layer)
    assert cache.length(s) == 0
    for sequences, tokens in (([s], -3), ([s], 1.5), (s, 3)):
        with pytest.raises(ParameterError, match="KVCache: "):
            cache.reserve(sequences, tokens)
    with pytest.raises(OutOfMemory, match="there is no room for"):
        trueno.KVCache(1, 1, 32, capacity=10**13, page=1)


def test_a_refused_append_gives_its_pages_back():
    cache = trueno.KVCache(1, 1, 32, dtype="float16", capacity=32, page=16)
    s = cache.new()
    guard = trueno.JidokaGuard().on(trueno.Condition.INF, trueno.Action.STOP)
    with guard, pytest.raises(trueno.GuardError):
        cache.append(0, np.full((1, 1, 32), 1e6, np.float32), np.ones((1, 1, 32), np.float32), s)
    assert cache.used == 0
