"""What the emulator finds wrong with a kernel: each kind with its sentence, and an example that has it.

An example is the body of a kernel that 128 threads run; px points to an array of 128 uint32.
"""

from typing import NamedTuple

ERROR, RISK = "error", "risk"


class Kind(NamedTuple):
    """severity: "error", or "risk" where the hardware copes."""

    id: str
    sentence: str
    example: str
    severity: str = ERROR


KINDS: dict[str, Kind] = {}
"""By id."""


def _kind(name: str, sentence: str, example: str, severity: str = ERROR) -> Kind:
    return KINDS.setdefault(name, Kind(name, sentence, example, severity))


OUT_OF_BOUNDS = _kind(
    "out-of-bounds",
    "A lane accesses memory outside of the array that its address was made from.",
    "ld.param.u64 %rd1, [px]; ld.global.u32 %r1, [%rd1+512];",
)
MISALIGNED = _kind(
    "misaligned",
    "An address is not a multiple of the bytes that the access moves.",
    "ld.param.u64 %rd1, [px]; ld.global.u32 %r1, [%rd1+2];",
)
ADDRESS_SPACE = _kind(
    "address-space",
    "An address lies in no array, or in another space than the instruction's.",
    "mov.u64 %rd1, 4096; ld.global.u32 %r1, [%rd1];",
)
READ_ONLY = _kind(
    "read-only",
    "A lane writes to parameters, to constants, or to an array that NumPy holds read-only.",
    ".const .align 4 .b32 c[1]; mov.u32 %r1, 7; st.const.u32 [c], %r1;",
)
UNINITIALISED_REGISTER = _kind(
    "uninitialised-register",
    "A lane reads a register that it never wrote.",
    "add.u32 %r2, %r1, 1;",
)
UNINITIALISED_SHARED = _kind(
    "uninitialised-shared",
    "A lane reads shared memory that was never written.",
    ".shared .align 4 .b8 s[4]; ld.shared.u32 %r1, [s];",
)
SHARED_RACE = _kind(
    "shared-race",
    "Lanes access the same word of shared memory, one of them writes, and nothing orders them.",
    ".shared .align 4 .b8 s[4]; mov.u32 %r1, %tid.x; setp.eq.u32 %p1, %r1, 0; @%p1 st.shared.u32 [s], %r1;\n"
    "ld.shared.u32 %r2, [s];",
)
GLOBAL_RACE = _kind(
    "global-race",
    "Lanes access the same word of global memory, one of them writes, and nothing orders them; "
    "`global_races=True` of `launch` looks for it.",
    "ld.param.u64 %rd1, [px]; mov.u32 %r1, %tid.x; st.global.u32 [%rd1], %r1;",
)
DIVERGENT_BARRIER = _kind(
    "divergent-barrier",
    "Lanes of a warp wait at an aligned barrier that others of it do not come to.",
    "mov.u32 %r1, %tid.x; and.b32 %r1, %r1, 1; setp.eq.u32 %p1, %r1, 0; @%p1 bra EVEN;\n"
    "bar.sync 0; ret;\nEVEN: bar.sync 0;",
)
EARLY_EXIT = _kind(
    "early-exit",
    "Lanes of a warp have left the kernel before a barrier that the others of it wait at.",
    "mov.u32 %r1, %tid.x; setp.gt.u32 %p1, %r1, 100; @%p1 ret; bar.sync 0;",
    RISK,
)
MISSING_LANES = _kind(
    "missing-lanes",
    "An instruction of whole warps names or reads lanes that are not there.",
    "mov.u32 %r1, %tid.x; and.b32 %r2, %r1, 31; setp.ge.u32 %p1, %r2, 16; @%p1 bra END;\n"
    "shfl.sync.bfly.b32 %r3, %r1, 1, 31, -1;\nEND:",
)
MISSING_WAIT = _kind(
    "missing-wait",
    "Memory or registers are used while an asynchronous copy or a wgmma that writes them is in flight.",
    ".shared .align 4 .b8 s[512]; ld.param.u64 %rd1, [px]; mov.u32 %r1, %tid.x; mul.wide.u32 %rd2, %r1, 4;\n"
    "add.u64 %rd1, %rd1, %rd2; mov.u32 %r2, s; mad.lo.u32 %r2, %r1, 4, %r2;\n"
    "cp.async.ca.shared.global [%r2], [%rd1], 4; ld.shared.u32 %r3, [%r2];",
)
BARRIER = _kind(
    "barrier",
    "A barrier is used in another way than it was set up: its number, its count, or its arrivals.",
    ".shared .align 8 .b8 b[8]; mbarrier.arrive.shared.b64 %rd1, [b];",
)
DEADLOCK = _kind(
    "deadlock",
    "No lane can move: all wait for those who do not come, or read a flag that never changes.",
    "bar.sync 0, 256;",
)
TRAP = _kind(
    "trap",
    "The kernel gave up.",
    "trap;",
)
ASYNCHRONOUS_COPY = _kind(
    "asynchronous-copy",
    "A bulk copy has a size that is not a multiple of 16 bytes, or no tensor map that fits it.",
    ".shared .align 16 .b8 s[16]; .shared .align 8 .b8 b[8]; ld.param.u64 %rd1, [px];\n"
    "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [s], [%rd1], 8, [b];",
)
WGMMA = _kind(
    "wgmma",
    "A product of a warp group starts without wgmma.fence after its registers were touched.",
    "mov.u64 %rd1, 0; wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16\n"
    "{%f1, %f2, %f3, %f4}, %rd1, %rd1, 0, 1, 1, 0, 0;",
)


def page() -> str:
    """The reference of the findings, as Markdown."""
    head = (
        "# Findings of the emulator\n\n`cuda_emulated` raises an error for each; `launch` of a loaded module returns "
        "them as `report.findings`, whose `kind` is the heading here. The example is the body of a kernel that 128 "
        "threads run; `px` points to an array of 128 uint32.\n"
    )
    parts = [head]
    for kind in KINDS.values():
        risk = " It is a risk and no error: the hardware copes." if kind.severity == RISK else ""
        code = "\n".join(f"    {line}" for line in kind.example.split("\n"))
        parts.append(f"## {kind.id}\n\n{kind.sentence}{risk}\n\n{code}\n")
    return "\n".join(parts)
