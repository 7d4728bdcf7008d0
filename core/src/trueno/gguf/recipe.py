"""Which format each tensor of a model gets: llama.cpp's mixtures, named as its `llama-quantize` names them.

A mixture is a default and exceptions: the output matrix, the values of attention and the second matrix of the
feed-forward block are more sensitive than the rest, especially in the first and the last layers.  Source:
llama-quant.cpp of llama.cpp 0.5.0 (MIT), as facts.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any

from trueno.errors import ParameterError, suggestion
from trueno.formats import FORMATS


@dataclass(frozen=True, slots=True)
class Recipe:
    """A mixture: its name, llama.cpp's number of it (`general.file_type`), and the format of most tensors."""

    name: str
    file_type: int
    default: str


RECIPES = {
    name: Recipe(name, number, default)
    for name, number, default in (
        ("q4_0", 2, "q4_0"), ("q4_1", 3, "q4_1"), ("q8_0", 7, "q8_0"), ("q5_0", 8, "q5_0"), ("q5_1", 9, "q5_1"),
        ("q2_k", 10, "q2_k"), ("q3_k_s", 11, "q3_k"), ("q3_k_m", 12, "q3_k"), ("q3_k_l", 13, "q3_k"),
        ("q4_k_s", 14, "q4_k"), ("q4_k_m", 15, "q4_k"), ("q5_k_s", 16, "q5_k"), ("q5_k_m", 17, "q5_k"),
        ("q6_k", 18, "q6_k"), ("iq4_nl", 25, "iq4_nl"), ("iq4_xs", 30, "iq4_xs"),
    )
}  # fmt: skip
ALIASES = {"q3_k": "q3_k_m", "q4_k": "q4_k_m", "q5_k": "q5_k_m"}
WHOLE = (
    "_norm.weight", "ffn_gate_inp.weight", "ffn_gate_tid2eid.weight", "altup", "laurel", "per_layer_model_proj",
    "ssm_conv1d", "shortconv.conv.weight", "indexer.k_proj.weight", "indexer.q_proj.weight", "time_mix_first.weight",
    "time_mix_w0.weight", "time_mix_w1.weight", "time_mix_w2.weight", "time_mix_v0.weight", "time_mix_v1.weight",
    "time_mix_v2.weight", "time_mix_a0.weight", "time_mix_a1.weight", "time_mix_a2.weight", "time_mix_g1.weight",
    "time_mix_g2.weight", "time_mix_decay_w1.weight", "time_mix_decay_w2.weight", "time_mix_lerp_fused.weight",
    "attn_rel_b.weight", ".position_embd", "sam.pos_embd", "sam.neck.", "sam.net_", ".rel_pos", ".patch_embd",
    ".patch_merger", "a.rvq.codebook", "mm.a.code_embd",
)  # fmt: skip
"""Parts of names of tensors that stay unquantized: small, or too sensitive."""
NAMES = ("position_embd.weight", "token_types.weight")
GLM5 = "glm5-next"
GLM5_MORE = ("attn_q_a", "attn_q_b", "nextn.eh_proj")
GLM5_WHOLE = (
    "hc_", "indexer.attn_q_b", "indexer.attn_k", "indexer.proj", "indexer_compressor_gate", "indexer_compressor_ape",
    "ssm_f_a.weight", "ssm_f_b.weight", "ssm_g_a.weight", "ssm_g_b.weight", "ssm_beta.weight", "attn_kv_a_mqa.weight",
    "attn_k_b.weight", "attn_v_b.weight",
)  # fmt: skip
SEVENTY = {"llama": 80, "llama-embed": 80, "deci": 80, "olmo": 80, "qwen2": 80, "jais2": 68}
"""Layers of the models with 70 billion weights, in which many heads share the values of attention."""
VALUES = ("attn_qkv.weight", "attn_kv_b.weight", "attn_v.weight")
EMBEDDINGS = ("token_embd.weight", "per_layer_token_embd.weight")


def recipe(name: str) -> Recipe:
    """The mixture called `name`, upper or lower case; ParameterError with a suggestion for any other name."""
    key = ALIASES.get(name.lower(), name.lower())
    if key not in RECIPES:
        raise ParameterError(f"gguf: {name!r} is not a mixture{suggestion(key, RECIPES)}; known: {', '.join(RECIPES)}")
    return RECIPES[key]


def quantizable(name: str, shape: tuple[int, ...], arch: str) -> bool:
    """Whether llama.cpp quantizes a tensor: a matrix (or a stack of matrices) of weights, and not an exception."""
    if all(n == 1 for n in shape[:-1]):  # ggml does not count leading axes of length 1
        return False
    whole = (*WHOLE, *GLM5_WHOLE) if arch == GLM5 else WHOLE
    return name.endswith("weight") and name not in NAMES and not any(part in name for part in whole)


