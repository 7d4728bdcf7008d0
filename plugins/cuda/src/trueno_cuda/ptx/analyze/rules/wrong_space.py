"""An access to another space than that of the variable in its address."""

from collections.abc import Iterator

from trueno_cuda.ptx.analyze.effects import space
from trueno_cuda.ptx.analyze.entry import Entry
from trueno_cuda.ptx.analyze.finding import Found, Rule

DISTINCT = {"global", "shared", "local"}
POINTER = 64
"""Bits of an argument that is a pointer; it points to global memory, or to what the host maps there."""


def check(entry: Entry) -> Iterator[Found]:
    pointers = {p.name for p in entry.function.params if p.type.bits == POINTER and not p.array}
    pointers &= _dereferenced(entry)
    for access in entry.accesses:
        if access.kind in ("copy", "copied"):
            continue  # it names two spaces
        named = space(access.ins)
        terms = dict(access.form.terms)
        named_here = [a for a in terms if a[0] == "var"]
        given = [a[1] for a, c in terms.items() if a[0] == "param" and c == 1 and a[1] in pointers and a[2] == 0]
        if named in ("shared", "local") and len(given) == 1 and not named_here:
            yield access.at, f".{named} is accessed through the argument {given[0]}, a pointer to global memory"
            continue
        if named in ("global", "local", "const") and terms.get(("generic", "shared"), 0):
            yield access.at, f".{named} is accessed at an address that cvta converted for shared memory"
            continue
        for atom, count in terms.items():
            if atom[0] != "var" or count != 1 or atom[1] not in DISTINCT:
                continue
            converted = ("generic", "shared") in terms
            if named in DISTINCT and atom[1] != named and not converted:
                yield access.at, f".{named} is accessed at the address of {atom[2]}, which is .{atom[1]}"
            elif named == "generic" and atom[1] == "shared" and not converted:
                yield access.at, f"a generic access to {atom[2]} at its address in shared memory, without cvta.shared"


def _dereferenced(entry: Entry) -> set[str]:
    """Arguments of an entry."""
    return {p.name for p in entry.function.params} if entry.function.entry else set()


RULE = Rule(
    "wrong-space", "critical", "certain",
    "An instruction names one space, and the variable that its address was made from is in another.",
    "The same number means another place in each space.",
    "Name the variable's space, or convert the address with cvta.",
    bad="mov.u32 %r1, %tid.x; mov.u64 %rd3, s; st.global.u32 [%rd3], %r1; ret;",
    good="mov.u32 %r1, %tid.x; mov.u64 %rd3, s; st.shared.u32 [%rd3], %r1; ret;",
    check=check,
)  # fmt: skip
