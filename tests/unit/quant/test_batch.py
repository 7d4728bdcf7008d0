"""Quantized matrices in a batch: uploaded as they are, known by their format."""

import numpy as np
import pytest
import trueno
from trueno.formats import FORMATS
from trueno.formats.samples import random_rows

SEED = 20261121


def made(name="q4_k", shape=(24, 512), seed=SEED):
    f = FORMATS[name]
    rows = random_rows(f, (shape[0], f.row_bytes(shape[1])), np.random.default_rng(seed))
    return trueno.QuantizedMatrix(rows, shape, name)


@pytest.fixture(params=["reference", "scalar"])
def backend(request):
    return request.param


def test_a_matrix_is_uploaded_once_and_multiplied_in_a_chain(backend):
    q, x = made(), np.random.default_rng(SEED).standard_normal(512).astype(np.float32)
    with trueno.use(backend):
        wanted = trueno.relu(trueno.quant_matvec(q, x))
        columns = trueno.quant_matvec_colmajor(q.T, wanted)
    with trueno.Batch(backend) as b:
        w = b.upload(q)
        y = b.relu(b.quant_matvec(w, b.upload(x)))
        z = b.quant_matvec_colmajor(b.upload(q.T), y)
        d = b.dequantize(w)
        b.execute()
        assert np.array_equal(b.read(b.keep(y)), wanted)
        assert np.allclose(b.read(z), columns, rtol=1e-5, atol=1e-5)
        assert np.array_equal(b.read(d), trueno.dequantize(q))
        assert np.array_equal(b.read(w), q.bytes)
        b.update(w, made(seed=1))
        b.execute()
        with trueno.use(backend):
            assert np.array_equal(b.read(d), trueno.dequantize(made(seed=1)))


def test_what_a_batch_quantizes_knows_its_format(backend):
    x = np.random.default_rng(SEED).standard_normal((5, 64)).astype(np.float32)
    with trueno.Batch(backend) as b:
        y = b.dequantize(b.quantize_rows(b.upload(x), format="q8_0"))
        b.execute()
        assert np.array_equal(b.read(y), trueno.dequantize(trueno.quantize(x, "q8_0")))


def test_other_formats_and_other_kinds_of_handles_are_errors(backend):
    with trueno.Batch(backend) as b:
        w, x = b.upload(made("q4_0", (8, 64))), b.upload(np.ones(64, np.float32))
        with pytest.raises(trueno.DtypeError, match="x is iq4_nl, but h is q4_0"):
            b.update(w, made("iq4_nl", (8, 64)))
        with pytest.raises(trueno.ParameterError, match="w is in q4_0, but format is 'q8_0'"):
            b.quant_matvec(w, x, format="q8_0")
        with pytest.raises(trueno.ParameterError, match="are stored row by row"):
            b.quant_matvec_colmajor(w, x)
        with pytest.raises(trueno.DtypeError, match="blocks are bytes in a batch, uint8: give a QuantizedMatrix"):
            b.quant_matvec(x, x, format="q4_0")
        with pytest.raises(trueno.DtypeError, match="float32 or float64 are accepted"):
            b.relu(w)
        with pytest.raises(trueno.ShapeError, match=r"x.k. is 64, but w.k. is 96"):
            b.quant_matvec(b.upload(made("q4_0", (8, 96))), x)
