"""Sentences for users who write what NumPy or PyTorch would take: each names our op, parameter or method."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from trueno.errors import suggestion

PRODUCTS = {
    (1, 1): ("dot", "two vectors are multiplied by trueno.dot(x, y)"),
    (1, 2): ("vecmat", "a vector is multiplied by a matrix with trueno.vecmat(x, a)"),
    (2, 1): ("matvec", "a matrix is multiplied by a vector with trueno.matvec(a, x)"),
    (2, 2): ("matmul", "two matrices are multiplied by trueno.matmul(a, b)"),
}
"""The op of a product, and a sentence that names it, by the ranks of the operands."""
STACKS = ("batched_matmul", "stacks of matrices are multiplied by trueno.batched_matmul(a, b)")

KEYWORDS = {
    "dim": "axis",
    "dims": "axis",
    "axes": "axis",
    "keepdim": "keepdims",
    "epsilon": "eps",
    "a_min": "min",
    "a_max": "max",
    "padding": "mode",
    "is_causal": "causal",
}
"""Our names of keywords that other libraries call otherwise."""
REMARKS = {
    "dtype": "the result has the dtype of the operands; convert them first, or the result with .astype",
    "where": "select elements first, or give NumPy the arrays",
    "initial": "combine the result with it afterwards",
    "inplace": "out=x writes into the operand",
    "alpha": "trueno.fma(x, y, z) is x · y + z, and y may be a number",
    "largest": "for the smallest negate the operand, and the result",
    "sorted": "the result is sorted",
    "device": 'trueno.to(x, "cuda") moves an operand, and computation follows the data',
    "axis": "it has a fixed axis, the last; transpose the operand first",
    "out": "the result is a handle, and b.read(h, out=array) fills an array",
    "mask": "trueno.attention_masked takes one",
    "attn_mask": "trueno.attention_masked takes a mask",
    "normalized_shape": "it normalizes the last axis",
}
"""What to do instead of keywords that an op does not have."""
NAMES = {
    "addcmul": "fma", "amax": "max", "amin": "min", "bmm": "batched_matmul", "cat": "concatenate",
    "clip_": "clamp", "concat": "concatenate", "conv2d": "convolve2d", "corr": "correlation", "corrcoef": "correlation",
    "cov": "covariance", "eigh": "symmetric_eigen", "embedding": "embedding_lookup", "inner": "dot", "mm": "matmul",
    "mv": "matvec", "norm": "norm_l2", "scaled_dot_product_attention": "attention",
    "true_divide": "div", "vecdot": "dot",
}  # fmt: skip
"""Our names of functions that NumPy and PyTorch call otherwise, and that are no aliases."""
INSTEAD = {
    "array": "NumPy makes arrays, which every op takes; trueno.Vector and trueno.Matrix hold one",
    "cuda": 'trueno.to(x, "cuda") moves an array, and trueno.backends() says what can run',
    "is_available": "trueno.backends() says what can run",
    "layernorm": "trueno.layer_norm(x, w, b) has a weight and a bias, trueno.zscore(x) neither",
    "nn": "every op is a function here: trueno.relu(x)",
    "no_grad": "no op computes a gradient",
    "relu6": "trueno.clamp(x, 0, 6) is it",
    "set_num_threads": "set the environment variable TRUENO_THREADS",
    "square": "trueno.mul(x, x) is it",
    "tensor": "tensors of PyTorch are taken as they are",
}
"""What to do instead of functions that are not here."""
OTHERS = {
    "cpu": "call .numpy() for the data on the host",
    "cuda": 'call .to("cuda")',
    "detach": "there is no gradient to detach from",
    "requires_grad": "there are no gradients",
}
"""What to do instead of PyTorch's methods."""


def product(ranks: Sequence[int]) -> str:
    """The op that multiplies operands of these ranks, as `@` does."""
    return PRODUCTS.get((ranks[0], ranks[1]), STACKS)[0]


def by_rank(op: str, shapes: Iterable[Sequence[int]]) -> str:
    """`; …`, naming the product that takes operands of these shapes; empty if there is no better op."""
    ranks = tuple(map(len, shapes))
    if op not in ("matmul", "matvec", "vecmat") or len(ranks) != 2 or min(ranks) < 1:
        return ""
    name, sentence = PRODUCTS.get((ranks[0], ranks[1]), STACKS)
    return f"; {sentence}" if name != op and (name != STACKS[0] or min(ranks) > 1) else ""


def unequal(op: str, name: str, symbol: str, size: int, other: str, wanted: int, shape: Sequence[int]) -> str:
    """The message for an operand whose extent `symbol` is `size`, but `wanted` in the operand `other`."""
    if other == name:
        return f"{op}: {name} must be square, but is {'×'.join(map(str, shape))}"
    whole = f"; {name} has shape {shape}" if len(shape) > 1 else ""
    return f"{op}: {name}[{symbol}] is {size}, but {other}[{symbol}] is {wanted}{whole}"


