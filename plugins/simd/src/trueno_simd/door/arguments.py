"""An entry's first step: which argument is which, by position or by the identity of an interned keyword."""

from collections.abc import Callable

from trueno_simd.door.frame import Frame

COUNT = "9223372036854775807"  # the flag of the vectorcall protocol is the bit above


def bind(frame: Frame) -> None:
    """Find operands, float parameters and `out`; a keyword that has one permitted value must have it."""
    f, kind = frame.f, frame.kind
    operands, optional = len(frame.kinds), sum(positional for positional, _ in kind.parameters)
    count = f(f"and i64 %nargsf, {COUNT}")
    if optional:
        _further(frame, count, operands, optional)
    else:
        f.require(f.same("i64", count, operands), "slow")
    f.unless(f.null("%kwnames"), lambda: _keywords(frame, count))
    frame.operands = [f.load("ptr", "%args", 8 * i) for i in range(operands)]
    frame.data = {x: f.slot("ptr") for x in frame.arrays}


def _further(frame: Frame, count: str, operands: int, optional: int) -> None:
    """Parameters that were given by position."""
    f = frame.f
    more = f(f"sub i64 {count}, {operands}")
    f.require(f(f"icmp ule i64 {more}, {optional}"), "slow")
    for i in range(optional):
        given, further = f.label("given"), f.label("on")
        f.branch(f(f"icmp ugt i64 {more}, {i}"), given, further)
        f.place(given)
        f.store("ptr", f.load("ptr", "%args", 8 * (operands + i)), frame.values[i])
        f.goto(further)
        f.place(further)


def _keywords(frame: Frame, count: str) -> None:
    """A loop over the names of keywords, whose values follow the positional arguments."""
    f, offset = frame.f, frame.layout.offset
    position = f.slot("i64")
    f.store("i64", "0", position)
    total = f.load("i64", "%kwnames", offset["tuple_size"])
    loop, inside, after, further = f.label("loop"), f.label("name"), f.label("next"), f.label("bound")
    f.goto(loop)
    f.place(loop)
    i = f.load("i64", position)
    f.branch(f(f"icmp ult i64 {i}, {total}"), inside, further)
    f.place(inside)
    name = f.load("ptr", f.at("%kwnames", f(f"shl i64 {i}, 3")), offset["tuple_items"])
    value = f.load("ptr", f.at("%args", f(f"shl i64 {f(f'add i64 {i}, {count}')}, 3")))

    def case(known: str, then: Callable[[], None]) -> None:
        yes, no = f.label("is"), f.label("else")
        f.branch(f.same("ptr", name, known), yes, no)
        f.place(yes)
        then()
        f.goto(after)
        f.place(no)

    def parameter(i: int) -> None:
        f.require(f.null(f.load("ptr", frame.values[i])), "slow")  # given by position as well
        f.store("ptr", value, frame.values[i])

    case(frame.word("out"), lambda: f.store("ptr", value, frame.out))
    for k in range(len(frame.values)):
        case(frame.fact("names", k), lambda k=k: parameter(k))  # type: ignore[misc]
    for k in range(frame.kind.fixed):
        fixed, name_at = frame.fact("values", k), len(frame.values) + k
        case(frame.fact("names", name_at), lambda fixed=fixed: f.require(f.same("ptr", value, fixed), "slow"))  # type: ignore[misc]
    f.goto("slow")  # unknown, or a text that is not interned
    f.place(after)
    f.store("i64", f(f"add i64 {i}, 1"), position)
    f.goto(loop)
    f.place(further)
