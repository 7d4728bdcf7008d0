"""float16 and bfloat16: computed in float32, each result rounded once; on the host, and by a device without casts.

Oracles are exact arithmetic in float64, rounded here by the exponent, and PyTorch; libraries that cast are not asked.
"""

import asyncio
import copy
import pickle
import subprocess
import sys
import warnings
from fractions import Fraction

import numpy as np
import pytest
import torch
import trueno
from ml_dtypes import bfloat16
from seeds import fresh_seed
from trueno.discovery import registry
from trueno.discovery.protocol import Accuracy
from trueno.dispatch import state
from trueno.dispatch.transfer import here
from trueno.judge.bound import Bound, judge
from trueno.ops import TABLE
from trueno.programs import fused
from trueno.testing import assert_op
from trueno.testing.checks import check_values
from trueno.testing.expected import verdict
from trueno.testing.halves import rounded_bound

HALVES = [np.dtype(np.float16), np.dtype(bfloat16)]
DIGITS = {"float16": (11, -24, 65504.0), "bfloat16": (8, -133, 2.0**128 - 2.0**120)}
"""Binary digits, the exponent of the smallest number, the largest number."""
BACKENDS = ["reference", "scalar", "simd"]


@pytest.fixture(params=HALVES, ids=str)
def half(request):
    return request.param


@pytest.fixture(params=BACKENDS)
def backend(request):
    if request.param not in trueno.backends():
        pytest.skip(f"{request.param} is not installed")
    return request.param


@pytest.fixture
def seeded():
    seed = fresh_seed()
    print("seed", seed)
    return np.random.default_rng(seed)


def nearest(x, half):
    """Exactly representable float64 values, rounded to nearest even; as float64."""
    digits, least, largest = DIGITS[half.name]
    with np.errstate(all="ignore"):
        last = np.maximum(np.frexp(x)[1] - digits, least)
        made = np.ldexp(np.rint(np.ldexp(x, -last)), last)
        return np.where(np.abs(made) > largest, np.copysign(np.inf, x), made)


def numbers(rng, half, shape):
    """Numbers of many sizes, as the type has them."""
    with np.errstate(all="ignore"):
        return (rng.standard_normal(shape) * np.exp2(rng.uniform(-12, 12, shape))).astype(half)


def ulp(x, half):
    digits, least, _ = DIGITS[half.name]
    return np.ldexp(1.0, np.maximum(np.frexp(x)[1] - digits, least))


# ---- meaning ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["add", "sub", "mul", "div", "sqrt"])
def test_float32_then_one_rounding_is_the_very_number(backend, half, name, seeded):
    """float32 has 24 digits, at least twice those of both types and two more: the second rounding changes nothing."""
    count = len(TABLE[name].operands)
    arrays = [numbers(seeded, half, 4000) for _ in range(count)]
    if name == "sqrt":
        arrays = [np.abs(x) for x in arrays]
    exact = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "sqrt": np.sqrt}[name]
    wide = [x.astype(np.float64) for x in arrays]
    keep = wide[1] != 0 if name == "div" else np.ones(4000, bool)
    with trueno.use(backend), np.errstate(all="ignore"):
        got = getattr(trueno, name)(*arrays)
        want = nearest(exact(*wide), half)
    assert got.dtype == half
    np.testing.assert_array_equal(got.astype(np.float64)[keep], want[keep])


