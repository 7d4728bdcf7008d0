"""Quantized matrices: ggml's block formats, quantizing, and products computed directly from the blocks.

`FORMATS` is the table of formats, `INTERLEAVED` the same formats with rows interleaved.  `quantize` and
`QuantizedMatrix` are at top level too, as are the ops on them (`trueno.dequantize`, `trueno.quant_matvec`,
`trueno.quant_matmul` and their `_colmajor` variants).
"""

from trueno.formats import ACTIVATIONS, FORMATS, INTERLEAVED, WEIGHTS, Format, format_of
from trueno.quant.matrix import QuantizedMatrix
from trueno.quant.quantize import quantize, requantize

__all__ = [
    "ACTIVATIONS",
    "FORMATS",
    "INTERLEAVED",
    "WEIGHTS",
    "Format",
    "QuantizedMatrix",
    "format_of",
    "quantize",
    "requantize",
]
