"""Faults of addresses, spaces, widths and registers."""

import re
from collections.abc import Iterator

from .faults import Edit, Edits, accesses, address, before, fault, guard, instead, lanes_of, rebuilt, width, without
from .statements import Entry, Statement


def _bare(s: Statement, space: str) -> str:
    """A load's or store's name in another space, without what belongs to global memory."""
    kept = [m for m in s.mods if m in ("v2", "v4") or m == s.mods[-1]]
    return ".".join((s.opcode, space, *kept))


# ---- spaces -------------------------------------------------------------------------------------


@fault("generic-as-shared wrong-space")
def generic_as_shared(entry: Entry) -> Iterator[Edits]:
    """A generic address is used as an address of shared memory."""
    for s, place in accesses(entry, "shared"):
        base, offset = address(s.operands[place])
        if base.startswith("%"):
            wide = "" if _is_wide(entry, base) else f"cvt.u64.u32 %mut_d0, {base}; "
            source = base if not wide else "%mut_d0"
            yield [*before(s, f"{wide}cvta.shared.u64 %mut_d1, {source};"),
                   *instead(s, rebuilt(s, **{f"_{place}": f"[%mut_d1+{offset}]"}))]  # fmt: skip


def _is_wide(entry: Entry, register: str) -> bool:
    """Whether its declaration has 64 bits."""
    prefix = register.rstrip("0123456789")
    found = re.search(rf"\.reg\s+\.[busf](\d+)[^;]*{re.escape(prefix)}(?:<|\d|\s*[,;])", entry.module)
    return found is not None and found[1] == "64"


@fault("wrong-space generic-as-shared shared-64-bit-address")
def global_as_shared(entry: Entry) -> Iterator[Edits]:
    """An address of global memory is used as one of shared memory."""
    for s, _ in accesses(entry, "global"):
        yield instead(s, rebuilt(s, _bare(s, "shared")))


@fault("wrong-space")
def global_as_local(entry: Entry) -> Iterator[Edits]:
    """An address of global memory is used as one of local memory."""
    for s, _ in accesses(entry, "global"):
        yield instead(s, rebuilt(s, _bare(s, "local")))


@fault("wrong-space")
def shared_as_global(entry: Entry) -> Iterator[Edits]:
    """An address of shared memory is used as one of global memory."""
    for s, place in accesses(entry, "shared"):
        base, offset = address(s.operands[place])
        if base.startswith("%"):
            wide = "" if _is_wide(entry, base) else f"cvt.u64.u32 %mut_d0, {base};"
            source = "%mut_d0" if wide else base
            text = rebuilt(s, _bare(s, "global"), **{f"_{place}": f"[{source}+{offset}]"})
            yield [*(before(s, wide) if wide else []), *instead(s, text)]


@fault("wrong-space generic-as-shared")
def wrong_cvta(entry: Entry) -> Iterator[Edits]:
    """The pointer of a parameter is converted to shared memory, and used in global memory."""
    for s in entry.instructions:
        if s.name == "cvta.to.global.u64":
            yield instead(s, rebuilt(s, "cvta.to.shared.u64"))


# ---- places and widths --------------------------------------------------------------------------


@fault("misaligned-vector misaligned-access")
def misalign_global(entry: Entry) -> Iterator[Edits]:
    """A vector access to global memory begins one element too far."""
    for s, place in accesses(entry, "global"):
        base, offset = address(s.operands[place])
        if lanes_of(s) > 1:
            yield instead(s, rebuilt(s, **{f"_{place}": f"[{base}+{offset + width(s)}]"}))


@fault("misaligned-vector misaligned-access")
def misalign_shared(entry: Entry) -> Iterator[Edits]:
    """An access to shared memory begins in the middle of an element."""
    for s, place in accesses(entry, "shared"):
        base, offset = address(s.operands[place])
        step = width(s) if lanes_of(s) > 1 else width(s) // 2
        if step:
            yield instead(s, rebuilt(s, **{f"_{place}": f"[{base}+{offset + step}]"}))


@fault("shared-out-of-bounds")
def beyond_shared(entry: Entry) -> Iterator[Edits]:
    """The offset of an access is as large as all shared memory of the kernel."""
    sizes = entry.shared
    if not sizes or not all(sizes.values()):
        return
    for s, place in accesses(entry, "shared"):
        base, offset = address(s.operands[place])
        yield instead(s, rebuilt(s, **{f"_{place}": f"[{base}+{offset + sum(sizes.values())}]"}))


