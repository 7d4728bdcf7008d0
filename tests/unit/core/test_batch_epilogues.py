"""Structured ops that take in what follows them: what joins, what does not and why, and that it is right."""

import numpy as np
import pytest
import trueno
from trueno.batch.epilogue import with_epilogue
from trueno.batch.merged import Part, Recipe, merged
from trueno.discovery import registry
from trueno.discovery.protocol import Reject
from trueno.judge.structured import judge_structured, structured_bound
from trueno.ops import TABLE
from trueno.ops.op import FusedOp
from unit.core.test_batch_fusion import kernels

F = np.float32


@pytest.fixture
def rng(request):
    seed = sum(map(ord, request.node.name))
    print(f"seed {seed}")
    return np.random.default_rng(seed)


@pytest.fixture
def b():
    with trueno.Batch("reference") as batch:
        yield batch


def normal(rng, *shapes, dtype=F):
    return [rng.standard_normal(s).astype(dtype) for s in shapes]


def judged(b, uploads):
    """Run a batch of one kernel, and judge its results by the bound of the op that it is."""
    b.execute()
    (step,) = b._schedule().steps
    operands = [uploads[v].reshape(shape) for v, shape in step.reads]
    results = [np.asarray(b._found(v)) for v, _ in step.makes]
    found = judge_structured(step.op, operands, dict(step.call.static), step.call.dtype, results, step.params)
    assert found.ok, str(found)
    assert found.free < 0.5
    return results


def test_a_trace_says_that_a_kernel_was_made(b, rng):
    h = b.relu(b.matmul(*map(b.upload, normal(rng, (3, 5), (5, 4)))))
    with trueno.trace() as seen:
        b.execute()
        b.execute()
    (made,) = (e for e in seen.events if e.kind == "compile")
    assert str(made).split()[:3] == ["compile", "matmul_relu", "reference"] and made.seconds > 0
    assert h.shape == (3, 4) and "making kernels" in str(seen)


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_a_product_takes_in_bias_activation_and_residual(b, rng, dtype):
    arrays = normal(rng, (6, 5), (5, 7), (7,), (6, 7), (6, 1), dtype=dtype)
    x, w, bias, residual, column = map(b.upload, arrays)
    h = b.gelu(b.add(b.matmul(x, w), bias))
    h = b.mul(b.add(h, residual), b.add(column, 2.0))
    assert kernels(b) == [["add"], ["matmul", "add", "gelu", "add", "mul"]]
    del h
    h = b.mul(b.add(b.gelu(b.add(b.matmul(x, w), bias)), residual), column)
    assert kernels(b) == [["matmul", "add", "gelu", "add", "mul"]]
    assert b._schedule().steps[0].op.kinds == "eewr" and h.shape == (6, 7)
    (made,) = judged(b, dict(enumerate(arrays)))
    x, w, bias, residual, column = arrays
    np.testing.assert_allclose(made, (trueno.gelu(x @ w + bias) + residual) * column, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("op", "shapes", "beside", "kinds"),
    [
        ("matmul", [(3, 4), (4, 5)], [(5,), (3, 5), (3, 1), (1,), (1, 1)], "eweruu"),
        ("matmul", [(1, 4), (4, 5)], [(5,), (1, 5), (1, 1)], "eeeu"),
        ("matmul", [(3, 4), (4, 1)], [(3, 1), (1,)], "eew"),
        ("matvec", [(3, 4), (4,)], [(3,), (1,)], "eeu"),
        ("vecmat", [(4,), (4, 5)], [(5,), ()], "eeu"),
        ("batched_matmul", [(2, 3, 4), (2, 4, 5)], [(5,), (2, 3, 5), (2, 3, 1), ()], "eweru"),
        ("outer", [(3,), (5,)], [(5,), (3, 1)], "ewr"),
    ],
)
def test_every_kind_of_operand(b, rng, op, shapes, beside, kinds):
    arrays = normal(rng, *shapes, *beside)
    handles = [b.upload(x) for x in arrays]
    h = getattr(b, op)(*handles[:2])
    want = getattr(trueno, op)(*arrays[:2])
    for other, x in zip(handles[2:], arrays[2:], strict=True):
        h, want = b.add(b.abs(h), other), np.abs(want) + x
    (step,) = b._schedule().steps
    assert sorted(step.op.kinds) == sorted(kinds)
    assert judged(b, dict(enumerate(arrays)))[0].shape == want.shape
    np.testing.assert_allclose(b.read(h), want, rtol=1e-4, atol=1e-5)


