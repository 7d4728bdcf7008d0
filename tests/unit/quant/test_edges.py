"""What is given in another form than expected: names, shapes, lists, weights, holders; and what watches results."""

import numpy as np
import pytest
import trueno
from trueno.formats import FORMATS, WEIGHTS, decode, encode
from trueno.formats.samples import random_rows

SEED = 20261122
F32 = np.float32


def made(name="q4_k", shape=(24, 512), seed=SEED):
    f = FORMATS[name]
    rows = random_rows(f, (shape[0], f.row_bytes(shape[1])), np.random.default_rng(seed))
    return trueno.QuantizedMatrix(rows, shape, name)


def normal(*shape):
    return np.random.default_rng(SEED).standard_normal(shape).astype(F32)


@pytest.fixture(params=["reference", "scalar"], autouse=True)
def on(request):
    with trueno.use(request.param):
        yield request.param


def test_ops_take_names_of_formats_in_any_case():
    q, x = made(), normal(512)
    assert np.array_equal(trueno.quant_matvec(q.bytes, x, format="Q4_K"), q @ x)
    assert np.array_equal(trueno.quant_matvec(q, x, format="Q4_K"), q @ x)
    assert np.array_equal(trueno.dequantize(q.bytes, format="q4_K"), trueno.dequantize(q))
    assert np.array_equal(trueno.quantize_rows(x[None], format="Q8_0"), trueno.quantize(x, "q8_0").bytes)
    assert trueno.quant_matvec.plan(q.bytes, x, format="Q4_K") is trueno.quant_matvec.plan(q, x)
    with trueno.Batch() as b:
        y = b.dequantize(b.quantize_rows(b.upload(x[None]), format="Q8_0"))
        b.execute()
        assert np.array_equal(b.read(y), trueno.dequantize(trueno.quantize(x, "q8_0")))


@pytest.mark.parametrize("shape", [(24.7, 512), ("24", "512"), {24, 512}, {24: 0, 512: 0}, "24", 24, None])
def test_a_shape_is_two_whole_numbers(shape):
    with pytest.raises(trueno.ShapeError, match="two integers"):
        trueno.QuantizedMatrix(made().bytes, shape, "q4_k")


@pytest.mark.parametrize("shape", [(2**70, 0), (0, 2**72)])
def test_no_axis_is_longer_than_an_array_can_be(shape):
    with pytest.raises(trueno.ShapeError, match="an array holds"):
        trueno.QuantizedMatrix(b"", shape, "q4_k")
    assert trueno.QuantizedMatrix(b"", (2**40, 0), "q4_k").size == 0


def test_numbers_of_numpy_and_arrays_are_shapes():
    q = made()
    assert trueno.QuantizedMatrix(q.bytes, np.array([24, 512]), "q4_k") == q
    assert trueno.QuantizedMatrix(q.bytes, (np.int32(24), np.uint16(512)), "q4_k").shape == (24, 512)


def test_no_rows_are_rows_too_and_no_matrix_is_a_sequence():
    q = made()
    assert q[[]].shape == (0, 512)
    with pytest.raises(TypeError, match="not iterable"):
        list(q)


def test_vectors_and_matrices_are_multiplied_and_come_back_as_such(on):
    q, x, rows = made(), normal(512), normal(3, 24)
    for holder, wanted in [
        (q @ trueno.Vector(x), q @ x),
        (q @ trueno.Matrix(np.ascontiguousarray(normal(512, 3))), q @ normal(512, 3)),
        (trueno.Vector(rows[0]) @ q, rows[0] @ q),
        (trueno.Matrix(rows) @ q, rows @ q),
        (trueno.Matrix(normal(3, 512)) @ q.T, normal(3, 512) @ q.T),
    ]:
        assert type(holder) is {1: trueno.Vector, 2: trueno.Matrix}[wanted.ndim]
        assert np.array_equal(holder.array, wanted)
    other = {"reference": "scalar", "scalar": "reference"}[on]
    with trueno.trace() as seen:
        assert (trueno.Vector(rows[0], backend=other) @ q).backend == other
    assert {e.backend for e in seen if e.kind == "run"} == {other}
    with pytest.raises(trueno.ShapeError, match="x @ q: x has 25 elements, but q has 24 rows"):
        trueno.Vector(np.ones(25, F32)) @ q


def test_swapped_operands_are_told_the_order():
    q, x = made(), normal(2, 512)
    matrices = r"w is the operand in blocks: the order is trueno\.quant_matmul\(x, w\); swap them, or multiply with @"
    for wrong in (
        lambda: trueno.quant_matmul(q, x),
        lambda: trueno.quant_matmul(q.bytes, x, format=q.format),
        lambda: trueno.quant_matmul.plan(q, x),
        lambda: trueno.explain("quant_matmul", q, x),
    ):
        with pytest.raises(trueno.DtypeError, match=matrices):
            wrong()
    with trueno.Batch("reference") as b:
        w = b.upload(q)
        with pytest.raises(trueno.DtypeError, match=matrices):
            b.quant_matmul(w, b.upload(x))
    with pytest.raises(trueno.DtypeError, match=r"x is quantized.*trueno\.quant_matvec\(w, x\); swap"):
        trueno.quant_matvec(x[0], q)
    with pytest.raises(trueno.DtypeError, match=r"trueno\.quant_matmul_colmajor\(x, w\); swap"):
        trueno.quant_matmul_colmajor(q.T, normal(2, 24))
    with pytest.raises(trueno.DtypeError, match=r"x is uint8; float32, float64, float16 and bfloat16 are accepted"):
        trueno.quant_matmul(x.astype(np.uint8), q)  # in the right order


