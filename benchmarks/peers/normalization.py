"""Peers of the row ops."""

from typing import Any

import numpy as np

from benchmarks.peers.ways import Peers, a_way, aten, numpy_steps, peers, tensor, torch, torch_steps
from benchmarks.timing import Thunk, bind


@numpy_steps
def softmax(x, out, r):
    np.maximum.reduce(x, axis=-1, keepdims=True, out=r)
    np.subtract(x, r, out)
    np.exp(out, out)
    np.add.reduce(out, axis=-1, keepdims=True, out=r)
    np.reciprocal(r, r)
    np.multiply(out, r, out)


@numpy_steps
def log_softmax(x, out, r, t):
    np.maximum.reduce(x, axis=-1, keepdims=True, out=r)
    np.subtract(x, r, out)
    np.exp(out, t)
    np.add.reduce(t, axis=-1, keepdims=True, out=r)
    np.log(r, r)
    np.subtract(out, r, out)


def _centred(x, out, r):
    np.add.reduce(x, axis=-1, keepdims=True, out=r)
    np.divide(r, x.shape[-1], r)
    np.subtract(x, r, out)


def _root_mean_square(x, eps, v):
    np.vecdot(x, x, out=v)
    np.divide(v, x.shape[-1], v)
    np.add(v, eps, v)
    np.sqrt(v, v)


@numpy_steps
def layer_norm(x, w, b, eps, out, r, v):
    _centred(x, out, r)
    _root_mean_square(out, eps, v)
    np.divide(out, v[..., None], out)
    np.multiply(out, w, out)
    np.add(out, b, out)


@a_way
def torch_layer_norm(x: Any, w: Any, b: Any, *, eps: float, out: Any, scratch: Any) -> Thunk:
    """Allocates its result."""
    return bind(torch.layer_norm, tensor(x), x.shape[-1:], tensor(w), tensor(b), eps)


@a_way
def torch_native_layer_norm(x: Any, w: Any, b: Any, *, eps: float, out: Any, scratch: Any) -> Thunk:
    """Writes into the arrays that are passed, statistics too."""
    shape = (*x.shape[:-1], 1)
    mean, scale = torch.empty(shape), torch.empty(shape)
    w, b = (None if p is None else tensor(p) for p in (w, b))
    call = aten("native_layer_norm.out")
    return bind(call, tensor(x), list(x.shape[-1:]), w, b, eps, out0=tensor(out), out1=mean, out2=scale)


@numpy_steps
def rms_norm(x, w, eps, out, v):
    _root_mean_square(x, eps, v)
    np.divide(x, v[..., None], out)
    np.multiply(out, w, out)


@a_way
def torch_rms_norm(x: Any, w: Any, *, eps: float, out: Any, scratch: Any) -> Thunk:
    """Allocates its result: it has no form that writes into a given one."""
    return bind(torch.rms_norm, tensor(x), x.shape[-1:], tensor(w), eps)


def _torch_rms(x, w, eps, out, r):
    torch.linalg.vector_norm(x, 2, -1, keepdim=True, out=r)
    r.square_().div_(x.shape[-1]).add_(eps).rsqrt_()
    torch.mul(x, r, out=out)
    out.mul_(w)


@torch_steps
def torch_rms_norm_steps(x, w, eps, out, r):
    _torch_rms(x, w, eps, out, r)


@numpy_steps
def residual_rms_norm(x, residual, w, eps, out, v):
    h, y = out
    np.add(x, residual, h)
    _root_mean_square(h, eps, v)
    np.divide(h, v[..., None], y)
    np.multiply(y, w, y)


@torch_steps
def torch_residual_rms_norm(x, residual, w, eps, out, r):
    h, y = out
    torch.add(x, residual, out=h)
    _torch_rms(h, w, eps, y, r)


@numpy_steps
def normalize(x, out, v):
    np.vecdot(x, x, out=v)
    np.sqrt(v, v)
    np.divide(x, v[..., None], out)


@torch_steps
def torch_normalize(x, out, r):
    torch.linalg.vector_norm(x, 2, -1, keepdim=True, out=r)
    torch.div(x, r, out=out)


@numpy_steps
def zscore(x, out, r, v):
    _centred(x, out, r)
    _root_mean_square(out, 0.0, v)
    np.divide(out, v[..., None], out)


@a_way
def torch_zscore(x: Any, *, out: Any, scratch: Any) -> Thunk:
    """A layer norm without weights, bias and epsilon."""
    thunk = torch_native_layer_norm(x, None, None, eps=0.0, out=out, scratch=scratch)
    assert thunk is not None
    return thunk


@numpy_steps
def minmax_normalize(x, out, r, r2):
    np.minimum.reduce(x, axis=-1, keepdims=True, out=r)
    np.maximum.reduce(x, axis=-1, keepdims=True, out=r2)
    np.subtract(r2, r, r2)
    np.subtract(x, r, out)
    np.divide(out, r2, out)


@torch_steps
def torch_minmax_normalize(x, out, r, r2):
    torch.amin(x, -1, keepdim=True, out=r)
    torch.amax(x, -1, keepdim=True, out=r2)
    r2.sub_(r)
    torch.sub(x, r, out=out)
    out.div_(r2)


PEERS: dict[str, Peers] = {
    "softmax": peers(softmax),
    "log_softmax": peers(log_softmax),
    "layer_norm": peers(layer_norm, (torch_layer_norm, torch_native_layer_norm)),
    "rms_norm": peers(rms_norm, (torch_rms_norm, torch_rms_norm_steps)),
    "residual_rms_norm": peers(residual_rms_norm, torch_residual_rms_norm),
    "normalize": peers(normalize, torch_normalize),
    "zscore": peers(zscore, torch_zscore),
    "minmax_normalize": peers(minmax_normalize, torch_minmax_normalize),
}