def test_what_is_between_can_be_a_result_too(b, rng):
    x, w, bias = normal(rng, (6, 5), (5, 7), (7,))
    m = b.keep(b.matmul(b.upload(x), b.upload(w)))
    z = b.keep(b.add(m, b.upload(bias)))
    h = b.relu(z)
    assert kernels(b) == [["matmul", "add", "relu"]]
    results = judged(b, {0: x, 1: w, 3: bias})
    assert len(results) == 3 and b.counts.kernels == 1
    np.testing.assert_allclose(b.read(m), x @ w, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(b.read(h), np.maximum(b.read(z), 0))


def test_a_chain_beside_it_is_taken_in(b, rng):
    """silu(x·v) ⊙ (x·w), as in a gated layer; and an arm that needs nothing else."""
    x, v, w, y = normal(rng, (4, 5), (5, 6), (5, 6), (4, 6))
    hx = b.upload(x)
    gate = b.silu(b.matmul(hx, b.upload(v)))
    h = b.add(b.mul(gate, b.matmul(hx, b.upload(w))), b.exp(b.scale(b.upload(y), 0.5)))
    assert kernels(b) == [["matmul", "silu"], ["matmul", "mul", "scale", "exp", "add"]]
    b.execute()
    np.testing.assert_allclose(b.read(h), trueno.silu(x @ v) * (x @ w) + np.exp(y / 2), rtol=1e-4, atol=1e-5)


def test_what_the_product_itself_reads_stays_outside(b, rng):
    (x,) = normal(rng, (5, 5))
    r = b.relu(b.upload(x))
    h = b.add(b.matmul(r, r), r)
    assert kernels(b) == [["relu"], ["matmul", "add"]]
    b.execute()
    r = np.maximum(x, 0)
    np.testing.assert_allclose(b.read(h), r @ r + r, rtol=1e-5, atol=1e-6)


def test_what_does_not_join_says_why(b, rng):
    x, w, other = normal(rng, (6, 5), (5, 7), (3, 6, 7))
    hx, hw = b.upload(x), b.upload(w)
    s = b.softmax(b.matmul(b.relu(hx), hw))
    wide = b.add(b.matmul(hx, hw), b.upload(other))
    conv = b.relu(b.convolve2d(hx, b.upload(w[:2, :2])))
    said = str(b)
    assert "softmax needs whole rows, and matmul makes them in blocks" in said
    assert "matmul is structured, and no kernel fuses with what comes before" in said
    assert "add runs over (3, 6, 7), matmul over (6, 7)" in said
    assert "convolve2d is structured, and runs separately" in said
    b.execute()
    np.testing.assert_allclose(b.read(s), trueno.softmax(np.maximum(x, 0) @ w), rtol=1e-5)
    np.testing.assert_allclose(b.read(wide), x @ w + other, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(b.read(conv), np.maximum(trueno.convolve2d(x, w[:2, :2]), 0), rtol=1e-5)


def test_a_backend_that_knows_nothing_of_it_is_not_asked_to(rng):
    x, w, bias = normal(rng, (6, 5), (5, 7), (7,))
    with trueno.Batch("scalar") as b:
        h = b.relu(b.add(b.matmul(b.upload(x), b.upload(w)), b.upload(bias)))
        assert kernels(b) == [["matmul"], ["add", "relu"]]
        assert "scalar has no matmul that fuses with it (unsupported_op" in str(b)
        b.execute()
        np.testing.assert_allclose(b.read(h), np.maximum(x @ w + bias, 0), rtol=1e-5, atol=1e-6)


def test_other_backends_later_get_what_they_take(b, rng):
    """Planned where products take a tail in, and executed where they do not."""
    x, w, bias = normal(rng, (6, 5), (5, 7), (7,))
    with trueno.Batch() as free:
        with trueno.use("reference"):
            h = free.add(free.matmul(free.upload(x), free.upload(w)), free.upload(bias))
            free.execute()
        assert free.counts.kernels == 1
        with trueno.use("scalar"):
            free.execute()
        assert free.counts.kernels == 3
        np.testing.assert_allclose(free.read(h), x @ w + bias, rtol=1e-5, atol=1e-6)


def test_a_backend_may_take_some_and_not_others(b, rng, monkeypatch):
    """No tail with two results: the tail runs by itself, as one kernel."""
    backend = registry.load("reference")
    supports = backend.supports
    several = Reject("unsupported_call", "one result only")
    monkeypatch.setattr(
        backend,
        "supports",
        lambda call: several if isinstance(call.op, FusedOp) and len(call.op.signature.outputs) > 1 else supports(call),
    )
    x, w, bias = normal(rng, (6, 5), (5, 7), (7,))
    m = b.matmul(b.upload(x), b.upload(w))
    z = b.keep(b.add(m, b.upload(bias)))
    h = b.relu(z)
    assert kernels(b) == [["matmul"], ["add", "relu"]]
    assert "one result only" in str(b)
    b.execute()
    np.testing.assert_array_equal(b.read(h), np.maximum(b.read(z), 0))
    np.testing.assert_allclose(b.read(z), x @ w + bias, rtol=1e-5, atol=1e-6)


def test_what_a_group_took_in_for_nothing_stays_there(b, rng, monkeypatch):
    """The product takes exp in for the sake of fma, which its backend then refuses; relu must not take exp, too."""
    backend = registry.load("reference")
    supports = backend.supports
    no = Reject("unsupported_call", "no such tail")
    monkeypatch.setattr(
        backend,
        "supports",
        lambda call: no if isinstance(call.op, FusedOp) and "exp" in call.op.name else supports(call),
    )
    x, y, z = normal(rng, (5, 5), (5, 5), (5, 5))
    hx = b.upload(x)
    m = b.matmul(hx, hx)
    e = b.exp(b.upload(z))
    r = b.relu(b.upload(y))
    other = b.matmul(r, hx)
    h = b.fma(m, r, e)
    b.execute()
    members = sorted(i for step in b._schedule().steps for i in step.ops)
    assert members == [0, 1, 2, 3, 4]
    r = np.maximum(y, 0)
    np.testing.assert_allclose(b.read(h), (x @ x) * r + np.exp(z), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(b.read(other), r @ x, rtol=1e-5, atol=1e-5)


def test_other_numbers_and_arrays_compile_nothing(rng, monkeypatch):
    x, w = normal(rng, (6, 5), (5, 7))

    def record(factor, plus):
        with trueno.Batch("reference") as b:
            h = b.add(b.scale(b.matmul(b.upload(x), b.upload(w)), factor), plus)
            b.execute()
            return b.read(h), b._replay.schedule.steps[0].op

    one, op = record(2.0, 1.0)
    made = []
    monkeypatch.setattr(registry.load("reference"), "kernel", made.append)
    other, same = record(3.0, -1.0)
    assert not made and same is op
    np.testing.assert_allclose(one, 2 * (x @ w) + 1, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(other, 3 * (x @ w) - 1, rtol=1e-5, atol=1e-6)


def test_the_judge_takes_the_products_bound_through_the_tail(rng):
    """A right result passes; one that is off by what neither part may be off by does not."""
    recipe = Recipe(
        "ew", 1, (Part("add", (("x", 0, 0), ("x", 1, 0)), (), ()), Part("scale", (("v", 0, 0),), (("s", 0, 0),), ())),
        ((1, 0, "e"),), rows=False,
    )  # fmt: skip
    op = with_epilogue(TABLE["matmul"], merged(recipe), "ew", ["add", "scale"])
    a, w, bias = normal(rng, (4, 300), (300, 5), (5,))
    exact = (a.astype("f8") @ w.astype("f8") + bias) * 3
    (allowed,) = structured_bound(op, [a, w, bias], {}, F, [3.0])
    (product,) = structured_bound(TABLE["matmul"], [a, w], {}, F)
    assert (allowed.error >= 3 * product.error).all() and (allowed.error <= 3.1 * product.error + 1e-4).all()
    assert judge_structured(op, [a, w, bias], {}, F, [exact.astype(F)], [3.0])
    assert not judge_structured(op, [a, w, bias], {}, F, [(exact + 2 * allowed.error).astype(F)], [3.0])
    assert not judge_structured(op, [a, w, bias], {}, F, [exact.astype(F)], [3.01])


@pytest.mark.parametrize("backend", ["reference", "fake"])
def test_a_guard_sees_what_the_whole_makes(backend, rng, fake):
    from trueno import Action, Condition, JidokaGuard

    (x,) = normal(rng, (3, 3))
    with JidokaGuard().on(Condition.NAN, Action.STOP), trueno.Batch(backend) as b:
        h = b.sqrt(b.sub(b.matmul(b.upload(x), b.upload(x)), 1000.0))
        assert kernels(b) == [["matmul", "sub", "sqrt"]]
        with pytest.raises(trueno.GuardError, match="matmul_sub_sqrt"):
            b.execute()
        del h
