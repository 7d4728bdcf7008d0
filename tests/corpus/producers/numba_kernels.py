"""Kernels in Numba for CUDA.  `emit` compiles them for sm_80, without a GPU."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numba_cuda
from numba import cuda, types

from . import Kernel

F1, F2 = types.float32[::1], types.float32[:, ::1]
I1 = types.int32[::1]
ARCH = (8, 0)


class Build(NamedTuple):
    """args: an array is one word here, as `f32[20x30]`; Numba passes it as pointers, sizes and strides."""

    kernel: Callable[..., None]
    types: tuple[Any, ...]
    grid: str
    block: str
    args: str


BUILDS: list[Build] = []


def build(kinds: tuple[Any, ...], grid: str, block: str, args: str) -> Callable[[Any], Any]:
    def register(kernel: Any) -> Any:
        BUILDS.append(Build(kernel, kinds, grid, block, args))
        return kernel

    return register


def passed(word: str) -> str:
    """An argument as the kernel takes it: object, owner, elements, bytes of one, data, shape, strides."""
    fill, _, kind = word.rpartition(":")
    name, bracket, inner = kind.rstrip("]").partition("[")
    if not bracket:
        return word
    shape = [int(size) for size in inner.split("x")]
    size = int(name[1:]) // 8
    strides = [size]
    for length in reversed(shape[1:]):
        strides.insert(0, strides[0] * length)
    total = strides[0] * shape[0] // size
    words = [0, 0, total, size, f"{fill}{':' if fill else ''}{name}[{total}]", *shape, *strides]
    return " ".join(map(str, words))


# ---- one element, one row ----------------------------------------------------------------------


@build((F1, F1, F1), "3", "128", "f32[300] f32[300] zeros:f32[300]")
def weighted_sum(x, y, z):
    at = cuda.grid(1)
    if at < x.size:
        z[at] = 3 * x[at] + y[at]


@build((F1, F1), "2", "64", "f32[500] zeros:f32[500]")
def strided_loop(x, y):
    for at in range(cuda.grid(1), x.size, cuda.gridsize(1)):
        y[at] = 2 * x[at] + 1


@build((F2, F2), "3,2", "16,16", "f32[20x45] zeros:f32[20x45]")
def smoothed(x, y):
    j, i = cuda.grid(2)
    if 0 < i < x.shape[0] - 1 and 0 < j < x.shape[1] - 1:
        y[i, j] = (x[i - 1, j] + x[i + 1, j] + x[i, j - 1] + x[i, j + 1]) * types.float32(0.25)


@build((F2, F2), "3", "128", "f32[3x300] zeros:f32[3x300]")
def softmax_rows(x, y):
    shared = cuda.shared.array(128, types.float32)
    row, lane = cuda.blockIdx.x, cuda.threadIdx.x
    most = types.float32(-1e30)
    for j in range(lane, x.shape[1], 128):
        most = max(most, x[row, j])
    shared[lane] = most
    cuda.syncthreads()
    half = 64
    while half > 0:
        if lane < half:
            shared[lane] = max(shared[lane], shared[lane + half])
        cuda.syncthreads()
        half //= 2
    most = shared[0]
    cuda.syncthreads()
    weight = types.float32(0)
    for j in range(lane, x.shape[1], 128):
        weight += cuda.libdevice.expf(x[row, j] - most)
    shared[lane] = weight
    cuda.syncthreads()
    half = 64
    while half > 0:
        if lane < half:
            shared[lane] += shared[lane + half]
        cuda.syncthreads()
        half //= 2
    weight = shared[0]
    for j in range(lane, x.shape[1], 128):
        y[row, j] = cuda.libdevice.expf(x[row, j] - most) / weight


@build((F2, F1, F1, F2), "4", "96", "f32[4x200] f32[200] f32[200] zeros:f32[4x200]")
def layer_norm(x, scale, shift, y):
    """Warps reduce by shuffles, and their sums meet in shared memory."""
    sums = cuda.shared.array(3, types.float32)
    squares = cuda.shared.array(3, types.float32)
    row, lane = cuda.blockIdx.x, cuda.threadIdx.x
    total = types.float32(0)
    square = types.float32(0)
    for j in range(lane, x.shape[1], 96):
        value = x[row, j]
        total += value
        square += value * value
    step = 16
    while step > 0:
        total += cuda.shfl_xor_sync(0xFFFFFFFF, total, step)
        square += cuda.shfl_xor_sync(0xFFFFFFFF, square, step)
        step >>= 1
    if lane % 32 == 0:
        sums[lane // 32] = total
        squares[lane // 32] = square
    cuda.syncthreads()
    mean = (sums[0] + sums[1] + sums[2]) / x.shape[1]
    spread = (squares[0] + squares[1] + squares[2]) / x.shape[1] - mean * mean
    inverse = 1 / cuda.libdevice.sqrt(spread + 1e-5)
    for j in range(lane, x.shape[1], 96):
        y[row, j] = (x[row, j] - mean) * inverse * scale[j] + shift[j]


# ---- shared memory -----------------------------------------------------------------------------


@build((F2, F2, F2), "2,3", "16,16", "f32[40x25] f32[25x30] zeros:f32[40x30]")
def product(a, b, c):
    left = cuda.shared.array((16, 16), types.float32)
    right = cuda.shared.array((16, 16), types.float32)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    j, i = cuda.grid(2)
    total = types.float32(0)
    for start in range(0, a.shape[1], 16):
        left[ty, tx] = 0
        right[ty, tx] = 0
        if i < a.shape[0] and start + tx < a.shape[1]:
            left[ty, tx] = a[i, start + tx]
        if j < b.shape[1] and start + ty < b.shape[0]:
            right[ty, tx] = b[start + ty, j]
        cuda.syncthreads()
        for k in range(16):
            total += left[ty, k] * right[k, tx]
        cuda.syncthreads()
    if i < c.shape[0] and j < c.shape[1]:
        c[i, j] = total


@build((F2, F2), "2,2", "32,8", "f32[40x60] zeros:f32[60x40]")
def transposed(x, y):
    tile = cuda.shared.array((32, 33), types.float32)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    j, i = cuda.blockIdx.x * 32 + tx, cuda.blockIdx.y * 32 + ty
    for k in range(0, 32, 8):
        if i + k < x.shape[0] and j < x.shape[1]:
            tile[ty + k, tx] = x[i + k, j]
    cuda.syncthreads()
    j, i = cuda.blockIdx.y * 32 + tx, cuda.blockIdx.x * 32 + ty
    for k in range(0, 32, 8):
        if i + k < y.shape[0] and j < y.shape[1]:
            y[i + k, j] = tile[tx, ty + k]


@build((F1, F1), "2", "256", "f32[500] zeros:f32[2]")
def block_sums(x, y):
    shared = cuda.shared.array(256, types.float32)
    lane, at = cuda.threadIdx.x, cuda.grid(1)
    shared[lane] = x[at] if at < x.size else 0
    cuda.syncthreads()
    step = 1
    while step < cuda.blockDim.x:
        if lane % (2 * step) == 0:
            shared[lane] += shared[lane + step]
        cuda.syncthreads()
        step *= 2
    if lane == 0:
        y[cuda.blockIdx.x] = shared[0]


@build((I1, I1), "2", "128", "u32[900] zeros:u32[100]")
def histogram(x, counts):
    bins = cuda.shared.array(100, types.int32)
    lane = cuda.threadIdx.x
    if lane < 100:
        bins[lane] = 0
    cuda.syncthreads()
    for at in range(cuda.grid(1), x.size, cuda.gridsize(1)):
        cuda.atomic.add(bins, x[at], 1)
    cuda.syncthreads()
    if lane < 100:
        cuda.atomic.add(counts, lane, bins[lane])


@build((I1, I1), "1", "128", "u32[128] zeros:u32[128]")
def running_sum(x, y):
    """Hillis and Steele, between two buffers."""
    shared = cuda.shared.array((2, 128), types.int32)
    lane = cuda.threadIdx.x
    side = 0
    shared[0, lane] = x[lane]
    cuda.syncthreads()
    step = 1
    while step < 128:
        value = shared[side, lane]
        if lane >= step:
            value += shared[side, lane - step]
        shared[1 - side, lane] = value
        side = 1 - side
        cuda.syncthreads()
        step *= 2
    y[lane] = shared[side, lane]


@build((I1, I1), "1", "128", "u32[128] zeros:u32[128]")
def sorted_row(x, y):
    """Bitonic."""
    shared = cuda.shared.array(128, types.int32)
    lane = cuda.threadIdx.x
    shared[lane] = x[lane]
    cuda.syncthreads()
    size = 2
    while size <= 128:
        step = size // 2
        while step > 0:
            other = lane ^ step
            if other > lane:
                a, b = shared[lane], shared[other]
                if (a > b) == ((lane & size) == 0):
                    shared[lane] = b
                    shared[other] = a
            cuda.syncthreads()
            step //= 2
        size *= 2
    y[lane] = shared[lane]


# ---- indices, random numbers, warps ------------------------------------------------------------


@build((I1, F2, F2), "30", "64", "u32[30] f32[100x70] zeros:f32[30x70]")
def gather_rows(indices, table, y):
    row = cuda.blockIdx.x
    for j in range(cuda.threadIdx.x, table.shape[1], cuda.blockDim.x):
        y[row, j] = table[indices[row], j]


@build((F1, F1, types.uint32), "3", "128", "f32[300] zeros:f32[300] 7")
def dropout(x, y, seed):
    at = cuda.grid(1)
    if at < x.size:
        word = types.uint32(at) + seed
        word = (word ^ (word >> types.uint32(16))) * types.uint32(0x7FEB352D)
        word = (word ^ (word >> types.uint32(15))) * types.uint32(0x846CA68B)
        word ^= word >> types.uint32(16)
        y[at] = x[at] * types.float32(2) if word & types.uint32(1) else types.float32(0)


@build((F1, F1, F1), "2", "96", "f32[400] f32[400] zeros:f32[1]")
def dot(x, y, z):
    total = types.float32(0)
    for at in range(cuda.grid(1), x.size, cuda.gridsize(1)):
        total += x[at] * y[at]
    for step in (16, 8, 4, 2, 1):
        total += cuda.shfl_down_sync(0xFFFFFFFF, total, step)
    if cuda.laneid == 0:
        cuda.atomic.add(z, 0, total)


@build((F2, F2, F2, F2), "8", "32", "f32[8x32] f32[20x32] f32[20x32] zeros:f32[8x32]")
def attention(q, k, v, y):
    """A warp per query; a lane per key, then per column."""
    scores = cuda.shared.array(32, types.float32)
    row, lane = cuda.blockIdx.x, cuda.threadIdx.x
    score = types.float32(-1e30)
    if lane < k.shape[0]:
        score = types.float32(0)
        for j in range(q.shape[1]):
            score += q[row, j] * k[lane, j]
        score *= types.float32(0.001)
    most = score
    for step in (16, 8, 4, 2, 1):
        most = max(most, cuda.shfl_xor_sync(0xFFFFFFFF, most, step))
    weight = cuda.libdevice.expf(score - most)
    scores[lane] = weight
    for step in (16, 8, 4, 2, 1):
        weight += cuda.shfl_xor_sync(0xFFFFFFFF, weight, step)
    cuda.syncwarp()
    total = types.float32(0)
    for j in range(k.shape[0]):
        total += scores[j] * v[j, lane]
    y[row, lane] = total / weight


# ---- compilation -------------------------------------------------------------------------------


def version() -> str:
    return f"numba-cuda {numba_cuda.__version__}"


def emit() -> Iterator[Kernel]:
    for one in BUILDS:
        text, _ = cuda.compile_ptx(one.kernel, types.void(*one.types), cc=ARCH, fastmath=False)
        sizes = f"grid {one.grid} block {one.block} shared 0"
        args = " ".join(map(passed, one.args.split()))
        yield Kernel(f"{one.kernel.__name__}-sm_{ARCH[0]}{ARCH[1]}", text, sizes, args)
