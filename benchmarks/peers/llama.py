"""llama.cpp's whole engine, through the low-level functions of llama-cpp-python: what a model's speed is compared with.

An optional requirement of the benchmarks and of some tests.  Only the package's ctypes declarations are imported: its
__init__ also imports its server's dependencies.

    with Engine("model.gguf", threads=2) as engine:
        engine.feed([1, 2, 3])            # float32 [tokens, vocabulary]
"""

import ctypes as c
import sys
from collections.abc import Sequence
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any

import numpy as np

F32, F16 = 0, 1
"""ggml's numbers of the types of caches."""
NO_OP = c.CFUNCTYPE(None, c.c_int, c.c_char_p, c.c_void_p)(lambda level, text, data: None)


@cache
def library() -> Any:
    """The module of declarations, or None where llama-cpp-python is not installed or its libraries do not load."""
    spec = find_spec("llama_cpp")
    if spec is None or not spec.submodule_search_locations:
        return None
    if "llama_cpp" not in sys.modules:
        bare = ModuleType("llama_cpp")
        bare.__path__ = list(spec.submodule_search_locations)
        sys.modules["llama_cpp"] = bare
    try:
        llama = import_module("llama_cpp.llama_cpp")
    except (ImportError, OSError, RuntimeError):
        return None
    llama.llama_log_set(NO_OP, None)
    llama.llama_backend_init()
    return llama


class Engine:
    """A model and its context.  repack: let it rearrange weights when they are loaded; flash: attention by tiles."""

    def __init__(
        self, path: str, threads: int = 2, context: int = 1024, kind: int = F16, repack: bool = True, flash: bool = True
    ) -> None:
        self.llama = library()
        loading, running = self.llama.llama_model_default_params(), self.llama.llama_context_default_params()
        loading.use_extra_bufts, loading.n_gpu_layers = repack, 0
        self.model = self.llama.llama_model_load_from_file(str(path).encode(), loading)
        if not self.model:
            raise ValueError(f"llama.cpp cannot load {path}")
        running.n_ctx, running.n_batch, running.n_ubatch = context, context, min(context, 512)
        running.n_threads = running.n_threads_batch = threads
        running.type_k, running.type_v, running.flash_attn_type = kind, kind, int(flash)
        self.context = self.llama.llama_init_from_model(self.model, running)
        self.vocabulary = self.llama.llama_vocab_n_tokens(self.llama.llama_model_get_vocab(self.model))
        self.batch = self.llama.llama_batch_init(context, 0, 1)
        self.length = 0

    def feed(self, tokens: Sequence[int], every: bool = True) -> Any:
        """Logits after each of some tokens that continue the sequence, or after the last of them: a copy."""
        for i, token in enumerate(tokens):
            self.batch.token[i], self.batch.pos[i] = token, self.length + i
            self.batch.n_seq_id[i], self.batch.seq_id[i][0] = 1, 0
            self.batch.logits[i] = every or i == len(tokens) - 1
        self.batch.n_tokens = len(tokens)
        if self.llama.llama_decode(self.context, self.batch):
            raise ValueError("llama.cpp cannot decode these tokens")
        self.length += len(tokens)
        rows = len(tokens) if every else 1
        held = self.llama.llama_get_logits(self.context)
        return np.ctypeslib.as_array(held, (rows, self.vocabulary)).copy()

    def truncate(self, length: int) -> None:
        """Forget every token from `length` on."""
        self.llama.llama_memory_seq_rm(self.llama.llama_get_memory(self.context), 0, length, -1)
        self.length = length

    def tokenized(self, text: str) -> list[int]:
        """The tokens of a text, without those that begin or end texts."""
        raw, room = text.encode(), (c.c_int32 * (len(text.encode()) + 8))()
        vocabulary = self.llama.llama_model_get_vocab(self.model)
        count = self.llama.llama_tokenize(vocabulary, raw, len(raw), room, len(room), False, True)
        return list(room[:count])

    def __enter__(self) -> "Engine":
        return self

    def __exit__(self, *_: object) -> None:
        self.llama.llama_batch_free(self.batch)
        self.llama.llama_free(self.context)
        self.llama.llama_model_free(self.model)
