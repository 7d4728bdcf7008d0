"""Models with random weights of the right statistics, for tests and for measuring speed: they talk nonsense."""

from functools import partial
from math import prod, sqrt
from typing import Any
from zlib import crc32

import numpy as np
import trueno
from trueno.quant import FORMATS

SHAPES = {  # layers, width, heads, heads of keys, feed-forward, vocabulary, context, one matrix for input and output
    "tiny": (2, 256, 4, 2, 512, 1024, 512, True),
    "small": (8, 1024, 16, 4, 2816, 4096, 2560, False),
    "0.5b": (24, 896, 14, 2, 4864, 151936, 32768, True),
    "1.5b": (28, 1536, 12, 2, 8960, 151936, 32768, True),
    "7b": (28, 3584, 28, 4, 18944, 152064, 32768, False),
}


def synthesize(path: str, shape: str, mixture: str = "q4_k_m", architecture: str = "qwen2", seed: int = 0) -> None:
    """Write a GGUF file; mixture: of `trueno.gguf.RECIPES`, or f32.  The file appears when it is complete."""
    layers, width, heads, kv_heads, feed, vocabulary, context, tied = SHAPES[shape]
    sizes = {
        "block_count": layers, "context_length": context, "embedding_length": width, "feed_forward_length": feed,
        "attention.head_count": heads, "attention.head_count_kv": kv_heads, "vocab_size": vocabulary,
        "attention.layer_norm_rms_epsilon": 1e-6, "rope.freq_base": 1e6, "rope.dimension_count": width // heads,
    }  # fmt: skip
    metadata = {"general.architecture": architecture, "general.name": f"{shape}, random weights"}
    metadata |= {f"{architecture}.{key}": value for key, value in sizes.items()} | tokens(vocabulary)
    shapes = {f"{name}.weight": (vocabulary, width) for name in ("token_embd", "output")[: 2 - tied]}
    shapes["output_norm.weight"] = (width,)
    for i in range(layers):
        parts = {"q": width, "k": width // heads * kv_heads, "v": width // heads * kv_heads}
        shapes |= {f"blk.{i}.attn_{part}.weight": (n, width) for part, n in parts.items()}
        shapes |= {f"blk.{i}.attn_{part}.bias": (n,) for part, n in parts.items() if architecture == "qwen2"}
        shapes |= {f"blk.{i}.{part}.weight": (feed, width) for part in ("ffn_gate", "ffn_up")}
        shapes |= {f"blk.{i}.ffn_down.weight": (width, feed), f"blk.{i}.attn_output.weight": (width, width)}
        shapes |= {f"blk.{i}.{part}_norm.weight": (width,) for part in ("attn", "ffn")}
    tensors, pools = {}, {}
    for name, size in shapes.items():
        kind = "" if mixture == "f32" else trueno.gguf.tensor_format(mixture, name, shapes, metadata)
        make = partial(_blocks, pools, kind) if kind else _floats
        tensors[name] = trueno.gguf.Tensor(name, kind or "f32", size, partial(make, name, size, seed))
    trueno.gguf.write(path, tensors, metadata)


def _floats(name: str, size: tuple[int, ...], seed: int) -> Any:
    """Normal numbers: a matrix keeps the size of what it multiplies, a norm is near 1, a bias near 0."""
    spread, middle = (1 / sqrt(size[-1]), 0.0) if len(size) > 1 else (0.1, float("norm" in name))
    numbers = np.random.default_rng([seed, crc32(name.encode())]).standard_normal(size, np.float32)
    return (numbers * np.float32(spread) + np.float32(middle)).view(np.uint8).ravel()


def _blocks(pools: dict[Any, Any], kind: str, name: str, size: tuple[int, ...], seed: int) -> Any:
    """Blocks of quantized normal numbers, drawn from a pool: quantizing them all would take minutes."""
    k = size[-1]
    if (kind, k) not in pools:
        rows = np.random.default_rng(seed).standard_normal(((1 << 18) // k + 1, k), np.float32) / np.float32(sqrt(k))
        pools[kind, k] = trueno.quantize(rows, kind).bytes.reshape(-1, FORMATS[kind].nbytes)
    pool, rng, count = pools[kind, k], np.random.default_rng([seed, crc32(name.encode())]), prod(size)
    run = 16 if count > 1 << 22 and not (count // FORMATS[kind].elements) % 16 else 1  # blocks at once: a disk's speed
    at = rng.integers(len(pool) // run, size=count // (run * FORMATS[kind].elements), dtype=np.uint32)
    return pool[: len(pool) // run * run].reshape(-1, run * FORMATS[kind].nbytes)[at].ravel()


def tokens(vocabulary: int) -> dict[str, Any]:
    """The keys of a tokenizer: single bytes, some pairs, three control tokens, and unused ones."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    names = [chr(b) for b in plain] + [chr(256 + i) for i in range(256 - len(plain))]  # GPT-2's letters for bytes
    merges = [f"{a} {b}" for a in "Ġaeiou" for b in "tnrshd"]
    names += [pair.replace(" ", "") for pair in merges]
    end, special = len(names), ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    unused = [f"<|unused_{i}|>" for i in range(vocabulary - end - len(special))]
    keys = {
        "model": "gpt2", "pre": "qwen2", "merges": merges, "tokens": names + special + unused,
        "token_type": np.array([1] * end + [3] * len(special) + [5] * len(unused), np.int32), "add_bos_token": False,
        "bos_token_id": end, "eos_token_id": end + 2, "padding_token_id": end,
    }  # fmt: skip
    return {f"tokenizer.ggml.{key}": value for key, value in keys.items()}
