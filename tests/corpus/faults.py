"""The kinds of fault: each finds the places in a kernel where it fits, and says how the text changes there.

A fault's rules are those of an analyzer that are right to report it, the usual one first.  `static` is false for a
fault that no rule is for, because a text alone does not show it: it is counted beside the others.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from .statements import Entry, Statement

SCRATCH = (
    "\n\t.reg .pred %mut_p<40>;\n\t.reg .b32 %mut_r<8>;\n\t.reg .b64 %mut_d<8>;\n"
    "\t.reg .b16 %mut_h<2>;\n\t.reg .b32 %mut_k<300>;"
)
"""Registers for what is put in; declared where a change uses one."""
ODD = "mov.u32 %mut_r0, %tid.x; and.b32 %mut_r1, %mut_r0, 1; setp.eq.u32 %mut_p0, %mut_r1, 1;"
"""%mut_p0: this thread's number is odd."""


class Edit(NamedTuple):
    """text in place of what stands from start to end."""

    start: int
    end: int
    text: str


Edits = list[Edit]
Finder = Callable[[Entry], Iterator[Edits]]


@dataclass(frozen=True)
class Fault:
    """by: "emulator", where its run must go wrong, or "construction", where the change itself is the proof."""

    id: str
    rules: tuple[str, ...]
    sentence: str
    find: Finder
    by: str = "emulator"
    static: bool = True


FAULTS: dict[str, Fault] = {}
"""By id; the modules `faults_…` fill it."""


def fault(rules: str, *, by: str = "emulator", static: bool = True) -> Callable[[Finder], Finder]:
    """Declare the function as a fault: its name is the id, its docstring the sentence."""

    def register(find: Finder) -> Finder:
        name = find.__name__.replace("_", "-")
        FAULTS[name] = Fault(name, tuple(rules.split()), (find.__doc__ or "").strip(), find, by, static)
        return find

    return register


def applied(entry: Entry, edits: Edits) -> str:
    """The module with the changes, and the scratch registers if one of them names one."""
    if any("%mut_" in edit.text for edit in edits):
        edits = [Edit(entry.opening + 1, entry.opening + 1, SCRATCH), *edits]
    text = entry.module
    for edit in sorted(edits, reverse=True):
        text = text[: edit.start] + edit.text + text[edit.end :]
    return text


# ---- changes ------------------------------------------------------------------------------------


def without(*gone: Statement) -> Edits:
    return [Edit(s.start, s.end, "") for s in gone]


def instead(s: Statement, text: str) -> Edits:
    """Another text for a statement; its guard stands before it again."""
    return [Edit(s.start, s.end, guard(s) + text)]


def before(s: Statement, text: str) -> Edits:
    return [Edit(s.start, s.start, text + "\n\t")]


def after(s: Statement, text: str) -> Edits:
    return [Edit(s.end, s.end, "\n\t" + text)]


def guard(s: Statement) -> str:
    return f"@{'!' * s.negated}{s.guard} " if s.guard else ""


def rebuilt(s: Statement, name: str = "", **changed: str) -> str:
    """The statement with another name, or other operands: `_1="…"` is the second."""
    parts = [changed.get(f"_{k}", operand) for k, operand in enumerate(s.operands)]
    return f"{name or s.name} {', '.join(parts)};"


# ---- what is looked for -------------------------------------------------------------------------


def is_barrier(s: Statement) -> bool:
    """A barrier of the whole block."""
    return s.opcode in ("bar", "barrier") and "sync" in s.mods and "warp" not in s.mods and len(s.operands) == 1


def accesses(entry: Entry, space: str) -> Iterator[tuple[Statement, int]]:
    """Plain loads and stores in a space, each with the place of its address among the operands."""
    for s in entry.instructions:
        if s.opcode in ("ld", "st") and space in s.mods and not {"acquire", "release", "volatile"} & set(s.mods):
            yield s, 1 if s.opcode == "ld" else 0


def address(operand: str) -> tuple[str, int]:
    """Base and offset of `[base+offset]`."""
    base, _, offset = operand.strip("[] ").partition("+")
    return base.strip(), int(offset or "0", 0)


def width(s: Statement) -> int:
    """Bytes of one element."""
    return int("".join(c for c in s.mods[-1] if c.isdigit())) // 8


def lanes_of(s: Statement) -> int:
    """Elements of a vector access."""
    return next((int(m[1:]) for m in s.mods if m in ("v2", "v4", "v8")), 1)


def previous(entry: Entry, at: int) -> Iterator[int]:
    """The places of the statements before one, back to the beginning of its basic block."""
    for k in range(at - 1, -1, -1):
        s = entry.code[k]
        if s.kind == "label" or s.opcode in ("bra", "brx", "ret", "exit", "trap"):
            return
        if s.kind == "instruction":
            yield k


def following(entry: Entry, at: int, most: int) -> Iterator[int]:
    """The places of up to `most` instructions behind one, in its basic block."""
    for k in range(at + 1, len(entry.code)):
        s = entry.code[k]
        if s.kind == "label" or s.opcode in ("bra", "brx", "ret", "exit", "trap") or most == 0:
            return
        if s.kind == "instruction":
            most -= 1
            yield k


def last_return(entry: Entry) -> Statement | None:
    found = [s for s in entry.instructions if s.opcode in ("ret", "exit") and not s.guard]
    return found[-1] if found else None
