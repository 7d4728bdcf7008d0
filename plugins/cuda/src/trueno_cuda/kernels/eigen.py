# mypy: disable-error-code="valid-type"
"""symmetric_eigen: Jacobi's rotations, in blocks of rows and columns.

The matrix is cut into blocks of M/2 rows.  In a step every block is in one pair, and the pairs are worked on at once: a
block of threads has the M x M part of a matrix where its pair's rows and columns meet, in shared memory, and rotates
all pairs of its indices away in M - 1 rounds of M/2 rotations (`jacobi`).  Then the product of these rotations is
applied to the other rows and columns of the pair, and to the vectors, by matrix products of M x M tiles.  A
sweep is as many steps as bring every block together with every other one; each sweep squares what is left off the
diagonal, in the end.

The number of sweeps is not known on the host: so many are launched as any matrix needs, each notes in a word whether it
had anything to do, and the kernels after one that had nothing return at once.  Where the last one still had, the
results are NaN.  A matrix of up to 32 rows is one pair, whose rotations are all in one launch.

Floor: 6 n³ multiplications and additions a sweep.  Sources: Golub and Van Loan, Matrix Computations, 8.5
(parallel ordering, block Jacobi); Rutishauser (1966) for the rotation.
"""

from functools import lru_cache
from typing import Any

import numpy as np
from trueno.backend import Call, Kernel

from trueno_cuda.catalogue.entry import GUARDED, ITEMSIZE, CatalogueEntry, Constant, Result, Trial, Want, compare
from trueno_cuda.device.protocol import Device, Launch
from trueno_cuda.kernels.calls import checked
from trueno_cuda.kernels.jacobi import SIDES, source
from trueno_cuda.kernels.operands import REACH, SHAPES, Shape, element, prepared
from trueno_cuda.kernels.table import KERNELS, RATES
from trueno_cuda.ptx import Kernel as Built
from trueno_cuda.ptx import f32, f64

SWEEPS = {f32: 16, f64: 20}
"""Sweeps that are launched, twice as many as random matrices need."""
ALONE = 30
"""Sweeps of a matrix that is one pair."""


class Plan:
    """All launches for matrices of one size."""

    def __init__(self, device: Device, n: int, itemsize: int, guarded: bool) -> None:
        kind = element(itemsize)
        self.M = M = next((side for side in SIDES if n <= side), SIDES[-1])
        self.side = -(-n // M) * M
        blocks, pairs = 2 * self.side // M, self.side // M
        self.alone = pairs == 1
        self.sweeps = 2 if self.alone else SWEEPS[kind]
        self.pairs = pairs

        def launch(what: str, constants: dict[str, Any], grid: int, *numbers: int) -> Launch:
            return prepared(device, source(what, itemsize, guarded), constants, grid, numbers)

        inner = ALONE if self.alone else 1
        self.start = launch("start", {}, 1, self.sweeps + 1)
        self.begin = launch("begin", {}, self.side, n, self.side)
        self.steps = [
            (
                launch("solve", {"M": M, "SWEEPS": inner}, pairs, step, blocks),
                launch("apply", {"M": M}, 2 * pairs * pairs, step, blocks),
            )
            for step in range(blocks - 1)
        ]
        self.end = launch("end", {}, n, n, self.side, self.sweeps)


@KERNELS.add("symmetric_eigen", rates=RATES)
def symmetric_eigen(device: Device, call: Call) -> Kernel:
    """a[n,n] -> values[n], vectors[n,n]; NaN where it does not converge, as for NaN and Inf in a."""
    dtype, guarded = call.dtype, call.guarded

    def plan(a: Shape, values: Shape, vectors: Shape) -> Plan | None:
        if len(a) != 2 or a[0] != a[1] or values != a[:1] or vectors != a or a[0] >= REACH:
            return None
        return Plan(device, a[0], dtype.itemsize, guarded)

    plans = lru_cache(SHAPES)(plan)

    def kernel(a: Any, values: Any, vectors: Any) -> int:
        pointers = checked(device, (a,), (values, vectors))
        if pointers is None or a.shape == (0, 0):
            return -1 if pointers is None or values.shape != (0,) or vectors.shape != (0, 0) else 0
        planned = plans(a.shape, values.shape, vectors.shape)
        if planned is None:
            return -1
        run(device, planned, pointers, dtype, guarded)
        return 0

    return kernel


def run(device: Device, plan: Plan, pointers: list[int], dtype: np.dtype[Any], guarded: bool) -> None:
    """Launch everything.  pointers: of a, values and vectors."""
    side, M = plan.side, plan.M
    word = np.dtype(np.uint32)
    held = [device.empty(s, dtype) for s in ((side, side), (side, side), (plan.pairs, M, M), (1,))]
    held += [device.empty((plan.pairs,), word), device.empty((plan.sweeps + 1,), word)]
    work, rows, turned, largest, moved, words = (x.data.ptr for x in held)
    plan.start([largest, words])
    plan.begin([pointers[0], work, rows, largest])
    for sweep in range(plan.sweeps):
        here = words + 4 * sweep
        for solve, apply in plan.steps:
            solve([work, turned, largest, moved, here])
            apply([work, rows, turned, moved, here])
    after = [device.status()] if guarded else []
    plan.end([work, rows, pointers[1], pointers[2], largest, words, *after])


# ------------------------------------------------------------------------------------- catalogue


def _build(arch: str, *, itemsize: int, guarded: bool, M: int) -> tuple[Built, ...]:
    constants: dict[str, dict[str, Any]] = {
        "start": {},
        "begin": {},
        "solve": {"M": M, "SWEEPS": 1},
        "apply": {"M": M},
        "end": {},
    }
    return tuple(source(what, itemsize, guarded).build(arch, **given) for what, given in constants.items())


def _trial(rng: np.random.Generator, *, itemsize: int, guarded: bool, M: int) -> Trial:
    """A matrix of known values, which is two pairs of blocks, and not quite as large as they are."""
    n, dtype = 2 * M - 3, np.dtype(f"f{itemsize}")
    values = np.sort(rng.standard_normal(n))[::-1]
    basis = np.linalg.qr(rng.standard_normal((n, n)))[0]
    a = ((basis * values) @ basis.T).astype(dtype)
    bound = 8 * n * float(np.finfo(dtype).eps) * float(np.linalg.norm(values))

    def call(device: Device) -> list[Result]:
        outs = [device.empty((n,), dtype), device.empty((n, n), dtype)]
        given = device.to_device(a)
        plan = Plan(device, n, itemsize, guarded)
        run(device, plan, [x.data.ptr for x in (given, *outs)], dtype, guarded)
        got, vectors = (device.to_host(x) for x in outs)
        wide = vectors.astype(np.float64)
        residual = a.astype(np.float64) @ wide - wide * got
        return [
            compare("values", got, Want(values, bound)),
            compare("vectors", residual, Want(np.zeros((n, n)), bound)),
            compare("vectors", wide.T @ wide, Want(np.eye(n), 8 * n * float(np.finfo(dtype).eps))),
        ]

    return Trial(call)


CATALOGUE = [
    CatalogueEntry(
        "symmetric_eigen",
        "matrix",
        "eigenvalues and eigenvectors of a symmetric matrix, by Jacobi's rotations in blocks",
        _build,
        _trial,
        (ITEMSIZE, GUARDED, Constant("M", 16, "rows of two blocks", SIDES)),
        variants=({}, {"itemsize": 8, "guarded": True}),
    )
]
