"""Rows of quantized matrices, chosen by indices: structured ops, so each body is NumPy code and defines the meaning.

The experts of a layer are one matrix: `outputs` rows of the first, then those of the second, as GGUF files stack them.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from trueno.errors import ParameterError
from trueno.formats import decode, format_of
from trueno.formats.activations import rounded_activations, rounded_weights
from trueno.ops.op import op
from trueno.ops.quantized import MATRICES, PRODUCT

Array = npt.NDArray[Any]


def _named(who: str, name: str, i: Array, count: int, what: str) -> None:
    """Raise ParameterError naming the first index that is not below `count`."""
    wrong = (i < 0) | (i >= count)
    if wrong.any():
        at = tuple(map(int, np.unravel_index(np.argmax(wrong), i.shape)))
        where = f"{name}[{', '.join(map(str, at))}]" if at else name
        known = f"0 to {count - 1}" if count else "none, as w is empty"
        raise ParameterError(f"{who}: {where} is {i[at]}; {what} of w are {known}")


def _rows(w: Array, i: Array) -> None:
    _named("quant_embedding_lookup", "i", i, len(w), "rows")


@op("w[v,d]:blocks i[...]:index -> y[...,d]", structured=True, flops="2*rows*d", choices={"format": MATRICES},
    check=_rows)  # fmt: skip
def quant_embedding_lookup(w, i, *, format: str = ""):
    """y[…,:] = the numbers that the blocks of w[i[…],:] encode, bit for bit as ggml's.

    Only the rows that i names are decoded.
    Shapes: a QuantizedMatrix of v rows (or its bytes with `format`); indices of any shape and integer type; y is
    float32.
    Edges: as dequantize; an index below 0 or from v on is a ParameterError that names it.
    """
    _rows(w, i)
    f = format_of(format)
    return decode(f, np.take(w, i.reshape(-1).astype(np.intp, copy=False), axis=0)).reshape(
        *i.shape, f.row_elements(w.shape[1])
    )


def _experts(w: Array, x: Array, ids: Array, outputs: int) -> None:
    _named("quant_experts", "ids", ids, len(w) // outputs, f"experts of {outputs} rows")


def _by_expert(w: Array, x: Array, ids: Array, outputs: int, numbers: Callable[[Array], Array]) -> Array:
    """Rows of x times `numbers(blocks of their expert)`, for each expert that an index names."""
    _experts(w, x, ids, outputs)
    lead = np.broadcast_shapes(x.shape[:-1], ids.shape)
    which = np.broadcast_to(ids, lead).reshape(-1)
    rows = np.broadcast_to(x, (*lead, x.shape[-1])).reshape(len(which), x.shape[-1])
    y = np.zeros((len(rows), outputs), x.dtype)
    for e in np.unique(which):
        y[which == e] = rows[which == e] @ numbers(w[e * outputs : (e + 1) * outputs]).T
    return y.reshape(*lead, outputs)


def _experts_size(w: Any, x: Any, ids: Any, *, outputs: int, format: str, activations: str) -> Any:
    def sizes(a: Array) -> Array:
        return np.abs(np.where(np.isfinite(a), a, 0)).astype(np.float64)

    f = format_of(format)
    seen = sizes(rounded_activations(x, f, activations))
    return _by_expert(w, seen, ids, outputs, lambda blocks: sizes(rounded_weights(blocks, f, activations)))


@op("w[m,k]:blocks x[...,k] ids[...]:index -> y[...,outputs]", structured=True, flops="2*rows*k*outputs", chain="k",
    choices=PRODUCT, rules="1 <= outputs <= 1e18", extents=("m % outputs == 0",), check=_experts,
    magnitude=_experts_size)  # fmt: skip
def quant_experts(w, x, ids, *, outputs: int = 1, format: str = "", activations: str = "q8"):
    """y[…,j] = Σₖ x[…,k] · w[ids[…] · outputs + j, k]: the product of each row of x with the expert that it names.

    A mixture of experts: w holds all experts of a layer, `outputs` rows each; only those that ids names are read.
    activations: "q8" quantizes x to 8 bits first, as ggml does; "f32" takes it as it is; "bf16" rounds x and w.
    Shapes: a QuantizedMatrix (or bytes with `format`) of experts · outputs rows; leading axes broadcast: x[t,1,k] with
    ids[t,u] gives y[t,u,outputs], and so does x[t,u,k].
    Edges: as quant_matmul; an index below 0 or beyond the last expert is a ParameterError that names it.
    """
    f = format_of(format)
    seen = rounded_activations(x, f, activations)
    return _by_expert(w, seen, ids, outputs, lambda blocks: rounded_weights(blocks, f, activations).astype(x.dtype))
