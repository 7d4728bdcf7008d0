"""Peers of arithmetic, mathematics and activations."""

from math import pi, sqrt
from typing import Any

import numpy as np

from benchmarks.peers.ways import Peers, a_way, numpy_steps, peers, tensor, torch
from benchmarks.timing import Thunk, bind

try:
    from scipy.special import erf
except ImportError:  # NumPy has no erf of its own
    erf = None

SELU_ALPHA, SELU_SCALE = 1.6732632423543772, 1.0507009873554805


@numpy_steps
def clamp(x, low, high, out):
    np.maximum(x, low, out=out)
    np.minimum(out, high, out=out)


@numpy_steps
def fma(x, y, z, out):
    np.multiply(x, y, out)
    np.add(out, z, out)


@numpy_steps
def lerp(x, y, t, out):
    np.subtract(y, x, out)
    np.multiply(out, t, out)
    np.add(out, x, out)


@numpy_steps
def rsqrt(x, out):
    np.sqrt(x, out)
    np.reciprocal(out, out)


@numpy_steps
def fract(x, out):
    np.trunc(x, out)
    np.subtract(x, out, out)


@a_way
def torch_fma(x: Any, y: Any, z: Any, *, out: Any, scratch: Any) -> Thunk:
    return bind(torch.addcmul, *map(tensor, (z, x, y)), out=tensor(out))


@a_way
def over_one(x: Any, *, out: Any, scratch: Any) -> Thunk:
    return bind(np.divide, 1.0, x, out=out)


@a_way
def relu(x: Any, *, out: Any, scratch: Any) -> Thunk:
    return bind(np.maximum, x, 0.0, out=out)


@a_way
def torch_relu(x: Any, *, out: Any, scratch: Any) -> Thunk:
    """torch.relu takes no out; this is what it calls."""
    return bind(torch.clamp_min, tensor(x), 0, out=tensor(out))


@numpy_steps
def leaky_relu(x, slope, out):
    np.multiply(x, slope, out)
    np.maximum(x, out, out=out)


@numpy_steps
def elu(x, alpha, out):
    """Right for alpha ≤ 1, as eˣ − 1 ≥ x."""
    np.minimum(x, 0.0, out=out)
    np.expm1(out, out)
    np.multiply(out, alpha, out)
    np.maximum(x, out, out=out)


@numpy_steps
def selu(x, out, t):
    np.minimum(x, 0.0, out=out)
    np.expm1(out, out)
    np.multiply(out, SELU_ALPHA, out)
    np.maximum(x, 0.0, out=t)
    np.add(out, t, out)
    np.multiply(out, SELU_SCALE, out)


@a_way
def torch_selu(x: Any, *, out: Any, scratch: Any) -> Thunk:
    """torch.selu takes no out; this is what it calls."""
    return bind(torch._C._nn.elu, tensor(x), SELU_ALPHA, SELU_SCALE, 1.0, out=tensor(out))


@numpy_steps
def gelu_tanh(x, approximate, out, t):
    np.multiply(x, x, t)
    np.multiply(t, 0.044715 * sqrt(2 / pi), t)
    np.add(t, sqrt(2 / pi), t)
    np.multiply(t, x, t)
    np.tanh(t, t)
    np.add(t, 1.0, t)
    np.multiply(t, x, t)
    np.multiply(t, 0.5, out)


@numpy_steps
def gelu_erf(x, approximate, out, t):
    np.multiply(x, sqrt(0.5), t)
    erf(t, t)
    np.add(t, 1.0, t)
    np.multiply(t, x, t)
    np.multiply(t, 0.5, out)


@a_way
def gelu(x: Any, *, approximate: str, **rest: Any) -> Thunk | None:
    way = gelu_tanh if approximate == "tanh" else gelu_erf
    return None if way is gelu_erf and erf is None else way(x, approximate=approximate, **rest)


@numpy_steps
def sigmoid(x, out):
    np.negative(x, out)
    np.exp(out, out)
    np.add(out, 1.0, out)
    np.reciprocal(out, out)


@numpy_steps
def silu(x, out, t):
    np.negative(x, t)
    np.exp(t, t)
    np.add(t, 1.0, t)
    np.divide(x, t, out)


@numpy_steps
def mish(x, out, t):
    np.exp(x, t)
    np.log1p(t, t)
    np.tanh(t, t)
    np.multiply(x, t, out)


@numpy_steps
def hardswish(x, out, t):
    np.add(x, 3.0, t)
    np.maximum(t, 0.0, out=t)
    np.minimum(t, 6.0, out=t)
    np.multiply(t, x, t)
    np.multiply(t, 1 / 6, out)


@numpy_steps
def softplus(x, out):
    np.exp(x, out)
    np.log1p(out, out)


@numpy_steps
def log_sigmoid(x, out):
    np.negative(x, out)
    np.exp(out, out)
    np.log1p(out, out)
    np.negative(out, out)


PEERS: dict[str, Peers] = {
    "fma": peers(fma, torch_fma),
    "lerp": peers(lerp),
    "scale": peers(np.multiply, "mul"),
    "clamp": peers((np.clip, clamp)),
    "rsqrt": peers(rsqrt),
    "recip": peers((np.reciprocal, over_one)),
    "round": peers(np.rint),
    "fract": peers(fract),
    "relu": peers(relu, torch_relu),
    "leaky_relu": peers(leaky_relu, "_C._nn.leaky_relu"),
    "elu": peers(elu, "_C._nn.elu"),
    "selu": peers(selu, torch_selu),
    "gelu": peers(gelu),
    "sigmoid": peers(sigmoid),
    "silu": peers(silu, "_C._nn.silu"),
    "mish": peers(mish, "_C._nn.mish"),
    "hardswish": peers(hardswish, "_C._nn.hardswish"),
    "softplus": peers(softplus),
    "log_sigmoid": peers(log_sigmoid),
}
"""`torch._C._nn.silu(x, out=o)` is `torch.ops.aten.silu.out` with half of its call overhead, so it is taken."""
