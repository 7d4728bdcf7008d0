"""matmul and batched_matmul: launches of the kernel that `choice` picks.

    naive       a sum a thread: products so small that nothing else pays, and those without terms
    simt        tiles of fma (`simt`); `small`, `middle`, `large` and more say which
    mma         tensor cores (`mma`): bf16, f16, and float32 as tf32 where TRUENO_CUDA_TF32 allows it
    wgmma       tensor cores of sm_90a (`wgmma`): bf16 and f16
    cuBLAS      where it is installed and quicker (`blas`)
    one row, one column, a few rows: `trueno_cuda.kernels.gemv`

A grid too small for the GPU is split along k: a second kernel adds the splits up, or the blocks of a cluster do.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import product as combinations
from math import gcd
from typing import Any

from trueno.backend import Call, FusedOp, Reject, settings
from trueno.backend import Kernel as Called
from trueno.errors import KernelError

from trueno_cuda.device.protocol import Device
from trueno_cuda.kernels import gemv
from trueno_cuda.kernels.gemm import mma, simt
from trueno_cuda.kernels.gemm.blas import quickest, worth_trying
from trueno_cuda.kernels.gemm.choice import GRID_Z, TENSOR, TILES, WARPGROUPS, Choice, choose, choose_tensor
from trueno_cuda.kernels.gemm.mapped import mapped_launch, takes
from trueno_cuda.kernels.gemm.naive import COLUMNS, ROWS, naive
from trueno_cuda.kernels.gemm.problem import MOST, Problem, matrices, stacks
from trueno_cuda.kernels.gemm.splits import THREADS, adding
from trueno_cuda.kernels.product import ProductLaunch, Shape, product_kernel
from trueno_cuda.kernels.store import PARTIAL, PLAIN, Store
from trueno_cuda.kernels.table import KERNELS, RATES
from trueno_cuda.ptx import Kernel, Type, bf16, f16, f32, f64


def _products(problem: Problem) -> Iterator[tuple[int, int, tuple[int, int, int], tuple[int, ...]]]:
    """Launches of stacked products: how many, how many along the inner axis, the first's offsets and number, strides.

    A launch knows two leading axes; more are walked here, and so is what one grid cannot hold.
    """
    lead, a_gaps, b_gaps = problem.lead, problem.a_gaps, problem.b_gaps
    if not lead:
        yield 1, 1, (0, 0, 0), (0, 0, 0, 0)
        return
    inner = lead[-1]
    own = 2 if len(lead) > 1 and lead[-2] * inner <= GRID_Z else 1
    outer = lead[-2] if own == 2 else 1
    strides = (a_gaps[-2], a_gaps[-1], b_gaps[-2], b_gaps[-1]) if own == 2 else (0, a_gaps[-1], 0, b_gaps[-1])
    for number, place in enumerate(combinations(*map(range, lead[:-own]))):
        a, b = (sum(i * g for i, g in zip(place, gaps[:-own], strict=True)) for gaps in (a_gaps, b_gaps))
        for first in range(0, inner, GRID_Z):
            count = min(inner - first, GRID_Z)
            at = a + first * a_gaps[-1], b + first * b_gaps[-1], number * outer * inner + first
            yield outer * count, count, at, strides


def product_launches(
    device: Device, problem: Problem, element: Type, store: Store, aligned: bool, choice: Choice | None = None, *,
    result: Type | None = None, turned: bool = False,
) -> list[ProductLaunch]:  # fmt: skip
    """The launches of a product.

    aligned: operands and result begin at multiples of 16 bytes.  result: of what type C is, by default the operands'.
    turned: b is [n, k]; tensor cores alone take that.
    """
    m, n, depth = problem.m, problem.n, problem.depth
    result = result or element
    choice = choice or choose(problem, element, device)
    choice.check(device.arch)
    width = 16 // element.bytes
    vectors = aligned and (n | problem.line) % width == 0 and not any(g % width for g in problem.b_gaps)
    unit, rows, columns = 1, ROWS, COLUMNS
    arch = device.arch
    if choice.name in TENSOR:
        wide = n | problem.line
        wide = width if turned and wide % 2 == 0 else wide  # out is then stored by pairs, and b has no rows of n
        divisor = gcd(width, depth, wide, *problem.a_gaps, *problem.b_gaps) if aligned else 1
        tensor = TENSOR[choice.name]
        unit, rows, columns = tensor.bytes // element.bytes, tensor.rows, tensor.columns
    elif choice.name in WARPGROUPS:
        if arch != "sm_90a" or not aligned or not takes(problem, element, turned) or store.partial:
            raise KernelError(
                f"{choice.name} multiplies bf16, f16 and f32 on sm_90a, in rows of multiples of {width} elements that "
                f"begin at multiples of 16 bytes; this is {element} on {arch}, {m}x{depth} by {depth}x{n}; use mma"
            )
        tile = WARPGROUPS[choice.name]
        return [mapped_launch(device, problem, element, result, tile, turned, store, choice.blocks)]
    elif choice.name != "naive":
        fma = TILES[element][choice.name]
        unit, rows, columns = fma.depth, fma.rows, fma.columns
    share = -(-max(depth, 1) // (choice.splits * choice.blocks))
    share = -(-share // unit) * unit
    splits = -(-max(depth, 1) // share) if choice.blocks == 1 else 1

    def kernel(with_: Store) -> Kernel:
        if choice.name == "naive":
            return naive(arch, element, with_)
        if choice.name in TENSOR:
            return mma.mma(arch, element, result, tensor, turned, divisor, with_, choice.blocks)
        return simt.simt(arch, element, fma, vectors, with_)

    first = kernel(store if splits == 1 else PARTIAL)
    across, down, line = -(-n // columns), -(-m // rows), problem.line if splits == 1 else n
    launches = []
    for count, inner, (a, b, number), strides in _products(problem):
        grid = across * down, max(splits, choice.blocks), count
        launch = device.prepare(first, grid, (m, n, depth, line, share, across, inner, *strides))
        then, scratch = None, 0
        if splits > 1:
            fours = vectors and n % (16 // result.bytes) == 0
            threads = THREADS * (16 // result.bytes if fours else 1)
            second = adding(arch, result, fours, store)
            then = device.prepare(second, (-(-m * n // threads), 1, count), (m, n, splits))
            scratch = count * splits * m * n
        launches.append(ProductLaunch(launch, (a, b, number * m * n, number * m), then, scratch))
    return launches


ELEMENTS = {"float32": f32, "float64": f64, "float16": f16, "bfloat16": bf16}


def tf32() -> bool:
    """Whether float32 may be rounded to tf32, which keeps 11 bits; where no manifest declares that, it may not."""
    declared = settings.all()
    return "TRUENO_CUDA_TF32" in declared and bool(declared["TRUENO_CUDA_TF32"].value)


def launch(
    device: Device, a: Any, b: Any, out: Any, *, variant: str = "", splits: int = 1, blocks: int = 1,
    turned: bool = False,
) -> Callable[[], None]:  # fmt: skip
    """Prepare out = a b, or a bᵀ where `turned`, of matrices of float32, float64, float16 or bfloat16; for benchmarks.

    variant: `naive`, or a name in TILES, TENSOR or WARPGROUPS; by default what ops take, and for 16-bit floats tensor
    cores.  splits, blocks: of its `Choice`.  The result is of the operands' type, or float32 from tensor cores.
    Calling what this returns launches.  ValueError for shapes that do not agree, and for types that the variant has
    not.
    """
    element, result = ELEMENTS[a.dtype.name], ELEMENTS[out.dtype.name]
    problem = matrices(a.shape, b.shape[::-1] if turned else b.shape, out.shape)
    if problem is None or a.dtype != b.dtype:
        raise ValueError(f"gemm.launch: a{a.shape} {a.dtype}, b{b.shape} {b.dtype} and out{out.shape} do not agree")
    aligned = not (a.data.ptr | b.data.ptr | out.data.ptr) & 15
    if not variant and (splits, blocks) != (1, 1):
        raise ValueError(f"gemm.launch: {splits} splits and {blocks} blocks go with a variant; name one")
    if variant:
        choice = Choice(variant, splits, blocks)
    elif element.bits == 16 or (turned and element is f32):
        choice = choose_tensor(problem, element, device, turned, aligned)
    else:
        choice = choose(problem, element, device)
    if choice.name in TENSOR or choice.name in WARPGROUPS:
        fits = element is not f64 and result in (element, f32) and (splits == 1 or result is f32)
    else:
        fits = result is element and (choice.name == "naive" or choice.name in TILES.get(element, {})) and not turned
    if not fits:
        raise ValueError(
            f"gemm.launch: {choice.name} does not give {out.dtype} of {a.dtype}, {splits} splits, {turned=}"
        )
    if not problem.m * problem.n:
        return lambda: None
    (planned,) = product_launches(device, problem, element, PLAIN, aligned, choice, result=result, turned=turned)
    pointers = (a.data.ptr, b.data.ptr, out.data.ptr)

    def run() -> None:
        if planned.then is None:
            planned.launch(pointers)
        else:
            parts = device.empty((planned.scratch,), out.dtype)
            planned.launch((*pointers[:2], parts.data.ptr))
            planned.then((parts.data.ptr, pointers[2]))

    return run


def launches_for(device: Device, problem: Problem, element: Type, store: Store, aligned: bool) -> list[ProductLaunch]:
    """The launches of a product, by the kernel that fits its shape."""
    m, n, depth = problem.m, problem.n, problem.depth
    if element.bits == 16:
        tensor = choose_tensor(problem, element, device, aligned=aligned)
        return product_launches(device, problem, element, store, aligned, tensor)
    if not problem.lead and depth >= 32:
        if n == 1:
            return gemv.row_launches(device, element, m, depth, store, aligned, upright=True)
        if m <= gemv.MOST_VECTORS:
            return gemv.column_launches(device, element, m, n, depth, store, aligned)
    large = m * n * depth > 64**3
    choice = choose_tensor(problem, element, device, aligned=aligned) if element is f32 and large and tf32() else None
    return product_launches(device, problem, element, store, aligned, choice)


def _kernel(device: Device, call: Call, problem_of: Callable[[Shape, Shape, Shape], Problem | None]) -> Called:
    element = ELEMENTS[call.dtype.name]

    def make(store: Store, aligned: bool, a: Shape, b: Shape, out: Shape) -> Sequence[ProductLaunch] | None:
        problem = problem_of(a, b, out)
        if problem is None or max(problem.m, problem.n, problem.depth) >= MOST:
            return None
        if not problem.count * problem.m * problem.n:
            return []
        launches = launches_for(device, problem, element, store, aligned)
        ours = element.bits == 16 or store != PLAIN or problem.lead  # cuBLAS is not asked
        if ours or not worth_trying(device, problem.m, problem.n, problem.depth):
            return launches
        one = (
            launches
            if len(launches) == 1 and launches[0].then is None
            else product_launches(device, problem, element, PLAIN, aligned, Choice("small", 1))
        )
        return quickest(device, (problem.m, problem.n, problem.depth), call.dtype, launches, one[0].launch)

    return product_kernel(device, call, make)


def _refusal(call: Call) -> Reject | None:
    """What 16-bit floats lack."""
    if isinstance(call.op, FusedOp) and ELEMENTS[call.dtype.name].bits == 16:
        return Reject("unsupported_dtype", f"{call.dtype}: an epilogue computes in float32 or float64")
    return None


@KERNELS.add("matmul", rates=RATES, dtypes=tuple(ELEMENTS), refusal=_refusal)
def matmul(device: Device, call: Call) -> Called:
    """a[m,k] b[k,n] -> out[m,n]."""
    return _kernel(device, call, matrices)


@KERNELS.add("batched_matmul", rates=RATES, dtypes=tuple(ELEMENTS), refusal=_refusal)
def batched_matmul(device: Device, call: Call) -> Called:
    """a[...,m,k] b[...,k,n] -> out[...,m,n]; leading axes are broadcast."""
    return _kernel(device, call, stacks)
