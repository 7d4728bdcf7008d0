"""Generated from the op table by `python -m trueno._stubs`; edit the table instead."""

# mypy: disable-error-code="overload-overlap,misc,override"

from trueno._types import FormatName, Operand
from trueno.formats import Format as Format
from trueno.quant.matrix import QuantizedMatrix as QuantizedMatrix

__all__ = ["ACTIVATIONS", "FORMATS", "INTERLEAVED", "WEIGHTS", "Format", "QuantizedMatrix", "format_of", "quantize", "requantize"]

WEIGHTS: tuple[FormatName, ...]
ACTIVATIONS: tuple[FormatName, ...]
FORMATS: dict[FormatName, Format]
INTERLEAVED: dict[FormatName, Format]

def quantize(x: Operand, format: FormatName, imatrix: Operand | None = None) -> QuantizedMatrix:
    """The rows of x[m, k] in blocks of `format`, byte for byte what ggml's quantizer writes."""

def requantize(q: QuantizedMatrix, format: FormatName, imatrix: Operand | None = None) -> QuantizedMatrix:
    """The same numbers in blocks of `format`, rows along blocks: decoded, and quantized again, which loses precision."""

def format_of(name: str, op: str = ..., *, weights: bool = ..., cache: bool = ...) -> Format: ...