@pytest.mark.parametrize("name", ["softmax", "gelu", "exp", "rms_norm", "matmul", "sum", "variance"])
def test_against_pytorch_in_float64(backend, half, name, seeded):
    x, w = (seeded.standard_normal(s).astype(half) for s in ((7, 33), (33, 5) if name == "matmul" else (33,)))
    t, u = (torch.from_numpy(a.astype(np.float64)) for a in (x, w))
    meant = {
        "softmax": lambda: torch.softmax(t, -1),
        "gelu": lambda: torch.nn.functional.gelu(t, approximate="tanh"),
        "exp": lambda: torch.exp(t),
        "rms_norm": lambda: torch.nn.functional.rms_norm(t, (33,), u, 1e-6),
        "matmul": lambda: t @ u,
        "sum": lambda: t.sum(-1),
        "variance": lambda: t.var(-1, correction=0),
    }[name]
    with trueno.use(backend):
        got = getattr(trueno, name)(*((x, w) if name in ("matmul", "rms_norm") else (x,)))
    want = meant().numpy()
    assert got.dtype == half and got.shape == want.shape
    off = np.abs(got.astype(np.float64) - want)
    few = 1e-4 * (np.abs(x.astype(np.float64)) @ np.abs(w.astype(np.float64)) if name == "matmul" else np.abs(want))
    few = np.maximum(few, 1e-6 * np.abs(x.astype(np.float64)).sum(-1)) if name == "sum" else few
    assert (off <= ulp(want, half) / 2 + few).all(), (off / ulp(want, half)).max()


def test_bfloat16_against_pytorchs_own(backend, seeded):
    """PyTorch rounds its float32 results to bfloat16 as well."""
    x, y = (seeded.standard_normal(1000).astype(bfloat16) for _ in range(2))
    t, u = (torch.from_numpy(a.view(np.int16)).view(torch.bfloat16) for a in (x, y))
    with trueno.use(backend):
        for got, want in ((trueno.add(x, y), t + u), (trueno.mul(x, y), t * u), (trueno.relu(x), torch.relu(t))):
            assert got.view(np.int16).tolist() == want.view(torch.int16).tolist()


def test_what_is_past_the_largest_number_is_inf(backend, half):
    largest = DIGITS[half.name][2]
    x = np.array([largest, -largest, 1.0], half)
    with trueno.use(backend):
        assert trueno.scale(x, 2.0).tolist() == [np.inf, -np.inf, 2.0]
        assert trueno.sum(np.full(8, largest, half)) == np.inf
    if half.name == "float16":
        with trueno.use(backend):
            assert trueno.add(np.zeros(1, half), 1e5).tolist() == [np.inf]
            assert trueno.mul(np.array([300.0], half), np.array([300.0], half)).tolist() == [np.inf]


def test_nan_inf_and_zeros_stay(backend, half):
    x = np.array([np.nan, np.inf, -np.inf, -0.0, 0.0], half)
    with trueno.use(backend):
        got = trueno.scale(x, 1.0)
    assert np.isnan(got[0]) and got[1:3].tolist() == [np.inf, -np.inf]
    assert np.signbit(got[3]) and not np.signbit(got[4])


# ---- what comes in and goes out -----------------------------------------------------------------------


def test_types_and_shapes_of_results(backend, half, seeded):
    x = seeded.standard_normal((4, 6)).astype(half)
    with trueno.use(backend):
        assert trueno.relu(x).dtype == half
        assert trueno.argmax(x).dtype == np.int64 and trueno.argmax(x).tolist() == x.astype("f8").argmax(-1).tolist()
        one = trueno.max(x[0])
        assert isinstance(one, np.generic) and one.dtype == half and one == x[0].max()
        assert trueno.sum(x, axis=0, keepdims=True).shape == (1, 6)
        assert trueno.softmax(x, axis=0).dtype == half
        rows = trueno.embedding_lookup(x, [3, 0])
        assert rows.dtype == half and rows.tobytes() == x[[3, 0]].tobytes()
        assert trueno.transpose(x).tobytes() == np.ascontiguousarray(x.T).tobytes()


def test_every_layout(backend, half, seeded):
    """The kit's own cases: strided, byte-swapped, unaligned, read-only, broadcast, empty."""
    labels = set()

    def chosen(case):
        labels.add(case.label)
        return case.label not in ("long", "one long row")

    for name in ("sub", "dot", "matmul"):
        check_values(
            TABLE[name], backend, half, int(seeded.integers(99)), long=False, every_layout=False, chosen=chosen
        )
    assert {"byte-swapped", "unaligned", "Fortran order", "empty row", "no rows"} <= labels


