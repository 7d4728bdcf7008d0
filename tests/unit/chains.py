"""Random chains of ops: recorded, called one by one, and judged by one bound, which follows from the ops alone.

A value's bound comes from its operands' by the op's own program (`trueno.judge.bound`), so it holds for a chain in one
kernel as for a chain of kernels.  Nothing else says how far fused and unfused results may differ.
"""

from dataclasses import dataclass
from math import prod

import numpy as np
import trueno
from hypothesis import strategies as st
from trueno.judge.bound import Bound, bound
from trueno.judge.bound import judge as judged
from trueno.judge.interval import Judge, Range, exact
from trueno.ops import TABLE

UNARY = ("relu", "tanh", "sigmoid", "abs", "neg", "softplus", "gelu", "exp", "sqrt")
BINARY = ("add", "sub", "mul", "maximum", "div", "fma")
FOLDS = ("sum", "max", "mean")
ROWS = ("softmax", "minmax_normalize", "rms_norm", "layer_norm")
PRODUCTS = ("matmul",)
NAMES = (*UNARY, *BINARY, *FOLDS, *ROWS, *PRODUCTS)
SHAPES = ((7,), (1,), (3, 5), (4, 4), (1, 6), (6, 1), (2, 3, 4), (2, 1, 3))

Step = tuple[str, int, int, float | None, bool]
"""Op, picks of its operands, a number instead of the second one, keepdims."""


def steps(longest):
    """Strategy for the steps of a chain."""
    return st.lists(st.tuples(
        st.sampled_from(NAMES), st.integers(0, 40), st.integers(0, 40),
        st.one_of(st.none(), st.floats(-2, 2, width=32)), st.booleans(),
    ), min_size=1, max_size=longest)  # fmt: skip


def drawn(rng, longest):
    """Steps of a chain, without hypothesis; most go on from the last value."""
    return [
        (str(rng.choice(NAMES)), -1 if rng.random() < 0.7 else int(rng.integers(40)), int(rng.integers(40)),
         None if rng.random() < 0.6 else float(np.float32(rng.uniform(-2, 2))), bool(rng.random() < 0.5))
        for _ in range(int(rng.integers(2, longest + 1)))
    ]  # fmt: skip


@dataclass
class Known:
    """A value: what it means, and what a right kernel may have there."""

    value: np.ndarray
    range: Range

    def bound(self):
        return Bound(self.value, *self.range)

    def shaped(self, whole, flat):
        """Broadcast to `whole`, then reshaped."""
        value, *ends = (np.broadcast_to(x, whole).reshape(flat) for x in (self.value, *self.range))
        return Known(value, Range(*ends))


class Run:
    """One chain on one backend: `handles`, results of single calls, and what both may be, in one order."""

    def __init__(self, b, shape, chain, dtype, seed, accuracy):
        self.dtype, self.accuracy = np.dtype(dtype), accuracy
        self.wide = Judge(self.dtype, accuracy).wide
        rng = np.random.default_rng(seed)
        n = shape[-1]
        made = [rng.uniform(-1, 1, s).astype(dtype) for s in (shape, (n,), (*shape[:-1], 1), (n, n))]
        self.plain, self.known, self.handles = [], [], []
        for x in made:
            self._append(x, self._exact(x), b.upload(x))
        for name, i, j, number, keepdims in chain:
            self._step(b, name, i, j, number, keepdims)

    def _exact(self, x):
        value = np.asarray(x, self.dtype).astype(self.wide)
        return Known(value, exact(value))

    def _append(self, plain, known, handle):
        self.plain.append(np.asarray(plain))
        self.known.append(known)
        self.handles.append(handle)

    def _step(self, b, name, i, j, number, keepdims):
        op, count = TABLE[name], len(self.plain)
        picked = [(i + k * j) % count for k in range(len(op.operands))]
        if name == "matmul":
            picked[1] = 3
        extra = {"keepdims": keepdims} if name in FOLDS else {}
        numbers = {1: number} if name in BINARY and number is not None else {}

        def given(values):
            return [numbers.get(k, values[p]) for k, p in enumerate(picked)]

        try:
            plain = getattr(trueno, name)(*given(self.plain), **extra)
        except trueno.TruenoError as error:
            try:
                getattr(b, name)(*given(self.handles), **extra)
            except type(error):
                return
            raise AssertionError(f"{name} was recorded, but a call raises {error}") from error
        known = [self._exact(numbers[k]) if k in numbers else self.known[p] for k, p in enumerate(picked)]
        meant = self._product(*known) if op.structured else self._program(op, known, keepdims and name in FOLDS)
        self._append(plain, meant, getattr(b, name)(*given(self.handles), **extra))

    def _program(self, op, known, keepdims):
        """Of a row program: its bound, with the operands' ranges for values."""
        sizes, leading = op.signature.bind(op.name, tuple(k.value.shape for k in known))
        (shape,) = op.signature.result_shapes(sizes, leading)
        if op.over is None:
            laid = [k.shaped(leading, (1, prod(leading))) for k in known]
            kinds = "e" * len(known)
        else:
            n, kinds = sizes[op.over], op.layout
            whole, flat = {"e": (*leading, n), "w": (n,)}, {"e": (-1, n), "w": (n,)}
            laid = [k.shaped(whole[c], flat[c]) for k, c in zip(known, kinds, strict=True)]
        program = op.program(kinds, **{p.name: p.default for p in op.static})
        params = [p.default for p in op.params if p.symbolic]
        ranges = {name: k.range for (name, _), k in zip(program.operands, laid, strict=True)}
        (interval,) = bound(program, [k.value for k in laid], params, self.dtype, self.accuracy, ranges)
        interval = interval.reshape((*shape, 1) if keepdims else shape)
        return Known(interval.value, Range(interval.low, interval.high, interval.nan))

    def _product(self, a, w):
        """Of a product with a known matrix: the terms' ends, and a rounding of each partial sum."""
        arithmetic = Judge(self.dtype, self.accuracy)
        with np.errstate(all="ignore"):
            value, sizes = a.value @ w.value, np.abs(w.value)
            off = np.maximum(a.range.high - a.value, a.value - a.range.low)
            off, most = np.where(np.isnan(off), np.inf, off), np.maximum(np.abs(a.range.low), np.abs(a.range.high))
            terms = a.value.shape[-1]
            slack = off @ sizes + (terms + 4) * arithmetic.u * (most @ sizes) + terms * arithmetic.smallest
            wild = ~np.isfinite(slack) | (most @ sizes > arithmetic.largest / 2) | a.range.nan.any(-1, keepdims=True)
            low, high = np.where(wild, -np.inf, value - slack), np.where(wild, np.inf, value + slack)
        return Known(value, Range(low, high, wild))

    def judge(self, k, got):
        """Whether `got` is what value k may be: (right, share that the bound leaves free)."""
        assert np.shape(got) == self.plain[k].shape == self.handles[k].shape
        verdict = judged(got, self.known[k].bound())
        assert verdict.ok, f"value {k} ({self.dtype}): {verdict}"
        return verdict.free
