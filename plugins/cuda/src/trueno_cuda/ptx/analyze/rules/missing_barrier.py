"""Shared memory that threads of different warps use with no barrier between."""

from collections.abc import Iterator

from trueno_cuda.ptx.analyze.copies import in_flight
from trueno_cuda.ptx.analyze.entry import Entry
from trueno_cuda.ptx.analyze.finding import Found, Rule
from trueno_cuda.ptx.analyze.races import races
from trueno_cuda.ptx.analyze.shadow import Clash
from trueno_cuda.ptx.analyze.uniform import BLOCK
from trueno_cuda.ptx.analyze.updates import updates
from trueno_cuda.ptx.analyze.walks import walked


def check(entry: Entry) -> Iterator[Found]:
    reported: set[int] = set()
    for copy, read, waited in in_flight(entry):
        if waited and read.at not in reported:
            reported.add(read.at)
            yield (
                read.at,
                (f"other threads copied what this reads at line {copy.ins.line}, and no barrier is behind the wait"),
            )
    for load, store in updates(entry):
        words = (
            f"line {load.ins.line} loads what this stores, at a place that data choose: of two threads with equal data"
        )
        yield store.at, f"{words} one loses its addition, where an atomic one keeps both"
    for race in races(entry):
        first, second = race.first, race.second
        if second.at in reported:
            continue
        if "atomic" in (first.kind, second.kind):
            reported.add(second.at)
            yield (
                second.at,
                (
                    f"line {first.ins.line} may access the same element in other threads: data decide where atomics "
                    "go, and no barrier separates them on some path"
                ),
            )
            continue
        if first.writes == second.writes:
            continue
        store = first if first.writes else second
        parts = entry.block_lanes.split(store.form)
        same = parts is not None and all((v == v[0]).all() for v in parts.values())
        if same and store.kind == "store" and entry.uniformity.of(store.ins.operands[-1], store.at) == BLOCK:
            continue  # all threads write one value to one place
        if store.kind == "copy":
            continue  # the walk follows copies, round by round
        reported.add(second.at)
        a, b = race.threads
        apart = a // 32 != b // 32
        whose = "of another warp, " if apart else ""
        lacking = "no barrier separates" if apart else "neither a barrier nor bar.warp.sync separates"
        did, does = ("wrote", "reads") if first.writes else ("reads", "writes")
        where = f" with blocks of {'x'.join(map(str, entry.shape))}" if entry.assumed else ""
        yield (
            second.at,
            (
                f"thread {b} {does} shared memory that thread {a}, {whose}{did} at line {first.ins.line}, "
                f"and {lacking} them on some path{where}"
            ),
        )
    for clash in walked(entry):
        if clash.kind == "flight" or clash.second in reported:
            continue
        reported.add(clash.second)
        yield clash.second, _walked(entry, clash)


def _walked(entry: Entry, clash: Clash) -> str:
    """The sentence about two threads that a walk through a block shows."""
    first = entry.code[clash.first].line
    if clash.kind == "arrival":
        return f"thread {clash.thread} copied what this reads at line {first}, and no barrier is behind its wait"
    apart = clash.thread // 32 != clash.other // 32
    lacking = "no barrier separates" if apart else "neither a barrier nor bar.warp.sync separates"
    where = f" in a block of {'x'.join(map(str, entry.shape))}" if entry.assumed else ""
    return (
        f"thread {clash.other} comes to the shared memory that thread {clash.thread} accesses at line {first}, and "
        f"{lacking} them{where}"
    )


RULE = Rule(
    "missing-barrier", "critical", "high",
    "A thread reads shared memory that a thread of another warp writes, or the reverse, and no barrier orders the two.",
    "Warps run at their own pace: the read may come before the write, or the next round of a loop may overwrite what "
    "a slower warp still reads.",
    "Put bar.sync between the two; in a loop there is usually one before the reads and one behind them.",
    bad="""mov.u32 %r1, %tid.x; shl.b32 %r2, %r1, 2; mov.u32 %r3, s; add.u32 %r4, %r3, %r2; st.shared.u32 [%r4], %r1;
xor.b32 %r5, %r2, 128; add.u32 %r5, %r3, %r5; ld.shared.u32 %r6, [%r5];
ld.param.u64 %rd1, [x]; mul.wide.u32 %rd2, %r1, 4; add.u64 %rd1, %rd1, %rd2; st.global.u32 [%rd1], %r6; ret;""",
    good="""mov.u32 %r1, %tid.x; shl.b32 %r2, %r1, 2; mov.u32 %r3, s; add.u32 %r4, %r3, %r2; st.shared.u32 [%r4], %r1;
bar.sync 0; xor.b32 %r5, %r2, 128; add.u32 %r5, %r3, %r5; ld.shared.u32 %r6, [%r5];
ld.param.u64 %rd1, [x]; mul.wide.u32 %rd2, %r1, 4; add.u64 %rd1, %rd1, %rd2; st.global.u32 [%rd1], %r6; ret;""",
    check=check,
)  # fmt: skip
