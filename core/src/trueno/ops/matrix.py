"""Matrix ops: structured, so each body is NumPy code and defines the meaning; backends have hand-written kernels.

A body computes in the dtype of its operands: in float64 or longdouble it judges float32 kernels.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from trueno.errors import ParameterError, ShapeError
from trueno.ops.op import op

Array = npt.NDArray[Any]
Shape = tuple[int, ...]


@op("a[m,k] b[k,n] -> c[m,n]", structured=True, flops="2*m*n*k", chain="k")
def matmul(a, b):
    """c[i,j] = Σₖ a[i,k] · b[k,j].

    Shapes: exactly two matrices; for stacks of them batched_matmul.
    Edges: k = 0 gives zeros; NaN and Inf as IEEE 754 (0 · NaN is NaN).
    """
    return np.matmul(a, b)


@op("a[m,k] x[k] -> y[m]", structured=True, flops="2*m*k", chain="k")
def matvec(a, x):
    """y[i] = Σₖ a[i,k] · x[k].

    Shapes: one matrix, one vector.
    Edges: k = 0 gives zeros; NaN and Inf as IEEE 754.
    """
    return np.matmul(a, x)


@op("x[k] a[k,n] -> y[n]", structured=True, flops="2*k*n", chain="k")
def vecmat(x, a):
    """y[j] = Σₖ x[k] · a[k,j].

    Shapes: one vector, one matrix.
    Edges: k = 0 gives zeros; NaN and Inf as IEEE 754.
    """
    return np.matmul(x, a)


@op("a[...,m,k] b[...,k,n] -> c[...,m,n]", structured=True, flops="2*rows*m*n*k", chain="k")
def batched_matmul(a, b):
    """c[…,i,j] = Σₖ a[…,i,k] · b[…,k,j].

    Shapes: stacks of matrices, [batch, heads, m, k] for example; leading axes broadcast.
    Edges: k = 0 gives zeros; NaN and Inf as IEEE 754.
    """
    return np.matmul(a, b)


@op("x[m,n] -> y[n,m]", structured=True, flops="0")
def transpose(x):
    """y[j,i] = x[i,j], written out row by row.

    Shapes: one matrix.
    Edges: bits are copied.
    """
    return np.ascontiguousarray(x.T)


@op("x[m] y[n] -> z[m,n]", structured=True, flops="m*n")
def outer(x, y):
    """z[i,j] = x[i] · y[j].

    Shapes: two vectors.
    Edges: NaN and Inf as IEEE 754.
    """
    return np.multiply.outer(x, y)


def _convolved(x: Shape, kernel: Shape, *, mode: str = "valid") -> tuple[Shape, ...]:
    """Result shape of convolve2d."""
    if (len(x), len(kernel)) not in ((2, 2), (3, 4)):
        raise ShapeError(
            f"convolve2d: x has shape {x} and kernel {kernel}; "
            "give x[h,w] with kernel[p,q], or x[c,h,w] with kernel[o,c,p,q]"
        )
    if len(x) == 3 and kernel[1] != x[0]:
        raise ShapeError(f"convolve2d: kernel[c] is {kernel[1]}, but x[c] is {x[0]}")
    for symbol, size, other, extent in zip("pq", kernel[-2:], "hw", x[-2:], strict=True):
        if size == 0:
            raise ShapeError(f"convolve2d: kernel[{symbol}] is 0; a kernel has at least one row and one column")
        if mode == "valid" and size > extent:
            raise ShapeError(
                f"convolve2d: kernel[{symbol}] is {size}, but x[{other}] is {extent}; "
                'it must fit into x, or pass mode="same"'
            )
    (h, w), (p, q) = x[-2:], kernel[-2:]
    return ((*kernel[:-3], h, w) if mode == "same" else (*kernel[:-3], h - p + 1, w - q + 1),)


@op(
    "x[...,h,w] kernel[...,p,q] -> y[...,i,j]",
    structured=True,
    flops="2*rows*h*w*p*q",
    chain="rows*p*q",
    choices={"mode": ("valid", "same")},
    shapes=_convolved,
)
def convolve2d(x, kernel, *, mode: str = "valid"):
    """y[o,i,j] = Σ_c Σ_p Σ_q x[c, i+p, j+q] · kernel[o,c,p,q].

    The kernel is not flipped, as in neural networks and in torch.nn.functional.conv2d;
    scipy.signal.convolve2d flips it (there kernel[::-1, ::-1] gives our result).
    mode="valid" keeps where the kernel lies inside x; mode="same" takes x as 0 outside and the kernel's
    element [(p−1)//2, (q−1)//2] as its centre, so that y is as large as x.
    Shapes: x[h,w] kernel[p,q] → y[i,j], or x[c,h,w] kernel[o,c,p,q] → y[o,i,j];
    i, j = h−p+1, w−q+1 if valid, h, w if same.
    Edges: c = 0 gives zeros; a kernel larger than x is a ShapeError if valid, an empty one always.
    """
    h, w = x.shape[-2:]
    p, q = kernel.shape[-2:]
    if mode == "same":
        x = np.pad(x, [(0, 0)] * (x.ndim - 2) + [((s - 1) // 2, s // 2) for s in (p, q)])
    else:
        h, w = h - p + 1, w - q + 1
    y = np.zeros((*kernel.shape[:-3], h, w), x.dtype)
    for i in range(p):
        for j in range(q):
            window = x[..., i : i + h, j : j + w]
            tap = kernel[..., i, j]
            y += tap * window if x.ndim == 2 else np.tensordot(tap, window, 1)
    return y


def _indexed(table: Array, i: Array) -> None:
    """Raise ParameterError naming the first index that is outside the table."""
    if i.size and (i.min() < 0 or i.max() >= len(table)):
        bad = (i < 0) | (i >= len(table))
        at = tuple(map(int, np.unravel_index(np.argmax(bad), i.shape)))
        where = f"i[{', '.join(map(str, at))}]" if at else "i"
        rows = f"0 to {len(table) - 1}" if len(table) else "none, as table is empty"
        raise ParameterError(f"embedding_lookup: {where} is {i[at]}; rows of table are {rows}")


@op("table[v,d] i[...]:index -> y[...,d]", structured=True, flops="0", check=_indexed)
def embedding_lookup(table, i):
    """y[…,:] = table[i[…],:].

    Shapes: one table of v rows; indices of any shape and integer type.
    Edges: bits are copied; an index below 0 or from v on is a ParameterError that names it.
    """
    _indexed(table, i)
    return np.take(table, i.astype(np.intp, copy=False), axis=0)


def _symmetric(a: Array) -> None:
    """Raise ParameterError naming the largest asymmetry, or an entry that is not finite."""
    if not a.size or a.ndim != 2 or a.shape[0] != a.shape[1]:  # the signature refuses other shapes
        return
    finite = np.isfinite(a)
    if not finite.all():
        r, c = np.unravel_index(np.argmin(finite), a.shape)
        raise ParameterError(f"symmetric_eigen: a[{r}, {c}] is {a[r, c]}; every entry must be finite")
    with np.errstate(over="ignore"):
        gap = np.abs(a - a.T)
    r, c = np.unravel_index(np.argmax(gap), a.shape)
    if gap[r, c] > max(len(a), 16) * np.finfo(a.dtype).eps * np.abs(a).max():
        raise ParameterError(
            f"symmetric_eigen: a is not symmetric: a[{r}, {c}] is {a[r, c]}, but a[{c}, {r}] is {a[c, r]} "
            f"(largest asymmetry {gap[r, c]}); pass (a + a.T) / 2 if that is meant"
        )


@op("a[n,n] -> values[n] vectors[n,n]", structured=True, flops="9*n*n*n", chain="n", check=_symmetric)
def symmetric_eigen(a):
    """a · vectors[:,j] = values[j] · vectors[:,j], values descending, vectors orthonormal.

    The sign of each vector is free; here its largest component is positive.
    Shapes: one square matrix; column j of vectors belongs to values[j].
    Edges: asymmetry beyond rounding (max(n, 16) · eps · max |a|) and NaN or Inf are ParameterErrors; only the
    lower triangle is read.  Equal values: any orthonormal basis of their space.
    Source: LAPACK's syevd through numpy.linalg.eigh.
    """
    _symmetric(a)
    values, vectors = np.linalg.eigh(a)
    largest = np.take_along_axis(vectors, np.argmax(np.abs(vectors), axis=0)[None, :], axis=0) if a.size else 1.0
    return values[::-1].copy(), np.ascontiguousarray((vectors * np.where(largest < 0, -1, 1).astype(a.dtype))[:, ::-1])
