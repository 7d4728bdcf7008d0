"""Every call through an entry is what the Python function makes of it: result, `out`, or error."""

import itertools
import math
import pickle
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import trueno
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from trueno.door.kinds import kind_of
from trueno.ops import TABLE
from trueno_simd.door import strided
from unit.simd.door.opened import opened, stays

from tests.float_modes import MODES, in_mode, needs_modes

OPS = ["add", "mul", "relu", "clamp", "leaky_relu", "lerp", "dot", "sum", "argmax", "softmax", "layer_norm", "rms_norm",
       "gelu", "fma"]  # fmt: skip
SHAPES = [(1,), (5,), (64,), (3, 5), (1, 7), (7, 1), (16, 64), (2, 3, 4), (1, 1, 5), (2, 1, 4), (2, 3, 4, 5),
          (), (0,), (0, 3), (3, 0), (2, 0, 3)]  # fmt: skip
VIEWS = ["strided", "fortran", "reversed", "steps", "window", "broadcast"]
KINDS = ["plain"] * 10 + [*VIEWS, "big", "equal", "unpickled", "readonly", "subclass", "masked",
                          "unaligned", "list", "metadata"]  # fmt: skip
NUMBERS = [2.0, 3, -1, 1, 0.1, 1e300, 2**60 + 1, 10**400, True, np.float32(0.7), np.float64(0.3), np.float16(1.5),
           np.int64(3), float("nan"), 1j, -0.0, float("inf")]  # fmt: skip
PARAMETERS = [0.5, 0.25, 1.5, 2, 0, 1, -1, -1.0, True, np.float32(0.3), 10**400, float("nan"), "a", None, 2**70, -0.0]


class Own(np.ndarray):
    """A subclass."""


@dataclass(frozen=True)
class Array:
    """How an array is made: again for each function that it is passed to."""

    shape: tuple[int, ...]
    kind: str
    dtype: str
    seed: int

    def made(self) -> Any:
        rng = np.random.default_rng(self.seed)
        values = np.asarray(rng.random(self.shape) * 4 - 1.5).astype(self.dtype)
        match self.kind:
            case "strided":
                wide = np.zeros((*self.shape, 2), self.dtype)[..., 0]
                wide[...] = values
                return wide
            case "fortran":
                return np.asfortranarray(values)
            case "reversed":
                return values[(slice(None, None, -1),) * values.ndim] if values.ndim else values
            case "steps" if values.ndim:
                room = np.zeros((values.shape[0] * 2, *values.shape[1:]), self.dtype)
                room[1::2] = values
                return room[1::2]
            case "window" if values.ndim:  # its elements overlap one another
                return np.lib.stride_tricks.sliding_window_view(rng.random(512).astype(self.dtype), self.shape[-1])[
                    : math.prod(self.shape[:-1])
                ].reshape(self.shape)
            case "broadcast" if values.ndim:
                return np.broadcast_to(values[:1], self.shape)
            case "big":
                return values.astype(values.dtype.newbyteorder(">"))
            case "equal" if values.ndim:
                return values.view(pickle.loads(pickle.dumps(values.dtype)))
            case "unpickled":
                return pickle.loads(pickle.dumps(values))
            case "readonly":
                values.flags.writeable = False
            case "subclass":
                return values.view(Own)
            case "masked":
                return np.ma.masked_array(values, mask=rng.random(self.shape) < 0.3)
            case "unaligned":
                raw = np.zeros(values.nbytes + 1, np.uint8)[1:].view(values.dtype).reshape(self.shape)
                raw[...] = values
                return raw
            case "list":
                return values.tolist()
            case "metadata" if values.ndim:
                return values.astype(np.dtype(self.dtype, metadata={"note": 1}))
        return values


