"""Random calls of every row program on odd arrays: values, shapes, `out`, and memory beside it."""

import numpy as np
import trueno
from trueno.discovery import registry
from trueno.dispatch.call import request
from trueno.errors import KernelError, OutError, ShapeError
from trueno.ops import TABLE
from trueno.testing.cases import keywords
from trueno.testing.subject import rejected

from .arrays import DTYPES, SHARES, TAME, VALUES, bytes_of, laid, shape, values
from .attack import ALL, Tally
from .oracle import bounds, check, check_judge, rows_last, user_shape
from .outs import OUTS, outs

BACKENDS = ALL
SHARE = 3.0
LIMIT = 300.0  # a kernel may have to be compiled first
OPS = [op for op in TABLE.values() if not op.structured]
LARGEST = {"cuda_emulated": 2_000, "reference": 20_000, "wgpu": 70_000}
TRIES = 4
"""Calls a case, of one op in one dtype: what was compiled is used."""


def parameters(rng, op):
    """Static parameters as the table has them, floats at random where the op's rules allow."""
    found = dict(keywords(op)[int(rng.integers(len(keywords(op))))])
    for p in op.params:
        if p.symbolic and rng.random() < 0.5:
            found[p.name] = float(
                rng.choice([0.0, -0.0, 1.0, -1.0, 0.1, 1e-12, 3.7, 1e6, float(rng.standard_normal())])
            )
    options = {p.name: found.get(p.name, p.default) for p in op.params}
    good = all(eval(rule, {"__builtins__": {}, "inf": np.inf}, options) for rule in op.rules)
    return found if good else keywords(op)[0]


def shapes(rng, op, largest):
    """Shapes of the operands, the axis of the rows, and whether it is one that must fail."""
    if op.over is None:
        whole = shape(rng, largest)
        found = [_less(rng, whole) if k and rng.random() < 0.4 else whole for k in range(len(op.operands))]
        return found if rng.random() < 0.8 else found[::-1], -1
    whole = shape(rng, largest, (1, 1, 2, 2, 2, 3, 4, 5))
    axis = int(rng.integers(-len(whole), 0)) if rng.random() < 0.4 else -1
    n = whole[axis]
    found = []
    for k, letter in enumerate(op.layout):
        lead = [1 if k and letter == "e" and i - len(whole) != axis and rng.random() < 0.2 else s
                for i, s in enumerate(whole)]  # fmt: skip
        found.append({"e": tuple(lead), "w": (n,)}[letter])
    return found, axis


def _less(rng, whole):
    """A shape that broadcasts to `whole`."""
    found = tuple(1 if rng.random() < 0.3 else s for s in whole)
    return found[int(rng.integers(0, len(found) + 1)) :]


def case(rng: np.random.Generator, backend: str, tally: Tally) -> None:
    op = OPS[int(rng.integers(len(OPS)))]
    dtype = DTYPES[int(rng.choice(len(DTYPES), p=SHARES))]
    if rejected(op, backend, dtype) is not None:
        return
    for _ in range(TRIES):
        _call(rng, op, dtype, backend, tally)


def _call(rng, op, dtype, backend, tally):
    options = parameters(rng, op)
    wanted, axis = shapes(rng, op, LARGEST.get(backend, 140_000))
    kinds, layouts, operands = [], [], []
    for s in wanted:
        kinds.append(str(rng.choice(VALUES)) if not kinds or rng.random() < 0.5 else kinds[0])
        x, layout = laid(rng, values(rng, kinds[-1], s, dtype, op))
        layouts.append(layout)
        operands.append(x)
    if all(isinstance(x, list) for x in operands) and dtype != np.float32:
        return
    plain = [np.array(x, dtype) for x in operands]
    if op.over is not None and rng.random() < 0.15 and op.reduces and axis == -1:  # else rows may broadcast along it
        axis = None
    keepdims = bool(op.reduces and rng.random() < 0.3)
    call = dict(options)
    if op.over is not None and (axis != -1 or rng.random() < 0.1):
        call["axis"] = axis
    if keepdims:
        call["keepdims"] = True
    how = str(rng.choice(OUTS, p=[0.4] + [0.6 / (len(OUTS) - 1)] * (len(OUTS) - 1)))
    said = [f"{x.shape} {k} {lay}" for x, k, lay in zip(plain, kinds, layouts, strict=True)]
    label = f"{op.name}({', '.join(said)}, {call}, out {how}) {dtype}"
    empty = rows_last(op, plain, axis)[0].shape[-1:] == (0,) if op.over is not None else False
    try:
        _judged(rng, op, dtype, backend, plain, operands, options, call, axis, keepdims, how, empty,
                all(k in TAME for k in kinds), tally)  # fmt: skip
    except Exception as error:
        raise AssertionError(f"{label}: {type(error).__name__}: {error}") from error


def _judged(rng, op, dtype, backend, plain, operands, given, call, axis, keepdims, how, empty, tame, tally):
    accuracy = registry.load(backend).accuracy
    if empty and op.empty_is_error:
        tally.calls += 1
        _raises(ShapeError, op, backend, operands, call)
        return
    allowed = bounds(op, plain, given, dtype, accuracy, axis)
    if tame:
        check_judge(op, plain, given, dtype, axis, allowed)
    rank = max(x.ndim for x in plain)
    wanted = []
    for k, (spec, b) in enumerate(zip(op.signature.outputs, allowed, strict=True)):
        wanted.append((user_shape(op, k, b.value.shape, axis, keepdims, rank), spec.holds(dtype)))
    outputs = outs(rng, how, wanted, operands)
    before = [bytes_of(x) for x in operands]
    tally.calls += 1
    if outputs.wrong:
        _raises(OutError, op, backend, operands, call | {"out": outputs.given})
        assert [bytes_of(x) for x in operands] == before, "an operand was changed by a call that failed"
        return
    try:
        with trueno.use(backend), np.errstate(all="raise"):
            results = getattr(trueno, op.name)(*operands, **call, out=outputs.given)
    except KernelError:
        if registry.load(backend).supports(request(op, tuple(operands), call)) is None:
            raise
        return
    outputs.check()
    if not outputs.overlaps:
        assert [bytes_of(x) for x in operands] == before, "an operand was changed"
    parts = results if isinstance(results, tuple) else (results,)
    if outputs.given is not None:
        users = outputs.given if isinstance(outputs.given, tuple) else (outputs.given,)
        assert all(r is u for r, u in zip(parts, users, strict=True)), "not `out` was returned"
    for k, (got, b, (s, t)) in enumerate(zip(parts, allowed, wanted, strict=True)):
        assert np.shape(got) == s, f"shape {np.shape(got)}, not {s}"
        assert got.dtype == t and got.dtype.isnative, f"{got.dtype}, not {t}"
        check(op, k, got, b, axis, accuracy)


def _raises(kind, op, backend, operands, call):
    try:
        with trueno.use(backend):
            getattr(trueno, op.name)(*operands, **call)
    except kind:
        return
    raise AssertionError(f"no {kind.__name__}")
