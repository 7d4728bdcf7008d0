"""What newcomers type out of habit: the message names our op, NumPy's function, our keyword or the backend."""

import asyncio
import inspect

import numpy as np
import pytest
import trueno
from trueno import ParameterError, UnknownBackend, UnknownKeyword
from trueno.hints import NAMES
from trueno.ops import ALIASES, TABLE

F = np.float32


@pytest.fixture(autouse=True)
def _quick():
    with trueno.use("reference"):
        yield


@pytest.mark.parametrize(
    "name, hint",
    [
        ("bmm", "its name here is batched_matmul$"),
        ("norm", "its name here is norm_l2$"),
        ("where", r"NumPy has it, and takes the same arrays: numpy\.where$"),
        ("inv", r"numpy\.linalg\.inv$"),
        ("LayerNorm", r"trueno\.layer_norm\(x, w, b\)"),
        ("square", r"trueno\.mul\(x, x\)"),
        ("sofmax", r'did you mean "softmax"\?$'),
        ("bathc", r'did you mean "Batch"\?$'),
        ("dropout", "has no op 'dropout'$"),
        ("_nothing", "_nothing$"),
    ],
)
def test_an_op_that_is_not_here(name, hint):
    with pytest.raises(AttributeError, match=hint):
        getattr(trueno, name)


def test_every_name_of_others_leads_to_an_op_and_hides_none():
    for name, ours in NAMES.items():
        assert ours in TABLE and name not in TABLE and name not in ALIASES, name


def test_batches_devices_and_aio_name_ops_too():
    with trueno.Batch("reference") as b, trueno.device("reference") as d:
        for holder, who in ((b, "Batch has no op or method"), (d, "device has no op"), (trueno.aio, "trueno.aio has")):
            with pytest.raises(AttributeError, match=f"{who}.*its name here is matmul"):
                holder.mm  # noqa: B018
        with pytest.raises(AttributeError, match=r"'where'$"):  # NumPy's functions do not take handles
            b.where  # noqa: B018


def _everywhere(name, args, keywords):
    """The call as a function, of a batch, of a device, and awaited."""
    yield lambda: getattr(trueno, name)(*args, **keywords)
    yield lambda: asyncio.run(getattr(trueno.aio, name)(*args, **keywords))
    with trueno.Batch("reference") as b, trueno.device("reference") as d:
        yield lambda: getattr(b, name)(*(b.upload(x) if isinstance(x, np.ndarray) else x for x in args), **keywords)
        yield lambda: getattr(d, name)(*args, **keywords)


X, W = np.ones((2, 3), F), np.ones(3, F)


@pytest.mark.parametrize(
    "name, args, keywords, hint",
    [
        ("softmax", (X,), {"dim": -1}, r"softmax: there is no keyword 'dim'; its name here is axis"),
        ("dot", (X, X), {"dim": -1}, r"its name here is axis: dot\(x, y, axis=-1\)"),
        ("relu", (X,), {"inplace": True}, "out=x writes into the operand"),
        ("add", (X, X), {"dtype": F}, "the result has the dtype of the operands"),
        ("topk", (X, 2), {"axis": 0}, "it has a fixed axis, the last"),
        ("topk", (X, 2), {"dim": 0}, "it has a fixed axis, the last"),
        ("topk", (X, 2), {"largest": False}, "negate the operand"),
        ("layer_norm", (X, W, W), {"epsilon": 1e-6}, r"its name here is eps"),
        ("gelu", (X, "none"), {}, r"takes 1 argument by position, x, and got 2; write gelu\(x, approximate='none'\)"),
        ("layer_norm", (X, W, W, 1e-6), {}, r"write layer_norm\(x, w, b, eps=1e-06\)"),
        ("transpose", (X, (1, 0)), {}, "takes 1 argument by position, x, and got 2$"),
    ],
)
def test_an_argument_that_is_not_here(name, args, keywords, hint):
    for call in _everywhere(name, args, keywords):
        with pytest.raises(UnknownKeyword, match=hint) as caught:
            call()
        assert isinstance(caught.value, TypeError)


def test_arrays_by_position_are_for_out():
    with pytest.raises(UnknownKeyword, match=r"add: it takes 2 arguments by position, x, y, and got 3; .*, out=…\)$"):
        trueno.add(X, X, np.empty_like(X))
    with trueno.Batch("reference") as b:
        h = b.upload(X)
        with pytest.raises(UnknownKeyword, match=r"and got 3$"):
            b.add(h, h, h)
        with pytest.raises(UnknownKeyword, match=r"the result is a handle, and b\.read\(h, out=array\) fills an array"):
            b.relu(h, out=X)


