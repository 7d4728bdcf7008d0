"""A warp-wide instruction whose mask names other lanes than those that execute it."""

from collections.abc import Iterator

from trueno_cuda.ptx.analyze.effects import facts, waits
from trueno_cuda.ptx.analyze.entry import Entry
from trueno_cuda.ptx.analyze.finding import Found, Rule
from trueno_cuda.ptx.analyze.uniform import WARP

MASKED = {"shfl", "vote", "match", "redux"}


def check(entry: Entry) -> Iterator[Found]:
    for at in entry.reachable:
        ins = entry.code[at]
        if not ins.operands or not ((ins.opcode in MASKED and "sync" in ins.mods) or waits(ins) == "warp"):
            continue
        if ins.unread or not facts(ins).mask:
            continue
        named = entry.values.operand(ins.operands[-1], ins, at)
        if named is None or not named.constant:
            continue
        mask = named.const & 0xFFFFFFFF
        active, certain = entry.runs(at)
        certain = certain or _whole_warps(entry, at)
        for first in range(0, len(active), 32):
            warp = active[first : first + 32]
            if not warp.any() or (entry.assumed and len(warp) < 32):
                continue
            there = sum(1 << lane for lane, on in enumerate(warp.tolist()) if on)
            lacking, strange = mask & ~there & ((1 << len(warp)) - 1), there & ~mask
            if strange and certain:
                yield at, f"lane {_lowest(strange)} executes this, and is not in its mask 0x{mask:08x}"
                break
            if lacking:
                yield at, f"the mask 0x{mask:08x} names lane {_lowest(lacking)}, which does not execute this"
                break


def _whole_warps(entry: Entry, at: int) -> bool:
    """Whether the lanes of a warp come to an instruction together, as far as branches do not go by their places."""
    if entry.code[at].guard is not None:
        return False
    branches = entry.graph.all_deciders(entry.graph.block_of[at])
    return all(
        entry.uniformity.decision(n) >= WARP
        or (
            (guard := entry.graph.last(n).guard) is not None
            and entry.uniformity.vector(guard.index, entry.graph.blocks[n].end - 1) is not None
        )
        for n in branches
    )


def _lowest(bits: int) -> int:
    return (bits & -bits).bit_length() - 1


RULE = Rule(
    "partial-shuffle-mask", "high", "high",
    "The mask of a shuffle, a vote or bar.warp.sync names lanes that do not execute it, or lacks lanes that do.",
    "The lanes of the mask wait for each other, so one that never comes stops the warp; and what a lane outside of "
    "the mask gets is undefined.",
    "Execute it with the whole warp, ahead of the branch, or take the mask from vote.ballot of the branch's condition.",
    bad="""mov.u32 %r1, %tid.x; setp.ge.u32 %p1, %r1, 16; @%p1 bra END;
shfl.sync.bfly.b32 %r2, %r1, 1, 31, -1; ld.param.u64 %rd1, [x]; mul.wide.u32 %rd2, %r1, 4; add.u64 %rd1, %rd1, %rd2;
st.global.u32 [%rd1], %r2;
END: ret;""",
    good="""mov.u32 %r1, %tid.x; setp.ge.u32 %p1, %r1, 16; shfl.sync.bfly.b32 %r2, %r1, 1, 31, -1; @%p1 bra END;
ld.param.u64 %rd1, [x]; mul.wide.u32 %rd2, %r1, 4; add.u64 %rd1, %rd1, %rd2;
st.global.u32 [%rd1], %r2;
END: ret;""",
    check=check,
)  # fmt: skip
