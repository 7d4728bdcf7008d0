"""What NumPy computes for the kernels of `foreign/`: functions of the arrays of a launch, in order.

By producer and kernel; the producer is empty where several have the same kernel.  The result is the first array of
tinygrad's kernels, and the last one of others.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from .launches import Array

RESULTS: dict[tuple[str, str], Callable[..., Any]] = {}
DEEP = 32
"""Columns of queries and keys."""


def result(producer: str = "") -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        RESULTS[producer, function.__name__] = function
        return function

    return register


def _wide(*arrays: Array) -> list[Array]:
    return [a.astype(np.float64) for a in arrays]


def _softmax(x: Array) -> Array:
    weights = np.exp(x - x.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True)


@result()
def weighted_sum(x, y, z):
    return 3 * x + y


@result()
def softmax_rows(x, y):
    return _softmax(x.astype(np.float64).reshape(3, -1))


@result()
def layer_norm(x, scale, shift, y):
    x, scale, shift = _wide(x.reshape(-1, scale.size), scale, shift)
    return (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5) * scale + shift


@result()
def histogram(x, counts):
    return np.bincount(x, minlength=counts.size)


@result()
def gather_rows(indices, table, y):
    return table.reshape(-1, 70)[indices]


@result()
def transposed(x, y):
    return x.reshape(40, 60).T


@result()
def product(a, b, c):
    rows, columns = {4096: (64, 64), 2040: (60, 60), 1000: (40, 30)}[a.size]
    a, b = _wide(a.reshape(rows, -1), b.reshape(-1, columns))
    return a @ b


@result()
def attention(q, k, v, y):
    q, k, v = _wide(*(x.reshape(-1, DEEP) for x in (q, k, v)))
    return _softmax(q @ k.T * 0.001) @ v


# ---- Triton -------------------------------------------------------------------------------------


@result("triton")
def argmax_rows(x, y):
    return x.reshape(4, 250).argmax(1)


@result("triton")
def total(x, y):
    return x.sum()


@result("triton")
def histogram_tile(x, counts):
    return [np.bincount(half, minlength=128) for half in x.reshape(2, 256)]


@result("triton")
def running_sum(x, y):
    return x.reshape(2, 300).cumsum(1)


@result("triton")
def running_max(x, y):
    return np.maximum.accumulate(x.reshape(2, 64, 16), 1)


@result("triton")
def sorted_rows(x, y):
    return np.sort(x.reshape(2, 128))


# ---- Numba --------------------------------------------------------------------------------------


@result("numba")
def strided_loop(x, y):
    return 2 * x + 1


@result("numba")
def smoothed(x, y):
    x, y = x.reshape(20, 45), y.reshape(20, 45)
    y[1:-1, 1:-1] = (x[:-2, 1:-1] + x[2:, 1:-1] + x[1:-1, :-2] + x[1:-1, 2:]) / 4
    return y


@result("numba")
def block_sums(x, y):
    return np.pad(x, (0, 12)).reshape(2, 256).sum(1)


def _running_sum(x, y):
    return x.cumsum()


def _dropout(x, y):
    word = np.arange(x.size, dtype=np.uint32) + np.uint32(7)
    word = (word ^ (word >> 16)) * np.uint32(0x7FEB352D)
    word = (word ^ (word >> 15)) * np.uint32(0x846CA68B)
    return np.where((word ^ (word >> 16)) & 1, 2 * x, 0)


RESULTS["numba", "running_sum"] = _running_sum
RESULTS["numba", "dropout"] = _dropout


@result("numba")
def sorted_row(x, y):
    return np.sort(x)


@result("numba")
def dot(x, y, z):
    return np.dot(*_wide(x, y))


# ---- tinygrad -----------------------------------------------------------------------------------


def _tinygrad(name: str, function: Callable[..., Any]) -> None:
    RESULTS["tinygrad", name] = function


_tinygrad("weighted_sum", lambda z, x, y: 3 * x + y)
_tinygrad("sum_of_rows", lambda y, x: x.reshape(32, 1024).sum(1))
_tinygrad("largest_of_columns", lambda y, x: x.reshape(1024, 64).max(0))
_tinygrad("transposed", lambda y, x: x.reshape(40, 60).T)
_tinygrad("product", lambda c, a, b: np.matmul(*_wide(a.reshape(64, 64), b.reshape(64, 64))))
_tinygrad("product_of_halves", lambda c, a, b: np.matmul(*_wide(a.reshape(64, 64), b.reshape(64, 64))))
_tinygrad("row_times_matrix", lambda c, a, b: np.matmul(*_wide(a.reshape(1, 512), b.reshape(512, 64))))
_tinygrad("histogram", lambda counts, x: np.bincount(x, minlength=100))
_tinygrad("gather_rows", lambda y, indices, table: table.reshape(100, 70)[indices])
