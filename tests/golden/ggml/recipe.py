"""`python tests/golden/ggml/recipe.py`: which type llama.cpp gives to every tensor of some models, by every mixture.

Writes `recipe.json` beside it, for tests on machines without llama.cpp.  Needs trueno[gguf] and llama-cpp-python.
The models hold zeros, as types depend on names, shapes and keys alone.
"""

import ctypes
import json
import tempfile
from pathlib import Path

import llama_cpp
import numpy as np
import trueno.gguf
from trueno.gguf import RECIPES

LETTERS = "abcdefghijklmnopqrstuvwxyz"
EPS = "attention.layer_norm_rms_epsilon"


def layers(n, ff=256, values="attn_v", experts=0, k=256):
    """The tensors of the usual blocks."""
    found = {}
    for i in range(n):
        b = f"blk.{i}."
        found[f"{b}attn_norm.weight"] = [k]
        for name, rows in (("attn_q", k), ("attn_k", k // 4), (values, k // 4), ("attn_output", k)):
            found[f"{b}{name}.weight"] = [rows, k]
        stack = [experts] if experts else []
        end = "_exps" if experts else ""
        found[f"{b}ffn_gate{end}.weight"] = found[f"{b}ffn_up{end}.weight"] = [*stack, ff, k]
        found[f"{b}ffn_down{end}.weight"] = [*stack, k, ff]
        if experts:
            found[f"{b}ffn_gate_inp.weight"] = [experts, k]
    return found


def only(n, *names):
    return {f"blk.{i}.{name}.weight": [32, 256] for i in range(n) for name in names}


def model(arch, n, tensors, tied=False, heads=8, shared=2, **more):
    """Keys and tensors: [shape, type]."""
    keys = {"block_count": n, "context_length": 64, "embedding_length": 256, "feed_forward_length": 256}
    keys |= {"attention.head_count": heads, "attention.head_count_kv": shared, EPS: 1e-5, "vocab_size": 32} | more
    ends = {"token_embd.weight": [32, 256], "output_norm.weight": [256]} | (
        {} if tied else {"output.weight": [32, 256]}
    )
    found = {"general.architecture": arch} | {f"{arch}.{key}": value for key, value in keys.items()}
    return found, {name: [shape, "f32"] for name, shape in (ends | tensors).items()}


def strange():
    """Names and shapes that are exceptions."""
    keys, tensors = model("llama", 2, layers(2))
    for name, shape, kind in (
        ("position_embd.weight", [32, 256], "f32"), ("token_types.weight", [2, 256], "f32"),
        ("per_layer_token_embd.weight", [32, 256], "f32"), ("v.position_embd.weight", [32, 256], "f16"),
        ("blk.0.ssm_conv1d.weight", [256, 4], "f32"), ("blk.0.ssm_in.weight", [64, 256], "f16"),
        ("blk.0.attn_q.bias", [4, 256], "f32"), ("blk.0.attn_q.weights", [4, 256], "f32"),
        ("blk.0.one_row.weight", [1, 256], "f32"), ("blk.0.one_row_deep.weight", [1, 1, 256], "f32"),
        ("blk.0.one_row_each.weight", [3, 1, 256], "f32"), ("blk.0.one_column.weight", [256, 1], "f32"),
        ("blk.0.narrow.weight", [3, 8], "f32"), ("blk.0.third.weight", [3, 96], "bf16"), ("blk.0.flat.weight", [256], "f32"),
        ("blk.0.rope_freqs.weight", [2, 256], "f16"), ("blk.1.altup_proj.weight", [4, 256], "f32"),
        ("blk.1.time_mix_w1.weight", [4, 256], "f32"), ("blk.1.time_mix_key.weight", [4, 256], "f32"),
        ("blk.1.attn_kv_b.weight", [64, 256], "f16"), ("blk.1.ffn_down_shexp.weight", [256, 256], "bf16"),
        ("enc.blk.0.attn_v.weight", [64, 256], "f32"), ("enc.blk.0.attn_rel_b.weight", [64, 256], "f32"),
    ):  # fmt: skip
        tensors[name] = [shape, kind]
    return keys, tensors


def cases():
    falcon = {"attention.layer_norm_epsilon": 1e-5}
    yield "llama", model("llama", 8, layers(8))
    yield "llama, tied, 17 layers", model("llama", 17, layers(17), tied=True)
    yield "llama, as many shared heads", model("llama", 3, layers(3), shared=8)
    yield "llama, odd widths", model("llama", 8, layers(8, ff=288), feed_forward_length=288)
    yield "llama, odder widths", model("llama", 2, layers(2, ff=264), feed_forward_length=264)
    yield "qwen2, all odd, tied", model("qwen2", 4, layers(4, k=224, ff=224), tied=True)
    yield "falcon", model("falcon", 16, layers(16, values="attn_qkv"), **falcon)
    yield "falcon, odd widths", model("falcon", 4, layers(4, values="attn_qkv", ff=288), **falcon)
    yield "llama, 8 experts", model("llama", 4, layers(4, experts=8), expert_count=8, expert_used_count=2)
    yield "llama, 4 experts", model("llama", 9, layers(9, experts=4), expert_count=4, expert_used_count=2)
    for arch, shared in (("llama", 2), ("llama", 8), ("qwen2", 8), ("deci", 2)):
        yield f"{arch}, 80 layers, {shared} shared heads", model(arch, 80, only(80, "attn_v"), shared=shared)
    yield "deci, heads of each layer", model("deci", 3, layers(3), heads=[8, 8, 4], shared=[2, 8, 1])
    yield "deci, more heads later", model("deci", 3, layers(3), heads=[4, 8, 8], shared=[2, 2, 2])
    yield "strange names and shapes", strange()


def quantized(source, target, tensors, file_type, weighted):
    """What llama.cpp makes of the file: type by name."""
    p = llama_cpp.llama_model_quantize_default_params()
    p.ftype, p.nthread = file_type, 1
    if weighted:
        kind = llama_cpp.llama_cpp.llama_model_imatrix_data
        data = (kind * (len(tensors) + 1))()
        kept = []
        for i, (name, (shape, _)) in enumerate(tensors.items()):
            count = shape[-1] * (shape[-3] if len(shape) > 2 else 1)
            kept.append(((ctypes.c_float * count)(*[1.0] * count), name.encode()))
            data[i].name, data[i].size = kept[-1][1], count
            data[i].data = ctypes.cast(kept[-1][0], type(data[i].data))
        p.imatrix = data
    failed = llama_cpp.llama_model_quantize(str(source).encode(), str(target).encode(), ctypes.byref(p))
    assert not failed, (source, file_type)
    with trueno.gguf.open(target) as file:
        return {name: t.type for name, t in file.tensors.items()}


def main():
    silent = llama_cpp.llama_log_callback(lambda level, text, data: None)
    llama_cpp.llama_log_set(silent, None)
    types, report = {}, {}
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder, "in.gguf"), Path(folder, "out.gguf")
        for case, (keys, tensors) in cases():
            data = {}
            for name, (shape, kind) in tensors.items():
                zeros = np.zeros(shape, np.float32 if kind == "f32" else np.float16)
                data[name] = zeros
                if kind == "bf16":
                    raw = zeros.reshape(-1).view(np.uint8)
                    data[name] = trueno.gguf.Tensor(name, "bf16", tuple(shape), raw)
            trueno.gguf.write(source, data, keys)
            said = {}
            for mixture, recipe in RECIPES.items():
                for weighted in (False, True):
                    found = quantized(source, target, tensors, recipe.file_type, weighted)
                    letters = (types.setdefault(found[name], LETTERS[len(types)]) for name in tensors)
                    said[mixture + (" weighted" if weighted else "")] = "".join(letters)
            report[case] = {"keys": keys, "tensors": tensors, "types": said}
            print(case, len(tensors))
    letters = {letter: kind for kind, letter in types.items()}
    lines = [f"{json.dumps(case)}: {json.dumps(what)}" for case, what in report.items()]
    text = ",\n".join(lines)
    head = f'"llama_cpp": "{llama_cpp.__version__}", "letters": {json.dumps(letters)}'
    Path(__file__).with_name("recipe.json").write_text(f'{{{head}, "cases": {{\n{text}\n}}}}\n', "utf-8")


if __name__ == "__main__":
    main()
