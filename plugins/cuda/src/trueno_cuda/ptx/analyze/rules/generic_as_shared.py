"""A generic address where shared memory's own is wanted, and the reverse."""

from collections.abc import Iterator

from trueno_cuda.ptx.analyze.effects import space
from trueno_cuda.ptx.analyze.entry import Entry
from trueno_cuda.ptx.analyze.finding import Found, Rule


def check(entry: Entry) -> Iterator[Found]:
    for access in entry.accesses:
        count = dict(access.form.terms).get(("generic", "shared"), 0)
        if space(access.ins) == "shared" and count > 0:
            yield access.at, "the address was made generic by cvta.shared, and .shared wants the one before that"


RULE = Rule(
    "generic-as-shared", "critical", "certain",
    "An instruction on .shared gets an address that cvta.shared has made generic.",
    "An address of shared memory counts from the start of the block's memory; a generic one lies somewhere else in "
    "64 bits. ptxas accepts both.",
    "Leave out cvta, convert back with cvta.to.shared, or leave out .shared.",
    bad="""mov.u32 %r1, %tid.x; mov.u64 %rd3, s; cvta.shared.u64 %rd4, %rd3; st.shared.u32 [%rd4], %r1; ret;""",
    good="""mov.u32 %r1, %tid.x; mov.u64 %rd3, s; cvta.shared.u64 %rd4, %rd3; st.u32 [%rd4], %r1; ret;""",
    check=check,
)  # fmt: skip
