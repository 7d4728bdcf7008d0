"""quant_embedding_lookup and quant_experts on every backend of the host, against decoding and plain products."""

import numpy as np
import pytest
import trueno
from trueno.errors import DtypeError, ParameterError, ShapeError

BACKENDS = [name for name in ("reference", "scalar", "simd") if name in trueno.backends()]
FORMATS = ("q4_0", "q4_k", "q8_0", "iq4_xs", "mxfp4")
OUTPUTS, K = 24, 512


def experts(rng, form, count=4):
    return trueno.quantize(rng.normal(size=(count * OUTPUTS, K)).astype(np.float32), form)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("form", FORMATS)
def test_rows_are_those_of_dequantize(backend, form):
    rng = np.random.default_rng(3)
    q = experts(rng, form)
    numbers = trueno.dequantize(q)
    with trueno.use(backend):
        for i in (
            rng.integers(0, len(q), (3, 5)),
            np.array(7),
            np.zeros((0, 2), np.int64),
            np.arange(96, dtype=np.uint8),
        ):
            np.testing.assert_array_equal(trueno.quant_embedding_lookup(q, i), numbers[i])
        out = np.empty((2, K), np.float32)
        assert trueno.quant_embedding_lookup(q.bytes, [1, 95], format=form, out=out) is out
        np.testing.assert_array_equal(out, numbers[[1, 95]])


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("activations", ["q8", "f32"])
def test_each_row_meets_its_expert(backend, activations):
    """One token, some, and so many that experts have several rows; an expert that no row names is not read."""
    rng = np.random.default_rng(5)
    q = experts(rng, "q4_k")
    for t, u in ((1, 1), (1, 4), (3, 2), (30, 2), (0, 2)):
        x, ids = rng.normal(size=(t, 1, K)).astype(np.float32), rng.integers(0, 3, (t, u))
        with trueno.use("scalar"):
            want = np.zeros((t, u, OUTPUTS), np.float32)
            for at in np.ndindex(t, u):
                rows = q[OUTPUTS * ids[at] : OUTPUTS * (ids[at] + 1)]
                want[at] = trueno.quant_matvec(rows, x[at[0], 0], activations=activations)
        with trueno.use(backend):
            got = trueno.quant_experts(q, x, ids, outputs=OUTPUTS, activations=activations)
            assert got.shape == want.shape
            np.testing.assert_allclose(got, want, rtol=0, atol=2e-5 * np.abs(want).max(initial=1))
            planned = trueno.quant_experts(q, x, ids, outputs=OUTPUTS, activations=activations)
            np.testing.assert_array_equal(planned, got)
            whole = np.broadcast_to(x, (t, u, K)).copy()
            again = trueno.quant_experts(q, whole, ids.astype(np.int32), outputs=OUTPUTS, activations=activations)
            np.testing.assert_array_equal(again, got)


@pytest.mark.parametrize("backend", BACKENDS)
def test_in_a_batch(backend):
    rng = np.random.default_rng(6)
    q, x, ids = experts(rng, "q8_0"), rng.normal(size=(2, 1, K)).astype(np.float32), np.array([[0, 3], [2, 1]])
    with trueno.use(backend):
        first, second = (trueno.quant_experts(q, x, i, outputs=OUTPUTS) for i in (ids, 3 - ids))
        rows = trueno.quant_embedding_lookup(q, ids)
    with trueno.Batch(backend) as b:
        w, named = b.upload(q), b.upload(ids)
        y = b.keep(b.quant_experts(w, b.upload(x), named, outputs=OUTPUTS))
        looked_up, doubled = b.quant_embedding_lookup(w, named), b.scale(y, 2.0)
        b.execute()
        np.testing.assert_array_equal(b.read(y), first)
        np.testing.assert_array_equal(b.read(doubled), 2 * first)
        np.testing.assert_array_equal(b.read(looked_up), rows)
        b.update(named, 3 - ids)
        b.execute()
        np.testing.assert_array_equal(b.read(y), second)
    whole = np.repeat(x, 2, 1)
    with trueno.Batch(backend) as b:  # leading axes that are equal take no general path
        y = b.quant_experts(b.upload(q), b.upload(whole), b.upload(ids), outputs=OUTPUTS)
        b.execute()
        np.testing.assert_array_equal(b.read(y), first)
        assert "general path" not in str(b)


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_is_wrong_is_named(backend):
    rng = np.random.default_rng(7)
    q, x = experts(rng, "q4_0"), rng.normal(size=(2, K)).astype(np.float32)
    with trueno.use(backend):
        for _ in range(2):  # the second call finds a plan
            with pytest.raises(
                ParameterError, match=r"quant_experts: ids\[1\] is 4; experts of 24 rows of w are 0 to 3"
            ):
                trueno.quant_experts(q, x, [3, 4], outputs=OUTPUTS)
            with pytest.raises(ParameterError, match=r"quant_experts: ids\[0\] is -1"):
                trueno.quant_experts(q, x, [-1, 0], outputs=OUTPUTS)
            trueno.quant_experts(q, x, [3, 0], outputs=OUTPUTS)
        with pytest.raises(ShapeError, match=r"quant_experts: m is 96, outputs is 25, but m % outputs == 0 must hold"):
            trueno.quant_experts(q, x, [0, 0], outputs=25)
        with pytest.raises(ShapeError, match=r"quant_experts: x\[k\] is 256, but w\[k\] is 512"):
            trueno.quant_experts(q, x[:, :256], [0, 0], outputs=OUTPUTS)
        with pytest.raises(ParameterError, match=r"column by column; use \.T to read it as rows"):
            trueno.quant_experts(q.T, x, [0, 0], outputs=OUTPUTS)
        with pytest.raises(ParameterError, match=r"quant_embedding_lookup: i\[0, 1\] is 96; rows of w are 0 to 95"):
            trueno.quant_embedding_lookup(q, [[0, 96]])
        with pytest.raises(DtypeError, match=r"table is quantized; trueno\.quant_embedding_lookup reads its blocks"):
            trueno.embedding_lookup(q, [0])
        with pytest.raises(ParameterError, match="interleaved"):
            trueno.quant_embedding_lookup(q.interleaved(), [0])