def test_nothing_is_dropped_in_silence():
    """The ways round the fast path refuse what they do not know, too."""
    for i in ([0, 1], np.array([0, 1], np.int32), np.array([0, 1])):
        with pytest.raises(UnknownKeyword, match="padding_idx"):
            trueno.embedding_lookup(X, i, padding_idx=0)
    pandas = pytest.importorskip("pandas")
    for x in (X, X.astype(np.float16), pandas.DataFrame(X), trueno.Matrix(X), X.tolist()):
        with pytest.raises(UnknownKeyword, match="verbosity"):
            trueno.softmax(x, verbosity=1)


@pytest.mark.parametrize("name", TABLE)
def test_signatures_are_those_of_the_table(name):
    shown = inspect.signature(getattr(trueno, name))
    if not TABLE[name].many:  # joins any number of arrays
        assert not {p.kind for p in shown.parameters.values()} & {inspect.Parameter.VAR_KEYWORD}
    assert list(inspect.signature(getattr(trueno.aio, name)).parameters)[-1] == "out"
    assert next(iter(inspect.signature(_method(name)).parameters)) == "self"


def _method(name):
    with trueno.Batch("reference") as b:
        getattr(b, name)
    return getattr(trueno.Batch, name)


@pytest.mark.parametrize("name", TABLE)
def test_help_names_every_argument(name):
    doc = getattr(trueno, name).__doc__
    listed = doc.partition("Arguments:")[2]
    for parameter in inspect.signature(getattr(trueno, name)).parameters:
        assert parameter in listed or TABLE[name].many, parameter


@pytest.mark.parametrize(
    "name, hint",
    [
        ("cpu", '"cpu" is not installed; on the host name "simd"'),
        ("gpu", r'it is a kind of backends, for trueno\.use\("gpu"\)'),
        ("reference:1", 'write "reference", and TRUENO_REFERENCE_DEVICE=1'),
        ("referense", 'did you mean "reference"'),
    ],
)
def test_a_backend_as_others_name_it(name, hint):
    for call in (lambda: trueno.to(X, name), lambda: trueno.device(name), lambda: trueno.Batch(name)):
        with pytest.raises(UnknownBackend, match=hint):
            call()


def test_values_are_shown_briefly():
    with pytest.raises(ParameterError, match=r"scale: factor is an array of shape \(2, 3\); it must be a number$"):
        trueno.scale(X, X)
    with pytest.raises(
        ParameterError, match=r"sum: axis is \[0, 1\]; it must be an integer, a tuple of integers, or N"
    ):
        trueno.sum(X, axis=[0, 1])
    with pytest.raises(trueno.ShapeError, match=r"cache\[pages,page,h,d\] needs 4 dimensions, got shape \(2, 3\)$"):
        trueno.kv_cache_scatter(X, X, [0])
    with pytest.raises(trueno.DtypeError, match=r"Vector: dtype is 'simd'; .* a backend is backend="):
        trueno.Vector(W, "simd")
    assert trueno.Vector([1, 2], "float64").dtype == np.float64


def test_operators_of_handles(rng):
    x = rng.random((2, 3)).astype(F) + 1
    with trueno.Batch("reference") as b:
        h, t, v = b.upload(x), b.upload(x.T.copy()), b.upload(x[0])
        made = {
            "2 * h + h - h / 4": 2 * h + h - h / 4, "1 - h": 1 - h, "1 / h": 1 / h, "h**2": h**2, "2**h": 2**h,
            "-abs(h)": -abs(h), "h @ t": h @ t, "h @ v": h @ v, "v @ t": v @ t, "v @ v": v @ v, "h * v": h * v,
        }  # fmt: skip
        b.execute()
        for text, handle in made.items():
            wanted = eval(text, {"h": x, "t": x.T, "v": x[0]})
            np.testing.assert_allclose(b.read(handle), wanted, rtol=1e-5, err_msg=text)
        for wrong in (lambda: h + x, lambda: x + h, lambda: h @ x, lambda: x @ h, lambda: h - "a"):
            with pytest.raises(trueno.DtypeError, match=r"works on handles: write b\.upload"):
                wrong()
        with pytest.raises(trueno.ShapeError, match=r"matmul: b\[k,n\] needs 2 dimensions"):
            h @ 2
        q = b.upload(trueno.quantize(np.ones((2, 32), F), "q8_0"))
        with pytest.raises(TypeError):
            q @ h
