"""PyTorch's attention in float64, which kernels of every backend are compared with."""

import numpy as np
import torch


def by_torch(q, k, v, causal=False, window=0, softcap=0.0, scale=0.0, mask=None, sinks=None):
    """Float64; without cap and sinks by scaled_dot_product_attention; queries that see no key give 0."""
    q, k, v = (torch.from_numpy(np.ascontiguousarray(x)).double().transpose(-2, -3) for x in (q, k, v))
    group, t, s = q.shape[-3] // k.shape[-3], q.shape[-2], k.shape[-2]
    k, v = k.repeat_interleave(group, -3), v.repeat_interleave(group, -3)
    distance = s - t + torch.arange(t)[:, None] - torch.arange(s)
    seen = distance >= 0 if causal else torch.ones(t, s, dtype=torch.bool)
    if window:
        seen = seen & (distance.abs() < window)
    added = torch.zeros(t, s, dtype=torch.double).masked_fill(~seen, -torch.inf)
    if mask is not None:
        added = added + torch.from_numpy(np.ascontiguousarray(mask)).double()
    scale = scale or q.shape[-1] ** -0.5
    if softcap or sinks is not None:
        scores = q @ k.transpose(-1, -2) * scale
        scores = softcap * torch.tanh(scores / softcap) if softcap else scores
        scores = scores + added
        if sinks is not None:  # as Hugging Face's gpt-oss: one more column, which is dropped after the softmax
            column = torch.from_numpy(np.asarray(sinks)).double()[:, None, None].expand(*scores.shape[:-1], 1)
            scores = torch.cat([scores, column], -1)
        y = torch.softmax(scores, -1)[..., :s] @ v
    else:
        y = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=added, scale=scale)
    return torch.where((added > -torch.inf).any(-1)[..., None], y, 0.0).transpose(-2, -3).numpy()
