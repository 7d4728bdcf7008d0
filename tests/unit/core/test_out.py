"""`out` that cannot hold the result: every op and backend says OutError, and nothing is written."""

import numpy as np
import pytest
import trueno
from trueno.discovery import registry
from trueno.dispatch.call import request
from trueno.errors import OutError
from trueno.ops import TABLE
from trueno.testing.cases import keywords
from trueno.testing.layouts import user_shapes

STRUCTURED = tuple(name for name, op in TABLE.items() if op.structured)
BACKENDS = {
    "reference": tuple(TABLE),
    "scalar": tuple(TABLE),
    "simd": (*STRUCTURED, "add", "gelu", "softmax", "argmax", "sum", "layer_norm", "residual_rms_norm"),
}


def sound(op):
    """Operands, keywords and results of a call, the results as the reference makes them."""
    options = keywords(op)[0]
    static = {p.name: options[p.name] for p in op.static}
    rng = np.random.default_rng(3)
    if not op.structured:
        shapes = user_shapes(op, op.layout, 3, 8)
    else:
        sizes = {symbol: 8 for spec in op.signature.inputs for symbol in spec.dims}
        leading = [(2,) if spec.leading and op.shapes is None else () for spec in op.signature.inputs]
        shapes = [(*lead, *held) for lead, held in zip(leading, op.held(sizes, static), strict=True)]
    operands = [
        np.zeros(s, spec.holds(np.float32)) if spec.type else rng.uniform(0.5, 1, s).astype(np.float32)
        for spec, s in zip(op.signature.inputs, shapes, strict=True)
    ]
    if op.name == "symmetric_eigen":
        operands[0] = operands[0] + operands[0].T
    with trueno.use("reference"):
        made = getattr(trueno, op.name)(*operands, **options)
    return operands, options, made if isinstance(made, tuple) else (made,)


def spoilt(right):
    """Each kind of `out` in place of one like `right`."""
    raw = np.full(max(right.size, 1) * 2, 7, right.dtype)
    whole = raw[: right.size].reshape(right.shape)
    yield "an axis more", whole[None]
    for axis in range(right.ndim):
        yield f"longer along {axis}", np.full(np.add(right.shape, np.eye(right.ndim, dtype=int)[axis]), 7, right.dtype)
        if right.shape[axis] != 1:
            yield f"one along {axis}", np.full((*right.shape[:axis], 1, *right.shape[axis + 1 :]), 7, right.dtype)
    for rank in range(5):
        if rank != right.ndim:
            yield f"{rank} axes", np.full((2,) * rank, 7, right.dtype)
    yield "another size", raw
    for dtype in (
        np.float64,
        np.float16,
        np.int32,
        np.uint8,
        np.complex64,
        np.dtype(object),
        "U3",
        right.dtype.newbyteorder(),
    ):
        if np.dtype(dtype) != right.dtype:
            yield f"of {dtype}", np.full(right.shape, 7).astype(dtype)
    fixed = whole.copy()
    fixed.flags.writeable = False
    yield "read-only", fixed
    yield "masked", np.ma.array(whole.copy(), mask=False)
    for what in (whole.tolist(), (), "out", 5, np.float32(7), {}, object(), memoryview(whole.tobytes()), np.ndarray):
        yield f"a {type(what).__name__}", what


def raised(call, operands, given, outs):
    """The text of the OutError; anything else that is raised fails the test by itself."""
    try:
        call(*operands, **given, out=outs[0] if len(outs) == 1 else tuple(outs))
    except OutError as error:
        return str(error)
    return ""


def kept(x):
    return x.tobytes() if isinstance(x, np.ndarray) and not x.dtype.hasobject else repr(x)


@pytest.mark.parametrize("backend, name", [(b, name) for b, names in BACKENDS.items() for name in names])
def test_an_out_that_does_not_fit_is_an_error(backend, name):
    if backend != "reference":
        pytest.importorskip(f"trueno_{backend}")
    op, call = TABLE[name], getattr(trueno, name)
    operands, options, results = sound(op)
    if registry.load(backend).supports(request(op, tuple(operands), options)) is not None:
        pytest.skip(f"{backend} has no kernel for {name}")
    before = [x.tobytes() for x in operands]
    with trueno.use(backend):
        for k, right in enumerate(results):
            for what, wrong in spoilt(np.asarray(right)):
                outs = [np.full_like(r, 7) for r in results]
                outs[k] = wrong
                said = f"{name} on {backend}, result {k}: {what}"
                held = list(map(kept, outs))
                assert raised(call, operands, options, outs).startswith(f"{name}: "), said
                assert list(map(kept, outs)) == held, f"{said} was written to"
        if len(results) > 1:
            for outs in ((), (np.full_like(results[0], 7),), (None,) * len(results), np.full_like(results[0], 7)):
                with pytest.raises(OutError):
                    call(*operands, **options, out=outs)
        right = [np.full_like(r, 7) for r in results]
        call(*operands, **options, out=right[0] if len(right) == 1 else tuple(right))
        for made, wanted in zip(right, results, strict=True):
            np.testing.assert_allclose(made, wanted, rtol=1e-4, atol=1e-5)
    assert [x.tobytes() for x in operands] == before


@pytest.mark.parametrize(
    "ranks", [(2, 2, 1), (2, 2, 0), (3, 3, 1), (3, 2, 3), (2, 3, 2), (1, 1, 1), (5, 5, 1), (5, 3, 5)]
)
def test_the_batched_product_compiles_for_no_rank_that_it_does_not_take(ranks):
    """Numba's words for such a signature are pages long."""
    pytest.importorskip("trueno_simd")
    from unit.simd.structured import structured_kernel

    a, b, out = (np.full((2,) * rank, 7, np.float32) for rank in ranks)
    assert structured_kernel("batched_matmul")(a, b, out) == -1
    assert (out == 7).all()
