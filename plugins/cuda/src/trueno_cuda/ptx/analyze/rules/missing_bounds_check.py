"""A kernel that takes a size and never looks at it."""

from collections.abc import Iterator

from trueno_cuda.ptx.analyze.entry import Entry
from trueno_cuda.ptx.analyze.finding import Found, Rule
from trueno_cuda.ptx.analyze.uniform import BLOCK
from trueno_cuda.ptx.analyze.values import Atom, Form
from trueno_cuda.ptx.syntax.tree import Address, Variable


def check(entry: Entry) -> Iterator[Found]:
    yield from _unused(entry)
    if not entry.function.entry or any(len(b.successors) > 1 for b in entry.graph.blocks):
        return
    sizes = {p.name for p in entry.function.params if p.type.kind in "us" and p.type.bits == 32 and not p.array}
    if len(sizes & _used(entry)) or not sizes:
        return
    for access in entry.accesses:
        if access.space not in ("global", "generic") or access.kind != "store" or access.ins.guard is not None:
            continue
        names = {name.partition(".")[0] for name in _specials(access.form)}
        if {"tid", "ctaid"} <= names:
            name = sorted(sizes)[0]
            yield access.at, f"every thread of the grid stores here, and the size {name} is compared with nothing"
            return


def _unused(entry: Entry) -> Iterator[Found]:
    """Comparisons of an index with a parameter whose result nothing uses, ahead of an access to global memory."""
    touched = [a.at for a in entry.accesses if a.space == "global"]
    for at in entry.reachable if entry.function.entry and touched else ():
        ins = entry.code[at]
        if ins.opcode != "setp" or len(ins.operands) != 3 or any(entry.flow.uses[r] for r in entry.flow.writes[at]):
            continue
        forms = [entry.values.operand(o, ins, at) for o in ins.operands[1:]]
        kinds = [{a[0] for a, _ in form.terms} if form is not None else set() for form in forms]
        levels = [entry.uniformity.of(o, at) for o in ins.operands[1:]]
        for k in (0, 1):
            if kinds[k] == {"param"} and levels[1 - k] < BLOCK and at < max(touched) and not _compared(entry, forms[k]):
                yield at, "an index is compared with a parameter here, and nothing depends on the outcome"


def _compared(entry: Entry, size: Form | None) -> bool:
    """Whether another comparison with a parameter decides something."""
    return any(
        size in [entry.values.operand(o, entry.code[at], at) for o in entry.code[at].operands[1:]]
        and any(entry.flow.uses[r] for r in entry.flow.writes[at])
        for at in entry.reachable
        if entry.code[at].opcode == "setp"
    )


def _used(entry: Entry) -> set[str]:
    """Parameters whose value reaches anything."""
    used = set()
    for at, ins in enumerate(entry.code):
        if ins.opcode == "ld" and not any(entry.flow.uses[r] for r in entry.flow.writes[at]):
            continue
        bases = [o.base for o in ins.operands if isinstance(o, Address)]
        used |= {base.name for base in bases if isinstance(base, Variable) and base.space == "param"}
    return used


def _specials(form: Form) -> Iterator[str]:
    def of(atom: Atom) -> Iterator[str]:
        if atom[0] == "special":
            yield atom[1]
        elif atom[0] == "op":
            for inner in atom[2:]:
                yield from _specials(inner)

    for atom, _ in form.terms:
        yield from of(atom)


RULE = Rule(
    "missing-bounds-check", "medium", "medium",
    "Every thread of the grid stores at its own index, no branch or guard is taken anywhere, and the kernel's size "
    "parameter reaches nothing; or an index is compared with a parameter, and nothing depends on the outcome.",
    "A grid is a whole number of blocks. Where the size is not, the last block writes behind the array.",
    "Compare the index with the size, and guard the loads and stores with the result.",
    bad="""mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x; mad.lo.u32 %r5, %r2, %r3, %r1;
ld.param.u32 %r4, [n]; ld.param.u64 %rd1, [x]; mul.wide.u32 %rd2, %r5, 4; add.u64 %rd3, %rd1, %rd2;
st.global.u32 [%rd3], %r5; ret;""",
    good="""mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x; mad.lo.u32 %r5, %r2, %r3, %r1;
ld.param.u32 %r4, [n]; ld.param.u64 %rd1, [x]; mul.wide.u32 %rd2, %r5, 4; add.u64 %rd3, %rd1, %rd2;
setp.lt.u32 %p1, %r5, %r4; @%p1 st.global.u32 [%rd3], %r5; ret;""",
    check=check,
)  # fmt: skip