def test_numbers_take_the_arrays_type(half):
    x = np.array([1.0], half)
    tenth = np.float64(0.1)
    want = nearest(1.0 + nearest(np.array([0.1]), half), half)
    for number in (0.1, tenth, np.float32(0.1), half.type(0.1)):
        got = trueno.add(x, number)
        assert got.dtype == half
        np.testing.assert_array_equal(got.astype("f8"), want)
    assert trueno.add(x, 3).astype("f8").tolist() == [4.0]
    assert trueno.add(half.type(1.0), half.type(2.0)).dtype == np.float32  # numbers alone, as ever
    with pytest.raises(trueno.ParameterError, match="a whole number of 1329 bits"):
        trueno.add(x, 10**400)


def test_quantize_widens(half, seeded):
    x = seeded.standard_normal((3, 256)).astype(half)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        q = trueno.quantize(x, "q4_k", imatrix=np.ones(256, half))
        assert q == trueno.quantize(x.astype(np.float32), "q4_k", imatrix=np.ones(256, np.float32))
        with pytest.raises(trueno.DtypeError, match="blocks require float32"):  # and no warning of an overflow
            trueno.quantize_rows(x, format="q4_k")


def test_two_types_in_one_call_are_an_error(half):
    x = np.ones(3, half)
    others = [np.float32, np.float64, next(h for h in HALVES if h != half)]
    for other in others:
        with pytest.raises(trueno.DtypeError, match=rf"add: y is {np.dtype(other)}, but x is {half}"):
            trueno.add(x, np.ones(3, other))
    with pytest.raises(trueno.DtypeError, match=f"y is float32, but x is {half}"):
        trueno.add(x, [1.0, 2.0, 3.0])
    with pytest.raises(trueno.DtypeError, match=r"blocks require float32: convert it .*, a tensor with \.float\(\)"):
        trueno.quant_matmul(np.ones((2, 32), half), trueno.quantize(np.ones((2, 32), np.float32), "q8_0"))
    with pytest.raises(trueno.DtypeError, match="float32, float64, float16 and bfloat16 are accepted"):
        trueno.add(np.ones(3, np.int16), x)
    with pytest.raises(trueno.DtypeError, match="plans are for float32 or float64"):
        trueno.add.plan(x, x)


def test_out(backend, half, seeded):
    x, y = (seeded.standard_normal((5, 6)).astype(half) for _ in range(2))
    want = nearest(x.astype("f8") + y.astype("f8"), half)
    wide = np.zeros((5, 12), half)
    with trueno.use(backend):
        for out in (np.empty((5, 6), half), np.empty((6, 5), half).T, wide[:, ::2]):
            assert trueno.add(x, y, out=out) is out
            np.testing.assert_array_equal(out.astype("f8"), want)
        assert not wide[:, 1::2].any()
        inside = x.copy()
        assert trueno.add(inside, y, out=inside) is inside  # in place
        np.testing.assert_array_equal(inside.astype("f8"), want)
        where = np.empty(5, np.int64)
        assert trueno.argmin(x, out=where) is where and where.tolist() == x.astype("f8").argmin(-1).tolist()
        into = trueno.Matrix(np.zeros((5, 6)), dtype=half)
        assert trueno.add(x, y, out=into) is into
        np.testing.assert_array_equal(into.numpy().astype("f8"), want)
        for wrong in (np.float32, np.float64, half.newbyteorder()):
            target = np.zeros((5, 6), wrong)
            with pytest.raises(trueno.OutError, match=f"the result is {half}"):
                trueno.add(x, y, out=target)
            assert not target.view(np.uint8).any()
        locked = np.zeros((5, 6), half)
        locked.flags.writeable = False
        with pytest.raises(trueno.OutError, match="read-only"):
            trueno.add(x, y, out=locked)


