"""The code that a user would write instead: NumPy always, PyTorch if it is installed.

A peer is the fastest of NumPy's own functions with the op's name or an alias of it, and of the op's
body with one NumPy call per step, constants precomputed.  PyTorch's function is found by the same names.
A candidate is used only if it gives the op's values, so a function of the same name with another meaning is
left out, and nothing here lists ops, except those with other spellings.
"""

import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib.util import find_spec
from time import perf_counter
from typing import Any

import numpy as np

from trueno.ops.op import Op
from trueno.programs.evaluate import ELEMENT_FUNCTIONS, FOLD_FUNCTIONS
from trueno.testing.expected import split

Runner = Callable[[], Any]
Arrays = Sequence[np.ndarray[Any, Any]]
SPELLINGS = {"dot": ("vecdot",), "matvec": ("matmul",), "vecmat": ("matmul",)}
"""Further names to look under."""
WRITTEN: dict[str, Callable[..., Any]] = {
    **ELEMENT_FUNCTIONS,
    "fma": lambda x, y, z: x * y + z,
    "rsqrt": lambda x: 1 / np.sqrt(x),
}
"""Steps as users write them: the interpreter's own fma is exact, and slower than what a user would write."""


def meaning(op: Op, operands: Arrays, kwargs: dict[str, Any]) -> Runner:
    """The op's body under NumPy in the operands' dtype, ready for repeated calls."""
    params, static = split(op, kwargs)
    if op.structured:
        return partial(op.body, *operands, **dict(zip(op.symbolic, params, strict=True)), **static)
    program = op.program(**static)
    T = operands[0].dtype.type
    n = operands[0].shape[-1] if operands[0].ndim else 1
    leaves = {
        name: a[..., None] if kind == "r" else a for (name, kind), a in zip(program.operands, operands, strict=True)
    }
    scalars = dict(zip(program.params, params, strict=True))
    values: list[Any] = [None] * len(program.nodes)
    steps: list[tuple[int, Callable[..., Any], tuple[int, ...]]] = []
    for i, node in enumerate(program.nodes):
        match node.kind:
            case "leaf":
                values[i] = leaves[str(node.value)]
            case "param":
                values[i] = T(scalars[str(node.value)])
            case "const":
                values[i] = T(node.value)
            case "count":
                values[i] = T(n)
            case "position":
                values[i] = np.arange(n)
            case "cast":
                steps.append((i, lambda x: np.asarray(x).astype(T), node.args))
            case kind if kind in FOLD_FUNCTIONS:
                steps.append((i, partial(_fold, FOLD_FUNCTIONS[kind], n), node.args))
            case kind:
                steps.append((i, WRITTEN[kind], node.args))
    elements = [program.nodes[o].space == "e" for o in program.outputs]

    def run() -> Any:
        for i, function, args in steps:
            values[i] = function(*[values[a] for a in args])
        outputs = [values[o] if e else values[o][..., 0] for o, e in zip(program.outputs, elements, strict=True)]
        return outputs[0] if len(outputs) == 1 else tuple(outputs)

    return run


def _fold(function: Callable[..., Any], n: int, x: Any) -> Any:
    x = np.asarray(x)
    return function(x if x.shape[-1:] == (n,) else np.broadcast_to(x, (*x.shape[:-1], n)))


def _names(op: Op) -> tuple[str, ...]:
    return (op.name, *op.aliases, *SPELLINGS.get(op.name, ()))


def numpy_peer(op: Op, operands: Arrays, kwargs: dict[str, Any]) -> Runner:
    """The fastest fair NumPy: its own functions, writing into an existing array, or the body."""
    written = meaning(op, operands, kwargs)
    functions = numpy_functions(op, operands, kwargs)
    with np.errstate(all="ignore"):
        return min([*functions, written], key=_glance) if functions else written


def numpy_functions(op: Op, operands: Arrays, kwargs: dict[str, Any], out: Any = None) -> list[Runner]:
    """Calls of the functions that NumPy has under the op's name or an alias, writing into `out` (else an array of their
    own): those that give the op's values."""
    if len(op.signature.outputs) > 1:
        return []
    params, static = split(op, kwargs)
    with np.errstate(all="ignore"):
        wanted = np.asarray(meaning(op, operands, kwargs)())
        out = np.empty_like(wanted) if out is None else out
        axis = {"axis": -1} if op.reduces and not op.structured else {}
        calls = [
            partial(getattr(np, name), *operands, *params, **static, **axis, out=out)
            for name in _names(op)
            if callable(getattr(np, name, None))
        ]
        return [call for call in calls if _agrees(call, wanted, operands)]


def _glance(call: Runner) -> float:
    """Seconds per call, roughly: enough to rank spellings."""
    times = []
    for _ in range(3):
        start = perf_counter()
        call()
        times.append(perf_counter() - start)
    return min(times)


def _agrees(call: Runner, wanted: np.ndarray[Any, Any], operands: Arrays) -> bool:
    """Whether a candidate gives these values, in its own memory."""
    try:
        got = np.asarray(call())
    except Exception:  # a function with the same name but other parameters may raise anything
        return False
    if got.shape != wanted.shape or any(np.shares_memory(got, x) for x in operands):
        return False
    return bool(np.allclose(got, wanted, rtol=1e-3, atol=1e-4, equal_nan=True))


def has_torch() -> bool:
    """Whether PyTorch is installed."""
    return find_spec("torch") is not None


def torch_peer(op: Op, operands: Arrays, kwargs: dict[str, Any], out: Any = None) -> Runner | None:
    """PyTorch's function on the CPU, writing into `out` (else an array of its own) if it can; None if it has none."""
    if len(op.signature.outputs) > 1 or not has_torch():
        return None
    import torch

    tensors = [torch.from_numpy(x) for x in operands]
    with np.errstate(all="ignore"):
        wanted = np.asarray(meaning(op, operands, kwargs)())
    out = np.empty_like(wanted) if out is None else out
    params, static = split(op, kwargs)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch resizes an unsuitable tensor, and warns
        for call in _torch_calls(torch, op, tensors, params, static, out):
            if _agrees(partial(_home, call), wanted, operands):
                return call
    return None


def _home(call: Runner) -> Any:
    return call().detach().numpy()


def _torch_calls(
    torch: Any, op: Op, tensors: list[Any], params: tuple[float, ...], static: dict[str, Any], out: Any
) -> Iterator[Runner]:
    """Ways to call functions with the op's name: those that write into `out` first, public ones before others, as an
    overload of `torch.ops.aten` costs some microseconds more a call."""
    names = [name.replace("norm_l2", "linalg_vector_norm") for name in _names(op)]
    homes = (torch, torch.nn.functional, torch.special)
    public = [getattr(home, name) for name in names for home in homes if hasattr(home, name)]
    inner = [getattr(torch.ops.aten, name).out for name in names if hasattr(getattr(torch.ops.aten, name, None), "out")]
    row = {"dim": -1} if op.over is not None else {}
    n = tensors[0].shape[-1:]
    forms: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
        ((*tensors, *params), {**static, **row}),
        ((*tensors, *params), dict(static)),
        ((*tensors, *params, -1, False), {}),  # torch.ops.aten._softmax and others
        ((tensors[0], tuple(n), *tensors[1:], *params), {}),  # layer_norm, rms_norm
        ((tensors[0],), {"dim": -1, "correction": 0}),  # var, std
    ]
    for function in (*public, *inner):
        for positional, named in forms:
            yield partial(function, *positional, **named, out=torch.from_numpy(out))
    for function in public:
        for positional, named in forms:
            yield partial(function, *positional, **named)
