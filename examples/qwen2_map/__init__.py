"""One step of a model, for `trueno ptx-map --plan fused`, on a backend that keeps launches and computes nothing."""

from typing import Any

from examples.qwen2.checkpoint import Checkpoint
from examples.qwen2.model import Model


def step(path: str, backend: str, tokens: int, prefill: bool) -> dict[str, Any]:
    """Compute a prompt of so many tokens, or one token after so many; the arrays of the model there, by their names."""
    model = Model(Checkpoint(path), backend)
    cache = model.cache(tokens + 1)
    if prefill:
        model.prefill([0] * tokens, cache)
    else:
        cache.pages.reserve([cache.number], tokens)  # tokens take their places, and nothing computes them
        cache.pages.commit([cache.number], tokens)
        model.decode([0], [cache])
    return named(model, cache)


def named(model: Model, cache: Any) -> dict[str, Any]:
    """The arrays of a model and of a cache on its device."""
    tied = model.embedding is model.output.parts[0][0]
    arrays = {"token_embd.weight": model.embedding, "output_norm.weight": model.norms[-1]}
    arrays |= {} if tied else {"output.weight": model.output.parts[0][0]}
    for i, layer in enumerate(model.layers):
        block, (keys, values) = f"blk.{i}", cache.pages.pages(i)
        arrays |= {f"{block}.attn_norm.weight": layer.norm, f"{block}.ffn_norm.weight": layer.feed_norm}
        arrays |= {f"{block}.keys": keys.bytes, f"{block}.values": values.bytes}
        for names, parts in (
            (("attn_q", "attn_k", "attn_v"), layer.qkv), (("attn_output",), layer.out),
            (("ffn_gate", "ffn_up"), layer.gate_up), (("ffn_down",), layer.down),
        ):  # fmt: skip
            for name, (matrix, bias) in zip(names, parts.parts, strict=True):
                arrays[f"{block}.{name}.weight"] = matrix
                arrays |= {} if bias is None else {f"{block}.{name}.bias": bias}
    return arrays
