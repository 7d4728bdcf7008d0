"""The table of ops: `TABLE["rms_norm"]` is everything Trueno knows about rms_norm.

Each file here holds one family.  Importing this package declares all ops.
"""

from trueno.ops import (
    activations,
    arithmetic,
    attention,
    caches,
    compression,
    indexed,
    layout,
    mathematics,
    matrix,
    normalization,
    quantized,
    reductions,
    selection,
)
from trueno.ops.op import ALIASES, TABLE, Op, Parameter

FAMILIES = tuple(
    m.__name__.rpartition(".")[2]
    for m in (
        arithmetic,
        mathematics,
        activations,
        reductions,
        normalization,
        matrix,
        attention,
        selection,
        caches,
        layout,
        quantized,
        indexed,
        compression,
    )
)

__all__ = ["ALIASES", "FAMILIES", "TABLE", "Op", "Parameter"]
