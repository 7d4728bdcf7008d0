"""`torch.ops.trueno`: every op of the table as an operator that PyTorch's own checks and compilers accept."""

import numpy as np
import pytest
import trueno
from trueno.cli.samples import sample
from trueno.errors import ShapeError
from trueno.ops import ALIASES, TABLE

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install torch")
operators = pytest.importorskip("trueno.torch")
CHECKED = ("softmax", "sum", "rms_norm", "add", "quant_matmul", "attention", "rope", "topk")


@pytest.fixture(autouse=True)
def _without_compilation():
    with trueno.use("reference"):
        yield


def call(name, rng):
    """The operator, and arguments for it."""
    s = sample(TABLE[name], np.float32, 64, seed=int(rng.integers(1 << 30)))
    operands = tuple(torch.from_numpy(np.array(x)) for x in s.operands)
    positional = [p.name for p in TABLE[name].params if not p.keyword and p.name in s.kwargs]
    rest = {k: v for k, v in s.kwargs.items() if k not in positional}
    return getattr(torch.ops.trueno, name), (*operands, *(s.kwargs[k] for k in positional)), rest


def test_every_op_and_alias_is_an_operator():
    assert set(operators.OPERATORS) == {*TABLE, *ALIASES}
    assert operators.schema(TABLE["softmax"]) == "(Tensor x, int axis=-1) -> Tensor"
    assert operators.schema(TABLE["argmax"]) == "(Tensor x, int? axis=-1, *, bool keepdims=False) -> Tensor"
    assert operators.schema(TABLE["topk"]).endswith("-> (Tensor, Tensor)")


@pytest.mark.parametrize("name", TABLE)
def test_shapes_without_data_are_those_with_data(name, rng):
    operator, args, rest = call(name, rng)
    got = operator(*args, **rest)
    traced = operator(*(x.to("meta") if isinstance(x, torch.Tensor) else x for x in args), **rest)
    for g, t in zip(*(x if isinstance(x, tuple) else (x,) for x in (got, traced)), strict=True):
        assert (g.shape, g.dtype, g.stride()) == (t.shape, t.dtype, t.stride())
        assert t.device.type == "meta"


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16], ids=str)
def test_axes_and_dtypes_without_data(dtype, rng):
    x = torch.from_numpy(rng.standard_normal(tuple(rng.integers(1, 5, 3)))).to(dtype)
    ops = torch.ops.trueno
    for axis in (-3, -1, 0, 1, None):
        for keepdims in (False, True):
            calls = [lambda t: ops.sum(t, axis=axis, keepdims=keepdims)]  # noqa: B023
            calls += [lambda t: ops.softmax(t, axis=axis)] if axis is not None else []  # noqa: B023
            for run in calls:
                got, traced = run(x), run(x.to("meta"))
                assert (got.shape, got.dtype) == (traced.shape, traced.dtype)
    with pytest.raises(ShapeError, match=r"matmul: b\[k\] is 5"):
        ops.matmul(torch.empty(3, 4, device="meta"), torch.empty(5, 2, device="meta"))


@pytest.mark.parametrize("name", CHECKED)
def test_pytorchs_own_checks(name, rng):
    operator, args, rest = call(name, rng)
    results = torch.library.opcheck(operator.default, args, rest)
    assert set(results.values()) == {"SUCCESS"}


@pytest.mark.parametrize("dynamic", [False, True])
def test_compiled_functions_take_them(dynamic, rng):
    w = trueno.quantize(rng.standard_normal((8, 256)).astype(np.float32), "q4_k")
    data, form = operators.blocks(w)

    def layer(x, gain):
        y = torch.ops.trueno.rms_norm(x, gain) * 2
        return torch.ops.trueno.softmax(torch.ops.trueno.quant_matmul(y, data, format=form)[:, :4], axis=0)

    compiled = torch.compile(layer, backend="aot_eager", fullgraph=True, dynamic=dynamic)
    gain = torch.from_numpy(rng.standard_normal(256).astype(np.float32))
    for rows in (3, 5):
        x = torch.from_numpy(rng.standard_normal((rows, 256)).astype(np.float32))
        torch.testing.assert_close(compiled(x, gain), layer(x, gain))


def test_compiled_functions_find_the_operators_themselves(rng):
    """`trueno.softmax` in a compiled function is the operator, with numbers, keywords, lists and `out`."""
    x, y = (torch.from_numpy(rng.standard_normal((3, 8)).astype(np.float32)) for _ in range(2))
    target = torch.empty_like(x)
    for function in (
        lambda x, y: trueno.add(trueno.softmax(x, 0), 2.0),
        lambda x, y: trueno.clamp(y, -1, max=1.0),
        lambda x, y: trueno.sum(x, axis=0, keepdims=True),
        lambda x, y: trueno.topk(x, 3)[1],
        lambda x, y: trueno.concatenate([x, y, x], axis=1),
        lambda x, y: trueno.relu(x=y),
        lambda x, y: trueno.div(x, y, out=target),
    ):
        compiled = torch.compile(function, backend="aot_eager", fullgraph=True)
        assert torch.equal(compiled(x, y), function(x, y))
    assert torch.equal(target, x / y)


def test_an_operator_says_that_it_has_no_gradient(rng):
    x = torch.from_numpy(rng.standard_normal((2, 3))).requires_grad_()
    y = torch.ops.trueno.relu(x)
    assert torch.equal(y, torch.relu(x))
    with pytest.raises((RuntimeError, NotImplementedError), match="autograd"):
        y.sum().backward()


def test_blocks_share_memory_or_copy_what_is_read_only(rng):
    q = trueno.quantize(rng.standard_normal((2, 256)).astype(np.float32), "q8_0")
    data, form = operators.blocks(q)
    assert form == "q8_0" and data.data_ptr() == q.bytes.ctypes.data and data.dtype is torch.uint8
    q.bytes.flags.writeable = False
    copy, _ = operators.blocks(q)
    assert copy.data_ptr() != q.bytes.ctypes.data and torch.equal(copy, data)


def test_blocks_of_what_is_not_quantized_is_an_error():
    with pytest.raises(trueno.DtypeError, match="blocks: q is Tensor; give a QuantizedMatrix"):
        operators.blocks(torch.ones(4, 256))
