"""An access whose address is not a multiple of what it moves."""

from collections.abc import Iterator

from trueno_cuda.ptx.analyze.access import Access
from trueno_cuda.ptx.analyze.entry import Entry
from trueno_cuda.ptx.analyze.finding import Found, Rule

STRICTEST = 16
"""Bytes of alignment that a pointer argument is taken to have."""


def check(entry: Entry) -> Iterator[Found]:
    alignments = {(v.space, v.name): v.align for v in [*entry.program.variables, *entry.function.variables]}
    for access in entry.accesses:
        size = access.bytes
        if size not in (2, 4, 8, 16) or access.space in ("param", "local"):
            continue
        parts = entry.block_lanes.split(access.form)
        if parts is None:
            off = _remainder(entry, access, alignments)
            if off:
                yield access.at, _sentence(access, off)
            continue
        bases = [a for a in parts if a is not None and a[0] in ("param", "var") and (parts[a] == 1).all()]
        rest = [a for a in parts if a is not None and a not in bases and a != ("generic", "shared")]
        if len(bases) != 1 or any((parts[a] * entry.block_lanes.factor(a) % size).any() for a in rest):
            continue
        base = bases[0]
        align = alignments.get((base[1], base[2]), 0) if base[0] == "var" else STRICTEST
        if base[0] == "var" and align < size:
            if align:
                yield access.at, f"{base[2]} is aligned to {align} bytes, and this accesses {size} at once"
            continue
        active, certain = entry.runs(access.at)
        wrong = parts[None][active] % size
        if len(wrong) and (wrong.any() if certain else wrong.all()):
            yield access.at, _sentence(access, int(wrong[wrong != 0][0]))


def _sentence(access: Access, off: int) -> str:
    does, where = ("writes", "to") if access.writes else ("reads", "from")
    if access.kind == "atomic":
        does, where = "changes", "at"
    size = access.bytes
    return f"{does} {size} bytes {where} an address that is not a multiple of {size} ({off} bytes past one)"


def _remainder(entry: Entry, access: Access, alignments: dict[tuple[str, str], int]) -> int:
    """What every thread's address leaves where it is divided by the bytes of the access; 0 where that is not known.

    All but a constant and the variable's address are multiples, whatever the indices are.
    """
    terms = access.form.terms
    bases = [a for a, count in terms if a[0] in ("param", "var") and count == 1]
    if len(bases) != 1:
        return 0
    (base,) = bases
    align = alignments.get((base[1], base[2]), 0) if base[0] == "var" else STRICTEST
    lanes = entry.block_lanes
    rest = all((count * lanes.factor(a)) % access.bytes == 0 for a, count in terms if a != base and a[0] != "generic")
    return access.form.const % access.bytes if rest and align >= access.bytes else 0


RULE = Rule(
    "misaligned-vector", "critical", "high",
    "A load or a store moves several bytes at once from an address that is not a multiple of their number.",
    "The hardware raises a misaligned-address error, which ends the kernel and the whole context.",
    "Align the variable (.align 16), or make every part of the address a multiple of the bytes of the access; or use "
    "narrower accesses.",
    bad="""mov.u32 %r1, %tid.x; ld.param.u64 %rd1, [x]; mul.wide.u32 %rd2, %r1, 16; add.u64 %rd3, %rd1, %rd2;
ld.global.v4.f32 {%f1, %f2, %f3, %f4}, [%rd3+4]; st.global.v4.f32 [%rd3], {%f1, %f2, %f3, %f4}; ret;""",
    good="""mov.u32 %r1, %tid.x; ld.param.u64 %rd1, [x]; mul.wide.u32 %rd2, %r1, 16; add.u64 %rd3, %rd1, %rd2;
ld.global.v4.f32 {%f1, %f2, %f3, %f4}, [%rd3+16]; st.global.v4.f32 [%rd3], {%f1, %f2, %f3, %f4}; ret;""",
    check=check,
)  # fmt: skip
