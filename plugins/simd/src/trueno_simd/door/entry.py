"""The entry of a kind of op, as text: `module` is what is compiled."""

from trueno.backend import EntryKind, EntryLayout, contract

from trueno_simd.door import arguments, arrays, environment, numbers, plans, results, strided
from trueno_simd.door.frame import Frame
from trueno_simd.door.text import Function

_ARGUMENTS = "ptr %self, ptr %args, i64 %nargsf, ptr %kwnames"
_HEAD = """
; written after loading: the words of the process, and the descriptor of the op
@words = global ptr null
@descriptor = global ptr null

declare double @llvm.fabs.f64(double)
"""
_FOOT = """
attributes #0 = { nounwind }
attributes #1 = { nounwind alwaysinline }
!0 = !{!"branch_weights", i32 2000, i32 1}
"""


def module(kind: EntryKind, layout: EntryLayout, form: str, symbol: str) -> str:
    """The text of a kind's entry for calls of one form, as a function of this name."""
    f = Function(f"define ptr @{symbol}({_ARGUMENTS}) #0")
    frame = Frame(f, kind, layout, form or kind.kinds)
    if kind.broadcasts and not form:
        frame.apart = {0: "as_ue", 1: "as_eu"}
    arguments.bind(frame)
    arrays.check(frame)
    environment.require(frame)
    numbers.parameters(frame)
    numbers.operands(frame)
    code = plans.find(frame, contract.FORMS[form, 2 if "w" in form else 1] if form else None)
    results.finish(frame, code)
    results.refuse(frame)
    if frame.apart:
        _apart(frame)
    plans.leave(frame)
    return whole(f.text())


def whole(function: str) -> str:
    """A module with this function and all that it refers to."""
    return "\n".join([_HEAD, environment.declarations(), arrays.HELPERS, strided.helpers(), function, _FOOT])


def _apart(frame: Frame) -> None:
    """Operands of another form: the form's entry, which starts again."""
    f = frame.f
    f.place("rows")
    left, right = (frame.part(x, "ndim", "i32") for x in frame.operands)
    f.branch(f(f"icmp slt i32 {left}, {right}"), "as_we", "as_ew")
    for (form, _), number in contract.FORMS.items():
        if not form:
            continue
        f.place(f"as_{form}")
        f.store("i64", str(-number), frame.key)
        twin, known = frame.fact("twins", number), f.label("known")
        f.require(f.given(twin), "miss")
        f.branch(f(f"icmp eq ptr {twin}, inttoptr (i64 1 to ptr)"), "slow", known)
        f.place(known)
        f.do(f"ret ptr {f(f'tail call ptr {twin}({_ARGUMENTS})')}")
