"""bar.warp.sync and the mbarrier instructions; block and cluster barriers are the scheduler's."""

from collections.abc import Callable

import numpy as np

from trueno_cuda.ptx.emulate.compile import Compiler, Step
from trueno_cuda.ptx.emulate.group import Group
from trueno_cuda.ptx.emulate.instructions.data import space_of
from trueno_cuda.ptx.emulate.machine import Machine
from trueno_cuda.ptx.emulate.opcodes import opcode
from trueno_cuda.ptx.syntax.errors import Refusal
from trueno_cuda.ptx.syntax.tree import Address, Immediate, Instruction
from trueno_cuda.ptx.syntax.types import B64, PRED, U32, Array

Test = Callable[[Machine, Group, bool], Array]


@opcode("bar", "1 warp sync", result=False, meets="warp", mask=True)
@opcode("bar", "3-4 cta? red popc u32", "3-4 cta? red and|or pred", meets="block")
@opcode("bar", "1-2 cta? sync", "2 cta? arrive", result=False, meets="block")
@opcode("barrier", "0 cluster arrive release|relaxed? aligned?", "0 cluster wait acquire? aligned?", meets="cluster")
@opcode("barrier", "3-4 cta? red aligned? popc u32", "3-4 cta? red aligned? and|or pred", meets="block")
@opcode("barrier", "1-2 cta? sync aligned?", "2 cta? arrive aligned?", result=False, meets="block")
def warp_barrier(c: Compiler, ins: Instruction) -> Step:
    """Reached with bar.warp.sync alone."""

    def run(m: Machine, g: Group, sel: Array | None) -> None:
        if m.shadow is not None:
            m.shadow.warp_sync(g.warps)

    return run


def chosen(g: Group, sel: Array | None, value: Array) -> Array:
    """A value of the lanes that take part."""
    value = np.broadcast_to(value, g.n)
    return value if sel is None else value[sel]


def wait_test(c: Compiler, ins: Instruction) -> Test:
    """Which lanes an mbarrier.try_wait or test_wait lets pass; `answers` of the machine's phases keep what it says.

    The first poll of an incomplete phase passes with the answer no, and nothing lands; a later one brings in the
    copies that report to the barrier, and only a complete phase passes.
    """
    address = c.address(ins.operands[1])
    parity = "parity" in ins.mods
    state = c.fetch(ins.operands[2], U32 if parity else B64)
    space = space_of(ins)

    def test(m: Machine, g: Group, arriving: bool) -> Array:
        phases = m.phases
        slots = phases.slots(ins, g, g.lanes, np.broadcast_to(address(m, g), g.n), space)
        phases.check(ins, g.lanes, slots)
        wanted = np.broadcast_to(state(m, g), g.n).astype(np.int64)
        again = phases.tried[g.lanes]
        if again.any():
            phases.land(slots[again])
        done = phases.passed(slots, wanted, parity)
        phases.answer[g.lanes] = done
        if m.shadow is not None and done.any():
            m.shadow.wait(slots[done], g.lanes[done] >> 5)
        phases.tried[g.lanes] = ~done
        return done | ~again if arriving else done

    return test


@opcode("mbarrier", "3-4 try_wait parity? acquire|relaxed? cta|cluster? SHARED? b64", meets="phase")
@opcode("mbarrier", "3 test_wait parity? acquire|relaxed? cta|cluster? SHARED? b64", spins=True)
@opcode("mbarrier", "2 init SHARED? b64", "1 inval SHARED? b64",
        "2 expect_tx|complete_tx relaxed? cta|cluster? CLUSTER? b64",
        "1-3 arrive|arrive_drop release|relaxed? cta|cluster? CLUSTER? b64",
        "3 arrive|arrive_drop noComplete release? cta? SHARED? b64",
        "2-3 arrive|arrive_drop expect_tx release|relaxed? cta|cluster? CLUSTER? b64")  # fmt: skip
def mbarrier(c: Compiler, ins: Instruction) -> Step:
    mods = ins.mods
    if "try_wait" in mods:  # the scheduler has checked, and let only those pass that it had to
        store = c.store(ins.operands[0], PRED)
        return lambda m, g, sel: store(g, m.phases.answer[g.lanes], sel)
    if "test_wait" in mods:
        return test_wait(c, ins)
    if "arrive" in mods or "arrive_drop" in mods:
        return arrive(c, ins)
    address, space = c.address(ins.operands[0]), space_of(ins)
    amount = c.fetch(ins.operands[1] if len(ins.operands) > 1 else Immediate(0), U32)
    what = next(m for m in mods if m in ("init", "inval", "expect_tx", "complete_tx"))

    def run(m: Machine, g: Group, sel: Array | None) -> None:
        lanes = chosen(g, sel, g.lanes)
        slots = m.phases.slots(ins, g, lanes, chosen(g, sel, address(m, g)), space)
        counts = chosen(g, sel, amount(m, g)).astype(np.int64)
        if what == "init":
            m.phases.init(ins, lanes, slots, counts)
            return
        m.phases.check(ins, lanes, slots)
        if what == "inval":
            m.phases.expected[slots] = -1
        else:
            m.phases.expect(slots, counts if what == "expect_tx" else -counts)

    return run


def test_wait(c: Compiler, ins: Instruction) -> Step:
    """Never waits: a loop around it yields to the others."""
    test, store = wait_test(c, ins), c.store(ins.operands[0], PRED)

    def run(m: Machine, g: Group, sel: Array | None) -> None:
        some = g if sel is None else g.take(sel, range(len(g.registers)), g.block)
        test(m, some, True)
        store(g, m.phases.answer[g.lanes], sel)

    return run


def arrive(c: Compiler, ins: Instruction) -> Step:
    """arrive, arrive_drop, with or without expect_tx; the state that they return is the phase's number."""
    returns = not isinstance(ins.operands[0], Address)
    store = c.store(ins.operands[0], B64) if returns else None
    if returns and len(ins.operands) < 2:
        raise Refusal("an address in brackets is wanted")
    address, space = c.address(ins.operands[1 if returns else 0]), space_of(ins)
    rest = ins.operands[2 if returns else 1 :]
    expects = "expect_tx" in ins.mods
    amount = c.fetch(rest[0], U32) if rest else c.fetch(Immediate(1), U32)
    drop = "arrive_drop" in ins.mods

    def run(m: Machine, g: Group, sel: Array | None) -> None:
        lanes = chosen(g, sel, g.lanes)
        slots = m.phases.slots(ins, g, lanes, chosen(g, sel, address(m, g)), space)
        counts = chosen(g, sel, amount(m, g)).astype(np.int64)
        if expects:
            m.phases.expect(slots, counts)
            counts = np.ones_like(counts)
        state = m.phases.arrive(ins, lanes, slots, counts, drop)
        if store is not None:
            full = np.zeros(g.n, np.uint64)
            full[slice(None) if sel is None else sel] = state.astype(np.uint64)
            store(g, full, sel)

    return run