@dataclass(frozen=True)
class Case:
    """A call.  out: an `Array`, the position of an operand, or absent; apart: where it is in the first's buffer.

    step: the first operand is a view with this step, or of more dimensions in Fortran order, of the buffer of `out`.
    """

    op: str
    operands: tuple[Any, ...]
    positional: tuple[Any, ...]
    keywords: tuple[tuple[str, Any], ...]
    out: Any
    apart: int | None = None
    step: int | None = None

    def made(self) -> tuple[list[Any], dict[str, Any]]:
        args = [x.made() if isinstance(x, Array) else x for x in self.operands]
        keywords = dict(self.keywords)
        if self.apart is not None and args and isinstance(args[0], np.ndarray) and args[0].ndim == 1:
            room = np.zeros(args[0].size + 8, args[0].dtype)
            room[2 : 2 + args[0].size] = args[0]
            args[0] = room[2 : 2 + args[0].size]
            keywords["out"] = room[self.apart : self.apart + args[0].size]
        elif self.step is not None and args and isinstance(args[0], np.ndarray) and args[0].ndim:
            x = args[0]  # operand and result are views of one buffer, each in its own order
            room = np.zeros(2 * x.size + 8, x.dtype)
            own = room[: self.step * x.size : self.step]
            args[0] = own if x.ndim == 1 else room[: x.size].reshape(x.shape, order="F")
            args[0][...] = x
            keywords["out"] = room[4 : 4 + x.size].reshape(x.shape)
        elif isinstance(self.out, int):
            keywords["out"] = args[self.out % len(args)] if args else None
        elif self.out != "absent":
            keywords["out"] = self.out.made() if isinstance(self.out, Array) else self.out
        return [*args, *self.positional], keywords


@st.composite
def cases(draw: st.DrawFn) -> Case:
    name = draw(st.sampled_from(OPS))
    op = TABLE[name]
    often = lambda usual, odd, share=6: draw(st.sampled_from([usual] * share + [odd]))  # noqa: E731
    shape = draw(st.sampled_from(SHAPES))
    dtype = draw(st.sampled_from(["f4", "f4", "f4", "f8", "f8", "i8", "f2"]))
    operands: list[Any] = []
    for kind in op.layout:
        if often(False, True):
            operands.append(draw(st.sampled_from(NUMBERS)))
            continue
        own = shape if kind == "e" else shape[-1:]
        if len(op.layout) > 1:
            own = often(own, own[-1:])
        own = own if often(True, False, 12) else draw(st.sampled_from(SHAPES))
        of = dtype if often(True, False, 15) else draw(st.sampled_from(["f4", "f8"]))
        operands.append(Array(own, draw(st.sampled_from(KINDS)), of, draw(st.integers(0, 9))))
    positional, keywords = [], []
    for p in op.params:
        if p.symbolic and (p.required or draw(st.booleans())):
            value = draw(st.sampled_from([0.5, 0.25, 1, 2.0])) if often(True, False, 2) else draw(
                st.sampled_from(PARAMETERS))  # fmt: skip
            if p.keyword or keywords or draw(st.booleans()):
                keywords.append((p.name, value))
            else:
                positional.append(value)
        elif not p.symbolic and often(False, True, 2):
            keywords.append((p.name, draw(st.sampled_from([p.default, "erf", "none", "tanh", 3]))))
    if op.over is not None and often(False, True):
        keywords.append(("axis", draw(st.sampled_from([-1, 0, 1, None, 5, "a", -1.0]))))
    if op.reduces and often(False, True):
        keywords.append(("keepdims", draw(st.sampled_from([False, True, 0, 1]))))
    if often(False, True, 20):
        keywords.append((draw(st.sampled_from(["nonsense", op.operands[0]])), 1))
    if often(False, True, 20):
        operands.pop()
    result = shape[:-1] if op.reduces else shape
    held = "i8" if op.signature.outputs[0].type else dtype
    given = Array(result, draw(st.sampled_from(KINDS)), often(held, "f8"), 1)
    out = draw(st.sampled_from(["absent", "absent", "absent", None, 0, 1, given, given, given]))
    apart = draw(st.sampled_from([None] * 9 + [0, 1, 2, 3, 4]))
    step = draw(st.sampled_from([None] * 9 + [1, 2]))
    return Case(name, tuple(operands), tuple(positional), tuple(keywords), out, apart, step)