def test_several_results(backend, half, seeded):
    a = seeded.standard_normal((6, 6))
    a = (a + a.T).astype(half)
    a = np.tril(a) + np.tril(a, -1).T
    with trueno.use(backend):
        try:
            values, vectors = trueno.symmetric_eigen(a.astype(half))
        except trueno.KernelError:
            pytest.skip(f"{backend} has no symmetric_eigen")
    assert values.dtype == vectors.dtype == half
    want = np.linalg.eigvalsh(a.astype("f8"))[::-1]
    assert np.abs(values.astype("f8") - want).max() <= 2 * ulp(np.abs(want).max(), half)


# ---- around the ops -----------------------------------------------------------------------------------


def test_vectors_and_matrices(half):
    v = trueno.Vector([1.0, -2.0, 3.0], dtype=half)
    assert v.dtype == half and (v + v).dtype == half and type(v + v) is trueno.Vector
    assert (2.0 * v - half.type(1.0)).to_vec() == [1.0, -5.0, 5.0]
    assert (v @ v) == 14 and (v @ v).dtype == half
    m = trueno.Matrix(np.eye(3, dtype=half))
    assert type(m @ v) is trueno.Vector and (m @ v).dtype == half
    assert pickle.loads(pickle.dumps(v)).array.tobytes() == v.array.tobytes() == copy.deepcopy(v).array.tobytes()
    assert half.name in repr(v)


def test_a_guard_sees_float32(half):
    """A result that only rounding makes Inf is healthy; one that is Inf in float32 is not, and out stays."""
    guard = trueno.JidokaGuard.parse([("nan", "stop"), ("inf", "stop")])
    large = np.full(2, 65000.0, np.float16)
    with guard:
        assert trueno.scale(large, 2.0).tolist() == [np.inf, np.inf]
        out = np.ones(2, half)
        with pytest.raises(trueno.GuardError, match="ln"):
            trueno.ln(np.array([1.0, -1.0], half), out=out)
        assert out.tolist() == [1, 1]
        with pytest.raises(trueno.GuardError, match=r"\[1\]"):
            trueno.exp(np.array([1.0, 200.0], half))


def computed_in(call):
    """The dtype in which the one kernel of `call()` was called."""
    with trueno.trace() as events:
        call()
    (run,) = [e for e in events if e.kind == "run"]
    return run.data["dtype"]


def test_a_host_kernel_for_16_bits_gets_the_arrays_themselves(half, seeded):
    """simd has one of matmul; others, other ops and guards widen."""
    if "simd" not in trueno.backends():
        pytest.skip("simd is not installed")
    x, y = (seeded.standard_normal((40, 40)).astype(half) for _ in range(2))
    out = np.zeros((40, 40), half)
    with trueno.use("simd"):
        assert computed_in(lambda: trueno.matmul(x, y)) == half.name
        assert computed_in(lambda: trueno.matmul(x, y, out=out)) == half.name
        assert computed_in(lambda: trueno.matmul(x.T, y)) == half.name
        assert trueno.explain(trueno.matmul, x, y).call.dtype == half
        assert computed_in(lambda: trueno.matvec(x, y[0])) == "float32"
        with trueno.JidokaGuard.parse([("nan", "stop")]):
            assert computed_in(lambda: trueno.matmul(x, y)) == "float32"
        assert trueno.matmul(x[:0], y).shape == (0, 40)
        before = y.copy()
        assert trueno.matmul(x, y, out=y) is y
        np.testing.assert_array_equal(trueno.matmul(x, before).view(np.uint16), y.view(np.uint16))
    with trueno.use("scalar"):
        assert computed_in(lambda: trueno.matmul(x, y)) == "float32"
    want = x.astype(np.float64) @ before.astype(np.float64)
    assert (np.abs(out.astype(np.float64) - want) <= ulp(want, half) / 2 + 1e-4).all()


