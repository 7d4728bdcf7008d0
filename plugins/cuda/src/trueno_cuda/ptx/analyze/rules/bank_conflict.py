"""Accesses to shared memory that take several passes."""

from collections.abc import Iterator

from trueno_cuda.ptx.analyze.access import banks
from trueno_cuda.ptx.analyze.entry import Entry
from trueno_cuda.ptx.analyze.finding import Found, Rule

MOST = 4
"""Passes that are not reported."""


def check(entry: Entry) -> Iterator[Found]:
    if entry.assumed and entry.deep:
        return  # how a warp lies in its block decides
    for access in entry.accesses:
        if access.space != "shared" or access.kind not in ("load", "store") or entry.threads < 32:
            continue
        active, _ = entry.runs(access.at)
        ways = banks(entry.warp_lanes, access)
        if ways is not None and ways > MOST and active[:32].all():
            yield access.at, f"the lanes of a warp meet in a bank: {ways} passes in place of one"


RULE = Rule(
    "bank-conflict", "medium", "high",
    "More than four lanes of a warp access different words of one bank of shared memory.",
    "A bank serves one word at a time, so the access takes as many passes as lanes meet in one.",
    "Pad the rows of the array by one word, or permute its columns by the row's number (a swizzle).",
    bad="""mov.u32 %r1, %tid.x; mov.u32 %r3, s; and.b32 %r5, %r1, 7; shl.b32 %r4, %r5, 7; add.u32 %r4, %r4, %r3;
ld.shared.u32 %r2, [%r4]; ld.param.u64 %rd1, [x]; mul.wide.u32 %rd2, %r1, 4; add.u64 %rd1, %rd1, %rd2;
st.global.u32 [%rd1], %r2; ret;""",
    good="""mov.u32 %r1, %tid.x; mov.u32 %r3, s; shl.b32 %r4, %r1, 2; add.u32 %r4, %r4, %r3;
ld.shared.u32 %r2, [%r4]; ld.param.u64 %rd1, [x]; mul.wide.u32 %rd2, %r1, 4; add.u64 %rd1, %rd1, %rd2;
st.global.u32 [%rd1], %r2; ret;""",
    check=check, performance=True,
)  # fmt: skip