def outcome(function: Any, case: Case) -> tuple[Any, ...]:
    """What a call gives or raises, and what it leaves in its arrays."""
    args, keywords = case.made()
    out = keywords.get("out")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result = function(*args, **keywords)
    except Exception as error:
        answer: tuple[Any, ...] = (type(error), str(error))
    else:
        array = np.ma.getdata(np.asanyarray(result))
        facts = (array.dtype, array.dtype.metadata, array.shape, array.strides, array.tobytes())
        answer = (type(result), result is out, *facts)
    left = [np.ma.getdata(np.asarray(x)).tobytes() for x in [*args, out] if isinstance(x, np.ndarray)]
    return (*answer, left)


@given(cases())
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_an_entry_gives_what_the_python_function_gives(case: Case) -> None:
    door = opened(case.op)
    expected = outcome(door.slow, case)
    for _ in range(3):  # the first fills the slot
        assert outcome(getattr(trueno, case.op), case) == expected


X, Y = (np.random.default_rng(i).random(96, np.float32) for i in (1, 2))
M, C, W = X.reshape(12, 8), X.reshape(3, 4, 8), Y[:8].copy()
U = pickle.loads(pickle.dumps(X))
LARGE = np.zeros(2 * strided.MOST + 32, np.float32)
FAST: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    ("add", (X, Y), {}), ("add", (X, Y), {"out": np.empty_like(X)}), ("add", (X, Y), {"out": None}),
    ("add", (M, M), {}), ("add", (C, C), {}), ("add", (U, X), {}), ("add", (X.astype("f8"), Y.astype("f8")), {}),
    ("mul", (X, 2.0), {}), ("mul", (3, X), {"out": np.empty_like(X)}), ("mul", (M, np.float32(3)), {}),
    ("mul", (C, np.float64(0.1)), {}), ("mul", (M, W), {}), ("mul", (W, M), {}), ("mul", (C, W), {}),
    ("leaky_relu", (X,), {"slope": 0.2}), ("leaky_relu", (X,), {"slope": -1}), ("leaky_relu", (X,), {}),
    ("lerp", (X, Y, 0.5), {}), ("lerp", (X, Y), {"t": 0.5}), ("clamp", (X, 0, 1.0), {}),
    ("clamp", (X, 0.1), {"max": 1}),
    ("gelu", (X,), {}), ("gelu", (X,), {"approximate": "tanh"}), ("fma", (X, Y, X), {}),
    ("dot", (X, Y), {}), ("dot", (M, M), {}), ("dot", (C, C), {}), ("dot", (X, Y), {"out": np.empty((), "f4")}),
    ("sum", (X,), {}), ("sum", (M,), {"axis": -1, "keepdims": False}), ("sum", (C,), {"out": np.empty((3, 4), "f4")}),
    ("argmax", (X,), {}), ("argmax", (M,), {"out": np.empty(12, np.int64)}),
    ("softmax", (X,), {}), ("softmax", (M,), {"out": np.empty_like(M)}), ("softmax", (C,), {"axis": -1}),
    ("add", (X[::2], Y[:48]), {}), ("add", (X[::-1], Y), {"out": np.empty_like(X)}), ("add", (M.T, M.T), {}),
    ("add", (M.T, M.T), {"out": np.empty((12, 8), "f4").T}), ("add", (X, Y), {"out": np.empty(192, "f4")[::-2]}),
    ("mul", (M.T, 2.0), {}), ("mul", (M.T, Y[:24:2]), {}), ("mul", (W[::-1], M), {}), ("dot", (X[::3], Y[::3]), {}),
    ("add", (M, np.broadcast_to(W, M.shape)), {}), ("exp", (C.transpose(2, 0, 1).astype("f8")[::-1],), {}),
    ("sum", (M.T,), {}), ("softmax", (C[:, ::2],), {}), ("rms_norm", (M[:, ::2], W[::2]), {}),
    ("layer_norm", (M, W, W), {}), ("layer_norm", (C, W, W), {"eps": 1e-3}), ("rms_norm", (M, W), {"eps": 1e-6}),
]  # fmt: skip


@pytest.mark.parametrize("case", range(len(FAST)))
def test_everyday_calls_stay_in_machine_code(case: int) -> None:
    name, args, keywords = FAST[case]
    door, function = opened(name), getattr(trueno, name)
    expected = door.slow(*args, **keywords)
    for _ in range(3):  # the general path remembers a call that it has seen twice
        result = function(*args, **keywords)
    assert type(result) is type(expected) and result.tobytes() == expected.tobytes()
    assert stays(name, *args, **keywords)


