"""A QuantizedMatrix goes to a device and comes back to the host: its bytes move, and products run where they are."""

import asyncio
import pickle
from operator import matmul

import numpy as np
import pytest
import trueno
from trueno.formats import FORMATS
from trueno.formats.samples import random_rows

SEED = 20261203
F32 = np.float32


def made(name="q4_k", shape=(32, 512)):
    f = FORMATS[name]
    rows = random_rows(f, (shape[0], f.row_bytes(shape[1])), np.random.default_rng(SEED))
    return trueno.QuantizedMatrix(rows, shape, name)


def normal(*shape):
    return np.random.default_rng(SEED).standard_normal(shape).astype(F32)


def there(x):
    return trueno.to(x, "fake")


def here(call, *operands, **parameters):
    """What the bodies of the ops give on the host."""
    with trueno.use("reference"):
        return call(*operands, **parameters)


def test_only_the_bytes_move(fake):
    q = made()
    fake.LEDGER.reset()
    d = there(q)
    assert type(d) is trueno.QuantizedMatrix and type(d.bytes) is fake.Array and d.bytes.dtype == np.uint8
    assert (d.shape, d.format, d.nbytes) == (q.shape, q.format, q.nbytes) and "on fake" in repr(d)
    assert (fake.LEDGER.uploads, fake.LEDGER.bytes_up) == (1, q.nbytes)
    assert there(d) is d and there(d.T).bytes is d.bytes
    back = trueno.numpy(d)
    assert type(back.bytes) is np.ndarray and back == q and d != q.T
    assert trueno.numpy(q) is q and trueno.to(q, "scalar") is q
    assert trueno.to(d, "scalar") == q


def test_a_transposed_view_stays_one(fake):
    q = made()
    d = there(q.T)
    assert d.shape == (512, 32) and trueno.numpy(d) == q.T and trueno.numpy(d) != q
    assert trueno.numpy(d.T) == q
    with pytest.raises(trueno.ParameterError, match="are stored column by column"):
        trueno.dequantize(d)


@pytest.mark.parametrize("name", ["q4_k", "q8_0"])
def test_products_run_there(fake, name):
    q, x, y, more, left = made(name), normal(512), normal(32), normal(512, 3), normal(3, 32)
    d = there(q)
    turned, many, back = more.T.copy(), there(more), there(left.T.copy())
    products = [
        (d @ there(x), here(matmul, q, x)),
        (trueno.quant_matvec(d, there(x), activations="f32"), here(trueno.quant_matvec, q, x, activations="f32")),
        (d.T @ there(y), here(matmul, q.T, y)),
        (there(y) @ d, here(matmul, y, q)),
        (trueno.quant_matmul(there(turned), d), here(trueno.quant_matmul, turned, q)),
        (d @ many, here(matmul, q, more)),
        (there(left) @ d, here(matmul, left, q)),
        (d.T @ back, here(matmul, q.T, left.T)),
        (trueno.dequantize(d), here(trueno.dequantize, q)),
    ]
    for got, wanted in products:
        assert type(got) is fake.Array
        assert np.array_equal(trueno.numpy(got), wanted)


def test_vectors_and_blocks_made_there(fake):
    w, x = normal(8, 256), normal(256)
    d = trueno.quantize(there(w), "q4_0")
    assert type(d.bytes) is fake.Array and trueno.numpy(d) == here(trueno.quantize, w, "q4_0")
    y = d @ trueno.Vector(there(x))
    assert y.device == "fake" and np.array_equal(y.numpy(), here(matmul, trueno.numpy(d), x))
    for q in (made(), made().T):
        again = trueno.quant.requantize(there(q), "q8_0")
        assert type(again.bytes) is fake.Array
        assert trueno.numpy(again) == here(trueno.quant.requantize, q, "q8_0")


def test_operands_in_two_places_are_an_error_that_says_how_to_move_one(fake):
    q, x = made(), normal(512)
    with pytest.raises(trueno.DeviceError, match=r"w is on the host, but x is on fake.*trueno\.to\(w, 'fake'\)"):
        q @ there(x)
    with pytest.raises(trueno.DeviceError, match=r"x is on the host, but w is on fake.*trueno\.numpy\(w\)"):
        there(q) @ x
    with pytest.raises(trueno.DeviceError, match=r"copy it to the host first: trueno\.numpy\(q\)\[\.\.\.\]"):
        there(q)[3:5]
    assert q != there(q).T
    with pytest.raises(trueno.DeviceError, match=r"== compares bytes on the host only; copy both there with trueno"):
        assert there(q) == q


def test_copies_come_home_and_aio_moves_too(fake):
    d = there(made())
    again = pickle.loads(pickle.dumps(d.T))
    assert type(again.bytes) is np.ndarray and again == trueno.numpy(d.T)

    async def both():
        sent = await trueno.aio.to(made(), "fake")
        return sent, await trueno.aio.numpy(sent)

    sent, back = asyncio.run(both())
    assert type(sent.bytes) is fake.Array and back == made()


@pytest.mark.parametrize("name", ["fake", "scalar", "reference"])
def test_a_context_takes_them_too(fake, name):
    q, x = made(), normal(512)
    with trueno.device(name) as d:
        a = d.upload(q)
        assert type(a) is trueno.QuantizedMatrix and (a.shape, a.format) == (q.shape, q.format)
        assert name != "fake" or type(a.bytes) is fake.Array
        assert not np.shares_memory(d.read(a.bytes), q.bytes)
        back = d.read(a)
        assert back == q and type(back.bytes) is np.ndarray
        again = d.upload(a)  # a copy, as of any buffer
        assert again.bytes is not a.bytes and d.read(again) == q
        assert d.read(d.upload(q.T)) == q.T
        np.testing.assert_allclose(d.read(d.quant_matvec(a, d.upload(x))), here(matmul, q, x), rtol=1e-4, atol=1e-3)
        np.testing.assert_array_equal(d.read(d.dequantize(a)), here(trueno.dequantize, q))
        with pytest.raises(trueno.OutError, match="read its bytes"):
            d.read(a, np.empty_like(q.bytes))
    with pytest.raises(trueno.DeviceError, match="closed"):
        d.upload(q)


def test_a_context_says_that_a_matrix_is_elsewhere(fake):
    q, x = made(), normal(512)
    with trueno.device("fake") as d:
        with pytest.raises(trueno.DeviceError, match=r"on the host, not a buffer of fake; upload it first"):
            d.quant_matvec(q, d.upload(x))
        with pytest.raises(trueno.DeviceError, match="on the host"):
            d.read(q)
    with trueno.device("scalar") as d, pytest.raises(trueno.DeviceError, match="on fake"):
        d.read(there(q))
