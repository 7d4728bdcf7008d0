"""Kernels in Triton.  `emit` compiles them for sm_80 and sm_90, without a GPU."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from . import Kernel


class Build(NamedTuple):
    """types: of the arguments that are no constants.  even: arguments that 16 divides, pointers besides."""

    types: str
    constants: dict[str, Any]
    grid: str
    args: str
    warps: int = 4
    stages: int = 3
    even: tuple[str, ...] = ()


BUILDS: dict[Any, list[Build]] = {}


def build(types: str, grid: str, args: str, warps: int = 4, stages: int = 3, even: str = "", **constants: Any) -> Any:
    def register(kernel: Any) -> Any:
        BUILDS.setdefault(kernel, []).append(Build(types, constants, grid, args, warps, stages, tuple(even.split())))
        return kernel

    return register


# ---- one element, one row ----------------------------------------------------------------------


@build("*fp32 *fp32 *fp32 i32", "3", "f32[1500] f32[1500] zeros:f32[1500] 1500", BLOCK=512)
@build("*fp32 *fp32 *fp32 i32", "2", "f32[2048] f32[2048] zeros:f32[2048] 2048", even="n", BLOCK=1024)
@triton.jit
def weighted_sum(x, y, z, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    a = tl.load(x + at, mask=inside)
    b = tl.load(y + at, mask=inside)
    tl.store(z + at, 3 * a + b, mask=inside)


@build("*fp32 *fp32 i32", "3", "f32[300] zeros:f32[300] 100", BLOCK=128)
@build("*fp32 *fp32 i32", "3", "f32[2400] zeros:f32[2400] 800", warps=8, BLOCK=1024)
@triton.jit
def softmax_rows(x, y, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    values = tl.load(x + row * columns + at, mask=at < columns, other=-float("inf"))
    weights = tl.exp(values - tl.max(values, 0))
    tl.store(y + row * columns + at, weights / tl.sum(weights, 0), mask=at < columns)


@build("*fp32 *fp32 *fp32 *fp32 i32", "3", "f32[900] f32[300] f32[300] zeros:f32[900] 300", BLOCK=128)
@triton.jit
def layer_norm(x, scale, shift, y, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0) * columns
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        total += tl.load(x + row + at, mask=at < columns, other=0.0)
    mean = tl.sum(total, 0) / columns
    squares = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        apart = tl.where(at < columns, tl.load(x + row + at, mask=at < columns, other=0.0) - mean, 0.0)
        squares += apart * apart
    inverse = tl.rsqrt(tl.sum(squares, 0) / columns + 1e-5)
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        value = (tl.load(x + row + at, mask=at < columns, other=0.0) - mean) * inverse
        value = value * tl.load(scale + at, mask=at < columns) + tl.load(shift + at, mask=at < columns)
        tl.store(y + row + at, value, mask=at < columns)


@build("*fp32 *i32 i32", "4", "f32[1000] zeros:u32[4] 250", BLOCK=256)
@triton.jit
def argmax_rows(x, y, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    values = tl.load(x + row * columns + at, mask=at < columns, other=-float("inf"))
    tl.store(y + row, tl.argmax(values, 0))


# ---- reductions, scans, sorts ------------------------------------------------------------------


@build("*fp32 *fp32 i32", "3", "f32[2900] zeros:f32[1] 2900", BLOCK=1024)
@triton.jit
def total(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(y, tl.sum(tl.load(x + at, mask=at < n, other=0.0), 0))


@build("*i32 *i32 i32", "2", "u32[1000] zeros:u32[128] 1000", BLOCK=512)
@triton.jit
def histogram(x, counts, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    bins = tl.load(x + at, mask=at < n, other=0)
    tl.atomic_add(counts + bins, 1, mask=at < n)


@build("*i32 *i32", "2", "u32[512] zeros:u32[256]", BLOCK=256)
@triton.jit
def histogram_tile(x, counts, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    counted = tl.histogram(tl.load(x + at), 128)
    tl.store(counts + tl.program_id(0) * 128 + tl.arange(0, 128), counted)


@build("*fp32 *fp32 i32", "2", "f32[600] zeros:f32[600] 300", BLOCK=512)
@triton.jit
def running_sum(x, y, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0) * columns
    at = tl.arange(0, BLOCK)
    sums = tl.cumsum(tl.load(x + row + at, mask=at < columns, other=0.0), 0)
    tl.store(y + row + at, sums, mask=at < columns)


@triton.jit
def _larger(a, b):
    return tl.maximum(a, b)


@build("*fp32 *fp32", "2", "f32[2048] zeros:f32[2048]", warps=2, ROWS=64, COLUMNS=16)
@triton.jit
def running_max(x, y, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    at = tl.program_id(0) * ROWS * COLUMNS
    at += tl.arange(0, ROWS)[:, None] * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    tl.store(y + at, tl.associative_scan(tl.load(x + at), 0, _larger))


@build("*i32 *i32", "2", "u32[256] zeros:u32[256]", warps=2, BLOCK=128)
@triton.jit
def sorted_rows(x, y, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.sort(tl.load(x + at)))


# ---- indices, random numbers, layouts ----------------------------------------------------------


@build("*i32 *fp32 *fp32 i32", "30", "u32[30] f32[7000] zeros:f32[2100] 70", warps=2, BLOCK=128)
@triton.jit
def gather_rows(indices, table, y, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    source = tl.load(indices + row)
    tl.store(y + row * columns + at, tl.load(table + source * columns + at, mask=at < columns), mask=at < columns)


@build("*fp32 *fp32 i32 i32", "2", "f32[900] zeros:f32[900] 900 7", BLOCK=512)
@triton.jit
def dropout(x, y, n, seed, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    kept = tl.rand(seed, at) > 0.25
    tl.store(y + at, tl.where(kept, tl.load(x + at, mask=inside) / 0.75, 0.0), mask=inside)


@build("*fp32 *fp32 i32 i32", "2,2", "f32[2400] zeros:f32[2400] 40 60", TILE=32)
@triton.jit
def transposed(x, y, rows, columns, TILE: tl.constexpr):
    i = tl.program_id(0) * TILE + tl.arange(0, TILE)
    j = tl.program_id(1) * TILE + tl.arange(0, TILE)
    inside = (i[:, None] < rows) & (j[None, :] < columns)
    tile = tl.load(x + i[:, None] * columns + j[None, :], mask=inside)
    tl.store(y + j[:, None] * rows + i[None, :], tl.trans(tile), mask=tl.trans(inside))


# ---- products ----------------------------------------------------------------------------------


@build("*fp16 *fp16 *fp32 i32 i32 i32", "2,2", "f16[4096] f16[4096] zeros:f32[4096] 64 64 64", even="k",
       M=32, N=32, K=16)  # fmt: skip
@build("*fp16 *fp16 *fp32 i32 i32 i32", "1,1", "f16[4096] f16[4096] zeros:f32[4096] 64 64 64", even="m n k",
       M=64, N=64, K=32, stages=2)  # fmt: skip
@build("*fp32 *fp32 *fp32 i32 i32 i32", "2,2", "f32[2040] f32[2040] zeros:f32[3600] 60 60 34", M=32, N=32, K=16)
@triton.jit
def product(a, b, c, m, n, k, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    i = tl.program_id(0) * M + tl.arange(0, M)
    j = tl.program_id(1) * N + tl.arange(0, N)
    deep = tl.arange(0, K)
    sums = tl.zeros((M, N), tl.float32)
    for start in range(0, k, K):
        left = tl.load(a + i[:, None] * k + (start + deep)[None, :],
                       mask=(i[:, None] < m) & ((start + deep)[None, :] < k), other=0.0)  # fmt: skip
        right = tl.load(b + (start + deep)[:, None] * n + j[None, :],
                        mask=(j[None, :] < n) & ((start + deep)[:, None] < k), other=0.0)  # fmt: skip
        sums = tl.dot(left, right, sums)
    tl.store(c + i[:, None] * n + j[None, :], sums, mask=(i[:, None] < m) & (j[None, :] < n))


@build("*fp16 *fp16 *fp16 *fp32 i32", "2", "f16[1024] f16[2048] f16[2048] zeros:f32[1024] 64", even="n", stages=2,
       ROWS=16, KEYS=32, DEEP=32)  # fmt: skip
@triton.jit
def attention(q, k, v, y, n, ROWS: tl.constexpr, KEYS: tl.constexpr, DEEP: tl.constexpr):
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    deep = tl.arange(0, DEEP)
    queries = tl.load(q + rows[:, None] * DEEP + deep[None, :])
    largest = tl.full((ROWS,), -1e30, tl.float32)
    weight = tl.zeros((ROWS,), tl.float32)
    sums = tl.zeros((ROWS, DEEP), tl.float32)
    for start in range(0, n, KEYS):
        keys = start + tl.arange(0, KEYS)
        scores = tl.dot(queries, tl.trans(tl.load(k + keys[:, None] * DEEP + deep[None, :]))) * 0.001
        now = tl.maximum(largest, tl.max(scores, 1))
        part = tl.exp(scores - now[:, None])
        shrink = tl.exp(largest - now)
        weight = weight * shrink + tl.sum(part, 1)
        values = tl.load(v + keys[:, None] * DEEP + deep[None, :])
        sums = tl.dot(part.to(tl.float16), values, sums * shrink[:, None])
        largest = now
    tl.store(y + rows[:, None] * DEEP + deep[None, :], sums / weight[:, None])


# ---- compilation -------------------------------------------------------------------------------


def version() -> str:
    return f"Triton {triton.__version__}"


def emit() -> Iterator[Kernel]:
    for kernel, builds in BUILDS.items():
        for number, one in enumerate(reversed(builds)):
            for arch in (80, 90):
                names = [name for name in kernel.arg_names if name not in one.constants]
                signature = dict(zip(names, one.types.split(), strict=True))
                even = {(kernel.arg_names.index(name),): [["tt.divisibility", 16]]
                        for name in names if signature[name].startswith("*") or name in one.even}  # fmt: skip
                source = ASTSource(kernel, signature | dict.fromkeys(one.constants, "constexpr"), one.constants, even)
                options = {"num_warps": one.warps, "num_stages": one.stages}
                done = triton.compile(source, target=GPUTarget("cuda", arch, 32), options=options)
                sizes = f"grid {one.grid} block {32 * done.metadata.num_warps} shared {done.metadata.shared}"
                stem = f"{kernel.fn.__name__}{number or ''}-sm_{arch}"
                yield Kernel(stem, done.asm["ptx"], sizes, one.args)