@pytest.mark.parametrize("name", [name for name, op in TABLE.items() if kind_of(op)])
def test_every_row_program_has_an_entry(name: str) -> None:
    door, op = opened(name), TABLE[name]
    operands = [np.full((4, 4) if kind == "e" else 4, 0.5, np.float64) for kind in op.layout]
    numbers = {p.name: 0.5 for p in op.params if p.required}
    expected = np.asarray(door.slow(*operands, **numbers)).tobytes()
    for _ in range(2):
        assert np.asarray(getattr(trueno, name)(*operands, **numbers)).tobytes() == expected
    assert stays(name, *operands, **numbers)


@pytest.mark.parametrize("args, keywords", [
    ((LARGE[::2], LARGE[::2]), {}), ((LARGE.reshape(2, 2, 2, 2, -1)[..., ::2],) * 2, {}),
    ((X, Y), {"out": np.lib.stride_tricks.as_strided(X.copy(), X.shape, (0,))}),
    ((M, M), {"out": np.empty((12, 16), "f4")[:, ::2]}), ((X, Y[:5]), {}), (([1.0], [2.0]), {}), ((X,), {"b": Y}),
    ((X, Y, X), {}),
    ((X.astype(">f4"), X), {}), ((X, True), {}), ((np.float32(1), np.float32(2)), {}),
    ((X.view(Own), X), {}), ((X, 1e300), {}), ((X, float("nan")), {}), ((np.array(1.0), np.array(2.0)), {}),
])  # fmt: skip
def test_other_calls_go_to_the_python_function(args: tuple[Any, ...], keywords: dict[str, Any]) -> None:
    for _ in range(3):
        try:
            trueno.add(*args, **keywords)
        except (TypeError, trueno.TruenoError, ValueError):
            continue
    assert not stays("add", *args, **keywords)


@needs_modes
@pytest.mark.parametrize("mode", MODES)
def test_in_another_environment_the_python_function_runs(mode: str) -> None:
    for _ in range(3):  # the form's entry, then the slot of its table
        usual = trueno.mul(X, 0.1)
    assert stays("mul", X, 0.1)
    with in_mode(mode):
        left = not stays("mul", X, 0.1)
        result = trueno.mul(X, 0.1)
    assert left and result.tobytes() == usual.tobytes()


@pytest.mark.parametrize("name", ["add", "exp", "pow", "clamp", "dot", "max", "argmin", "softmax", "layer_norm"])
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_a_thousand_elements_in_any_order(name: str, dtype: str) -> None:
    """Every order of up to four axes, each with a step of its own, gives what the same elements in C order give."""
    door, op, rng = opened(name), TABLE[name], np.random.default_rng(11)
    numbers = {p.name: 0.5 for p in op.params if p.required}
    shape = (4, 5, 7, 9)
    for order in itertools.permutations(range(4)):
        place = tuple(order.index(axis) for axis in range(4))
        steps = [slice(None, None, int(s)) for s in rng.choice([1, -1, 2, -2], 4)]
        room = [shape[axis] * abs(step.step) for axis, step in zip(order, [steps[a] for a in order], strict=True)]
        operands = []
        for kind in op.layout:
            if kind == "e":
                view = rng.random(room).astype(dtype).transpose(place)[tuple(steps)]
                assert view.shape == shape
                operands.append(view)
            else:
                operands.append(rng.random(2 * shape[-1]).astype(dtype)[::-2])
        expected = np.asarray(door.slow(*map(np.ascontiguousarray, operands), **numbers))
        outs: list[Any] = [None]
        if not op.reduces:
            outs += [np.empty(shape, dtype), np.empty(shape[::-1], dtype).T]
        for out in outs:
            for _ in range(2):  # the first fills the slot
                result = getattr(trueno, name)(*operands, **numbers, out=out)
            assert out is None or result is out
            assert np.array_equal(result, expected)
            assert stays(name, *operands, **numbers, out=out)
