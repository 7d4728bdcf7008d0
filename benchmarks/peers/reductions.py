"""Peers of the reductions, over the last axis."""

from typing import Any

import numpy as np

from benchmarks.peers.ways import (
    Peers,
    a_way,
    into,
    numpy_steps,
    peers,
    reduce_last,
    tensor,
    torch,
    torch_into,
    torch_steps,
)
from benchmarks.timing import Thunk, bind


@a_way
def squares(x: Any, *, out: Any, scratch: Any) -> Thunk:
    return bind(np.vecdot, x, x, out=out)


@a_way
def squares_of_one_row(x: Any, *, out: Any, scratch: Any) -> Thunk | None:
    return bind(np.dot, x, x, out=out) if x.ndim == 1 else None


@a_way
def torch_squares(x: Any, *, out: Any, scratch: Any) -> Thunk:
    x, out = tensor(x), tensor(out)
    return bind(torch.dot if x.ndim == 1 else torch.linalg.vecdot, x, x, out=out)


@torch_steps
def torch_squared_norm(x, out):
    torch.linalg.vector_norm(x, 2, -1, out=out)
    out.square_()


@a_way
def wide_sum(x: Any, *, out: Any, scratch: Any) -> Thunk:
    """What is written for a sum as accurate as Kahan's: a float64 accumulator."""
    wide = np.empty(out.shape)
    add = np.add.reduce

    def run() -> None:
        add(x, -1, np.float64, wide)
        out[...] = wide

    return run


@a_way
def torch_wide_sum(x: Any, *, out: Any, scratch: Any) -> Thunk:
    x, out = tensor(x), tensor(out)
    wide = torch.empty(out.shape, dtype=torch.float64)

    def run() -> None:
        torch.sum(x, -1, dtype=torch.float64, out=wide)
        out.copy_(wide)

    return run


@numpy_steps
def mean(x, out):
    np.add.reduce(x, axis=-1, out=out)
    np.divide(out, x.shape[-1], out)


@numpy_steps
def norm_l1(x, out, t):
    np.abs(x, t)
    np.add.reduce(t, axis=-1, out=out)


@numpy_steps
def norm_l2(x, out):
    np.vecdot(x, x, out=out)
    np.sqrt(out, out)


@numpy_steps
def norm_linf(x, out, t):
    np.abs(x, t)
    np.maximum.reduce(t, axis=-1, out=out)


def _centred(x, r, t):
    np.add.reduce(x, axis=-1, keepdims=True, out=r)
    np.divide(r, x.shape[-1], r)
    np.subtract(x, r, t)


def _torch_centred(x, r, t):
    torch.mean(x, -1, keepdim=True, out=r)
    torch.sub(x, r, out=t)


@numpy_steps
def variance(x, out, r, t):
    _centred(x, r, t)
    np.vecdot(t, t, out=out)
    np.divide(out, x.shape[-1], out)


@numpy_steps
def stddev(x, out, r, t):
    _centred(x, r, t)
    np.vecdot(t, t, out=out)
    np.divide(out, x.shape[-1], out)
    np.sqrt(out, out)


@numpy_steps
def covariance(x, y, out, r, t, u):
    _centred(x, r, t)
    _centred(y, r, u)
    np.vecdot(t, u, out=out)
    np.divide(out, x.shape[-1], out)


@torch_steps
def torch_covariance(x, y, out, r, t, u):
    _torch_centred(x, r, t)
    _torch_centred(y, r, u)
    torch.linalg.vecdot(t, u, out=out)
    out.div_(x.shape[-1])


@numpy_steps
def correlation(x, y, out, r, t, u, v, v2):
    _centred(x, r, t)
    _centred(y, r, u)
    np.vecdot(t, u, out=out)
    np.vecdot(t, t, out=v)
    np.vecdot(u, u, out=v2)
    np.multiply(v, v2, v)
    np.sqrt(v, v)
    np.divide(out, v, out)


@torch_steps
def torch_correlation(x, y, out, r, t, u, v, v2):
    _torch_centred(x, r, t)
    _torch_centred(y, r, u)
    torch.linalg.vecdot(t, u, out=out)
    torch.linalg.vector_norm(t, 2, -1, out=v)
    torch.linalg.vector_norm(u, 2, -1, out=v2)
    out.div_(v).div_(v2)


def _torch_norm(order: float) -> Any:
    @a_way
    def way(x: Any, *, out: Any, scratch: Any) -> Thunk:
        return bind(torch.linalg.vector_norm, tensor(x), order, -1, out=tensor(out))

    return way


PEERS: dict[str, Peers] = {
    "dot": peers((np.vecdot, into(np.dot, rank=1)), (torch_into("dot", rank=1), torch_into("linalg.vecdot", rank=2))),
    "sum": peers(reduce_last(np.add.reduce)),
    "sum_kahan": peers(wide_sum, torch_wide_sum),
    "sum_of_squares": peers((squares, squares_of_one_row), (torch_squares, torch_squared_norm)),
    "mean": peers(mean),
    "min": peers(reduce_last(np.minimum.reduce), torch_into("amin", dim=-1)),
    "max": peers(reduce_last(np.maximum.reduce), torch_into("amax", dim=-1)),
    "norm_l1": peers(norm_l1, _torch_norm(1)),
    "norm_l2": peers(norm_l2, _torch_norm(2)),
    "norm_linf": peers(norm_linf, _torch_norm(float("inf"))),
    "variance": peers(variance, torch_into("var", dim=-1, correction=0)),
    "stddev": peers(stddev, torch_into("std", dim=-1, correction=0)),
    "covariance": peers(covariance, torch_covariance),
    "correlation": peers(correlation, torch_correlation),
}
