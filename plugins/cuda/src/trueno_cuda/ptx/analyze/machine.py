"""What an architecture can hold at once, and how fast its usual card is: occupancy and the roofline follow from these.

Source: the tables of compute capabilities in NVIDIA's CUDA C++ Programming Guide 13.0, and data sheets of the cards.
"""

from dataclasses import dataclass
from typing import NamedTuple

from trueno_cuda.ptx.targets import KIB


@dataclass(frozen=True)
class Machine:
    """Of a multiprocessor: warps, blocks, bytes of shared memory.  Of the card, per second: float32 flops, bytes, and
    flops of tensor cores on dense bfloat16 (on sm_75 float16) with sums in float32.  sms: its multiprocessors.
    launch: seconds that a launch takes at least, in a graph.
    """

    arch: str
    warps: int
    blocks: int
    shared: int
    card: str
    flops: float
    bandwidth: float
    tensor: float
    sms: int
    registers: int = 65536
    reserved: int = KIB  # bytes of shared memory that the system takes of each block
    launch: float = 0.96e-6  # measured on an H200, of 100 tiny kernels in a graph; assumed of the others

    @property
    def ridge(self) -> float:
        """Flops per byte from which on arithmetic takes longer than memory."""
        return self.flops / self.bandwidth


MACHINES = {
    m.arch: m
    for m in (
        Machine("sm_75", 32, 16, 64 * KIB, "T4", 8.1e12, 320e9, 65e12, 40, reserved=0),
        Machine("sm_80", 64, 32, 164 * KIB, "A100", 19.5e12, 2.04e12, 312e12, 108),
        Machine("sm_86", 48, 16, 100 * KIB, "RTX 3090", 35.6e12, 936e9, 71e12, 82),
        Machine("sm_89", 48, 24, 100 * KIB, "RTX 4090", 82.6e12, 1.01e12, 165e12, 128),
        Machine("sm_90", 64, 32, 228 * KIB, "H200", 66.9e12, 4.8e12, 989e12, 132),
        Machine("sm_100", 64, 32, 228 * KIB, "B200", 75e12, 8e12, 2250e12, 148),
        Machine("sm_120", 48, 24, 100 * KIB, "RTX 5090", 104.8e12, 1.79e12, 209e12, 170),
    )
}


def machine(arch: str) -> Machine | None:
    """Of `sm_90a` as of `sm_90`; None for what is not in the table."""
    return MACHINES.get(arch.rstrip("af"))


class Occupancy(NamedTuple):
    """warps: that a multiprocessor holds at once.  limit: what allows no more."""

    warps: int
    fraction: float
    blocks: int
    limit: str


def occupancy(where: Machine, threads: int, registers: int, shared: int) -> Occupancy:
    """Of blocks of so many threads, registers per thread, and bytes of shared memory per block.

    Registers are handed out to a warp in units of 256, shared memory to a block in units of 128 bytes.
    """
    warps = -(-threads // 32)
    each = -(-max(registers, 1) * 32 // 256) * 256
    memory = -(-(shared + where.reserved) // 128) * 128 if shared or where.reserved else 0
    allowed = {
        "blocks": where.blocks,
        "threads": where.warps // warps,
        "registers": where.registers // each // 4 * 4 // warps,
        "shared memory": where.shared // memory if memory else where.blocks,
    }
    limit = min(allowed, key=lambda name: allowed[name])
    blocks = allowed[limit]
    return Occupancy(blocks * warps, blocks * warps / where.warps, blocks, limit)
