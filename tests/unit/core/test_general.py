"""The general path and the border between it and the fast one."""

import numpy as np
import pytest
import trueno
from trueno import errors

BACKENDS = [name for name, entry in trueno.backends().items() if entry.available]


@pytest.fixture(params=BACKENDS)
def backend(request):
    with trueno.use(request.param):
        yield request.param


def test_byte_order_of_any_operand_is_seen(backend):
    x = np.arange(12, dtype="f4")
    swapped, frozen = x.astype(">f4"), x.copy()
    frozen.flags.writeable = False
    trueno.add(frozen, frozen)  # teaches the compiler read-only arrays, whose fingerprint knows no byte order
    still = x.astype(">f4")
    still.flags.writeable = False
    for other in (swapped, still):
        np.testing.assert_array_equal(trueno.add(x, other), 2 * x)
        np.testing.assert_array_equal(trueno.add(other, x), 2 * x)
    with pytest.raises(errors.OutError, match="f4"):
        trueno.add(x, x, out=np.empty(12, ">f4"))


def test_masked_arrays_are_refused_wherever_they_stand(backend):
    x = np.ones(4, "f4")
    masked = np.ma.array(x, mask=[1, 0, 0, 0])
    for call in (lambda: trueno.add(x, masked), lambda: trueno.add(masked, x)):
        with pytest.raises(errors.DtypeError, match="masked"):
            call()
    with pytest.raises(errors.OutError, match="MaskedArray"):
        trueno.add(x, x, out=masked.copy())


def test_an_axis_counts_from_the_broadcast_shape(backend):
    rng = np.random.default_rng(5)
    a, b = rng.normal(size=(3, 3)), rng.normal(size=(3, 3, 3))
    np.testing.assert_allclose(trueno.dot(a, b, axis=1), (a * b).sum(1), rtol=1e-12)
    np.testing.assert_allclose(trueno.dot(a, b, axis=-2), (a * b).sum(-2), rtol=1e-12)
    with pytest.raises(errors.ParameterError, match="axis"):
        trueno.dot(a, b, axis=0)


def test_axis_none_binds_shapes_first_and_keeps_rank(backend):
    x = np.arange(12, dtype="f4").reshape(3, 4)
    with pytest.raises(errors.ShapeError):
        trueno.dot(x, x.reshape(4, 3), axis=None)
    assert trueno.dot(x, x[0], axis=None) == np.float32((x * x[0]).sum())
    assert trueno.sum(x, axis=None, keepdims=True).shape == (1, 1)
    out = np.empty((1, 1), "f4")
    assert trueno.sum(x, axis=None, keepdims=True, out=out) is out
    assert out[0, 0] == 66


@pytest.mark.parametrize(
    "call",
    [
        lambda x: trueno.leaky_relu(x, slope=True),
        lambda x: trueno.clamp(x, True, 2),
        lambda x: trueno.add(x, 10**400),
        lambda x: trueno.sum(x, keepdims="no"),
        lambda x: trueno.sum(x, axis=np.array([0, 1])),
        lambda x: trueno.rms_norm(x, x, eps=float("nan")),
        lambda x: trueno.gelu(x, approximate=["tanh"]),
    ],
)
def test_a_parameter_that_is_none_is_an_error_of_ours(backend, call):
    with pytest.raises(errors.ParameterError):
        call(np.ones(4, "f4"))


@pytest.mark.parametrize(
    "shapes",
    [
        ((5, 1), (1, 7)),
        ((4, 1, 6), (3, 1)),
        ((2, 3, 4), (4,)),
        ((1, 1), (3, 3)),
        ((2, 1, 3, 1), (5, 1, 4)),
        ((0, 3), (1, 3)),
    ],
)
def test_broadcasting_is_numpys(backend, shapes):
    rng = np.random.default_rng(7)
    x, y = (rng.normal(size=s) for s in shapes)
    np.testing.assert_array_equal(trueno.add(x, y), x + y)
    np.testing.assert_array_equal(trueno.add(x.T, y.T), x.T + y.T) if x.ndim == y.ndim else None


def test_a_result_goes_on_along_the_fast_path(backend):
    """Which knows a dtype by NumPy's own object for it."""
    x = np.ones((3, 4), ">f4")
    for dtype in (np.dtype(np.float32), np.dtype(np.float64)):
        for operand in (np.ones((3, 4), dtype), x.astype(dtype.newbyteorder(">"))):
            for _ in range(3):
                results = (trueno.add(operand, operand[0]), trueno.mul(operand, 2.0), trueno.sum(operand, axis=0))
                assert all(result.dtype is dtype for result in results)


def test_a_result_of_more_axes_than_arrays_have_is_an_error_of_ours(backend):
    table, many = np.ones((4, 3), np.float32), np.zeros((1,) * 64, np.int64)
    assert trueno.embedding_lookup(table, many[0]).ndim == 64
    said = r"embedding_lookup: y\[\.\.\.,d\] would have 65 dimensions, and arrays have 64 at most"
    for call in (trueno.embedding_lookup, lambda *x: trueno.explain("embedding_lookup", *x)):
        with pytest.raises(errors.ShapeError, match=said):
            call(table, many)
    with trueno.Batch() as b, pytest.raises(errors.ShapeError, match=said):
        b.embedding_lookup(b.upload(table), b.upload(many))


def test_a_damaged_cache_is_compiled_again(tmp_path, monkeypatch):
    pytest.importorskip("trueno_simd", reason="trueno-simd is not installed")
    import os
    import subprocess
    import sys

    code = "import numpy as np, trueno; print(trueno.relu(np.float32([-1, 2])).tolist())"
    run = lambda: subprocess.run(  # noqa: E731
        [sys.executable, "-c", code],
        env=os.environ | {"TRUENO_CACHE_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    tmp_path.chmod(0o700)
    assert run().stdout == "[0.0, 2.0]\n"
    files = [p for p in tmp_path.rglob("*") if p.suffix in (".nbi", ".nbc", ".py")]
    assert files
    for path in files:
        path.write_bytes(b"\x80garbage")
    again = run()
    assert again.stdout == "[0.0, 2.0]\n", again.stderr
