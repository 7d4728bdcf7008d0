"""An access to another space than that of the variable in its address."""

from collections.abc import Iterator

from trueno_cuda.ptx.analyze.effects import space
from trueno_cuda.ptx.analyze.entry import Entry
from trueno_cuda.ptx.analyze.finding import Found, Rule

DISTINCT = {"global", "shared", "local"}


def check(entry: Entry) -> Iterator[Found]:
    for access in entry.accesses:
        named = space(access.ins)
        terms = dict(access.form.terms)
        for atom, count in terms.items():
            if atom[0] != "var" or count != 1 or atom[1] not in DISTINCT:
                continue
            converted = ("generic", "shared") in terms
            if named in DISTINCT and atom[1] != named and not converted:
                yield access.at, f".{named} is accessed at the address of {atom[2]}, which is .{atom[1]}"
            elif named == "generic" and atom[1] == "shared" and not converted:
                yield access.at, f"a generic access to {atom[2]} at its address in shared memory, without cvta.shared"


RULE = Rule(
    "wrong-space", "critical", "certain",
    "An instruction names one space, and the variable that its address was made from is in another.",
    "The same number means another place in each space.",
    "Name the variable's space, or convert the address with cvta.",
    bad="mov.u32 %r1, %tid.x; mov.u64 %rd3, s; st.global.u32 [%rd3], %r1; ret;",
    good="mov.u32 %r1, %tid.x; mov.u64 %rd3, s; st.shared.u32 [%rd3], %r1; ret;",
    check=check,
)  # fmt: skip
