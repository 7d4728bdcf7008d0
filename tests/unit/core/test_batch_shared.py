"""Products of one input become one kernel: which do, in what order, what is stored, and that it is right."""

import numpy as np
import pytest
import trueno
from seeds import fresh_seed
from trueno.batch import shared
from trueno.discovery import registry
from trueno.discovery.protocol import Reject
from trueno.judge.structured import judge_structured
from trueno.ops.shared import SharedOp
from unit.core.test_batch_fusion import kernels

F, K = np.float32, 256


@pytest.fixture
def seed():
    seed = fresh_seed()
    print(f"seed {seed}")
    return seed


@pytest.fixture
def rng(seed):
    return np.random.default_rng(seed)


@pytest.fixture
def b():
    with trueno.Batch("reference") as batch:
        yield batch


def matrix(rng, n, k=K, name="q8_0"):
    return trueno.quantize(rng.standard_normal((n, k)).astype(F), name)


def vector(rng, n=K):
    return rng.standard_normal(n).astype(F)


def judged(b):
    """Judge every kernel's results by the bound of the op that it is."""
    b.execute()
    for step in b._schedule().steps:
        operands = [np.asarray(b._replay._array(v, b._uploads.arrays)).reshape(shape) for v, shape in step.reads]
        results = [np.asarray(b._found(v)) for v, _ in step.makes]
        verdict = judge_structured(step.op, operands, dict(step.call.static), F, results, step.params)
        assert verdict.ok, str(verdict)
        assert verdict.free < 0.5


def test_queries_keys_and_values_are_one_kernel(b, rng):
    x, (q, k, v), bias = (
        vector(rng),
        (matrix(rng, n, name=f) for n, f in ((8, "q4_0"), (4, "q8_0"), (4, "q6_k"))),
        vector(rng, 8),
    )
    h = b.upload(x)
    results = [
        b.bias_activation(b.quant_matvec(b.upload(q), h), b.upload(bias), activation="none"),
        b.quant_matvec(b.upload(k), h),
        b.scale(b.quant_matvec(b.upload(v), h), 2.0),
    ]
    (step,) = b._schedule().steps
    assert isinstance(step.op, SharedOp) and step.op.table_op.name == "quant_matvec"
    assert "quant_matvec → bias_activation, quant_matvec, quant_matvec → scale of one operand" in str(b)
    judged(b)
    with trueno.use("reference"):
        single = [trueno.quant_matvec(w, x) for w in (q, k, v)]
    for h, want in zip(results, (single[0] + bias, single[1], 2 * single[2]), strict=True):
        np.testing.assert_allclose(b.read(h), want, rtol=1e-5, atol=1e-6)
    assert b.counts.kernels == 1


