"""What each opcode is: the family that compiles it, the forms in which it may be written, and the facts of each.

A form is one line, much as in the PTX ISA: how many operands, then the modifiers.

    @opcode("shfl", "5 sync up|down|bfly|idx b32")

Behind the forms stand facts of all of them (fields of `Form`): `result=False`, `meets="warp"`, `flops=2`.

`a|b` is one of them, `?` says that none is fine too, and a word in capitals is a name of GROUPS.  Modifiers may
stand in any order, as for ptxas, but types only in that of the form.
What has no form is refused before a family sees it, so that a family may take for granted what its forms say.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar

from trueno_cuda.ptx.emulate.errors import UnknownInstruction
from trueno_cuda.ptx.syntax.tree import Instruction
from trueno_cuda.ptx.syntax.types import TYPES

Family = Callable[[Any, Instruction], Any]
"""From a compiler and an instruction to its step: `compile`, which needs this table, has the exact types."""
F = TypeVar("F", bound=Family)

GROUPS = {
    "BITS": "b16|b32|b64",
    "INT": "u16|u32|u64|s16|s32|s64",
    "BYTES": "u8|u16|u32|u64|s8|s16|s32|s64",
    "STORED": "b8|b16|b32|b64|u8|u16|u32|u64|s8|s16|s32|s64|f32|f64",
    "RND": "rn|rz|rm|rp",
    "RNI": "rni|rzi|rmi|rpi",
    "SCOPE": "cta|cluster|gpu|sys",
    "SHARED": "shared|shared::cta",
    "CLUSTER": "shared|shared::cta|shared::cluster",
    "SPACE": "global|shared|shared::cta|shared::cluster|local|param|param::entry|param::func|const",
    "EVICT1": "L1::evict_normal|L1::evict_unchanged|L1::evict_first|L1::evict_last|L1::no_allocate",
    "EVICT2": "L2::evict_normal|L2::evict_unchanged|L2::evict_first|L2::evict_last",
    "AHEAD": "L2::64B|L2::128B|L2::256B",
    "HINT": "L2::cache_hint",
}
"""Alternatives that many forms share."""


class Form(NamedTuple):
    """least, most: operands.  groups: modifiers of which one is given; optional: the places of those that may lack.

    family: what compiles it; None for what the scheduler does by itself, as branches: it ends a basic block.
    facts: what `effects` tells of it.
    """

    least: int
    most: int
    groups: tuple[tuple[str, ...], ...]
    optional: frozenset[int]
    family: Family | None
    facts: "Facts"


class Facts(NamedTuple):
    """What holds of every instruction of a form; the defaults are those of most opcodes.

    result: whether the first operand is what the instruction writes.  A memory operand never is: stores need no word.
    accumulates: whether it also reads what it writes.
    meets: how lanes wait at it: "" (they do not), warp, block, cluster, phase (of an mbarrier), group (of four warps).
    mask: whether its last operand says which lanes of the warp meet.
    spins: whether a loop around it may be waiting for another thread; or the modifiers under which it may.
    flops: of an element, where the type is a floating-point one; of matrix products, of a term.
    """

    result: bool = True
    accumulates: bool = False
    meets: str = ""
    mask: bool = False
    spins: bool | tuple[str, ...] = False
    flops: int = 0


FORMS: dict[str, list[Form]] = {}
"""Of each opcode."""


def opcode(names: str, *forms: str, **facts: Any) -> Callable[[F], F]:
    """Register a family for these forms of some opcodes; their other forms may be another family's.

    facts: fields of `Facts` that are not the default.
    """

    def register(family: F) -> F:
        _declare(names, family, forms, Facts(**facts))
        return family

    return register


def _declare(names: str, family: Family | None, forms: tuple[str, ...], facts: Facts) -> None:
    for name in names.split():
        FORMS.setdefault(name, []).extend(_form(text, family, facts) for text in forms)


def _form(text: str, family: Family | None, facts: Facts) -> Form:
    count, *words = text.split()
    least, _, most = count.partition("-")
    groups = []
    for word in words:
        names = word.rstrip("?").split("|")
        groups.append(tuple(m for name in names for m in GROUPS.get(name, name).split("|")))
    optional = frozenset(k for k, word in enumerate(words) if word.endswith("?"))
    return Form(int(least), int(most or least), tuple(groups), optional, family, facts)


def form_of(ins: Instruction) -> Form:
    """The form that an instruction has; raises UnknownInstruction where it has none."""
    form, wrong = _closest(ins.opcode, ins.mods, len(ins.operands))
    if form is None:
        raise UnknownInstruction(wrong, ins.line, ins.text)
    return form


@lru_cache(maxsize=4096)
def _closest(name: str, mods: tuple[str, ...], operands: int) -> tuple[Form | None, str]:
    """The form of an instruction; else None, and how it differs from the forms that it comes closest to."""
    if name not in FORMS:
        return None, "the emulator does not know this instruction"
    compared = [(form, *_differences(form, mods)) for form in FORMS[name]]
    distances = [
        (len(strange) + len(missing), not form.least <= operands <= form.most, len(strange))
        for form, strange, missing in compared
    ]
    near = [one for one, distance in zip(compared, distances, strict=True) if distance == min(distances)]
    form, strange, missing = near[0]
    if not any(min(distances)):
        return form, ""
    wanted = [m for _, _, groups in near for m in (groups[0] if groups else ())]
    if strange:
        allowed = [m for one, _, _ in near for group in one.groups for m in group]
        again = "twice" if mods.count(strange[0]) > 1 and strange[0] in allowed else "here"
        words = f"it wants {_list(wanted)}" if missing else f"it may have {_list(allowed)}"
        return None, f"{name} has no .{strange[0]} {again}; {words}"
    if missing:
        return None, f"{name} wants {_list(wanted)}"
    many = f"{form.least}" if form.least == form.most else f"{form.least} to {form.most}"
    return None, f"{'.'.join((name, *mods))} has {many} operands, {operands} given"


def _differences(form: Form, mods: tuple[str, ...]) -> tuple[list[str], list[tuple[str, ...]]]:
    """The modifiers that a form does not have, and its groups of which one is missing."""
    free = dict(enumerate(form.groups))
    strange = []
    for mod in mods:
        fits = (k for k, group in free.items() if (group[0] in TYPES if mod in TYPES else mod in group))
        place = next(fits, None)
        if place is None or mod not in free[place]:
            strange.append(mod)
        else:
            del free[place]
    return strange, [group for k, group in free.items() if k not in form.optional]


def _list(mods: list[str]) -> str:
    """`.lo, .hi or .wide`."""
    names = [f".{m}" for m in dict.fromkeys(mods)]
    return " or ".join(([", ".join(names[:-1])] if names[1:] else []) + names[-1:])


_declare("bra call ret", None, ("0-1 uni?",), Facts(result=False))
_declare("brx", None, ("1 idx uni?",), Facts(result=False))
_declare("exit trap", None, ("0",), Facts())
