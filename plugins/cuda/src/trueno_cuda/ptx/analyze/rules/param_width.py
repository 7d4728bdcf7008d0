"""A load of more bytes than a parameter has."""

from collections.abc import Iterator

from trueno_cuda.ptx.analyze.effects import address, width
from trueno_cuda.ptx.analyze.entry import Entry
from trueno_cuda.ptx.analyze.finding import Found, Rule
from trueno_cuda.ptx.syntax.tree import Variable


def check(entry: Entry) -> Iterator[Found]:
    for at, ins in enumerate(entry.code):
        place = address(ins) if ins.opcode in ("ld", "st") and not ins.unread else None
        if place is None or not isinstance(place.base, Variable) or place.base.space != "param":
            continue
        size, bytes_ = place.base.size, width(ins)
        if size and bytes_ and not 0 <= place.offset <= size - bytes_:
            end = f" at byte {place.offset}" if place.offset else ""
            yield at, f"{bytes_} bytes{end} of {place.base.name}, which has {size}"


RULE = Rule(
    "param-width", "high", "certain",
    "A load or a store of a parameter moves bytes that it does not have.",
    "The upper bytes come from the next parameter; ptxas accepts it.",
    "Use the parameter's own type, and convert the result.",
    bad="ld.param.u64 %rd1, [x]; ld.param.u64 %rd2, [n]; st.global.u64 [%rd1], %rd2; ret;",
    good="ld.param.u64 %rd1, [x]; ld.param.u32 %r2, [n]; st.global.u32 [%rd1], %r2; ret;",
    check=check,
)  # fmt: skip
