"""Data of an array that an instruction takes for an address."""

from collections.abc import Iterator

from trueno_cuda.ptx.analyze.access import Access
from trueno_cuda.ptx.analyze.effects import address, space, width
from trueno_cuda.ptx.analyze.entry import Entry
from trueno_cuda.ptx.analyze.finding import Found, Rule
from trueno_cuda.ptx.analyze.values import Atom, Form
from trueno_cuda.ptx.syntax.tree import Instruction

POINTER = 8
"""Bytes of a pointer."""
POINTS = {"param", "var", "generic"}
"""Atoms of an address that point to memory."""
ELSEWHERE = {"param", "local", "const"}
"""Spaces whose loads may hold any pointer: arguments, what a compiler keeps on the stack, tables."""


def check(entry: Entry) -> Iterator[Found]:
    for access in entry.accesses:
        if access.space not in ("global", "generic"):
            continue
        atoms = [atom for atom, _ in access.form.terms]
        if any(atom[0] in POINTS for atom in atoms):
            continue
        loads = {atom: _load(entry, atom, access) for atom in atoms}
        if atoms and all(ins is not None and 0 < width(ins) < POINTER for ins in loads.values()):
            one = next(ins for ins in loads.values() if ins is not None)
            yield access.at, f"the address is the number that line {one.line} loads, and no pointer is added to it"
            continue
        for atom, count in access.form.terms:
            ins = loads[atom]
            if count == 1 and ins is not None and width(ins) == POINTER and _between(entry, atom[2]):
                words = f"the address is what line {ins.line} loads, where an element of 4 bytes or fewer begins"
                yield access.at, f"{words}: data, and no pointer"


def _load(entry: Entry, atom: Atom, access: Access) -> Instruction | None:
    """The load from an array that an atom is the result of."""
    if atom[0] != "value":
        return None
    site = atom[2] if atom[2] >= 0 else entry.flow.only(atom[1])
    if site < 0 or site == access.at:
        return None
    ins = entry.code[site]
    plain = ins.opcode == "ld" and not ins.unread and address(ins) is not None and space(ins) not in ELSEWHERE
    return ins if plain and not any(m in ("v2", "v4", "v8") for m in ins.mods) else None


def _between(entry: Entry, site: int) -> bool:
    """Whether a load's places lie closer together than pointers do, so that most of them are in the midst of one."""
    place = address(entry.code[site])
    if place is None:
        return False
    form: Form = entry.values.address(place, site)
    lanes = entry.block_lanes
    if not any(atom[0] in ("param", "var") and count == 1 for atom, count in form.terms):
        return False
    return any(
        abs(count) > 1 and abs(count) * lanes.factor(atom) % POINTER
        for atom, count in form.terms
        if atom[0] not in POINTS
    )


RULE = Rule(
    "address-from-loaded-value", "critical", "high",
    "The address of an access to global memory is a number of at most 32 bits that was loaded, to which no pointer is "
    "added; or it was loaded as 64 bits from an array whose index advances by 4 bytes or fewer, so that the array does "
    "not hold pointers.",
    "Data is not an address: the access reads or writes a place that has nothing to do with the arrays.",
    "Multiply a loaded index by the element's size and add the array's pointer; load pointers from an array of 8-byte "
    "elements.",
    bad="""mov.u32 %r1, %tid.x; ld.param.u64 %rd1, [x]; mul.wide.u32 %rd2, %r1, 4; add.u64 %rd3, %rd1, %rd2;
ld.global.u32 %r2, [%rd3]; mul.wide.u32 %rd4, %r2, 4; ld.global.u32 %r3, [%rd4]; st.global.u32 [%rd3], %r3; ret;""",
    good="""mov.u32 %r1, %tid.x; ld.param.u64 %rd1, [x]; mul.wide.u32 %rd2, %r1, 4; add.u64 %rd3, %rd1, %rd2;
ld.global.u32 %r2, [%rd3]; mul.wide.u32 %rd4, %r2, 4; add.u64 %rd4, %rd4, %rd1; ld.global.u32 %r3, [%rd4];
st.global.u32 [%rd3], %r3; ret;""",
    check=check,
)  # fmt: skip
