"""Which kernel makes a product, and in how many parts it sums along k: by models of what was measured on an H200."""

from dataclasses import dataclass
from functools import partial
from math import sqrt

from trueno.errors import KernelError

from trueno_cuda.device.protocol import Device
from trueno_cuda.kernels.gemm import mma, simt, wgmma
from trueno_cuda.kernels.gemm.mapped import takes
from trueno_cuda.kernels.gemm.problem import Problem
from trueno_cuda.kernels.gemm.simt import Tile
from trueno_cuda.ptx import TARGETS, Type, f32, f64

LARGE = Tile((2, 2), (16, 8))
WIDE = Tile((4, 2), (16, 8), blocks_per_sm=1)
TILES: dict[Type, dict[str, Tile]] = {
    f32: {
        "small": Tile((2, 2), (8, 4), blocks_per_sm=4),
        "middle": Tile((4, 1), (8, 8), blocks_per_sm=3),
        "large": LARGE,
        "wide": WIDE,
    },
    f64: {"small": Tile((2, 2), (8, 4)), "large": Tile((2, 2), (8, 8), blocks_per_sm=1)},
}
TENSOR: dict[str, mma.Tile] = {
    "mma_row": mma.Tile((1, 4), (16, 16), bytes=128, stages=6, blocks_per_sm=3),
    "mma_small": mma.Tile((2, 2), (32, 32), blocks_per_sm=4),
    "mma": mma.Tile((2, 2), (64, 64)),
    "mma_thin": mma.Tile((2, 4), (64, 32)),
    "mma_wide": mma.Tile((2, 4), (64, 64), blocks_per_sm=1),
    "mma_deep": mma.Tile((2, 4), (64, 64), bytes=128, stages=3, blocks_per_sm=1),
}
"""Of tensor cores; the names tell them from the tiles of fma."""
WARPGROUPS: dict[str, wgmma.Tile] = {
    "wgmma_wide": wgmma.Tile(256, 4),
    "wgmma_middle": wgmma.Tile(192, 5),
    "wgmma": wgmma.Tile(128, 6),
    "wgmma_tall": wgmma.Tile(64, 8),
    "wgmma_flat": wgmma.Tile(128, 8, consumers=1),
    "wgmma_small": wgmma.Tile(64, 6, consumers=1),
}
"""Of sm_90a."""
SLICE = {"wgmma_wide": 0.69, "wgmma_middle": 0.53, "wgmma": 0.395, "wgmma_tall": 0.22, "wgmma_flat": 0.219,
         "wgmma_small": 0.144}  # fmt: skip
STORING, MEETING = 0.4, 1.7
"""What a slice of k takes, in us; what goes between two tiles of 64², and what a cluster's meeting adds to it.  Fitted
to 33 products of 128³ to 1024x4096x4096 in bfloat16 on an H200: what `choose_tensor` picks takes 1.4 % longer than the
best of these, and 8192² is left to `wgmma_wide`, 790 TFLOP/s there."""
CLUSTERS = {1: 1.0, 2: 1 / 2, 4: 1 / 6, 8: 1 / 16}
"""Clusters of so many blocks that a GPU runs at once, of its multiprocessors: groups of these do not divide by more."""
TURNED = 640**3
"""Multiply-adds of float32 below which a transpose of b for `wgmma` does not pay."""
SPEEDS = {"naive": 0.06, "small": 0.93, "middle": 1.0, "large": 0.99, "wide": 1.01}
"""Multiply-adds a second of a full GPU beside 44 TFLOP/s, measured on an H200 in float32: at 4096² small 40.2, middle
42.9, large 43.4, wide 44.1; at 8192² 41.4, 44.8, 44.0, 44.6; cuBLAS 51.0."""
TENSOR_ORDER: dict[int, tuple[str, ...]] = {16: ("mma", "mma_small"), 32: ("mma_deep", "mma", "mma_small")}
"""By bits of an element, the quickest first.  On an H200 at 8192², TFLOP/s in bfloat16: mma 346, deep 334, thin 303,
wide 301, small 190; in tf32: deep 140, mma 131, wide 128, thin 119, small 82; cuBLAS 792 and 407."""
PASS = 1 << 16
"""What a second pass costs at least, in multiply-adds of one multiprocessor: 4 us at 128 in a clock of 1.7 GHz / 10."""
MOST_SPLITS = 32
LEAST_DEPTH = 64
"""Terms that a split sums at least."""
LEAST_SHARE, MOST_TILES, FEW_ROWS = 96, 1.7, 32
"""Of mma: terms that a block of a cluster sums at least; blocks for each multiprocessor that a cluster may bring it to;
rows of A that `mma_row` is always quicker for."""
GRID_Z = 65535
"""Products, and splits of them, that one grid holds."""