@fault("shared-out-of-bounds")
def shrink_shared(entry: Entry) -> Iterator[Edits]:
    """A shared array has half the bytes that the threads index."""
    for match in re.finditer(r"\.shared\s+[^;\[]*?([\w$]+)\[(\d+)\]", entry.module):
        if int(match[2]) >= 64 and re.search(rf"{re.escape(match[1])}\b", entry.module[entry.opening : entry.end]):
            yield [Edit(match.start(2), match.end(2), str(int(match[2]) // 2))]


@fault("param-width")
def narrow_pointer(entry: Entry) -> Iterator[Edits]:
    """A pointer of 64 bits is loaded as 32 bits."""
    for s in entry.instructions:
        if s.name in ("ld.param.u64", "ld.param.b64") and _declared(entry, s.operands[1]) == 8:
            yield instead(s, rebuilt(s, "ld.param.u32" if s.name[-3] == "u" else "ld.param.b32"))


@fault("param-width", by="construction")
def narrow_count(entry: Entry) -> Iterator[Edits]:
    """A number of 32 bits is loaded as 16 bits."""
    for s in entry.instructions:
        if s.name in ("ld.param.u32", "ld.param.b32") and _declared(entry, s.operands[1]) == 4:
            yield instead(s, rebuilt(s, s.name.replace("32", "16")))


@fault("param-width", by="construction")
def shrink_parameter(entry: Entry) -> Iterator[Edits]:
    """A parameter is declared with half the bits that the kernel loads."""
    for match in re.finditer(r"\.param\s+\.([bus])(32|64)\s[^,)]*?([\w$%]+)\s*(?=[,)\n])", entry.header):
        at = entry.start + match.start(2)
        if not re.search(rf"\[\s*{re.escape(match[3])}\b", entry.module[entry.opening : entry.end]):
            continue  # nothing loads it
        yield [Edit(at, at + 2, {"32": "16", "64": "32"}[match[2]])]


def _declared(entry: Entry, operand: str) -> int:
    """The bytes of a scalar parameter that is loaded from its beginning; 0 for others."""
    name = operand.strip("[] ")
    found = re.search(rf"\.param\s+\.[busf](\d+)\s[^,)]*?{re.escape(name)}\s*(?:[,)\n])", entry.header)
    return int(found[1]) // 8 if found else 0


@fault("load-type-mismatch")
def narrow_load(entry: Entry) -> Iterator[Edits]:
    """Two bytes of a float32 are loaded into a register without a type, and used as a float32."""
    declared = re.search(r"\.reg\s+\.(f32)\s+%f<", entry.module[entry.opening : entry.end])
    for s, _ in accesses(entry, "global"):
        if s.opcode == "ld" and lanes_of(s) == 1 and s.mods[-1] in ("f32", "b32", "u32"):
            if not any(u.mods[-1:] == ["f32"] and u.opcode != "mma" for u in entry.uses(s.operands[0])):
                continue
            change = instead(s, rebuilt(s, ".".join([s.opcode, *s.mods[:-1], "b16"])))
            if s.operands[0].startswith("%f") and declared:
                at = entry.opening + declared.start(1)
                yield [Edit(at, at + 3, "b32"), *change]
            elif not s.operands[0].startswith("%f"):
                yield change


@fault("address-from-loaded-value")
def loaded_address(entry: Entry) -> Iterator[Edits]:
    """The data of an array is taken for an address."""
    for s, place in accesses(entry, "global"):
        if s.opcode == "ld" and lanes_of(s) == 1:
            yield [*before(s, f"{guard(s)}ld.global.u64 %mut_d0, {s.operands[place]};"),
                   *instead(s, rebuilt(s, _1="[%mut_d0]"))]  # fmt: skip


# ---- registers ----------------------------------------------------------------------------------

PLAIN = (
    "mov",
    "add",
    "sub",
    "mul",
    "mad",
    "and",
    "or",
    "xor",
    "shl",
    "shr",
    "cvt",
    "setp",
    "selp",
    "fma",
    "min",
    "max",
)


@fault("uninitialized-register")
def unset_register(entry: Entry) -> Iterator[Edits]:
    """A register is used that nothing sets."""
    for s in entry.instructions:
        if s.opcode in PLAIN and len(s.writes) == 1 and entry.sole(s.writes[0]) is s and entry.uses(s.writes[0]):
            yield without(s)


@fault("uninitialized-register")
def unset_before_loop(entry: Entry) -> Iterator[Edits]:
    """A register is set in a loop alone, and the first round uses it before."""
    for loop in entry.loops:
        body = entry.code[loop.head : loop.tail]
        for s in entry.code[: loop.head]:
            if s.opcode == "mov" and len(s.writes) == 1 and s.kind == "instruction":
                inside = [b for b in body if s.writes[0] in b.writes]
                first = next((b for b in body if s.writes[0] in b.reads), None)
                if inside and first is not None and len(entry.definitions(s.writes[0])) == 1 + len(inside):
                    yield without(s)


# ---- patterns of access -------------------------------------------------------------------------


def _counts_lanes(entry: Entry, register: str, depth: int = 4) -> bool:
    """Whether it is the thread's number along x, plus what is the same for the block."""
    s = entry.sole(register)
    if s is None or depth == 0 or s.guard:
        return False
    if s.opcode == "mov":
        return s.operands[1] == "%tid.x" or _counts_lanes(entry, s.operands[1], depth - 1)
    if s.opcode == "mad" and "lo" in s.mods:
        return _counts_lanes(entry, s.operands[3], depth - 1)
    if s.opcode in ("add", "or"):
        return any(_counts_lanes(entry, o, depth - 1) for o in s.operands[1:] if o.startswith("%r"))
    return False


@fault("uncoalesced-access", by="construction")
def stride_lanes(entry: Entry) -> Iterator[Edits]:
    """Neighbouring threads access words that are 132 bytes apart."""
    for s in entry.instructions:
        if s.opcode == "mul" and "wide" in s.mods and s.operands[2] == "4" and _counts_lanes(entry, s.operands[1]):
            sums = [u for u in entry.uses(s.operands[0]) if u.opcode == "add"]
            places = {d for u in sums for d in u.writes}
            if any(address(a.operands[p])[0] in places for a, p in accesses(entry, "global")):
                yield instead(s, rebuilt(s, _2="132"))


@fault("bank-conflict", by="construction")
def unpad(entry: Entry) -> Iterator[Edits]:
    """Rows of a shared tile have 32 words instead of 33, so that a column lies in one bank."""
    rows = [s for s in entry.instructions if s.opcode in ("mad", "mul") and s.operands[2] in ("132", "33")]
    if rows:
        smaller = {"132": "128", "33": "32"}
        yield [edit for s in rows for edit in instead(s, rebuilt(s, _2=smaller[s.operands[2]]))]
