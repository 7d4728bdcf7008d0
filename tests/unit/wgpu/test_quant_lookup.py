"""quant_embedding_lookup on the device: rows are those that the host decodes, and an index outside gives NaN."""

import numpy as np
import pytest

pytest.importorskip("wgpu")
import trueno
from trueno.quant import FORMATS

pytestmark = pytest.mark.usefixtures("chosen")


@pytest.mark.parametrize("form", ["q4_0", "q5_1", "q8_0", "q2_k", "q4_k", "q6_k", "iq4_nl", "iq4_xs", "mxfp4"])
def test_rows_are_those_of_the_host(form):
    assert form in FORMATS
    rng = np.random.default_rng(4)
    q, i = trueno.quantize(rng.normal(size=(50, 512)).astype(np.float32), form), rng.integers(0, 50, (3, 7))
    got = trueno.quant_embedding_lookup(trueno.to(q, "wgpu"), trueno.to(i, "wgpu"))
    np.testing.assert_array_equal(trueno.numpy(got), trueno.dequantize(q)[i])


def test_an_index_outside():
    q = trueno.quantize(np.ones((5, 256), np.float32), "q8_0")
    i = np.array([4, 5, -1, 2**32])
    got = trueno.numpy(trueno.quant_embedding_lookup(trueno.to(q, "wgpu"), trueno.to(i, "wgpu")))
    np.testing.assert_array_equal(np.isnan(got).all(1), [False, True, True, True])
    np.testing.assert_array_equal(got[0], trueno.dequantize(q)[4])


def test_in_a_batch():
    rng = np.random.default_rng(9)
    q, i = trueno.quantize(rng.normal(size=(20, 256)).astype(np.float32), "q4_k"), np.array([3, 19, 0])
    with trueno.Batch("wgpu") as b:
        named = b.upload(i)
        rows = b.quant_embedding_lookup(b.upload(q), named)
        b.execute()
        np.testing.assert_array_equal(b.read(rows), trueno.dequantize(q)[i])
        b.update(named, i[::-1].copy())
        b.execute()
        np.testing.assert_array_equal(b.read(rows), trueno.dequantize(q)[i[::-1]])