@dataclass(frozen=True, slots=True)
class Choice:
    """A kernel of TILES, TENSOR or WARPGROUPS by name, or `naive`, and in how many parts it sums along k.

    splits: of separate blocks, whose sums a second kernel adds up.  blocks: of a cluster, which add them up themselves:
    tensor cores from sm_90 on.  At most one of both is more than 1.
    """

    name: str
    splits: int = 1
    blocks: int = 1

    def check(self, arch: str) -> None:
        """KernelError for parts that no kernel of that name sums on this architecture."""
        clusters = (self.name in TENSOR or self.name in WARPGROUPS) and TARGETS[arch].clusters
        parts = f"{self.name} in {self.splits} splits by {self.blocks} blocks of a cluster on {arch}"
        if self.splits < 1 or self.blocks not in (CLUSTERS if clusters else (1,)):
            known = ", ".join(map(str, CLUSTERS))
            raise KernelError(f"{parts}: splits are 1 or more; blocks are {known} for tensor cores on sm_90, else 1")
        if self.splits > 1 and self.blocks > 1:
            raise KernelError(f"{parts}: a sum is split, or shared by a cluster, not both")


def choose(problem: Problem, element: Type, device: Device) -> Choice:
    """The fastest by a model of waves: multiprocessors take blocks as long as there are any."""
    m, n, depth, count = problem.m, problem.n, problem.depth, problem.count
    if not depth or m * n * depth <= 24**3 or (min(m, n) < 4 and depth < 64):
        return Choice("naive")
    best, choice = float("inf"), Choice("naive")
    for name, tile in TILES[element].items():
        if simt.shared_bytes(tile, element.bytes) > device.shared:
            continue
        blocks = -(-m // tile.rows) * -(-n // tile.columns) * count
        splits = 1
        while splits == 1 or (splits <= MOST_SPLITS and depth // splits >= LEAST_DEPTH and count <= GRID_Z):
            full = device.sms * tile.blocks_per_sm
            waves = -(-blocks * splits // full)
            busy = min(blocks * splits / device.sms, tile.blocks_per_sm)  # blocks that one multiprocessor holds
            sums = waves * max(busy, 1) * tile.rows * tile.columns
            cost = sums * (-(-depth // splits) + 2 * tile.depth) / SPEEDS[name]
            if busy < tile.blocks_per_sm:
                cost *= 1.3  # too few warps to hide waiting
            if splits > 1:
                cost += PASS + 4 * (splits + 1) * m * n * count * element.bytes / device.sms
            if cost < best:
                best, choice = cost, Choice(name, splits)
            splits *= 2
    return choice


def choose_tensor(
    problem: Problem, element: Type, device: Device, turned: bool = False, aligned: bool = True
) -> Choice:
    """Of tensor cores: on sm_90a by a model of waves, else the quickest of which there are tiles enough.

    A tile that few others go with is shared by the blocks of a cluster, from sm_90 on.
    """
    m, n, depth, count = problem.m, problem.n, problem.depth, problem.count
    pays = element is not f32 or turned or m * n * depth * count >= TURNED
    if device.arch == "sm_90a" and aligned and pays and takes(problem, element, turned):
        every = (Choice(name, blocks=blocks) for name in WARPGROUPS for blocks in CLUSTERS)
        return min(every, key=partial(_time, problem, element, device))
    for name in TENSOR_ORDER[element.bits]:
        tile = TENSOR[name]
        fits = mma.shared_bytes(tile, element.bytes, turned) <= device.shared
        if fits and _tiles(problem, tile) >= device.sms * tile.blocks_per_sm:
            return Choice(name)
    few = m <= FEW_ROWS or _tiles(problem, TENSOR["mma_row"]) <= device.sms
    name = "mma_row" if few else "mma_small"
    room = device.sms * MOST_TILES // max(_tiles(problem, TENSOR[name]), 1)
    most = min(room, depth // LEAST_SHARE) if TARGETS[device.arch].clusters else 1
    return Choice(name, blocks=max((b for b in CLUSTERS if b <= most), default=1))


def _tiles(problem: Problem, tile: mma.Tile | wgmma.Tile) -> int:
    return -(-problem.m // tile.rows) * -(-problem.n // tile.columns) * problem.count


def _time(problem: Problem, element: Type, device: Device, choice: Choice) -> float:
    """What a product takes by one of WARPGROUPS, in us; infinite where a cluster has no use, or no room for sums."""
    tile, blocks = WARPGROUPS[choice.name], choice.blocks
    slices = -(-problem.depth * element.bytes // wgmma.SLICE)
    if blocks > 1 and (slices < blocks or not wgmma.shares(tile, blocks)):
        return float("inf")
    waves = -(-_tiles(problem, tile) // max(int(device.sms * CLUSTERS[blocks]), 1))
    edge = sqrt(tile.rows * tile.columns) / 64
    return waves * (-(-slices // blocks) * SLICE[choice.name] + STORING * edge) + MEETING * edge * (blocks > 1)
