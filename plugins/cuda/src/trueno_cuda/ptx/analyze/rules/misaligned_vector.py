"""An access whose address is not a multiple of what it moves."""

from collections.abc import Iterator

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
            off = int(wrong[wrong != 0][0])
            does, where = ("writes", "to") if access.writes else ("reads", "from")
            if access.kind == "atomic":
                does, where = "changes", "at"
            words = f"an address that is not a multiple of {size} ({off} bytes past one)"
            yield access.at, f"{does} {size} bytes {where} {words}"


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
