"""A load of more bytes than a parameter has."""

from collections.abc import Iterator

from trueno_cuda.ptx.analyze.effects import address, width
from trueno_cuda.ptx.analyze.entry import Entry
from trueno_cuda.ptx.analyze.finding import Found, Rule
from trueno_cuda.ptx.analyze.uniform import BLOCK
from trueno_cuda.ptx.analyze.values import Form
from trueno_cuda.ptx.syntax.tree import Address, Register, Variable


def check(entry: Entry) -> Iterator[Found]:
    for at, ins in enumerate(entry.code):
        place = address(ins) if ins.opcode in ("ld", "st") and not ins.unread else None
        if place is None or not isinstance(place.base, Variable) or place.base.space != "param":
            continue
        size, bytes_ = place.base.size, width(ins)
        if ins.opcode == "ld" and size == 8 and bytes_ == 4 and not place.base.array and _address(entry, at, place):
            yield at, f"4 bytes of {place.base.name}, which has 8, are used as an address"
        if ins.opcode == "ld" and size == 4 and bytes_ == 2 and not place.base.array and _counts(entry, at, place):
            yield at, f"2 bytes of {place.base.name}, which has 4, are compared with an index"
        if size and bytes_ and not 0 <= place.offset <= size - bytes_:
            end = f" at byte {place.offset}" if place.offset else ""
            yield at, f"{bytes_} bytes{end} of {place.base.name}, which has {size}"


def _address(entry: Entry, at: int, place: Address) -> bool:
    """Whether what a load reads is the base of an address of global memory, in a register of 64 bits."""
    target = entry.code[at].operands[0]
    if not isinstance(target, Register) or target.type.bits != 64 or not isinstance(place.base, Variable):
        return False
    name = place.base.name
    return any(
        a.space in ("global", "generic") and any(t[:2] == ("param", name) and c == 1 for t, c in a.form.terms)
        for a in entry.accesses
    )


def _counts(entry: Entry, at: int, place: Address) -> bool:
    """Whether what a load reads, into a register of 32 bits, limits an index of threads or of a loop."""
    target = entry.code[at].operands[0]
    if not isinstance(target, Register) or target.type.bits != 32 or not isinstance(place.base, Variable):
        return False
    whole = Form(0, frozenset({(("param", place.base.name, place.offset), 1)}))
    for use in entry.reachable:
        ins = entry.code[use]
        if ins.opcode != "setp" or len(ins.operands) != 3:
            continue
        sides = [entry.values.operand(o, ins, use) for o in ins.operands[1:]]
        for side, other, operand in zip(sides, sides[::-1], ins.operands[:0:-1], strict=True):
            if side == whole and other is not None:
                index = any(atom[0] == "count" for atom, _ in other.terms) or entry.uniformity.of(operand, use) < BLOCK
                if index:
                    return True
    return False


RULE = Rule(
    "param-width", "high", "certain",
    "A load or a store of a parameter moves bytes that it does not have, or half of a pointer, or half of a number "
    "that an index is compared with.",
    "The upper bytes come from the next parameter, or are lost; ptxas accepts it.",
    "Use the parameter's own type, and convert the result.",
    bad="ld.param.u64 %rd1, [x]; ld.param.u64 %rd2, [n]; st.global.u64 [%rd1], %rd2; ret;",
    good="ld.param.u64 %rd1, [x]; ld.param.u32 %r2, [n]; st.global.u32 [%rd1], %r2; ret;",
    check=check,
)  # fmt: skip