@pytest.mark.parametrize("unit", ["swiglu", "geglu"])
@pytest.mark.parametrize("kept", [False, True])
def test_a_gated_layer_is_one_kernel(b, rng, unit, kept):
    x, gate, up = vector(rng), matrix(rng, 12), matrix(rng, 12, name="q4_k")
    h = b.upload(x)
    g, u = b.quant_matvec(b.upload(gate), h), b.quant_matvec(b.upload(up), h)
    if kept:
        b.keep(g), b.keep(u)
    y = getattr(b, unit)(g, u)
    (step,) = b._schedule().steps
    assert len(step.makes) == 1 + 2 * kept
    assert len(b._schedule().buffers.sizes) == 1 + 2 * kept
    judged(b)
    with trueno.use("reference"):
        g2, u2 = trueno.quant_matvec(gate, x), trueno.quant_matvec(up, x)
        want = getattr(trueno, unit)(g2, u2)
    np.testing.assert_allclose(b.read(y), want, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(b.read(g), g2, rtol=1e-5, atol=1e-5)  # computed now, unless it is kept
    np.testing.assert_allclose(b.read(u), u2, rtol=1e-5, atol=1e-5)


def test_what_needs_a_result_in_between_stays_behind(b, rng):
    """The last product adds what is computed from the first one's result, so it runs after that."""
    x, w, v = vector(rng), matrix(rng, 8), matrix(rng, 8)
    h = b.upload(x)
    first, other = b.quant_matvec(b.upload(w), h), b.quant_matvec(b.upload(v), h)
    total = b.sum(first)
    last = b.add(b.quant_matvec(b.upload(w), h), total)
    assert kernels(b) == [["quant_matvec", "quant_matvec"], ["sum"], ["quant_matvec", "add"]]
    assert len(b._schedule().steps[0].members) == 2
    b.execute()
    with trueno.use("reference"):
        one, two = trueno.quant_matvec(w, x), trueno.quant_matvec(v, x)
    np.testing.assert_allclose(b.read(last), one + one.sum(), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(b.read(other), two, rtol=1e-5, atol=1e-5)


def test_a_product_of_anothers_result_stays_behind(b, rng):
    w, h = matrix(rng, K), b.upload(vector(rng))
    one = b.quant_matvec(b.upload(w), h)
    two = b.quant_matvec(b.upload(w), one)
    assert kernels(b) == [["quant_matvec"], ["quant_matvec"]] and two.shape == (K,)


def test_only_calls_alike_are_together(b, rng):
    """Another vector, other activations and another op are other kernels."""
    w, x, y = b.upload(matrix(rng, 8)), b.upload(vector(rng)), b.upload(vector(rng))
    rows = b.upload(rng.standard_normal((2, K)).astype(F))
    results = [
        b.quant_matvec(w, x), b.quant_matvec(w, y), b.quant_matvec(w, x, activations="f32"),
        b.quant_matmul(rows, w), b.quant_matvec(w, x), b.quant_matmul(rows, w),
    ]  # fmt: skip
    assert sorted(len(k) for k in kernels(b)) == [1, 1, 2, 2]
    judged(b)
    np.testing.assert_array_equal(b.read(results[0]), b.read(results[4]))


def test_many_are_several_kernels(b, rng):
    w, x = b.upload(matrix(rng, 8)), b.upload(vector(rng))
    results = [b.quant_matvec(w, x) for _ in range(shared.MOST + 3)]
    assert [len(k) for k in kernels(b)] == [shared.MOST, 3] and len(results) == shared.MOST + 3


def test_one_recording_is_one_op(rng):
    """Equal batches have equal ops, so that no kernel is made twice; other wiring is another op."""

    def op(order):
        with trueno.Batch("reference") as b:
            x, w = b.upload(vector(rng)), b.upload(matrix(rng, 8))
            pair = b.quant_matvec(w, x), b.quant_matvec(b.upload(matrix(rng, 8)), x)
            h = b.swiglu(pair[order], pair[1 - order])
            (step,) = b._schedule().steps
            assert h.shape == (8,)
            return step.op

    assert op(0) is op(0)
    assert op(0).name != op(1).name


@pytest.mark.parametrize("m", [0, 3])
@pytest.mark.parametrize("bias", [False, True])
def test_a_norm_is_part_of_the_products_of_its_result(b, rng, m, bias):
    """With a residual behind the product before, so that a layer's norms are no kernels."""
    product = b.quant_matmul if m else lambda x, w, **given: b.quant_matvec(w, x, **given)
    x, residual = (rng.standard_normal((m, K)[m == 0 :]).astype(F) for _ in range(2))
    out, gate, up = (matrix(rng, *shape) for shape in ((K,), (12, K, "q4_k"), (12, K, "q5_0")))
    h = b.add(product(b.upload(x), b.upload(out)), b.upload(residual))
    y = b.rms_norm(h, b.upload(vector(rng)), eps=1e-5)
    g, u = product(y, b.upload(gate)), product(y, b.upload(up))
    if bias:
        g = b.add(g, b.upload(vector(rng, 12)))
    hidden = b.swiglu(g, u)
    _, second = b._schedule().steps
    assert second.op.members[0].op.name == "rms_norm" and len(second.op.members) == 3
    assert second.op.table_op.name == f"quant_mat{'mul' if m else 'vec'}" and len(second.makes) == 1
    judged(b)
    b.keep(y)  # which needs it in memory
    want = b.read(hidden)
    b.execute()
    assert [len(step.members) for step in b._schedule().steps] == [0, 0, 2]
    np.testing.assert_allclose(b.read(hidden), want, rtol=2e-2, atol=2e-2 * np.abs(want).max())


@pytest.mark.parametrize("other", ["product", "sum", "twice"])
def test_a_norm_that_something_else_reads_is_a_kernel(b, rng, other):
    y = b.rms_norm(b.upload(vector(rng)), b.upload(vector(rng)))
    z = b.quant_matvec(b.upload(matrix(rng, K)), y)
    more = {
        "product": lambda: b.quant_matvec(b.upload(matrix(rng, 8)), y, activations="f32"),
        "sum": lambda: b.sum(y),
        "twice": lambda: b.mul(z, y),
    }[other]()
    assert [step.members for step in b._schedule().steps if "rms_norm" in step.op.name] == [[]]
    b.execute()
    assert np.isfinite(b.read(more)).all()


def test_the_judge_of_a_norm_and_a_product_is_strict(b, rng):
    """A weight of the norm that is off by a hundredth shows in the product."""
    y = b.quant_matvec(b.upload(matrix(rng, 12)), b.rms_norm(b.upload(vector(rng)), b.upload(vector(rng))))
    b.execute()
    (step,) = b._schedule().steps
    operands = [np.asarray(b._replay._array(v, b._uploads.arrays)) for v, _ in step.reads]
    right = b.read(y)
    assert judge_structured(step.op, operands, {}, F, [right], step.params)
    operands[1] = operands[1] * F(1.01)
    assert not judge_structured(step.op, operands, {}, F, [right], step.params)


def test_a_backend_that_refuses_gets_the_parts(rng, monkeypatch):
    backend = registry.load("reference")
    supports = backend.supports
    no = Reject("unsupported_call", "one at a time")
    monkeypatch.setattr(backend, "supports", lambda call: no if isinstance(call.op, SharedOp) else supports(call))
    with trueno.Batch("reference") as b:
        x, w = b.upload(vector(rng)), b.upload(matrix(rng, 8))
        h = b.swiglu(b.quant_matvec(w, x), b.quant_matvec(b.upload(matrix(rng, 8)), x))
        assert kernels(b) == [["quant_matvec"], ["quant_matvec", "swiglu"]]
        assert "reference runs ops of one operand separately (unsupported_call: one at a time)" in str(b)
        b.execute()
        assert b.read(h).shape == (8,)


def test_a_backend_without_such_kernels_is_asked_and_says_so(rng):
    with trueno.Batch("scalar") as b:
        x, w = b.upload(vector(rng)), b.upload(matrix(rng, 8))
        results = [b.quant_matvec(w, x), b.quant_matvec(w, x)]
        assert kernels(b) == [["quant_matvec"], ["quant_matvec"]] and len(results) == 2
        assert "no kernel runs several ops of one operand" in str(b)


def test_the_setting_switches_fusion_off(b, rng):
    x, w = vector(rng), matrix(rng, 8)
    h = b.upload(x)
    y = b.swiglu(b.relu(b.quant_matvec(b.upload(w), h)), b.quant_matvec(b.upload(w), h))
    b.execute()
    one = b.read(y)
    assert b.counts.kernels == 1
    trueno.settings.override("TRUENO_FUSION", "off")
    try:
        b.execute()
        assert b.counts.kernels == 1 + 4 and "TRUENO_FUSION is off" in str(b)
        np.testing.assert_allclose(b.read(y), one, rtol=1e-5, atol=1e-6)
    finally:
        trueno.settings.override("TRUENO_FUSION", None)
    b.execute()
    assert b.counts.kernels == 1 + 4 + 1


def test_a_guard_names_the_kernel(rng):
    x = vector(rng)
    with trueno.JidokaGuard().on(trueno.Condition.NAN, trueno.Action.STOP), trueno.Batch("reference") as b:
        h, w = b.upload(x), b.upload(matrix(rng, 8))
        y = b.sqrt(b.sub(b.add(b.quant_matvec(w, h), b.quant_matvec(w, h)), 1e6))
        with pytest.raises(trueno.GuardError, match="quant_matvec_quant_matvec_add_sub_sqrt"):
            b.execute()
        assert y.shape == (8,)


def test_the_judge_finds_a_wrong_result(b, rng):
    """A gate that is off by more than its bound is found behind the unit, and so is a wrong up."""
    x, gate, up = vector(rng), matrix(rng, 12), matrix(rng, 12)
    h = b.upload(x)
    y = b.swiglu(b.quant_matvec(b.upload(gate), h), b.quant_matvec(b.upload(up), h))
    b.execute()
    (step,) = b._schedule().steps
    operands = [np.asarray(b._replay._array(v, b._uploads.arrays)) for v, _ in step.reads]
    right = b.read(y)
    assert judge_structured(step.op, operands, {}, F, [right], step.params)
    wrong = right.copy()
    wrong[np.argmax(np.abs(wrong))] *= F(1.01)
    assert not judge_structured(step.op, operands, {}, F, [wrong], step.params)


def record(b, rng):
    """A random batch of products and of what is computed from them; the handles of everything."""
    matrices = [b.upload(matrix(rng, K, name=name)) for name in ("q8_0", "q4_0", "q4_k")]
    handles = [b.upload(vector(rng)) for _ in range(2)]
    one = b.upload(np.ones(K, F))
    for _ in range(rng.integers(3, 14)):
        x, y = (handles[i] for i in rng.integers(len(handles), size=2))
        match rng.integers(7):
            case 0 | 1 | 2:
                way = rng.choice(["q8", "f32"], p=[0.8, 0.2])
                few = handles[rng.integers(min(len(handles), 3))]
                h = b.quant_matvec(matrices[rng.integers(3)], few, activations=str(way))
            case 3:
                h = b.add(x, y)
            case 4:
                h = b.swiglu(b.scale(x, 0.01), y)
            case 5:
                h = b.bias_activation(x, y, activation="tanh")
            case _:
                h = b.rms_norm(x, one)
        handles.append(h)
    return handles


@pytest.mark.parametrize("case", range(12))
def test_random_batches_are_right(case, seed):
    """The bits of the same ops as kernels of their own, whether a result was kept or is computed when it is read."""
    results = []
    for fused in (True, False):
        rng = np.random.default_rng([seed, case])
        trueno.settings.override("TRUENO_FUSION", "on" if fused else "off")
        try:
            with trueno.Batch("reference") as b:
                handles = record(b, rng)
                for h in handles:
                    if rng.random() < 0.3:
                        b.keep(h)
                b.execute()
                b.execute()
                results.append([b.read(h) for h in handles])
        finally:
            trueno.settings.override("TRUENO_FUSION", None)
    for one, other in zip(*results, strict=True):
        np.testing.assert_array_equal(one, other)