def blocks_attribute(name: str, array: type) -> str:
    """The message for an attribute that a QuantizedMatrix lacks; array: NumPy's class of arrays."""
    problem = f"QuantizedMatrix has no attribute {name!r}"
    if name in ("numpy", "to"):
        other = ', "cuda"' if name == "to" else ""
        return f"{problem}; trueno.{name}(q{other}) moves its bytes, q.dequantize() gives its numbers"
    if not name.startswith("_") and hasattr(array, name):
        return f"{problem}; it holds blocks, and q.dequantize() gives an array: q.dequantize().{name}"
    return problem


MEMBERS = {
    "dump": ("write", "compress"), "dumps": ("compress",), "encode": ("compress",), "decode": ("decompress",),
    "File": ("open",), "load": ("open", "decompress"), "loads": ("decompress",), "read": ("open",), "reader": ("open",),
    "save": ("write",), "GGUFReader": ("open",), "GGUFWriter": ("write",), "quantize": ("convert",),
}  # fmt: skip
"""What other packages of files call our functions; the first that a module has is meant."""


def member(module: str, name: str, known: Sequence[str]) -> str:
    """The message for a function that a module of files lacks; known: those that it has."""
    ours = next((x for x in MEMBERS.get(name, ()) if x in known), "")
    hint = f"; its name here is {ours}" if ours else suggestion(name, known)
    return f"module {module!r} has no attribute {name!r}{hint}"


def lacking(owner: str, name: str, known: Iterable[str], *, arrays: bool = True) -> str:
    """The message for an op that there is not; owner: who lacks it, known: the names that there are.

    arrays: whether the owner's ops take arrays, which NumPy's functions take, too.
    """
    problem = f"{owner} {name!r}"
    plain = name.lower().rstrip("_")
    if plain in NAMES:
        return f"{problem}; its name here is {NAMES[plain]}"
    if plain in INSTEAD:
        return f"{problem}; {INSTEAD[plain]}"
    for home, module in (("numpy", np), ("numpy.linalg", np.linalg)):
        if arrays and not name.startswith("_") and name in dir(module):
            return f"{problem}; NumPy has it, and takes the same arrays: {home}.{name}"
    return f"{problem}{suggestion(name, known, least=0.7)}"


def backend(name: str, installed: Sequence[str]) -> str:
    """`; …` about a name that no backend has: a kind, a device as PyTorch names it, or a slip; empty if unlike any."""
    if name in ("cpu", "host"):
        return '; on the host name "simd", "scalar" or "reference", and trueno.numpy(x) copies to it'
    if name == "gpu":
        return '; it is a kind of backends, for trueno.use("gpu"): name one of them here'
    plain, _, number = name.partition(":")
    if number.isdigit() and plain in installed:
        return f'; write "{plain}", and TRUENO_{plain.upper()}_DEVICE={number} for its device {number}'
    return suggestion(name, installed)


def excess(op: str, operands: Sequence[str], extra: Sequence[Any], keywords: Sequence[str]) -> str:
    """The message for values by position beyond those that an op takes so; keywords: those that it has."""
    listed = ", ".join(operands)
    own = [name for name in keywords if name != "out"]
    count = f"{len(operands)} argument{'s' * (len(operands) != 1)} by position"
    problem = f"{op}: it takes {count}, {listed}, and got {len(operands) + len(extra)}"
    if hasattr(extra[0], "shape") and "out" in keywords:
        return f"{problem}; write {op}({listed}, out=…)"
    if not own:
        return problem
    value = repr(extra[0]) if isinstance(extra[0], (int, float, str)) else "…"
    return f"{problem}; write {op}({listed}, {own[0]}={value})"


def keyword(op: str, name: str, value: Any, known: Sequence[str], operands: Sequence[str]) -> str:
    """The message for a keyword that an op does not have; known: those that it has, operands: what it computes from."""
    found = f"{op}: there is no keyword {name!r}"
    ours = KEYWORDS.get(name, "")
    if ours in known:
        shown = value if isinstance(value, (int, tuple, str)) else "…"
        return f"{found}; its name here is {ours}: {op}({', '.join(operands)}, {ours}={shown!r})"
    if name in ("ddof", "correction", "unbiased") and op in ("stddev", "variance", "covariance"):
        factor = "sqrt(n / (n - 1))" if op == "stddev" else "n / (n - 1)"
        return f"{found}; it divides by n: multiply the result by {factor} for a sample's"
    if (remark := REMARKS.get(ours or name)) is not None:
        return f"{found}; {remark}"
    return f"{found}{suggestion(name, known) or '; keywords are ' + (', '.join(known) or 'none')}"


def attribute(kind: str, name: str, array: type, known: Iterable[str]) -> str:
    """The message for an attribute that a Vector or a Matrix lacks; array: NumPy's class of arrays."""
    problem = f"{kind} has no attribute {name!r}"
    if name.startswith("_"):
        return problem
    if name in OTHERS:
        return f"{problem}; {OTHERS[name]}"
    if hasattr(array, name):
        return f"{problem}; NumPy's arrays have it: .numpy().{name}"
    return f"{problem}{suggestion(name, known)}"