class Mixture:
    """Formats for the tensors of one model, which must be requested in its own order.

    shapes: of every tensor, by name.  metadata: the model's keys.  weighted: whether there is an importance matrix.
    """

    def __init__(
        self, kind: Recipe, shapes: Mapping[str, tuple[int, ...]], metadata: Mapping[str, Any], weighted: bool = False
    ) -> None:
        self.kind, self.shapes, self.weighted = kind, shapes, weighted
        self.arch = str(metadata.get("general.architecture", ""))
        self.layers = _whole(metadata.get(f"{self.arch}.block_count"))
        self.experts = _whole(metadata.get(f"{self.arch}.expert_count"))
        heads = _whole(metadata.get(f"{self.arch}.attention.head_count"))
        shared = _whole(metadata.get(f"{self.arch}.attention.head_count_kv"), heads)
        self.sharing = heads // shared if shared else 0
        self.seventy = SEVENTY.get(self.arch) == self.layers
        if self.arch.startswith("llama") and (heads == shared or self.experts == 8):
            self.seventy = False
        self.order = sorted(shapes, key=lambda name: (_layer(name), name))
        self.place: dict[str, int] = {}
        for part in (VALUES, ("ffn_down",)):
            names = [n for n in self.order if any(p in n for p in part) and quantizable(n, shapes[n], self.arch)]
            self.place |= {n: i for i, n in enumerate(names)}
        self.values = sum(any(p in n for p in VALUES) for n in shapes)
        self.tied = "output.weight" not in shapes

    def format(self, name: str) -> str:
        """The format of a tensor: a name of `FORMATS`, f16 where no block fits its rows, or "" to leave it as is."""
        shape = self.shapes[name]
        if not quantizable(name, shape, self.arch):
            return ""
        wanted = self._wanted(name, shape[-1])
        if shape[-1] % FORMATS[wanted].elements:
            wanted = FORMATS[wanted].fallback or wanted
        return wanted if shape[-1] % FORMATS[wanted].elements == 0 else "f16"

    def ruled_out(self, name: str) -> str:
        """The format that a tensor would have if its rows were whole blocks of it; "" where they are, or it stays."""
        if not quantizable(name, self.shapes[name], self.arch):
            return ""
        wanted = self._wanted(name, 0)  # as if no row length ruled it out
        return "" if wanted == self.format(name) else wanted

    def _wanted(self, name: str, width: int) -> str:
        kind, default = self.kind.name, self.kind.default
        if self.arch == GLM5 and any(part in name for part in GLM5_MORE):
            return "q8_0"
        if name == "output.weight" or (self.tied and name in EMBEDDINGS):
            if self.arch == "falcon" or width % FORMATS[default].elements:
                return "q8_0"
            return default if default == "q8_0" else "q6_k"
        if name in EMBEDDINGS:
            return default
        if any(part in name for part in VALUES):
            return self._values(name, kind, default)
        if "attn_k.weight" in name and self.experts == 8:
            return "q8_0"
        if "attn_output.weight" in name:
            return self._output(kind, default)
        if "ffn_down" in name:
            return self._down(name, kind, default)
        return default

    def _values(self, name: str, kind: str, default: str) -> str:
        i, chosen = self.place[name], default
        if kind == "q2_k":
            chosen = "q4_k" if self.sharing >= 4 else "q3_k"
        elif kind == "q3_k_m":
            chosen = "q5_k" if i < 2 else "q4_k"
        elif kind == "q3_k_l" or (kind in ("iq4_nl", "iq4_xs") and self.sharing >= 4) or (kind == "q4_k_s" and i < 4):
            chosen = "q5_k"
        elif kind in ("q4_k_m", "q5_k_m") and _more(i, self.values):
            chosen = "q6_k"
        if self.seventy and chosen in ("q3_k", "q4_k"):
            chosen = "q5_k"
        return "q8_0" if self.experts == 8 else chosen

    def _output(self, kind: str, default: str) -> str:
        if self.arch == "falcon":
            return "q4_k" if kind == "q3_k_l" else default
        if self.experts == 8:
            more = ("q2_k", "q3_k_s", "q3_k_m", "iq4_nl", "q4_k_s", "q4_k_m", "iq4_xs")
            return "q5_k" if kind in more else default
        return {"q2_k": "q3_k", "q3_k_m": "q4_k", "q3_k_l": "q5_k"}.get(kind, default)

    def _down(self, name: str, kind: str, default: str) -> str:
        n, falcon = self.layers, self.arch == "falcon"
        i = _layer(name) if self.experts > 1 else self.place[name]
        match kind:
            case "q2_k":
                return "q3_k"
            case "q3_k_m":
                return "q5_k" if i < n // 16 else "q4_k" if not falcon or _more(i, n) else "q3_k"
            case "q3_k_l":
                return "q4_k" if falcon else "q5_k"
            case "q4_k_m" if falcon:
                return "q6_k" if i < n // 16 else "q5_k" if _more(i, n) else "q4_k"
            case "q4_k_m" | "q5_k_m":
                return "q6_k" if _more(i, n) else default
            case "iq4_nl" | "iq4_xs" if i < n // 8 and not self.weighted:
                return "q5_k"
            case "q4_k_s" if not falcon and i < n // 8:
                return "q5_k"
            case "q4_0" | "q5_0" if self.weighted and i < n // 8:
                return "q4_1" if kind == "q4_0" else "q5_1"
        return default


def tensor_format(
    kind: str, name: str, shapes: Mapping[str, tuple[int, ...]], metadata: Mapping[str, Any], weighted: bool = False
) -> str:
    """The format that mixture `kind` gives to one tensor of a model; "" for one that stays unquantized."""
    return Mixture(recipe(kind), shapes, metadata, weighted).format(name)


def _more(i: int, n: int) -> bool:
    """Whether layer i of n gets more bits: the first and last eighths, and every third between."""
    return i < n // 8 or i >= 7 * n // 8 or (i - n // 8) % 3 == 2


def _layer(name: str) -> int:
    parts = name.split(".")
    return int(parts[1]) if len(parts) > 2 and parts[0] == "blk" and parts[1].isdigit() else -1


def _whole(value: Any, default: int = 0) -> int:
    """A number of the metadata; the first layer's if it is given per layer."""
    if isinstance(value, (list, tuple)):
        value = value[0] if value else None
    return int(value) if isinstance(value, (int, float)) and isfinite(value) else default
