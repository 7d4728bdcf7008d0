"""Sentences for users who write what NumPy or PyTorch would take: each names our op, parameter or method."""

from collections.abc import Iterable, Sequence
from typing import Any

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
}
"""Our names of keywords that other libraries call otherwise."""
REMARKS = {
    "dtype": "the result has the dtype of the operands; convert them first, or the result with .astype",
    "where": "select elements first, or reduce .numpy() with NumPy",
    "initial": "combine the result with it afterwards",
}
"""What to do instead of keywords that no op has."""
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
    return f"{op}: {name}[{symbol}] is {size}, but {other}[{symbol}] is {wanted}"


def keyword(op: str, name: str, value: Any, known: Sequence[str]) -> str:
    """The message for a keyword that an op does not have; known: those that it has."""
    found = f"{op}: there is no keyword {name!r}"
    ours = KEYWORDS.get(name, "")
    if ours in known:
        shown = value if isinstance(value, (int, tuple)) else "…"
        return f"{found}; its name here is {ours}: {op}(x, {ours}={shown!r})"
    if name in ("ddof", "correction", "unbiased") and op in ("stddev", "variance", "covariance"):
        factor = "sqrt(n / (n - 1))" if op == "stddev" else "n / (n - 1)"
        return f"{found}; it divides by n: multiply the result by {factor} for a sample's"
    if name in REMARKS:
        return f"{found}; {REMARKS[name]}"
    return f"{found}{suggestion(name, known) or '; keywords are ' + ', '.join(known)}"


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
