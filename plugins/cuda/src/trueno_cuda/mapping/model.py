"""The sizes and tensors of a model in a GGUF file; only the file's head is read."""

from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from trueno.backend import FORMATS
from trueno.errors import ParameterError

ARCHITECTURES = {"qwen2": "neox", "llama": "interleaved"}
"""Whose layers the reference plan describes, and which numbers of a head are rotated together."""
TYPES = ("f32", "f16", "bf16", *(name for name, f in FORMATS.items() if f.weights))
"""Types of tensors that are multiplied: the first three as float32."""


@dataclass(frozen=True)
class Model:
    """file: the open file.  head: numbers of a head.  tied: whether the embedding is the output matrix, too."""

    path: str
    file: Any
    architecture: str
    layers: int
    width: int
    heads: int
    kv_heads: int
    head: int
    feed: int
    vocabulary: int
    context: int
    theta: float
    tied: bool

    def has(self, name: str) -> bool:
        return name in self.file.tensors

    @property
    def record(self) -> dict[str, Any]:
        """What a report says of it."""
        names = ("path", "architecture", "layers", "width", "heads", "kv_heads", "head", "feed", "vocabulary",
                 "context", "tied")  # fmt: skip
        return {name: getattr(self, name) for name in names}


def opened(path: str) -> Model:
    """The model in a file.

    FileError if it is not a GGUF file, or was cut; ParameterError for another architecture, and for a key or a tensor
    that is missing or has an unexpected value or shape.
    """
    trueno: Any = import_module("trueno")  # through the public API
    file = trueno.gguf.open(path)
    architecture = str(file.metadata.get("general.architecture"))

    def problem(text: str) -> ParameterError:
        return ParameterError(f"ptx-map: {path}: {text}")

    def key(name: str, default: float = 0, kind: type = int) -> Any:
        name = f"{architecture}.{name}"
        value = file.metadata.get(name, default or None)
        if isinstance(value, bool) or not isinstance(value, (int, kind)) or not 0 < value < 1e18:
            raise problem(f"the key {name} is {'missing' if value is None else repr(value)}; it must be above 0")
        return kind(value)

    if architecture not in ARCHITECTURES:
        known = " and ".join(ARCHITECTURES)
        raise problem(f"its architecture is {architecture!r}; ptx-map knows the layers of {known}")
    if file.metadata.get(f"{architecture}.expert_count"):
        raise problem("it is a mixture of experts, whose layers ptx-map does not know")
    width, heads = key("embedding_length"), key("attention.head_count")
    kv_heads, head = key("attention.head_count_kv", heads), key("attention.key_length", width // heads)
    if heads % kv_heads or key("attention.value_length", head) != head:
        raise problem(f"{heads} heads on {kv_heads} heads of keys and values are not sizes that ptx-map knows")
    table = file.tensors.get("token_embd.weight")
    if table is None or len(table.shape) != 2:
        raise problem(f"token_embd.weight {'is missing' if table is None else f'has shape {table.shape}'}")
    model = Model(
        path, file, architecture, key("block_count"), width, heads, kv_heads, head, key("feed_forward_length"),
        table.shape[0], key("context_length"), key("rope.freq_base", 10000.0, float),
        "output.weight" not in file.tensors,
    )  # fmt: skip
    for name, shape in _needed(model):
        tensor = file.tensors.get(name)
        if tensor is None or tensor.shape != shape:
            state = "is missing" if tensor is None else f"has shape {tensor.shape}"
            raise problem(f"{name} {state}; the keys imply {shape}")
        if tensor.type not in TYPES:
            raise problem(f"{name} is in {tensor.type}, and matrices are in {', '.join(TYPES)}")
    return model


def _needed(m: Model) -> Iterator[tuple[str, tuple[int, ...]]]:
    """The tensors of a model and their shapes."""
    q, k = m.heads * m.head, m.kv_heads * m.head
    yield "token_embd.weight", (m.vocabulary, m.width)
    yield "output_norm.weight", (m.width,)
    if not m.tied:
        yield "output.weight", (m.vocabulary, m.width)
    shapes = {
        "attn_norm": (m.width,), "attn_q": (q, m.width), "attn_k": (k, m.width), "attn_v": (k, m.width),
        "attn_output": (m.width, q), "ffn_norm": (m.width,), "ffn_gate": (m.feed, m.width), "ffn_up": (m.feed, m.width),
        "ffn_down": (m.width, m.feed),
    }  # fmt: skip
    for i in range(m.layers):
        yield from ((f"blk.{i}.{name}.weight", shape) for name, shape in shapes.items())
