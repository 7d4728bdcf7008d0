"""Tiny models, and copies of them with some keys and tensors changed."""

from pathlib import Path
from typing import Any

import numpy as np
import trueno

from examples.qwen2.checkpoint import Checkpoint
from examples.qwen2.model import Model
from examples.qwen2.synthesize import synthesize


def tiny(folder: Path, mixture: str = "f32", architecture: str = "qwen2", seed: int = 0) -> Path:
    path = folder / f"{architecture}-{mixture}-{seed}.gguf"
    if not path.exists():
        synthesize(str(path), "tiny", mixture, architecture, seed)
    return path


def changed(path: Path, keys: dict[str, Any] | None = None, tensors: dict[str, Any] | None = None) -> Path:
    """A copy with other keys and tensors; None removes one.  A number among `tensors` replaces a tensor's first."""
    target = path.with_name(f"changed-{len(list(path.parent.iterdir()))}.gguf")
    with trueno.gguf.open(path) as file:
        metadata, held = dict(file.metadata), dict(file.tensors)
        metadata["tokenizer.ggml.token_type"] = np.array(metadata["tokenizer.ggml.token_type"], np.int32)
        for name, value in (tensors or {}).items():
            if isinstance(value, float):
                array = np.array(file[name])
                array.flat[0] = value
                value = array
            held[name] = value
        trueno.gguf.write(
            target, {n: t for n, t in held.items() if t is not None},
            {k: v for k, v in (metadata | (keys or {})).items() if v is not None},
        )  # fmt: skip
    return target


def loaded(path: Path, **options: Any) -> Model:
    return Model(Checkpoint(str(path)), **options)


def all_logits(model: Model, tokens: Any, chunk: int = 512) -> np.ndarray:
    return model.prefill(tokens, model.cache(), every=True, chunk=chunk)