@pytest.mark.parametrize("early", [True, False], ids=["made", "called"])
def test_a_16_bit_kernel_that_failed_is_replaced_by_widening(half, early, monkeypatch):
    if "simd" not in trueno.backends():
        pytest.skip("simd is not installed")
    backend = type(registry.load("simd"))
    kernel, broken = backend.kernel, []

    def fails(*_):
        broken.append(half)
        raise RuntimeError("broken")

    def given(self, call):
        if call.dtype != half:
            return kernel(self, call)
        return fails() if early else fails

    monkeypatch.setattr(backend, "kernel", given)
    x = np.eye(3, dtype=half)
    state.forget_plans()
    try:
        with trueno.prefer("simd"):
            assert trueno.matmul(x, x).tolist() == x.tolist() and len(broken) == 1
            assert computed_in(lambda: trueno.matmul(x, x)) == "float32" and len(broken) == 1
            assert trueno.matmul(x, x).tolist() == x.tolist() and len(broken) == 1
            trueno.reset_quarantine()
            with trueno.use("simd"):
                if not early:
                    with pytest.raises(trueno.KernelError, match="broken"):
                        trueno.matmul(x, x)
    finally:
        trueno.reset_quarantine()
        state.forget_plans()


def test_a_batch_says_what_to_do(half):
    with trueno.Batch() as b:
        with pytest.raises(trueno.DtypeError, match=rf"x is {half}; .*\.astype\(numpy.float32\)"):
            b.upload(np.ones(3, half))
        assert b.upload(np.ones(3, half).astype(np.float32)).dtype == np.float32


def test_async_explain_and_a_device_at_hand(half):
    x = np.array([3.0, -4.0], half)
    assert asyncio.run(trueno.aio.relu(x)).dtype == half
    assert "add in float32" in str(trueno.explain(trueno.add, x, x))
    with trueno.device("reference") as d:
        a = d.upload(x)
        total = d.dot(a, a)
        assert a.dtype == half and d.read(d.relu(a)).tolist() == [3.0, 0.0]
        assert d.read(d.scale(a, 2.0)).dtype == half and total.dtype == half and d.read(total) == 25


