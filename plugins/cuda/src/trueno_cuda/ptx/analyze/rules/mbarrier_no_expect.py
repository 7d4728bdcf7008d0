"""A bulk copy whose mbarrier never learns how many bytes arrive."""

from collections.abc import Iterator

from trueno_cuda.ptx.analyze.entry import Entry
from trueno_cuda.ptx.analyze.finding import Found, Rule
from trueno_cuda.ptx.syntax.tree import Instruction


def counts(ins: Instruction) -> bool:
    """Whether a copy counts its bytes down at an mbarrier."""
    return ins.opcode == "cp" and "bulk" in ins.mods and any("complete_tx" in m for m in ins.mods)


def check(entry: Entry) -> Iterator[Found]:
    if any("expect_tx" in m for ins in entry.code for m in ins.mods) or any(i.opcode == "call" for i in entry.code):
        return
    copies = [at for at in entry.reachable if counts(entry.code[at]) and "shared::cluster" in entry.code[at].mods]
    if copies and entry.function.entry:
        yield copies[0], "the mbarrier of this copy is never told to expect its bytes"


HEAD = """.version 8.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 x)
{
.reg .pred %p<4>; .reg .b32 %r<8>; .reg .b64 %rd<4>; .shared .align 16 .b8 s[512]; .shared .align 8 .b8 b[8];
ld.param.u64 %rd1, [x]; mov.u32 %r1, %tid.x; setp.ne.u32 %p1, %r1, 0; @%p1 bra ALL;
mbarrier.init.shared.b64 [b], 1; fence.proxy.async;
"""
EXPECT = "mbarrier.arrive.expect_tx.shared.b64 _, [b], 512;\n"
ARRIVE = "mbarrier.arrive.shared.b64 _, [b];\n"
COPY = "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [s], [%rd1], 512, [b];\nALL: bar.sync 0;\n"
WAIT = "L: mbarrier.try_wait.parity.shared.b64 %p2, [b], 0; @!%p2 bra L;\n"
STORE = "ld.shared.u32 %r2, [s]; st.global.u32 [%rd1], %r2; ret;\n}\n"
RULE = Rule(
    "mbarrier-no-expect", "critical", "high",
    "A kernel starts bulk copies that count their bytes at an mbarrier, and never tells one how many to expect.",
    "The phase ends with the arrivals, before the bytes are there.",
    "mbarrier.arrive.expect_tx with the bytes of all copies of the phase, by the thread that starts them.",
    bad=HEAD + ARRIVE + COPY + WAIT + STORE,
    good=HEAD + EXPECT + COPY + WAIT + STORE,
    check=check,
)  # fmt: skip
