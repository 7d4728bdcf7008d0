"""Counts that are lost: a load, an addition and a store of shared memory at a place that data choose.

All of an address but the data is the same for the lanes of a warp, so two lanes with equal data have the same place:
both load, both add, and one of the two stores is lost.  A place for each thread, or a lane that a vote chose, is right.
"""

from collections.abc import Iterator

import numpy as np

from trueno_cuda.ptx.analyze.access import Access
from trueno_cuda.ptx.analyze.entry import Entry
from trueno_cuda.ptx.analyze.races import array
from trueno_cuda.ptx.analyze.uniform import WARP
from trueno_cuda.ptx.analyze.values import Atom, Form
from trueno_cuda.ptx.syntax.tree import Register

ORDER = {"lt", "le", "gt", "ge", "lo", "ls", "hi", "hs"}
COUNTED = {"add", "sub", "and", "shr", "mov"}
"""Opcodes that count rounds: what is compared with 0 is not the outcome of a vote."""


def updates(entry: Entry) -> Iterator[tuple[Access, Access]]:
    """Load and store of each."""
    for store in entry.accesses:
        if store.space != "shared" or store.kind != "store" or store.ordered or array(store.form) is None:
            continue
        lanes = [atom for atom, _ in store.form.terms if not _of_a_warp(entry, atom)]
        if not lanes or not all(_data(entry, atom) for atom in lanes):
            continue
        load = _loaded_from(entry, store)
        active, _ = entry.runs(store.at)
        if load is not None and entry.threads > 1 and active[:2].all() and _by_order(entry, store.at):
            yield load, store


def _of_a_warp(entry: Entry, atom: Atom) -> bool:
    """Whether the lanes of a warp agree on an atom."""
    if entry.uniformity.atom(atom) >= WARP:
        return True
    known = entry.block_lanes.known(Form(0, frozenset({(atom, 1)})))
    return known is not None and bool((known == known[np.arange(len(known)) // 32 * 32]).all())


def _data(entry: Entry, atom: Atom) -> bool:
    """Whether an atom is a number that was loaded from global memory, or bits of such a number."""
    if atom[0] == "op":
        inner = [one for form in atom[2:] for one, _ in form.terms]
        return bool(inner) and all(_data(entry, one) for one in inner)
    if atom[0] != "value":
        return False
    site = atom[2] if atom[2] >= 0 else entry.flow.only(atom[1])
    return site >= 0 and entry.code[site].opcode == "ld" and "global" in entry.code[site].mods


def _loaded_from(entry: Entry, store: Access) -> Access | None:
    """The load of the same place, before in the same block, to which an addition added what is stored."""
    value = store.ins.operands[-1]
    sites = entry.flow.reaching(value.index, store.at) if isinstance(value, Register) else []
    if len(sites) != 1 or entry.code[sites[0]].opcode != "add":
        return None
    site = sites[0]
    home = entry.graph.block_of[store.at]
    for access in entry.accesses:
        if access.kind == "load" and access.form == store.form and entry.graph.block_of[access.at] == home:
            used = not set(entry.flow.writes[access.at]).isdisjoint(entry.flow.reads[site])
            if used and access.at < store.at and not access.ordered:
                return access
    return None


def _by_order(entry: Entry, at: int) -> bool:
    """Whether no comparison chooses one lane among others: an index may be compared with a size, a count with 0."""
    graph, guards = entry.graph, [entry.code[at].guard]
    branches = [n for n in graph.all_deciders(graph.block_of[at]) if entry.uniformity.decision(n) < WARP]
    guards += [graph.last(n).guard for n in branches]
    todo = [guard for guard in guards if guard is not None]
    known = {guard.index for guard in todo}
    while todo:
        for site in entry.flow.definitions[todo.pop().index]:
            ins = entry.code[site]
            if ins.opcode in ("and", "or", "xor", "not") and ins.mods == ("pred",):
                parts = [o for o in ins.operands[1:] if isinstance(o, Register) and o.index not in known]
                known |= {o.index for o in parts}
                todo += parts
                continue
            if ins.opcode != "setp" or not ins.mods:
                return False
            if ins.mods[0] in ORDER:
                continue
            sources = [o for o in ins.operands[1:] if isinstance(o, Register)]
            made = [entry.code[k].opcode for o in sources for k in entry.flow.definitions[o.index]]
            if ins.mods[0] not in ("eq", "ne") or len(sources) != 1 or not COUNTED.issuperset(made):
                return False
    return True
