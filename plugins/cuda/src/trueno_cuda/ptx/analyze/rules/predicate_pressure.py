"""More live predicates than a thread has."""

from collections.abc import Iterator

from trueno_cuda.ptx.analyze.entry import Entry
from trueno_cuda.ptx.analyze.finding import Found, Rule

PREDICATES = 7
"""Of a thread."""
MOST = 18
"""Live ones that are not reported: ptxas keeps the others as bits of a register."""


def check(entry: Entry) -> Iterator[Found]:
    most = entry.flow.pressure.get("pred", 0)
    if most > MOST:
        sets = (at for at in range(len(entry.code)) if entry.flow.writes[at] and _predicate(entry, at))
        at = next(sets, 0)  # a damaged text may read predicates that nothing sets
        yield at, f"up to {most} predicates are live at once, and a thread has {PREDICATES}"


def _predicate(entry: Entry, at: int) -> bool:
    return entry.register(entry.flow.writes[at][0]).type.kind == "p"


SETS = " ".join(f"setp.lt.u32 %q{k}, %r1, {k};" for k in range(20))
USES = " ".join(f"@%q{k} add.u32 %r1, %r1, 1;" for k in range(20))
STORE = "ld.param.u64 %rd1, [x]; st.global.u32 [%rd1], %r1; ret;"
RULE = Rule(
    "predicate-pressure", "low", "high",
    "More than 18 predicates are live at one place; a thread has seven.",
    "The rest is packed into registers, and unpacked for each use.",
    "Compare where the result is used, or combine conditions with and.pred and or.pred.",
    bad=f".reg .pred %q<20>; ld.param.u32 %r1, [n];\n{SETS}\n{USES}\n{STORE}",
    good=f".reg .pred %q<20>; ld.param.u32 %r1, [n]; setp.lt.u32 %q0, %r1, 5; @%q0 add.u32 %r1, %r1, 1; {STORE}",
    check=check, performance=True,
)  # fmt: skip
