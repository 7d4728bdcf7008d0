"""What lanes are: those of one chunk of the grid, the memory of their blocks, and what is found about them."""

import numpy as np

from trueno_cuda.ptx.emulate.findings import UNINITIALISED_REGISTER, Kind
from trueno_cuda.ptx.emulate.group import WARP, Group
from trueno_cuda.ptx.emulate.launch_state import LaunchState
from trueno_cuda.ptx.emulate.memory import LOCAL, PARAM, SHARED, SHARED_BASE
from trueno_cuda.ptx.emulate.report import Finding
from trueno_cuda.ptx.syntax.tree import Instruction, Variable
from trueno_cuda.ptx.syntax.types import Array


class Lanes:
    """The blocks `first` to `first + count` of a launch.  lanes a block: whole warps, so padding lanes never live."""

    def __init__(self, launch: LaunchState, first: int, count: int) -> None:
        self.launch = launch
        self.layout = launch.layout
        self.report = launch.report
        self.arena = launch.arena
        self.first, self.blocks_here = first, count
        self.threads = launch.threads
        unit = 4 * WARP if self.layout.warpgroups else WARP  # a block begins with a warp group
        self.block_lanes = -(-launch.threads // unit) * unit
        self.block_warps = self.block_lanes // WARP
        self.size = count * self.block_lanes
        self.live = np.tile(np.arange(self.block_lanes) < self.threads, count)
        self.live_count = np.full(count, self.threads, np.int64)
        self.passed = np.zeros(count, np.int32)  # barriers, by block
        self.shared_size = launch.shared_size
        self.shared = np.zeros(count * self.shared_size + 16, np.uint8)
        self.local_size = self.layout.local_size
        self.local = np.zeros(self.size * self.local_size if self.local_size else 16, np.uint8)
        self.params = launch.param_bytes

    def cta(self, g: Group) -> Array:
        """Each lane's block, counted within this chunk."""
        blocks: Array | None = g.cached.get("cta")
        if blocks is None:
            blocks = g.cached["cta"] = g.lanes // self.block_lanes
        return blocks

    def shared_start(self, g: Group, lanes: Array) -> Array:
        """Where each lane's block has its shared memory in the chunk's buffer."""
        if lanes is not g.lanes:
            return lanes // self.block_lanes * self.shared_size
        starts: Array | None = g.cached.get("shared")
        if starts is None:
            starts = g.cached["shared"] = self.cta(g) * self.shared_size
        return starts

    def address(self, var: Variable) -> int:
        """A variable's address in its own space."""
        if var.space in ("global", "const"):
            return self.launch.addresses[id(var)]
        if var.space == "shared":
            return SHARED_BASE + self.layout.offsets[id(var)]
        return self.layout.offsets[id(var)]

    def generic(self, space: str) -> int:
        """What is added to an address of a space to make it generic."""
        return {"global": 0, "const": 0, "shared": SHARED, "local": LOCAL, "param": PARAM}[space]

    # ---- findings -------------------------------------------------------------------------------

    def find(
        self,
        kind: Kind,
        ins: Instruction,
        message: str,
        lane: int,
        count: int = 1,
        address: int | None = None,
        array: str | None = None,
    ) -> None:
        """Report what the lane with this number in the chunk did."""
        cta, inside = divmod(int(lane), self.block_lanes)
        x, y, _ = self.launch.block
        self.report.add(
            Finding(
                kind.id, ins.line, ins.text, message, self.launch.block_index(self.first + cta), inside // WARP,
                inside % WARP, address, array, kind.severity, count, (inside % x, inside // x % y, inside // (x * y)),
                self.layout.source(ins),
            )
        )  # fmt: skip

    def need_written(self, ins: Instruction, g: Group, sel: Array | None, flag: int, register: int) -> None:
        """Report lanes that read a register which they never wrote."""
        written = g.registers[flag]
        if written is None:
            written = np.array([False])
        bad = ~written if sel is None else sel & ~written
        if bad.any():
            lane = g.lanes[int(np.argmax(bad))] if bad.size == g.n else g.lanes[0]
            name = self.layout.registers[register].name
            self.find(UNINITIALISED_REGISTER, ins, f"{name} is read before it is written", lane,
                      int(np.count_nonzero(bad)) if bad.size == g.n else g.n)  # fmt: skip