def test_the_core_needs_no_ml_dtypes():
    code = (
        "import sys; sys.modules['ml_dtypes'] = None\n"
        "import numpy as np, trueno\n"
        "with trueno.use('reference'):\n"
        "    print(trueno.add(np.ones(2, np.float16), 0.5), trueno.add(np.ones(2, np.float32), 1.0))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], text=True, capture_output=True, check=False)
    assert done.stdout.split() == ["[1.5", "1.5]", "[2.", "2.]"], done.stderr


# ---- a device without casts ---------------------------------------------------------------------------


def test_a_device_without_casts_goes_by_way_of_the_host_and_counts_it(fake, half, seeded):
    x, y = (seeded.standard_normal((3, 4)).astype(half) for _ in range(2))
    a, b = trueno.to(x, "fake"), trueno.to(y, "fake")
    before = here.moved
    got = trueno.add(a, b)
    assert (here.moved.downloads - before.downloads, here.moved.uploads - before.uploads) == (2, 1)
    assert type(got) is fake.Array and got.dtype == half
    np.testing.assert_array_equal(trueno.numpy(got).astype("f8"), nearest(x.astype("f8") + y.astype("f8"), half))
    out = trueno.to(np.zeros((3, 4), half), "fake")
    assert trueno.add(a, 0.5, out=out) is out
    np.testing.assert_array_equal(trueno.numpy(out).astype("f8"), nearest(x.astype("f8") + 0.5, half))
    v = trueno.Matrix(x).to("fake")
    assert type(v + v) is trueno.Matrix and (v + v).dtype == half and (v * half.type(2)).device == "fake"
    with pytest.raises(trueno.OutError, match=f"the result is {half}"):
        trueno.add(a, b, out=trueno.to(np.zeros((3, 4), "f4"), "fake"))
    with pytest.raises(trueno.DtypeError, match=f"y is float32, but x is {half}"):
        trueno.add(a, trueno.to(y.astype("f4"), "fake"))
    with trueno.Batch("fake") as batch, pytest.raises(trueno.DtypeError, match="in a batch"):
        batch.relu(batch.upload(a))


def test_out_along_another_axis_where_the_host_rearranges(fake, seeded):
    x = seeded.standard_normal((3, 4)).astype("f4")
    out = trueno.to(np.zeros((3, 4), "f4"), "fake")
    assert trueno.softmax(trueno.to(x, "fake"), axis=0, out=out) is out
    assert_op("softmax", [x.T], trueno.numpy(out).T)
    with pytest.raises(trueno.OutError, match=r"float32 of shape \(4,\)"):
        trueno.sum(trueno.to(x, "fake"), axis=0, out=out)


# ---- the judge ----------------------------------------------------------------------------------------


def test_the_judge_takes_the_next_number_for_wrong(half):
    """Half a last place beside a float32 bound, and no more."""
    value = np.array([1.0, 3.0, 100.0])
    slack = value * 2.0**-22
    b = rounded_bound(Bound(value, value - slack, value + slack, np.zeros(3, bool)), half)
    assert judge(value.astype(half), b).ok
    for way in (-1, 1):
        assert not judge(np.array(value + way * ulp(value, half)), b).ok
    x = np.linspace(-2, 2, 9).astype(half)
    right = trueno.exp(x)
    assert assert_op("exp", [x], right).ok
    for i in range(9):
        wrong = right.copy()
        wrong[i] = half.type(float(wrong[i]) + float(ulp(float(wrong[i]), half)))
        with pytest.raises(AssertionError, match="wrong: 1 of 9"):
            assert_op("exp", [x], wrong, Accuracy(default=1.0))


CLOSE_TO_A_TIE = [1.00390625 + 2**-40, (257 << 20) + 1, -(1.01171875 - 2**-40), 3.3961775292304e38, 2**-134 + 2**-180]
ONCE = [1.0078125, 270532608.0, -1.0078125, 3.3895313892515355e38, 2**-133]


@pytest.mark.parametrize("number, once", list(zip(CLOSE_TO_A_TIE, ONCE, strict=True)))
def test_numbers_become_bfloat16_in_one_rounding(number, once):
    """Where a float32 between would land on a tie."""
    assert float(trueno.add(np.zeros(1, bfloat16), number)[0]) == once
    assert float(trueno.Vector([number], dtype=bfloat16).numpy()[0]) == once


def test_fma_of_bfloat16_is_rounded_once():
    rng = np.random.default_rng(5)
    x, y, z = (rng.standard_normal(2000).astype(bfloat16) for _ in range(3))
    for got, a, b, c in zip(fused.fma(x, y, z), x, y, z, strict=True):
        exact = Fraction(float(a)) * Fraction(float(b)) + Fraction(float(c))
        near = [int(got.view(np.uint16)) + d for d in (-1, 0, 1)]
        steps = [abs(Fraction(float(np.uint16(n).view(bfloat16))) - exact) for n in near]
        assert steps[1] <= min(steps)


def test_lists_of_bfloat16_are_lists_of_numbers():
    numbers = [bfloat16(1), bfloat16(2.5)]
    assert trueno.neg(numbers).dtype == np.float32
    assert trueno.add(np.ones(2, np.float32), numbers).tolist() == [2.0, 3.5]
    assert trueno.numpy(numbers).tolist() == [1.0, 2.5]


def test_positions_are_not_rounded_to_16_bits():
    """549 is no bfloat16: beside 16-bit values a position is still a whole number."""
    x = np.zeros(4096, bfloat16)
    x[549] = 1
    op, right = TABLE["topk"], (x[[549]], np.array([549]))
    assert verdict(op, (x,), {"k": 1}, x.dtype, right).ok
    assert not verdict(op, (x,), {"k": 1}, x.dtype, (x[[549]], np.array([548]))).ok
