"""Accesses to global memory that use a small part of the bytes that they move."""

from collections.abc import Iterator

import numpy as np

from trueno_cuda.ptx.analyze.access import SECTOR, Access, coalescing, offsets
from trueno_cuda.ptx.analyze.entry import Entry
from trueno_cuda.ptx.analyze.finding import Found, Rule

LEAST = 0.25
"""Of the bytes moved that are used."""


def check(entry: Entry) -> Iterator[Found]:
    if entry.assumed and entry.deep:
        return  # how a warp lies in its block decides
    for access in entry.accesses:
        if access.space != "global" or access.kind not in ("load", "store", "copied") or entry.threads < 32:
            continue
        active, _ = entry.runs(access.at)
        moved = coalescing(entry.warp_lanes, access)
        if moved is None or not active[:32].all():
            continue
        sectors, efficiency = moved
        if sectors > 4 and efficiency <= LEAST and not _together(entry, access):
            yield access.at, f"a warp moves {sectors} sectors of 32 bytes and uses {efficiency:.0%} of them"


def _together(entry: Entry, access: Access) -> bool:
    """Whether accesses beside it, in its block, use the rest of the sectors while the cache holds them."""
    first = offsets(entry.warp_lanes, access.form)
    home = entry.graph.block_of[access.at]
    if first is None:
        return False
    beside = [
        (other.form.const - access.form.const, other.bytes)
        for other in entry.accesses
        if other.form.terms == access.form.terms
        and other.kind == access.kind
        and entry.graph.block_of[other.at] == home
    ]
    steps = np.unique(np.concatenate([start + np.arange(size) for start, size in beside]))
    touched = np.unique(first[:, None] + steps)
    return len(touched) > LEAST * SECTOR * len(np.unique(touched // SECTOR))


RULE = Rule(
    "uncoalesced-access", "medium", "high",
    "The lanes of a warp access global memory so far apart that a quarter or less of the bytes moved are used, and no "
    "accesses beside use the rest.",
    "Memory moves sectors of 32 bytes: the kernel takes as long as if it used all of them.",
    "Let neighbouring threads access neighbouring elements; a transposition goes through shared memory.",
    bad="""mov.u32 %r1, %tid.x; ld.param.u64 %rd1, [x]; mul.wide.u32 %rd2, %r1, 128; add.u64 %rd3, %rd1, %rd2;
ld.global.f32 %f1, [%rd3]; st.global.f32 [%rd3], %f1; ret;""",
    good="""mov.u32 %r1, %tid.x; ld.param.u64 %rd1, [x]; mul.wide.u32 %rd2, %r1, 4; add.u64 %rd3, %rd1, %rd2;
ld.global.f32 %f1, [%rd3]; st.global.f32 [%rd3], %f1; ret;""",
    check=check, performance=True,
)  # fmt: skip
