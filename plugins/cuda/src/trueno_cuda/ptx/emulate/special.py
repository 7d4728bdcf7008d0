"""Special registers: the indices of a lane."""

import time

import numpy as np

from trueno_cuda.ptx.emulate.group import Group
from trueno_cuda.ptx.emulate.lanes import Lanes
from trueno_cuda.ptx.emulate.memory import SHARED_BASE
from trueno_cuda.ptx.syntax.types import Array


def one(value: int) -> Array:
    return np.array([value & 0xFFFF_FFFF], np.uint32)


def coordinate(linear: Array, size: tuple[int, int, int], axis: str) -> Array:
    """x, y or z of a linear index, one value where the axis has length 1."""
    x, y, z = size
    if axis == "x":
        values = linear if y == z == 1 else linear % x
    elif axis == "y":
        values = np.zeros(1, np.int64) if y == 1 else linear // x % y
    else:
        values = np.zeros(1, np.int64) if z == 1 else linear // (x * y)
    return np.asarray(values).astype(np.uint32)


def special(m: Lanes, g: Group, name: str) -> Array:
    """The value of `%name` for the lanes of a group, uint32 or uint64: one value where all lanes agree."""
    values: Array | None = g.cached.get(name)
    if values is None:
        values = g.cached[name] = _value(m, g, name)
    return values


def _value(m: Lanes, g: Group, name: str) -> Array:
    head, _, axis = name.partition(".")
    launch = m.launch
    block, grid, cluster = launch.block, launch.grid, launch.cluster
    k = "xyz".find(axis) if axis else 0
    if head == "tid":
        inside = g.lanes if m.blocks_here == 1 else g.lanes % m.block_lanes
        return coordinate(inside, block, axis)
    if head in ("laneid", "lanemask_eq", "lanemask_le", "lanemask_lt", "lanemask_ge", "lanemask_gt"):
        lane = (g.lanes & 31).astype(np.uint32)
        if head == "laneid":
            return lane
        bit = np.uint32(1) << lane
        masks = {"eq": bit, "lt": bit - 1, "le": bit | (bit - 1), "ge": ~(bit - 1), "gt": ~(bit | (bit - 1))}
        return masks[head[-2:]]
    if head == "warpid":
        return (g.lanes % m.block_lanes >> 5).astype(np.uint32)
    if head in ("ctaid", "clusterid", "cluster_ctaid", "cluster_ctarank"):
        linear = launch.linear[m.first : m.first + m.blocks_here]
        blocks = linear if m.blocks_here == 1 else linear[m.cta(g)]
        ids = [coordinate(blocks, grid, a).astype(np.int64) for a in "xyz"]
        if head == "ctaid":
            return ids[k].astype(np.uint32)
        if head == "clusterid":
            return np.asarray(ids[k] // cluster[k]).astype(np.uint32)
        inside_cluster = [ids[a] % cluster[a] for a in range(3)]
        if head == "cluster_ctaid":
            return inside_cluster[k].astype(np.uint32)
        rank = inside_cluster[0] + cluster[0] * (inside_cluster[1] + cluster[1] * inside_cluster[2])
        return np.asarray(rank).astype(np.uint32)
    sizes = {"ntid": block[k], "nctaid": grid[k], "cluster_nctaid": cluster[k], "nclusterid": grid[k] // cluster[k],
             "nwarpid": m.block_warps, "cluster_nctarank": cluster[0] * cluster[1] * cluster[2], "smid": 0,
             "nsmid": 132, "gridid": 1, "aggr_smem_size": m.shared_size,
             "is_explicit_cluster": int(launch.cluster != (1, 1, 1)),
             "dynamic_smem_size": launch.dynamic_shared, "total_smem_size": m.shared_size}  # fmt: skip
    if head in sizes:
        return one(sizes[head])
    if head in ("clock", "clock64", "globaltimer", "clock_hi", "globaltimer_lo", "globaltimer_hi"):
        now = time.perf_counter_ns() if head.startswith("globaltimer") else launch.steps
        g.cached.pop(name, None)
        value = now >> 32 if head.endswith("hi") else now
        return np.array([value], np.uint64) if head in ("clock64", "globaltimer") else one(value)
    if head.startswith("reserved_smem_offset"):  # the system's part, which lies before a block's own
        return one(0 if head.endswith("begin") else SHARED_BASE)
    raise ValueError(f"unknown special register %{name}")
