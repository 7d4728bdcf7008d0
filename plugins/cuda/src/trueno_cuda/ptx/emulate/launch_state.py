"""The state that all chunks of a launch share: its sizes, its memory, its report and its counts."""

import math
from typing import Any

import numpy as np

from trueno_cuda.ptx.emulate.layout import Layout
from trueno_cuda.ptx.emulate.memory import Allocation, Arena
from trueno_cuda.ptx.emulate.report import Report
from trueno_cuda.ptx.emulate.tensor_map import TensorMap
from trueno_cuda.ptx.emulate.traffic import Traffic
from trueno_cuda.ptx.syntax.tree import Instruction, Variable
from trueno_cuda.ptx.syntax.types import Array

MAX_STEPS = 20_000_000


class LaunchState:
    """One launch of a kernel that is laid out."""

    def __init__(self, layout: Layout, grid: tuple[int, int, int], block: tuple[int, int, int]) -> None:
        self.layout = layout
        self.grid, self.block = grid, block
        self.cluster = (1, 1, 1)
        self.cluster_blocks = 1
        self.threads = math.prod(block)
        self.report = Report(layout.name, grid, block)
        self.arena = Arena()
        self.addresses: dict[int, int] = {}
        self.arrays: dict[Variable, Allocation] = {}  # those of pointers and of the module's variables
        self._homes: dict[tuple[Instruction, str], Allocation | None] = {}
        self.param_bytes = np.zeros(-(-layout.param_size // 16) * 16 + 16, np.uint8)
        self.tensor_maps: list[TensorMap] = []
        self.dynamic_shared = 0
        self.shared_size = 0
        self.races = True
        self.traffic: Traffic | None = None
        self.changes = 0
        self.steps = 0
        self.max_steps = MAX_STEPS
        self.lane_counts = [0] * len(layout.flow.blocks)
        self.warp_counts = [0] * len(layout.flow.blocks)
        self.linear: Array = np.zeros(0, np.int64)

    def view(self, buffer: Array, dtype: np.dtype[Any]) -> Array:
        return buffer.view(dtype)

    def home(self, ins: Instruction, space: str) -> Allocation | None:
        """The array of a space that an instruction's address was made from; None where that is not one."""
        key = ins, space
        if key not in self._homes:
            shared = space == "shared"
            arrays = self.layout.shared_arrays if shared else self.arrays
            origins = self.layout.provenance.of(ins, {*self.arrays, *self.layout.shared_arrays})
            candidates = {v for v in origins if v is None or (v.space == "shared") == shared}
            one = candidates.pop() if len(candidates) == 1 else None
            self._homes[key] = None if one is None else arrays.get(one)
        return self._homes[key]

    def order_blocks(self) -> None:
        """Blocks in the order in which they run: those of a cluster stand together, by rank."""
        gx, gy, gz = self.grid
        cx, cy, cz = self.cluster
        linear = np.arange(gx * gy * gz).reshape(gz // cz, cz, gy // cy, cy, gx // cx, cx)
        self.linear = linear.transpose(0, 2, 4, 1, 3, 5).reshape(-1)

    def block_index(self, position: int) -> tuple[int, int, int]:
        n = int(self.linear[position])
        return n % self.grid[0], n // self.grid[0] % self.grid[1], n // (self.grid[0] * self.grid[1])
