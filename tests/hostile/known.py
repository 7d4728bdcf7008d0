"""Calls with one right answer, on every backend: whole numbers that float32 holds, and copies."""

from collections.abc import Callable

import numpy as np
import trueno

Work = Callable[[], None]


def _same(name: str, got: object, want: object) -> None:
    got = np.asarray(got)
    assert got.shape == np.shape(want) and np.array_equal(got, want), f"{name}: {got.ravel()[:8]}"


def known(rng: np.random.Generator, large: bool = False) -> dict[str, Work]:
    """Works by name, on operands of this call's own; each raises AssertionError where a result is wrong."""
    n = int(rng.choice([7, 64, 1000, *([70_001] if large else [])]))
    rows = int(rng.integers(1, 5))
    x, y = (rng.integers(-9, 10, (rows, n)).astype("f4") for _ in range(2))
    a, b = rng.integers(-5, 6, (9, 17)).astype("f4"), rng.integers(-5, 6, (17, 6)).astype("f4")
    i = rng.integers(0, 9, 5)
    wide = x.astype("f8")
    out = np.empty_like(x)
    products = a.astype("f8") @ b
    return {
        "add": lambda: _same("add", trueno.add(x, y), x + y),
        "mul": lambda: _same("mul", trueno.mul(x, y), x * y),
        "fma": lambda: _same("fma", trueno.fma(x, y, x), x * y + x),
        "relu into out": lambda: _same("relu", trueno.relu(x, out=out), np.maximum(x, 0)),
        "max": lambda: _same("max", trueno.max(x), x.max(-1)),
        "argmin": lambda: _same("argmin", trueno.argmin(x), x.argmin(-1)),
        "sum": lambda: _same("sum", trueno.sum(x), x.sum(-1, dtype="f8")),
        "sum of columns": lambda: _same("sum", trueno.sum(x, axis=0), x.sum(0, dtype="f8")),
        "sum in float64": lambda: _same("sum", trueno.sum(wide), wide.sum(-1)),
        "dot": lambda: _same("dot", trueno.dot(x, y), (wide * y).sum(-1)),
        "half": lambda: _same("add", trueno.add(x.astype("f2"), y.astype("f2")), x + y),
        "strided": lambda: _same("neg", trueno.neg(x[:, ::-2]), -x[:, ::-2]),
        "matmul": lambda: _same("matmul", trueno.matmul(a, b), products),
        "transpose": lambda: _same("transpose", trueno.transpose(a), a.T),
        "embedding_lookup": lambda: _same("embedding_lookup", trueno.embedding_lookup(a, i), a[i]),
        "batch": lambda: _batch(x, y),
    }


def _batch(x: np.ndarray, y: np.ndarray) -> None:
    with trueno.Batch() as b:
        hx, hy = b.upload(x), b.upload(y)
        total = b.sum(b.relu(b.add(hx, hy)))
        b.execute()
        _same("batch", b.read(total), np.maximum(x + y, 0).sum(-1, dtype="f8"))
        b.update(hx, y)
        b.execute()
        _same("batch, updated", b.read(total), np.maximum(y + y, 0).sum(-1, dtype="f8"))
