"""Shared memory that is accessed behind the end of its variable."""

from collections.abc import Iterator

from trueno_cuda.ptx.analyze.entry import Entry
from trueno_cuda.ptx.analyze.finding import Found, Rule


def check(entry: Entry) -> Iterator[Found]:
    variables = [*entry.program.variables, *entry.function.variables]
    sizes = {v.name: v.size for v in variables if v.space == "shared" and v.size and not v.extern}
    for access in entry.accesses:
        if access.space != "shared":
            continue
        parts = entry.block_lanes.split(access.form)
        if parts is None:
            continue
        named = [a for a in parts if a is not None and a != ("generic", "shared")]
        if len(named) != 1 or named[0][:2] != ("var", "shared") or not (parts[named[0]] == 1).all():
            continue
        name = named[0][2]
        active, certain = entry.runs(access.at)
        offsets = parts[None][active]
        if name not in sizes or not len(offsets):
            continue
        if not certain and ((offsets >= 0) & (offsets + access.bytes <= sizes[name])).any():
            continue  # perhaps those alone get here
        if entry.assumed and (offsets != offsets[0]).any():
            continue  # another block may fit
        low, high = int(offsets.min()), int(offsets.max()) + access.bytes
        if low < 0 or high > sizes[name]:
            which = f"byte {low}" if low < 0 else f"bytes {high - access.bytes} to {high - 1}"
            yield access.at, f"accesses {which} of {name}, which has {sizes[name]} bytes"


RULE = Rule(
    "shared-out-of-bounds", "critical", "high",
    "An access to shared memory lies outside of the variable that its address was made from, for the block that the "
    "text or the command line names, or for every block.",
    "It reads or overwrites another variable, or raises an error; ptxas accepts it.",
    "Declare the variable with as many elements as threads use, or correct the index.",
    bad="""mov.u32 %r1, %tid.x; mov.u32 %r3, s; st.shared.u32 [%r3+4096], %r1; bar.sync 0; ld.shared.u32 %r2, [s];
ld.param.u64 %rd1, [x]; mul.wide.u32 %rd2, %r1, 4; add.u64 %rd1, %rd1, %rd2; st.global.u32 [%rd1], %r2; ret;""",
    good="""mov.u32 %r1, %tid.x; mov.u32 %r3, s; shl.b32 %r4, %r1, 2; add.u32 %r4, %r4, %r3; st.shared.u32 [%r4], %r1;
bar.sync 0; ld.shared.u32 %r2, [s+1020];
ld.param.u64 %rd1, [x]; mul.wide.u32 %rd2, %r1, 4; add.u64 %rd1, %rd1, %rd2; st.global.u32 [%rd1], %r2; ret;""",
    check=check,
)  # fmt: skip
