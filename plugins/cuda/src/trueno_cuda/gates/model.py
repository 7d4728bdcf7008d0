"""The gate about `trueno ptx-map`."""

import ast
import json
from importlib import import_module, util
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from trueno.backend import FORMATS

LAYERS, WIDTH, HEADS, KEYS, FEED, VOCABULARY = 28, 256, 4, 2, 512, 512
STEPS = ["norm", "q", "k", "v", "rope", "attention", "output", "norm", "gate", "up", "swiglu", "down"]
LAUNCHES = 338
"""Twelve of each layer, a norm and the output matrix."""


def map_of_a_model(m: Any) -> None:
    """Write a model of 28 layers, run `trueno ptx-map MODEL --json` on it, and check its plan and its sources.

    The plan must have the 12 steps of every layer in order, and 338 launches; each kernel's source must be a file that
    exists, with a function of that name on that line. Skipped without the package `gguf`, which writes the model.
    """
    if util.find_spec("gguf") is None:
        m.skip("the package gguf is not installed, which writes the model. Install: pip install 'trueno[gguf]'")
    with TemporaryDirectory() as folder:
        path = str(Path(folder) / "model.gguf")
        _write(path)
        answer = m.command("ptx-map", path, "--json", "--no-ptxas")
    m.need(answer.code == 0, f"trueno ptx-map ended with {answer.code}: {answer.err.strip()[-200:]}")
    record = json.loads(answer.out)
    launches = record["launches"]
    wrong = [i for i in range(LAYERS) if [one["op"] for one in launches if one["layer"] == i] != STEPS]
    m.note(layers=LAYERS, steps_per_layer=len(STEPS), launches=len(launches), kernels=len(record["kernels"]))
    missing = [place for k in record["kernels"] if (place := _missing(k))]
    m.note(sources=sorted({f"{Path(str(k['path'])).name}:{k['line']}" for k in record["kernels"]}))
    m.need(not wrong, f"layers {wrong[:3]} do not have the steps {', '.join(STEPS)}")
    m.need(len(launches) == LAUNCHES, f"{len(launches)} launches, and {LAUNCHES} are wanted")
    m.need(record["kernels"] and not missing, f"sources that do not exist: {', '.join(missing)}")


def _write(path: str) -> None:
    """A model of Llama's architecture with empty blocks: the map reads only shapes and types."""
    trueno: Any = import_module("trueno")  # through the public API
    np: Any = import_module("numpy")
    head = WIDTH // HEADS
    metadata = {
        "general.architecture": "llama", "llama.block_count": LAYERS, "llama.context_length": 512,
        "llama.embedding_length": WIDTH, "llama.feed_forward_length": FEED, "llama.attention.head_count": HEADS,
        "llama.attention.head_count_kv": KEYS, "llama.attention.layer_norm_rms_epsilon": 1e-6,
        "llama.rope.dimension_count": head,
    }  # fmt: skip
    shapes: dict[str, tuple[int, ...]] = {"token_embd": (VOCABULARY, WIDTH), "output_norm": (WIDTH,)}
    shapes["output"] = (VOCABULARY, WIDTH)
    for i in range(LAYERS):
        shapes |= {f"blk.{i}.attn_norm": (WIDTH,), f"blk.{i}.ffn_norm": (WIDTH,)}
        shapes |= {f"blk.{i}.attn_q": (WIDTH, WIDTH), f"blk.{i}.attn_output": (WIDTH, WIDTH)}
        shapes |= {f"blk.{i}.attn_{x}": (head * KEYS, WIDTH) for x in "kv"}
        shapes |= {f"blk.{i}.ffn_{x}": (FEED, WIDTH) for x in ("gate", "up")} | {f"blk.{i}.ffn_down": (WIDTH, FEED)}
    tensors = {}
    for name, shape in shapes.items():
        kind = "f32" if len(shape) == 1 else "q6_k" if name.endswith("down") else "q4_k"
        nbytes = shape[0] * (4 if kind == "f32" else FORMATS[kind].row_bytes(shape[1]))
        full = f"{name}.weight"
        tensors[full] = trueno.gguf.Tensor(full, kind, shape, np.zeros(nbytes, np.uint8))
    trueno.gguf.write(path, tensors, metadata)


def _missing(kernel: dict[str, Any]) -> str:
    """The place of a kernel's source if no function stands there; empty if one does."""
    path, line, function = kernel["path"], kernel["line"], str(kernel["function"]).rpartition(".")[2]
    try:
        tree = ast.parse(Path(path).read_text("utf-8"))
    except (OSError, TypeError, SyntaxError):
        return f"{path}:{line}"
    places = [(n.name, n.lineno) for n in ast.walk(tree) if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef))]
    return "" if (function, line) in places else f"{path}:{line} {function}"


GATES = {"F-TRUENO-012": map_of_a_model}
