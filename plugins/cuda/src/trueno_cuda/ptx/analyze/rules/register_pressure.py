"""More live values than a thread has registers."""

from collections.abc import Iterator

from trueno_cuda.ptx.analyze.entry import Entry
from trueno_cuda.ptx.analyze.finding import Found, Rule

REGISTERS = 255
"""Of 32 bits, of a thread."""


def check(entry: Entry) -> Iterator[Found]:
    at, words = entry.flow.peak
    limit = (*entry.function.directives.get("maxnreg", ()), REGISTERS)[0]
    if words > limit and entry.code:
        yield at, f"{words} words of 32 bits are live here, and a thread has {limit} registers"


RULE = Rule(
    "register-pressure", "medium", "high",
    "More values are live at one place than a thread has registers.",
    "The rest is spilled to local memory, or ptxas has to compute it again.",
    "Hold fewer values at a time: smaller tiles, or loads nearer to their use.",
    bad="\n".join(
        ["ld.param.u64 %rd1, [x];", *(f"ld.global.f64 %w{k}, [%rd1+{8 * k}];" for k in range(140)),
         *(f"st.global.f64 [%rd1+{8 * k}], %w{139 - k};" for k in range(140)), "ret;"]
    ),
    good="\n".join(
        ["ld.param.u64 %rd1, [x];", *(f"ld.global.f64 %w{k}, [%rd1+{8 * k}];" for k in range(40)),
         *(f"st.global.f64 [%rd1+{8 * k}], %w{39 - k};" for k in range(40)), "ret;"]
    ),
    check=check, performance=True,
)  # fmt: skip
