"""Peers of the matrix ops that have a row."""

from typing import Any

import numpy as np

from benchmarks.peers.ways import Peers, a_way, aten, peers, tensor, torch, torch_steps
from benchmarks.timing import Thunk, bind


@a_way
def transpose(x: Any, *, out: Any, scratch: Any) -> Thunk:
    return bind(np.copyto, out, x.T)


@torch_steps
def torch_transpose(x, out):
    out.copy_(x.t())


@a_way
def torch_transpose_copy(x: Any, *, out: Any, scratch: Any) -> Thunk:
    return bind(torch.transpose_copy, tensor(x), 0, 1, out=tensor(out))


@a_way
def torch_conv2d(x: Any, kernel: Any, *, mode: str, out: Any, scratch: Any) -> Thunk:
    """Allocates its result."""
    x, kernel = tensor(x)[None, None], tensor(kernel)[None, None]
    padding = "same" if mode == "same" else 0
    return bind(torch.conv2d, x, kernel, None, 1, padding)


@a_way
def torch_convolution(x: Any, kernel: Any, *, mode: str, out: Any, scratch: Any) -> Thunk | None:
    """Writes into the arrays that are passed."""
    if mode == "same":
        return None
    x, kernel, out = (tensor(a)[None, None] for a in (x, kernel, out))
    return bind(aten("convolution.out"), x, kernel, None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1, out=out)


@a_way
def take(table: Any, i: Any, *, out: Any, scratch: Any) -> Thunk:
    return bind(np.take, table, i, axis=0, out=out)


@a_way
def torch_vecmat(x: Any, a: Any, *, out: Any, scratch: Any) -> Thunk:
    return bind(torch.mv, tensor(a).t(), tensor(x), out=tensor(out))


@a_way
def torch_index_select(table: Any, i: Any, *, out: Any, scratch: Any) -> Thunk:
    return bind(torch.index_select, tensor(table), 0, tensor(i), out=tensor(out))


@a_way
def torch_attention(q: Any, k: Any, v: Any, *, out: Any, scratch: Any, causal: bool, products: str, **given: float
                    ) -> Thunk | None:  # fmt: skip
    """Allocates its result."""
    if products != "f32" or any(given.values()):
        return None
    heads = [tensor(x).transpose(0, 1)[None] for x in (q, k, v)]
    attend = torch.nn.functional.scaled_dot_product_attention
    grouped = q.shape[1] != k.shape[1]
    return lambda: attend(*heads, is_causal=causal, enable_gqa=grouped)[0].transpose(0, 1)


@a_way
def torch_rope(x: Any, positions: Any, *, theta: float, style: str, out: Any, scratch: Any, **given: Any
               ) -> Thunk | None:  # fmt: skip
    """As in Hugging Face's transformers: cosines and sines are made beforehand, of which ours has only frequencies."""
    if style != "neox":
        return None
    d = x.shape[-1]
    angles = tensor(positions)[:, None] * theta ** (-torch.arange(0, d, 2) / d)
    cos, sin = (f(torch.cat((angles, angles), -1)).float()[:, None] for f in (torch.cos, torch.sin))
    x, out = tensor(x), tensor(out)

    def turn() -> Any:
        a, b = x.chunk(2, -1)
        torch.mul(x, cos, out=out)
        return out.add_(torch.cat((-b, a), -1).mul_(sin))

    return turn


PEERS: dict[str, Peers] = {
    "matmul": peers(np.matmul, "mm"),
    "matvec": peers(np.matmul, "mv"),
    "vecmat": peers(np.matmul, torch_vecmat),
    "batched_matmul": peers(np.matmul, "matmul"),
    "transpose": peers(transpose, (torch_transpose, torch_transpose_copy)),
    "outer": peers(np.multiply.outer, "outer"),
    "convolve2d": Peers((), (torch_conv2d, torch_convolution)),
    "embedding_lookup": peers(take, torch_index_select),
    "attention": Peers((), (torch_attention,)),
    "rope": Peers((), (torch_rope,)),
}
