"""PyTorch's attention in float64, which kernels of every backend are compared with."""

import numpy as np
import torch


def by_torch(q, k, v, causal=False, window=0, softcap=0.0, scale=0.0):
    """Float64; without a cap by scaled_dot_product_attention; queries that see no key give 0."""
    q, k, v = (torch.from_numpy(np.ascontiguousarray(x)).double().transpose(-2, -3) for x in (q, k, v))
    group, t, s = q.shape[-3] // k.shape[-3], q.shape[-2], k.shape[-2]
    k, v = k.repeat_interleave(group, -3), v.repeat_interleave(group, -3)
    distance = s - t + torch.arange(t)[:, None] - torch.arange(s)
    seen = distance >= 0 if causal else torch.ones(t, s, dtype=torch.bool)
    if window:
        seen = seen & (distance.abs() < window)
    scale = scale or q.shape[-1] ** -0.5
    if softcap:
        scores = softcap * torch.tanh(q @ k.transpose(-1, -2) * scale / softcap)
        y = torch.softmax(scores.masked_fill(~seen, -torch.inf), -1) @ v
    else:
        y = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=seen, scale=scale)
    return torch.where(seen.any(-1)[:, None], y, 0.0).transpose(-2, -3).numpy()
