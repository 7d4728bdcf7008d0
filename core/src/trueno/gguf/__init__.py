"""GGUF files, through the `gguf` package (`pip install 'trueno[gguf]'`).

    with trueno.gguf.open("model.gguf") as file:
        q = file["blk.0.ffn_down.weight"]       # a QuantizedMatrix on the mapped file
        file.metadata["general.architecture"]
    trueno.gguf.write("small.gguf", {"w": q}, {"general.architecture": "llama"})

`trueno gguf info FILE` and `trueno gguf quantize IN OUT --type q4_k_m` do it from the command line.
"""

from typing import TYPE_CHECKING, NoReturn

from trueno.gguf.conversion import convert, importance
from trueno.gguf.file import File, Metadata, Tensor, open  # noqa: A004 - as gzip and zipfile name theirs
from trueno.gguf.recipe import RECIPES, tensor_format
from trueno.gguf.writing import write
from trueno.hints import member

__all__ = ["RECIPES", "File", "Metadata", "Tensor", "convert", "importance", "open", "tensor_format", "write"]


if not TYPE_CHECKING:  # checkers know what is here
    from trueno.hints import member

    def __getattr__(name: str) -> NoReturn:
        raise AttributeError(member(__name__, name, __all__))
