"""The catalogue's entries of products: every tile of `gemm`, and the products with vectors of `gemv`.

Kernels and launches are those that the host plans for a sample of about one tile that is not full, whose sums are long
enough to go round the ring of stages; `split` has them made in two parts, which a second kernel adds up.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from ml_dtypes import bfloat16
from trueno.errors import KernelError

from trueno_cuda.catalogue.entry import ALL, GUARDED, CatalogueEntry, Constant, Result, Trial, Want, compare
from trueno_cuda.device.emulated import Emulator
from trueno_cuda.device.protocol import Device, Grid, Launch
from trueno_cuda.kernels import gemv
from trueno_cuda.kernels.gemm import naive, wgmma
from trueno_cuda.kernels.gemm.choice import CLUSTERS, TENSOR, TILES, WARPGROUPS, Choice
from trueno_cuda.kernels.gemm.matmul import ELEMENTS, product_launches
from trueno_cuda.kernels.gemm.problem import Problem
from trueno_cuda.kernels.gemm.splits import THREADS
from trueno_cuda.kernels.product import ProductLaunch
from trueno_cuda.kernels.store import Store
from trueno_cuda.ptx import TARGETS, Kernel, Type, bf16, f16, f32

Plan = Callable[[Device], list[ProductLaunch]]
TYPES: dict[str, tuple[Type, Any]] = {"bf16": (bf16, bfloat16), "f16": (f16, np.float16), "tf32": (f32, np.float32)}
"""What tensor cores multiply, and what NumPy calls the array."""
UNITS = {"float32": 2.0**-24, "float64": 2.0**-52}
"""What a sum is off by for each term, of the terms' size; for float64 twice a rounding, as NumPy's sums round too."""
TENSOR_UNIT = 2.0**-23
"""Of tensor cores: their sums are of float32, and may be cut instead of rounded."""
TF32 = 2.0**-11
"""What rounding to tf32 moves an operand by, of its size."""
NARROW = {"bf16": 2.0**-8, "f16": 2.0**-11, "tf32": 0.0}
"""What rounding moves a result by, of its size."""

Array = np.ndarray[Any, Any]


class Planned(Emulator):
    """Keeps kernels whose launches are prepared, of which none is run."""

    def __init__(self, arch: str) -> None:
        super().__init__(arch)
        self.kernels: dict[str, Kernel] = {}

    def prepare(
        self, kernel: Kernel, grid: Grid, numbers: Sequence[int] = (), block: Grid | None = None, shared: int = -1
    ) -> Launch:
        self.kernels[kernel.name] = kernel
        return super().prepare(kernel, grid, numbers, block, shared)


def _built(arch: str, plan: Plan) -> tuple[Kernel, ...]:
    device = Planned(arch)
    plan(device)
    return tuple(device.kernels.values())


def _sampled(
    plan: Plan, rng: np.random.Generator, a_shape: tuple[int, ...], b_shape: tuple[int, ...], dtype: Any, *,
    result: Any = None, turned: bool = False, guarded: bool = False, unit: float = 0.0, operands: float = 0.0,
    rounded: float = 0.0,
) -> Trial:  # fmt: skip
    """A product of normal numbers; for guarded kernels one is Inf, and so is a column of the result, or an element.

    a_shape, b_shape: as NumPy's matmul has them; turned: b lies as its transpose.  unit: of a sum for each term;
    operands: of one operand's rounding; rounded: of the result's.
    """
    a, b = rng.standard_normal(a_shape).astype(dtype), rng.standard_normal(b_shape).astype(dtype)
    if guarded:
        (b if b.ndim > 1 else a)[-1, -1] = np.inf
    x, y = a.astype(np.float64), b.astype(np.float64)
    value, size = x @ y, np.abs(x) @ np.abs(y)
    unit = unit or UNITS[a.dtype.name]
    bound = (2 * operands + operands**2 + (a_shape[-1] + 4) * unit) * size
    if rounded:
        bound += rounded * (np.abs(value) + bound)
    want = Want(value, bound)
    factors = a, np.ascontiguousarray(b.T) if turned else b
    return Trial(lambda device: _tried(device, plan, factors, want, np.dtype(result or dtype), guarded))


def _tried(
    device: Device, plan: Plan, given: tuple[Array, Array], want: Want, result: np.dtype[Any], guarded: bool
) -> list[Result]:
    a, b = map(device.to_device, given)
    out = device.to_device(np.full(want.value.shape, np.nan, result))
    status = (device.status(),) if guarded else ()
    for planned in plan(device):
        x, y, first, _ = planned.offsets
        pointers = a.data.ptr + x * a.dtype.itemsize, b.data.ptr + y * b.dtype.itemsize
        to = out.data.ptr + first * result.itemsize
        if planned.then is None:
            planned.launch((*pointers, to, *status))
        else:
            parts = device.empty((planned.scratch,), result)
            planned.launch((*pointers, parts.data.ptr))
            planned.then((parts.data.ptr, to, *status))
    results = [compare("out", device.to_host(out), want)]
    if guarded:
        results.append(compare("status", np.array([device.take_status()], np.uint32), Want(np.array([2], np.uint32))))
    return results


# ------------------------------------------------------------------------------------- matrices


def _matmul(
    lead: tuple[int, ...], variant: str, dtype: str, aligned: bool, split: bool, guarded: bool
) -> tuple[Problem, Plan]:
    """The sample of a product by fma, and its launches; of stacked ones, b is one matrix for all."""
    element = ELEMENTS[dtype]
    tiles = TILES[element]
    if variant != "naive" and variant not in tiles:
        raise KernelError(f"{dtype} has naive, {', '.join(tiles)}; {variant} is of float32 alone")
    rows, columns, depth = 2 * naive.ROWS, 2 * naive.COLUMNS, 32
    if variant != "naive":
        tile = tiles[variant]
        rows, columns, depth = tile.rows, tile.columns, tile.depth * tile.stages
    m, n, depth = rows - 3, columns - (8 if aligned else 5), depth + 5
    problem = Problem(m, n, depth, lead, tuple(m * depth for _ in lead), tuple(0 for _ in lead))
    choice = Choice(variant, 2 if split else 1)
    return problem, lambda device: product_launches(device, problem, element, Store(guarded), aligned, choice)


def _build_matmul(arch: str, **constants: Any) -> tuple[Kernel, ...]:
    return _built(arch, _matmul((), **constants)[1])


def _build_batched(arch: str, **constants: Any) -> tuple[Kernel, ...]:
    return _built(arch, _matmul((2,), **constants)[1])


def _sample_matmul(rng: np.random.Generator, **constants: Any) -> Trial:
    p, plan = _matmul((), **constants)
    return _sampled(plan, rng, (p.m, p.depth), (p.depth, p.n), constants["dtype"], guarded=constants["guarded"])


def _sample_batched(rng: np.random.Generator, **constants: Any) -> Trial:
    p, plan = _matmul((2,), **constants)
    a, b = (*p.lead, p.m, p.depth), (p.depth, p.n)
    return _sampled(plan, rng, a, b, constants["dtype"], guarded=constants["guarded"])


def _mma(
    variant: str, element: str, turned: bool, aligned: bool, guarded: bool, blocks: int = 1
) -> tuple[Problem, Plan]:
    kind, _ = TYPES[element]
    tile = TENSOR[variant]
    depth = (tile.stages + 1) * tile.bytes // kind.bytes - 8
    problem = Problem(tile.rows - 3, tile.columns - (8 if aligned else 5), depth if aligned else depth - 1)
    store, choice = Store(guarded), Choice(variant, blocks=blocks)

    def plan(device: Device) -> list[ProductLaunch]:
        return product_launches(device, problem, kind, store, aligned, choice, result=f32, turned=turned)

    return problem, plan


def _build_mma(arch: str, **constants: Any) -> tuple[Kernel, ...]:
    return _built(arch, _mma(**constants)[1])


def _wgmma(
    variant: str, element: str, result: str, turned: bool, guarded: bool, blocks: int = 1
) -> tuple[Problem, Plan]:
    """More tiles than the emulator has blocks at once, of which the last ones are masked."""
    kind, _ = TYPES[element]
    tile, store = WARPGROUPS[variant], Store(guarded)
    problem = Problem(tile.rows + 5, 2 * tile.columns + 8, tile.stages * wgmma.SLICE // kind.bytes + 8)
    narrow, choice = kind if result == "narrow" else f32, Choice(variant, blocks=blocks)

    def plan(device: Device) -> list[ProductLaunch]:
        return product_launches(device, problem, kind, store, True, choice, result=narrow, turned=turned)

    return problem, plan


def _build_wgmma(arch: str, **constants: Any) -> tuple[Kernel, ...]:
    return _built(arch, _wgmma(**constants)[1])


def _sample_tensor(
    rng: np.random.Generator, case: tuple[Problem, Plan], *, element: str, turned: bool, guarded: bool,
    result: str = "float32",
) -> Trial:  # fmt: skip
    """Of float32, `tf32`, the operands are rounded first; sums are float32, and so is the result, or `narrow`."""
    problem, plan = case
    dtype = TYPES[element][1]
    return _sampled(
        plan, rng, (problem.m, problem.depth), (problem.depth, problem.n), dtype, turned=turned, guarded=guarded,
        result=dtype if result == "narrow" else np.float32, rounded=NARROW[element] if result == "narrow" else 0.0,
        unit=TENSOR_UNIT, operands=TF32 if element == "tf32" else 0.0,
    )  # fmt: skip


def _sample_mma(rng: np.random.Generator, **constants: Any) -> Trial:
    return _sample_tensor(rng, _mma(**constants), **{n: constants[n] for n in ("element", "turned", "guarded")})


def _sample_wgmma(rng: np.random.Generator, **constants: Any) -> Trial:
    options = {n: constants[n] for n in ("element", "result", "turned", "guarded")}
    return _sample_tensor(rng, _wgmma(**constants), **options)


# ------------------------------------------------------------------------------------- vectors


def _matvec(lanes: int, dtype: str, aligned: bool, split: bool, guarded: bool) -> tuple[int, int, Plan]:
    """Rows and columns of a matrix, and the launches: whole turns of a team, and one that is masked."""
    element = ELEMENTS[dtype]
    width = 16 // element.bytes if aligned else 1
    m, depth = THREADS // lanes + 4, lanes * width * (gemv.AHEAD + 1) + 4 + (not aligned)
    splits, store = 2 if split else 1, Store(guarded)
    return m, depth, lambda device: gemv.row_launches(
        device, element, m, depth, store, aligned, team=lanes, splits=splits
    )  # fmt: skip


def _build_matvec(arch: str, **constants: Any) -> tuple[Kernel, ...]:
    return _built(arch, _matvec(**constants)[2])


def _sample_matvec(rng: np.random.Generator, **constants: Any) -> Trial:
    m, depth, plan = _matvec(**constants)
    return _sampled(plan, rng, (m, depth), (depth,), constants["dtype"], guarded=constants["guarded"])


def _vecmat(vectors: int, dtype: str, aligned: bool, split: bool, guarded: bool) -> tuple[int, int, Plan]:
    """Rows and columns of a matrix, and the launches: two blocks across, and a turn of warps that is masked."""
    element = ELEMENTS[dtype]
    width = 16 // element.bytes if aligned else 1
    depth, m = 2 * gemv.WARPS * gemv.AHEAD + 5, 32 * width + (8 if aligned else 5)
    splits, store = 2 if split else 1, Store(guarded)
    return depth, m, lambda device: gemv.column_launches(
        device, element, vectors, m, depth, store, aligned, splits=splits
    )  # fmt: skip


def _build_vecmat(arch: str, **constants: Any) -> tuple[Kernel, ...]:
    return _built(arch, _vecmat(**constants)[2])


def _sample_vecmat(rng: np.random.Generator, **constants: Any) -> Trial:
    depth, m, plan = _vecmat(**constants)
    x = (constants["vectors"], depth)
    return _sampled(plan, rng, x, (depth, m), constants["dtype"], guarded=constants["guarded"])


# ------------------------------------------------------------------------------------- entries

DTYPE = Constant("dtype", "float32", "of operands and result", ("float32", "float64"))
ALIGNED = Constant("aligned", True, "rows are multiples of 16 bytes and begin at such", (True, False))
SPLIT = Constant("split", False, "parts of a sum in several blocks, which a second kernel adds up", (False, True))
TURNED = Constant("turned", False, "b lies as [n, k]", (False, True))
TENSOR_ELEMENT = Constant("element", "bf16", "of A and B; tf32: float32, rounded", tuple(TYPES))
NARROWED = Constant("result", "narrow", "C is of A's type, or float32", ("narrow", "float32"))
SHARED = Constant("blocks", 2, "of a cluster", tuple(blocks for blocks in CLUSTERS if blocks > 1))
TILE = Constant("variant", "small", "a sum a thread, or tiles in shared memory; float64: naive, small, large",
                ("naive", *TILES[f32]))  # fmt: skip
AMPERE = tuple(arch for arch in ALL if arch != "sm_75")
"""Those that have cp.async, as tiles in shared memory want it."""

CATALOGUE = [
    CatalogueEntry(
        "matmul", "matrix", "C = A B by fma", _build_matmul, _sample_matmul,
        (TILE, DTYPE, ALIGNED, SPLIT, GUARDED),
        AMPERE,
        (
            {}, {"variant": "naive"}, {"variant": "middle"}, {"variant": "large"}, {"variant": "wide"},
            {"variant": "naive", "dtype": "float64", "guarded": True}, {"dtype": "float64", "split": True},
            {"variant": "large", "dtype": "float64"}, {"aligned": False, "guarded": True},
            {"aligned": False, "split": True, "guarded": True},
        ),
    ),
    CatalogueEntry(
        "batched_matmul", "matrix", "C = A B along leading axes, by the kernels of matmul",
        _build_batched, _sample_batched,
        (TILE, DTYPE, ALIGNED, SPLIT, GUARDED),
        AMPERE,
        ({}, {"variant": "naive", "split": True}),
    ),
    CatalogueEntry(
        "matmul_mma", "matrix", "C = A B by tensor cores, sums and C in float32", _build_mma, _sample_mma,
        (Constant("variant", "mma", "the tile", tuple(TENSOR)), TENSOR_ELEMENT, TURNED, ALIGNED, GUARDED),
        AMPERE,
        (
            {}, {"variant": "mma_small", "turned": True, "aligned": False}, {"variant": "mma_thin", "element": "f16"},
            {"variant": "mma_wide", "turned": True, "guarded": True}, {"variant": "mma_deep", "element": "tf32"},
            {"variant": "mma_small", "element": "tf32", "turned": True}, {"turned": True},
            {"variant": "mma_small", "element": "f16"}, {"variant": "mma_row"},
        ),
    ),
    CatalogueEntry(
        "matmul_mma_cluster", "matrix",
        "C = A B by tensor cores, the terms of a tile shared by the blocks of a cluster",
        _build_mma, _sample_mma,
        (
            Constant("variant", "mma_row", "the tile", ("mma_row", "mma_small")),
            TENSOR_ELEMENT, TURNED, ALIGNED, SHARED, GUARDED,
        ),
        tuple(arch for arch, target in TARGETS.items() if target.clusters),
        (
            {}, {"blocks": 8, "turned": True, "aligned": False}, {"variant": "mma_small", "element": "f16"},
            {"variant": "mma_small", "element": "tf32", "blocks": 4, "guarded": True},
        ),
    ),
    CatalogueEntry(
        "matmul_wgmma", "matrix", "C = A B by tensor cores of Hopper, fed by tensor maps, sums in float32",
        _build_wgmma, _sample_wgmma,
        (
            Constant("variant", "wgmma_wide", "the tile, of 128 rows or 64, and 64 to 256 columns",
                     tuple(WARPGROUPS)),
            TENSOR_ELEMENT, NARROWED, TURNED, GUARDED,
        ),
        ("sm_90a",),
        ({}, {"turned": True, "element": "f16", "guarded": True}, {"variant": "wgmma_middle", "result": "float32"},
         {"variant": "wgmma", "turned": True}, {"element": "tf32"}, {"variant": "wgmma_small"},
         {"variant": "wgmma_flat", "turned": True}, {"variant": "wgmma_tall", "element": "f16"}),
    ),
    CatalogueEntry(
        "matmul_wgmma_cluster", "matrix",
        "C = A B by tensor cores of Hopper, the terms of a tile shared by the blocks of a cluster",
        _build_wgmma, _sample_wgmma,
        (
            Constant("variant", "wgmma_small", "the tile",
                     tuple(name for name, tile in WARPGROUPS.items() if wgmma.shares(tile, 2))),
            TENSOR_ELEMENT, NARROWED, TURNED, SHARED, GUARDED,
        ),
        ("sm_90a",),
        ({}, {"variant": "wgmma_flat", "blocks": 8, "element": "f16", "guarded": True},
         {"variant": "wgmma", "turned": True, "blocks": 4, "result": "float32"},
         {"variant": "wgmma_tall", "element": "tf32"}),
    ),
    CatalogueEntry(
        "matvec", "matrix", "y = A x, a warp or a block a row", _build_matvec, _sample_matvec,
        (Constant("lanes", 32, "threads that sum a row", (32, THREADS)), DTYPE, ALIGNED, SPLIT, GUARDED),
        variants=(
            {}, {"lanes": THREADS}, {"dtype": "float64", "split": True}, {"lanes": THREADS, "split": True},
            {"aligned": False, "guarded": True}, {"lanes": THREADS, "dtype": "float64", "aligned": False},
        ),
    ),
    CatalogueEntry(
        "vecmat", "matrix", "y = x A of one vector, or of up to four at once", _build_vecmat, _sample_vecmat,
        (
            Constant("vectors", 1, "x that read A once", tuple(range(1, gemv.MOST_VECTORS + 1))),
            DTYPE, ALIGNED, SPLIT, GUARDED,
        ),
        variants=(
            {}, {"vectors": 4}, {"vectors": 2, "split": True}, {"vectors": 3, "dtype": "float64", "guarded": True},
            {"dtype": "float64", "split": True}, {"aligned": False, "guarded": True},
        ),
    ),
]  # fmt: skip
