"""From a GGUF file to a configuration and tensors.  Names and shapes are checked before anything is computed."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import trueno

ARCHITECTURES = {"qwen2": "neox", "llama": "interleaved"}  # and which numbers of a head `rope` pairs


class EngineError(trueno.TruenoError):
    """A model, a prompt or a request that the engine cannot run."""


class Checkpoint:
    """An open GGUF file of an architecture that the engine runs.  guarded: refuse weights that are NaN or Inf."""

    def __init__(self, path: str, guarded: bool = False) -> None:
        self.path, self.guarded, self.file = path, guarded, trueno.gguf.open(path)
        self.metadata, self.tensors = self.file.metadata, self.file.tensors
        self.architecture = str(self.metadata.get("general.architecture"))
        if self.architecture not in ARCHITECTURES:
            raise self._error(f"its architecture is {self.architecture!r}; this engine runs {', '.join(ARCHITECTURES)}")
        parts, experts = (self.metadata.get(key) for key in ("split.count", f"{self.architecture}.expert_count"))
        if parts not in (None, 0, 1) or experts:
            raise self._error("it is a part of a split model, or a mixture of experts, which this engine does not run")
        self.config, self.nbytes = self._configured(), sum(tensor.nbytes for tensor in self.tensors.values())
        self._check_tensors()

    def _error(self, problem: str) -> EngineError:
        return EngineError(f"{self.path}: {problem}")

    def _key(self, name: str, default: Any = None, kind: Any = int) -> Any:
        """A number of the metadata, above zero."""
        name = f"{self.architecture}.{name}"
        value = self.metadata.get(name, default)
        if isinstance(value, bool) or not isinstance(value, (int, kind)) or not 0 < value < 1e18:
            raise self._error(f"the key {name} is {'missing' if value is None else repr(value)}; it must be above 0")
        return kind(value)

    def _configured(self) -> Any:
        """The sizes of the model, and the keywords of its `rope`."""
        width, heads, context = (self._key(k) for k in ("embedding_length", "attention.head_count", "context_length"))
        kv_heads, head = self._key("attention.head_count_kv", heads), self._key("attention.key_length", width // heads)
        if heads % kv_heads or self._key("attention.value_length", head) != head:
            raise self._error(f"{heads} heads on {kv_heads} heads of keys and values are not sizes that it can run")
        dims, theta = self._key("rope.dimension_count", head), self._key("rope.freq_base", 10000.0, float)
        rope = {"theta": theta, "style": ARCHITECTURES[self.architecture], "dims": dims if dims != head else 0}
        rope |= self._scaling(dims, context, theta)
        return SimpleNamespace(
            layers=self._key("block_count"), width=width, heads=heads, kv_heads=kv_heads, head=head, context=context,
            feed=self._key("feed_forward_length"), eps=self._key("attention.layer_norm_rms_epsilon", kind=float),
            vocabulary=getattr(self.tensors.get("token_embd.weight"), "shape", (0,))[0], rope=rope,
        )  # fmt: skip

    def _scaling(self, dims: int, context: int, theta: float) -> dict[str, Any]:
        """How rotations are scaled for long contexts."""
        kind = self.metadata.get(f"{self.architecture}.rope.scaling.type", "linear")
        if "rope_freqs.weight" in self.tensors:  # what Llama 3 divides frequencies by
            divisors = np.asarray(self.file["rope_freqs.weight"], np.float64)
            kind, factor, original = "llama3", float(divisors.max()), 8192
            turns = original * theta ** (-2 * np.arange(dims // 2) / dims) / (2 * np.pi)
            kept = np.clip((turns - 1) / 3, 0, 1)
            if divisors.shape != turns.shape or not np.allclose(1 / (kept + (1 - kept) / factor), divisors, 1e-4):
                raise self._error("rope_freqs.weight is not Llama 3's, the only ones that this engine knows")
        elif kind not in ("none", "linear", "yarn"):
            raise self._error(f"its rotations are scaled by {kind!r}; the engine knows linear, yarn and Llama 3's")
        else:
            factor = self._key("rope.scaling.factor", 1.0, float)
            original = self._key("rope.scaling.original_context_length", context)
        return {"scaling": kind, "factor": factor, "context": float(original)}

    def _check_tensors(self) -> None:
        """Every tensor that the model must have is there, every one that is there is known, and has its shape."""
        c = self.config
        w, f, q, k = c.width, c.feed, c.heads * c.head, c.kv_heads * c.head
        known = {"rope_freqs.weight"}

        def check(name: str, shape: tuple[int, ...], required: bool = True) -> None:
            known.add(name)
            actual = getattr(self.tensors.get(name), "shape", None)
            if actual != shape and (actual or required):
                raise self._error(f"{name} {f'has shape {actual}' if actual else 'is missing'}; the keys imply {shape}")

        check("token_embd.weight", (c.vocabulary, c.width))
        check("output.weight", (c.vocabulary, c.width), False)  # without it, the embedding is the output matrix, too
        check("output_norm.weight", (c.width,))
        for i in range(c.layers):
            for name, shape in (
                ("attn_q", (q, w)), ("attn_k", (k, w)), ("attn_v", (k, w)), ("attn_output", (w, q)),
                ("attn_norm", (w,)), ("ffn_gate", (f, w)), ("ffn_up", (f, w)), ("ffn_down", (w, f)), ("ffn_norm", (w,)),
            ):  # fmt: skip
                check(f"blk.{i}.{name}.weight", shape)
                check(f"blk.{i}.{name}.bias", shape[:1], False)
        if unknown := [name for name in self.tensors if name not in known]:
            raise self._error(f"the engine does not know the tensor {unknown[0]}, so its results would be wrong")

    def load(self, name: str) -> Any:
        """A tensor: a QuantizedMatrix on the mapped file, an array in float32, or None where the model has none."""
        if name not in self.tensors:
            return None
        tensor = self.file[name]
        quantized = isinstance(tensor, trueno.QuantizedMatrix)
        tensor = tensor if quantized else np.ascontiguousarray(tensor, np.float32)
        if self.guarded and not np.isfinite(trueno.dequantize(tensor) if quantized else tensor).all():
            ops = {"norm": "rms_norm", "bias": "bias_activation", "": "quant_" * quantized + "matmul"}
            op = next(op for part, op in ops.items() if part in name)
            raise self._error(f"{name.replace('blk.', 'layer ')}, which {op} takes, is not finite")
        return tensor
