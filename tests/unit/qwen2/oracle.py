"""A forward pass in float64 on the tensors as the package `gguf` reads them: nothing of Trueno or of the engine."""

from functools import cache
from pathlib import Path

import gguf
import numpy as np


@cache
def weights(path: Path) -> tuple[dict[str, object], dict[str, np.ndarray]]:
    """The keys, and every tensor decoded to float64."""
    reader = gguf.GGUFReader(path)
    keys = {name: field.contents() for name, field in reader.fields.items() if not name.startswith("tokenizer")}
    return keys, {t.name: gguf.quants.dequantize(t.data, t.tensor_type).astype(np.float64) for t in reader.tensors}


def logits(path: Path, tokens: list[int]) -> np.ndarray:
    """[tokens, vocabulary] in float64."""
    keys, w = weights(path)
    arch = keys["general.architecture"]
    eps, heads = keys[f"{arch}.attention.layer_norm_rms_epsilon"], keys[f"{arch}.attention.head_count"]
    kv_heads, theta = keys[f"{arch}.attention.head_count_kv"], keys[f"{arch}.rope.freq_base"]
    factor = keys.get(f"{arch}.rope.scaling.factor", 1.0)
    n = len(tokens)

    def linear(x: np.ndarray, name: str) -> np.ndarray:
        return x @ w[f"{name}.weight"].T + w.get(f"{name}.bias", 0.0)

    def norm(x: np.ndarray, name: str) -> np.ndarray:
        return x / np.sqrt((x**2).mean(-1, keepdims=True) + eps) * w[f"{name}.weight"]

    def turned(x: np.ndarray) -> np.ndarray:
        d = x.shape[-1]
        rates = theta ** (-np.arange(0, d, 2) / d) / factor / w.get("rope_freqs.weight", 1.0)
        angles = np.exp(1j * np.arange(n)[:, None] * rates)[:, None, :]
        if arch == "llama":  # neighbours are a pair
            z = (x[..., 0::2] + 1j * x[..., 1::2]) * angles
            return np.stack([z.real, z.imag], -1).reshape(x.shape)
        z = (x[..., : d // 2] + 1j * x[..., d // 2 :]) * angles
        return np.concatenate([z.real, z.imag], -1)

    x = w["token_embd.weight"][tokens]
    for i in range(keys[f"{arch}.block_count"]):
        y = norm(x, f"blk.{i}.attn_norm")
        q, k, v = (linear(y, f"blk.{i}.attn_{part}") for part in "qkv")
        q, k, v = turned(q.reshape(n, heads, -1)), turned(k.reshape(n, kv_heads, -1)), v.reshape(n, kv_heads, -1)
        mixed = np.empty(q.shape)
        for h in range(heads):
            g = h * kv_heads // heads
            scores = np.where(np.tri(n, dtype=bool), q[:, h] @ k[:, g].T / np.sqrt(q.shape[-1]), -np.inf)
            p = np.exp(scores - scores.max(-1, keepdims=True))
            mixed[:, h] = p / p.sum(-1, keepdims=True) @ v[:, g]
        x = x + linear(mixed.reshape(n, -1), f"blk.{i}.attn_output")
        y = norm(x, f"blk.{i}.ffn_norm")
        gate = linear(y, f"blk.{i}.ffn_gate")
        x = x + linear(gate / (1 + np.exp(-gate)) * linear(y, f"blk.{i}.ffn_up"), f"blk.{i}.ffn_down")
    output = "output" if "output.weight" in w else "token_embd"
    return norm(x, "output_norm") @ w[f"{output}.weight"].T


def nmse(x: np.ndarray, exact: np.ndarray) -> float:
    """The mean square error of x, relative to the mean square of what is exact."""
    return float(((x - exact) ** 2).sum() / (exact.astype(np.float64) ** 2).sum())
