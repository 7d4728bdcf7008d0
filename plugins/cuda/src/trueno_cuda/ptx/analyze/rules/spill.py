"""Registers that ptxas, or nvJitLink, keeps in memory."""

from collections.abc import Iterator

from trueno_cuda.ptx.analyze.entry import Entry
from trueno_cuda.ptx.analyze.finding import Found, Rule

COUNT = 40
MODULE = """.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 x, .param .u64 y)
{limit}
{{
.reg .b64 %rd<4>; .reg .f32 %f<64>;
{body}
}}
"""


def check(entry: Entry) -> Iterator[Found]:
    real = entry.assembled
    if real is not None and entry.code and real.spill_stores + real.spill_loads:
        at, words = entry.flow.peak
        spilled = f"stores {real.spill_stores} bytes of registers to local memory and loads {real.spill_loads}"
        yield at, f"{real.by} {spilled}, with {real.registers} registers; most, {words} words, are live here"


BODY = "\n".join(
    ["ld.param.u64 %rd1, [x]; ld.param.u64 %rd2, [y];",
     *(f"ld.global.f32 %f{k}, [%rd1+{4 * k}];" for k in range(COUNT)),
     *(f"st.global.f32 [%rd2+{4 * k}], %f{COUNT - 1 - k};" for k in range(COUNT)), "ret;"]
)  # fmt: skip
RULE = Rule(
    "spill", "medium", "certain",
    "ptxas or nvJitLink, where one is installed, reports that it spills registers of the kernel. A text alone does not "
    "show that: .local memory is mostly an array of the program.",
    "A spilled value is stored to local memory and loaded again, which goes through the caches to DRAM.",
    "Hold fewer values at a time, or allow more registers: a larger .maxnreg, fewer blocks in .minnctapersm, smaller "
    "blocks.",
    bad=MODULE.format(limit=".maxntid 1024\n.minnctapersm 2", body=BODY),
    good=MODULE.format(limit=".maxntid 128", body=BODY),
    check=check, performance=True,
)  # fmt: skip
