"""Addresses of shared memory that are computed in 64 bits."""

from collections.abc import Iterator

from trueno_cuda.ptx.analyze.effects import address, space
from trueno_cuda.ptx.analyze.entry import Entry
from trueno_cuda.ptx.analyze.finding import Found, Rule
from trueno_cuda.ptx.syntax.tree import Register

WIDE = 64


def check(entry: Entry) -> Iterator[Found]:
    reported: set[int] = set()
    for access in entry.accesses:
        place = address(access.ins)
        base = place.base if place is not None else None
        if space(access.ins) != "shared" or not isinstance(base, Register) or base.type.bits != WIDE:
            continue
        atoms = {atom[:2] for atom, _ in access.form.terms}
        if ("var", "shared") in atoms and ("generic", "shared") not in atoms and base.index not in reported:
            reported.add(base.index)
            yield access.at, f"{base.name} holds an address of shared memory in 64 bits; 32 are enough"


RULE = Rule(
    "shared-64-bit-address", "low", "certain",
    "The address of an access to shared memory is computed in 64 bits from a variable's address. It is reported with "
    "--strict, or where --rule names it.",
    "ptxas accepts it and the access is right, but each address takes two registers and twice the additions; and a "
    "64-bit address of shared memory is easily mistaken for a generic one.",
    "Take the variable's address with mov.u32, and add 32-bit offsets.",
    bad="""mov.u32 %r1, %tid.x; mul.wide.u32 %rd2, %r1, 4; mov.u64 %rd3, s; add.u64 %rd4, %rd3, %rd2;
st.shared.u32 [%rd4], %r1; ret;""",
    good="""mov.u32 %r1, %tid.x; shl.b32 %r2, %r1, 2; mov.u32 %r3, s; add.u32 %r4, %r3, %r2;
st.shared.u32 [%r4], %r1; ret;""",
    check=check, performance=True, strict=True,
)  # fmt: skip
