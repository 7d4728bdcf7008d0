"""Kernels on caches of the CUDA backend, on the emulator: against PyTorch in float64, and to the byte."""

import numpy as np
import pytest

pytest.importorskip("torch")
import trueno
from trueno.discovery.protocol import Call
from trueno.ops import TABLE
from trueno_cuda.kernels import KERNELS
from trueno_cuda.kernels.caches import attend, mma
from trueno_cuda.kernels.caches.cells import Rows
from unit.caches import (
    FORMS,
    assert_outside,
    assert_right,
    every_size_of_q8_0,
    halfway,
    held,
    problem,
    sequences_outside,
    written,
)
from unit.cuda.kernels.moves import shifted
from unit.cuda.kernels.products import DEVICE, fresh

ATOL = 3e-6
NAME = "cuda_emulated"


def kernel(op, operands, guarded=False, **static):
    if op != "kv_cache_scatter":
        static = {"scale": 0.0, "softcap": 0.0, "window": 0} | static
    sizes = tuple(int(np.size(x)).bit_length() for x in operands)
    call = Call(TABLE[op], np.dtype(np.float32), "e" * len(operands), 4, sizes, tuple(static.items()), NAME, guarded)
    assert KERNELS.refusal(call) is None
    return KERNELS.kernel(call, DEVICE)


def attended(operands, form, e, *, scale=0.0, softcap=0.0, window=0, guarded=False, sinks=None):
    q, k, v, *places = operands
    op, more = ("attention_decode", []) if sinks is None else ("attention_decode_sinks", [sinks])
    arrays = [np.ascontiguousarray(x) for x in (q, k.view(np.uint8), v.view(np.uint8), *places, *more)]
    out = DEVICE.to_device(np.full((*q.shape[:3], e), np.nan, np.float32))
    call = kernel(op, arrays, guarded, format=form, window=window)
    assert call(*map(DEVICE.to_device, arrays), scale, softcap, out) == 0
    return DEVICE.to_host(out)


@pytest.mark.parametrize(
    ("form", "shape", "options"),
    [
        ("f16", (2, 1, 14, 2, 64, 64, 2, 150, 1), {}),  # one page a sequence; warps along the keys
        ("f16", (1, 1, 8, 1, 128, 96, 20, 16, 12), {"softcap": 3.0, "scale": 0.2}),
        ("bf16", (2, 5, 6, 2, 32, 64, 9, 30, 4), {"window": 33}),  # two tiles of rows
        ("bf16", (1, 40, 4, 2, 32, 32, 7, 16, 6), {}),  # warps for different rows
        ("q8_0", (2, 2, 6, 2, 64, 128, 9, 30, 4), {"window": 33}),
        ("q8_0", (1, 1, 6, 2, 128, 64, 1, 90, 1), {}),
        ("q8_0", (2, 2, 6, 2, 64, 32, 9, 30, 4), {"window": 33}),
        ("f16", (2, 2, 3, 1, 7, 5, 9, 3, 4), {}),  # rows that no vector reads
        ("f32", (1, 1, 2, 1, 300, 260, 3, 5, 2), {}),  # long rows: a loop along them, and two blocks
    ],
    ids=str,
)
def test_against_pytorch(form, shape, options):
    operands, keys, values = problem(fresh(), shape, form)
    least = {"f16": 32, "bf16": 32, "q8_0": 64, "f32": 1 << 20}[form]
    whole = shape[4] % least == shape[5] % least == 0
    assert mma.takes(Rows(form, shape[4]), Rows(form, shape[5])) == whole
    assert_right(attended(operands, form, shape[5], **options), operands, keys, values, shape[7], ATOL, **options)