def test_the_remedy_for_blocks_that_lie_the_other_way_is_one():
    q = made()
    with pytest.raises(trueno.ParameterError, match=r"use trueno\.quant_matmul, or"):
        trueno.quant_matmul_colmajor(normal(2, 24), q)
    with pytest.raises(trueno.ParameterError, match=r"use trueno\.quant_matmul_colmajor, or"):
        trueno.quant_matmul(normal(2, 24), q.T)
    with pytest.raises(trueno.ParameterError, match=r"use \.T to read it as rows"):
        trueno.dequantize(q.T)


@pytest.mark.parametrize(
    ("given", "error", "said"),
    [
        ([[1.0] * 32, [2.0] * 31], trueno.ShapeError, "ragged"),
        (["a"] * 32, trueno.DtypeError, "real numbers"),
        ([None] * 32, trueno.DtypeError, "real numbers"),
        ([10**400] * 32, trueno.DtypeError, "real numbers"),
        ([1e300] * 32, trueno.ParameterError, r"x\[0, 0\] is inf"),
        (np.full(32, 1e300), trueno.ParameterError, r"x\[0, 0\] is inf"),
    ],
)
def test_lists_of_what_is_no_number_are_errors_of_ours(given, error, said):
    with pytest.raises(error, match=said):
        trueno.quantize(given, "q4_0")
    if isinstance(given, list) and error is not trueno.ParameterError:
        with pytest.raises(error, match=said):
            made("q4_0", (4, 32)) @ given


def test_only_a_quantized_matrix_is_requantized():
    with pytest.raises(trueno.DtypeError, match="requantize: q is ndarray"):
        trueno.quant.requantize(normal(3, 32), "q4_0")


@pytest.mark.parametrize("imatrix", [2.0, np.float32(2), np.ones((1, 512), F32), np.ones(511, F32), []])
def test_shapes_are_looked_at_before_values(imatrix):
    with pytest.raises(trueno.ShapeError, match="imatrix"):
        trueno.quantize(normal(2, 512), "q4_k", imatrix)


@pytest.mark.parametrize("name", ["q4_0", "q3_k", "q4_k", "q6_k", "iq4_xs"])
def test_weights_that_would_make_zeros_of_numbers_are_refused(name):
    """Between 1e-30 and what overflows any weights do, and beyond either end ggml's sums are 0 or Inf."""
    x, even = normal(2, 512), np.ones(512, F32)
    for size in (1e-30, 1e-20, 1.0, 1e20, 1e30):
        y = trueno.dequantize(trueno.quantize(x, name, even * F32(size)))
        assert np.abs(y - x).max() < 0.35 * np.abs(x).max(), size
    for size in (3e38, 1e36):
        with pytest.raises(trueno.ParameterError, match=r"imatrix\[0\] is .*overflows"):
            trueno.quantize(x, name, even * F32(size))
    with pytest.raises(trueno.ParameterError, match=r"imatrix\[0\] is 1e\+24.*1e\+06"):
        trueno.quantize(np.full((1, 512), 1e6, F32), name, even * F32(1e24))
    for few, said in ((1e-45, "at most 1.4013e-45"), (1e-36, "at most 1e-36"), (0.0, "imatrix is 0")):
        with pytest.raises(trueno.ParameterError, match=f"{said} in every column.*omit imatrix"):
            trueno.quantize(x, name, even * F32(few))


@pytest.mark.parametrize("name", WEIGHTS)
def test_columns_without_weight_are_ggmls_to_the_byte(name):
    """An expert that a model's imatrix saw little of has whole runs of them."""
    x, weights = normal(3, 512), np.random.default_rng(SEED).random(512).astype(F32)
    weights[64:96] = weights[200:256] = weights[256:] = 0
    q = trueno.quantize(x, name, weights)
    assert np.array_equal(q.bytes, encode(FORMATS[name], x, weights))


@pytest.mark.parametrize("condition", [trueno.Condition.NAN, trueno.Condition.INF, trueno.Condition.OVERFLOW])
def test_a_guard_sees_scales_that_overflowed(condition, on):
    x = normal(3, 512) * F32(1e9)  # over 8, and past float16
    guard = trueno.JidokaGuard().on(condition, trueno.Action.STOP)
    with (
        guard,
        pytest.raises(trueno.GuardError, match=rf"quantize_rows on {on} .*w\[0, .*\(3, 512\); its inputs are fin"),
    ):
        trueno.quantize(x, "q4_0")
    again = trueno.JidokaGuard().on(condition, trueno.Action.PROMOTE_F64)
    with again, pytest.raises(trueno.GuardError, match=r"computed in float64 and rounded to float32, w\[0, "):
        trueno.quantize(x, "q4_0")
    with guard:
        assert np.isfinite(decode(FORMATS["q4_0"], trueno.quantize(normal(3, 512), "q4_0").bytes)).all()


def test_an_upload_is_not_made_its_transpose():
    q = made("q4_0", (64, 64))
    with trueno.Batch() as b:
        w, t = b.upload(q), b.upload(q.T)
        with pytest.raises(trueno.ShapeError, match="x is a transposed matrix"):
            b.update(w, q.T)
        with pytest.raises(trueno.ShapeError, match="h is a transposed matrix"):
            b.update(t, q)


def test_a_plan_says_what_is_wrong_with_its_parameters():
    q, x = made(), normal(512)
    with pytest.raises(trueno.ParameterError, match="activations is 'q7'; it must be 'q8' or 'f32'"):
        trueno.quant_matvec.plan(q, x, activations="q7")
    with pytest.raises(trueno.ParameterError, match="format is missing"):
        trueno.quant_matvec.plan(q.bytes, x)
    with pytest.raises(trueno.ParameterError, match="no parameter 'formats'; parameters are format, activations"):
        trueno.quant_matvec.plan(q, x, formats="q4_k")
