"""Walks through one block of a kernel, each with other parameters: what all of them report."""

from functools import lru_cache

from trueno_cuda.ptx.analyze.effects import aborts, address, waits
from trueno_cuda.ptx.analyze.entry import Entry
from trueno_cuda.ptx.analyze.shadow import Clash
from trueno_cuda.ptx.analyze.walk import STEPS, Walk
from trueno_cuda.ptx.syntax.tree import Address, Immediate, Register

PARAMETERS = (256, 6)
"""Values of parameters that the caller does not name: of many whole rounds, and of the rest behind them."""
LARGEST = 1 << 23
"""Bytes of shared variables that a walk follows: a module's kernels together; no block has a tenth of it."""
FEWER = 48
"""In place of a value with which a walk does not come to its end."""


def applies(entry: Entry) -> bool:
    """Whether a kernel uses shared memory and orders its threads by barriers of the block or of a warp alone."""
    if not entry.function.entry or not any(a.space == "shared" and a.writes for a in entry.accesses):
        return False
    if sum(v.size or 0 for v in entry.program.variables + entry.function.variables if v.space == "shared") > LARGEST:
        return False
    for at in entry.reachable:
        ins = entry.code[at]
        if ins.unread or waits(ins) in ("arrive", "phase", "cluster"):
            return False
        if waits(ins) == "part" and ins.operands[-1] != Immediate(entry.threads):
            return False
        if ins.opcode == "call" and not aborts(ins) and entry.callee_waits(ins):
            return False
    return True


@lru_cache(maxsize=2)
def walked(entry: Entry) -> list[Clash]:
    """The clashes of walks; where the block is not known, those that a small block has, too."""
    if not applies(entry):
        return []
    result: dict[tuple[int, int], Clash] = {}
    derived, needed = parametric(entry), relevant(entry)
    todo = list(PARAMETERS if derived else PARAMETERS[:1])
    while todo:
        parameter = todo.pop(0)
        walk = Walk(entry, parameter, derived, needed)
        found = walk.run()
        if walk.steps >= STEPS and parameter > FEWER and derived:
            todo.insert(0, FEWER)
        if found and entry.assumed:
            small = {
                (c.kind, c.first, c.second) for c in Walk(entry.small, parameter, derived, relevant(entry.small)).run()
            }
            found = [c for c in found if c.thread // 32 != c.other // 32 and (c.kind, c.first, c.second) in small]
        for clash in found:
            result.setdefault((clash.first, clash.second), clash)
    return list(result.values())


def parametric(entry: Entry) -> set[int]:
    """The registers whose value follows from a parameter that the caller does not name."""
    flow, result = entry.flow, set[int]()
    before = -1
    while len(result) != before:
        before = len(result)
        for at in entry.reachable:
            ins = entry.code[at]
            place = address(ins) if ins.opcode == "ld" and ins.mods and ins.mods[0].startswith("param") else None
            named = getattr(place.base, "name", "") in entry.launch.params if place is not None else True
            if not named or (ins.opcode != "ld" and not result.isdisjoint(flow.reads[at])):
                result.update(flow.writes[at])
    return result


def relevant(entry: Entry) -> list[bool]:
    """Of each instruction, whether it accesses shared memory, makes threads wait, or computes what decides where such
    accesses go or which way threads go: most compute numbers that a walk does not need."""
    flow = entry.flow
    result = [waits(ins) != "" or "sync" in ins.mods or ins.opcode in ("wgmma", "cp") for ins in entry.code]
    needed = {ins.guard.index for ins in entry.code if ins.guard is not None}
    needed |= {r for at, one in enumerate(result) if one for r in flow.reads[at]}
    for access in entry.accesses:
        if access.space == "shared":  # the numbers that it stores do not matter
            result[access.at] = True
            places = [o.base for o in access.ins.operands if isinstance(o, Address)]
            needed |= {base.index for base in places if isinstance(base, Register)}
    todo = list(needed)
    while todo:
        for site in flow.definitions[todo.pop()]:
            if not result[site]:
                result[site] = True
                todo += [r for r in flow.reads[site] if r not in needed]
                needed.update(flow.reads[site])
    return result