@pytest.mark.parametrize("form", ["f16", "q8_0"])
def test_sinks(form):
    """A sequence without a token gives 0, and a sink of -Inf is not one."""
    rng = fresh()
    operands, keys, values = problem(rng, (2, 1, 4, 2, 32, 32, 6, 32, 3), form)
    q, _, _, table, lengths = operands
    table[:] = [[0, 1, 2]]
    lengths[:] = 70, 0
    sinks = np.array([0.5, 3.0, -90.0, 90.0], np.float32)
    got = attended(operands, form, 32, sinks=sinks, guarded=True)
    at = np.arange(70) // 32, np.arange(70) % 32
    for h in range(4):
        scores = keys[at][:, h // 2].astype("f8") @ q[0, 0, h] * 32**-0.5
        weights = np.exp(np.append(scores, sinks[h]) - max(scores.max(), sinks[h]))
        want = weights[:-1] @ values[at][:, h // 2].astype("f8") / weights.sum()
        np.testing.assert_allclose(got[0, 0, h], want, rtol=0, atol=3e-6)
    assert not got[1].any() and DEVICE.take_status() == 0
    none = np.full(4, -np.inf, np.float32)
    np.testing.assert_array_equal(attended(operands, form, 32, sinks=none), attended(operands, form, 32))


@pytest.mark.parametrize("form", ["bf16", "q8_0"])
def test_what_is_outside_gives_nan(form):
    """The host refuses it where it can; on the device nothing outside is read, and neighbours stay right."""
    operands, keys, values = sequences_outside(fresh(), form)
    DEVICE.take_status()
    got = attended(operands, form, 32, guarded=True)
    assert DEVICE.take_status() == 1
    assert_outside(got, operands, keys, values, ATOL)


@pytest.mark.parametrize("form", ["f16", "f32"])
def test_one_key_alone_is_its_value(form):
    """To the last bit: a cache copies its pages so."""
    (q, k, v, *_), _, values = problem(fresh(), (8, 1, 2, 2, 32, 32, 1, 8, 1), form)
    v[0, 3, 0, :3] = values[0, 3, 0, :3] = np.array([6e-8, 6e4, -6e-5], v.dtype)
    got = attended((q, k, v, np.zeros((8, 1), np.int64), np.arange(8) + 1), form, 32, window=1)
    np.testing.assert_array_equal(got[:, 0], values[0])


def test_shapes_that_do_not_agree_are_refused():
    (q, k, v, table, lengths), *_ = problem(fresh(), (2, 1, 4, 2, 32, 32, 3, 8, 2), "f16")
    arrays = [np.ascontiguousarray(x) for x in (q, k.view(np.uint8), v.view(np.uint8), table, lengths)]
    there = [DEVICE.to_device(x) for x in arrays]
    call = kernel("attention_decode", arrays, format="f16", window=0)
    assert call(*there, 0.0, 0.0, there[0]) == -1, "a result that is an operand"
    for wrong in (q[:, :, :3], q[:1], q[..., :16]):
        x = DEVICE.to_device(np.ascontiguousarray(wrong))
        assert call(x, *there[1:], 0.0, 0.0, DEVICE.to_device(np.zeros((*wrong.shape[:3], 32), np.float32))) == -1
    out = DEVICE.to_device(np.full((2, 1, 4, 32), np.nan, np.float32))
    none = [DEVICE.to_device(x[:0]) for x in arrays[1:3]]
    assert call(there[0], *none, *there[3:], 0.0, 0.0, out) == 0, "no pages: nothing is seen"
    assert not DEVICE.to_host(out).any()


def test_shares_fill_the_device():
    assert attend.splits_of(DEVICE, 1, 10_000, 64, 3) == DEVICE.sms * 3
    assert attend.splits_of(DEVICE, 1, 100, 64, 3) == 2
    assert attend.splits_of(DEVICE, 1000, 10_000, 64, 3) == 1
    assert attend.splits_of(DEVICE, DEVICE.sms * 2 + 1, 10_000, 64, 3) == 4, "three waves, and not one that fills less"


# ---------------------------------------------------------------------------------------------- scatter


def scattered(cache, x, slots, form, *, in_place=True, shift=0):
    arrays = [shifted(DEVICE, a, shift) for a in (cache, x, slots)]
    out = arrays[0] if in_place else DEVICE.to_device(np.full_like(cache, 77))
    assert kernel("kv_cache_scatter", (cache, x, slots), guarded=True, format=form)(*arrays, out) == 0
    assert in_place or arrays[0].elements.tobytes() == cache.tobytes()
    return out.elements.copy()


@pytest.mark.parametrize("form", FORMS)
def test_scatter_to_the_byte(form):
    """Slots outside and rows of one slot, of which the last counts; in place, and into a copy."""
    rng = fresh()
    sizes = [(3, 5, 2, 64, 20), (9, 1, 3, 96, 1)] + ([] if form == "q8_0" else [(4, 5, 7, 33, 6)])
    for i, (pages, page, h, d, n) in enumerate(sizes):
        x = (rng.normal(size=(n, h, d)) * 10.0 ** rng.integers(-6, 5, (n, h, 1))).astype(np.float32)
        slots = rng.integers(-1, pages * page, n)
        if n > 5:
            slots[:5] = pages * page, -2, 2**32, 2**32 + 3, -(2**62)
        cache = rng.integers(0, 256, (pages, page, h, held(x, form).shape[-1])).astype(np.uint8)
        want = written(cache, x, slots, form)
        np.testing.assert_array_equal(scattered(cache, x, slots, form, in_place=i != 1), want, err_msg=str(i))


def test_scatter_q8_0_of_any_size():
    whole, want = every_size_of_q8_0(fresh())
    cache = np.full((len(whole), 1, 1, 34), 99, np.uint8)
    np.testing.assert_array_equal(scattered(cache, whole, np.arange(len(whole)), "q8_0")[:, 0], want)


@pytest.mark.parametrize("form", ["f16", "bf16"])
def test_scatter_rounds_to_even(form):
    x = halfway(23)[:25648].reshape(4, 6412, 1)
    cache = np.zeros((4, 1, 6412, 2), np.uint8)
    np.testing.assert_array_equal(scattered(cache, x, np.arange(4), form)[:, 0], held(x, form))


# ---------------------------------------------------------------------------------------------- KVCache


@pytest.mark.parametrize("dtype", ["float16", "q8_0"])
def test_a_cache_on_the_device(dtype):
    """Prompts, forks that write to shared pages, truncation, and recorded steps: what one on the host gives."""
    rng = fresh()
    how = {"dtype": dtype, "capacity": 40, "sequences": 3, "page": 8}
    here, there = (trueno.KVCache(1, 2, 32, device=name, **how) for name in ("", NAME))
    assert there.device == NAME and here.new() == there.new() == 0

    def step(sequences, tokens):
        lead = (tokens,) if isinstance(sequences, int) else (len(sequences), tokens)
        k, v, q = (rng.standard_normal((*lead, heads, 32)).astype(np.float32) for heads in (2, 2, 6))
        with trueno.use("scalar"):
            here.append(0, k, v, sequences)
            want = here.attend(0, q, sequences)
        there.append(0, trueno.to(k, NAME), trueno.to(v, NAME), sequences)
        y = there.attend(0, trueno.to(q, NAME), sequences)
        np.testing.assert_allclose(trueno.numpy(y), want, rtol=0, atol=1e-5)

    step(0, 13)
    assert here.fork(0) == there.fork(0) == 1
    step([1, 0], 1)
    for cache in (here, there):
        cache.truncate(0, 9)
    inputs = [np.zeros((2, heads, 32), np.float32) for heads in (6, 2, 2)]
    with trueno.Batch(NAME) as b:
        recorded = there.record(b, 2)
        handles = [b.upload(x) for x in inputs]
        y = b.keep(recorded.attend(0, *handles))
        for _ in range(3):
            for handle, x in zip(handles, inputs, strict=True):
                x[...] = rng.standard_normal(x.shape)
                b.update(handle, x)
            recorded.run([0, 1])
            with trueno.use("scalar"):
                here.append(0, *(x[:, None] for x in inputs[1:]), [0, 1])
                want = here.attend(0, inputs[0][:, None], [0, 1])[:, 0]
            np.testing.assert_allclose(b.read(y), want, rtol=0, atol=1e-5)
    for sequence in (0, 1):
        for x, want in zip(there.read(0, sequence), here.read(0, sequence), strict=True):
            np.testing.assert_array_equal(x, want)
