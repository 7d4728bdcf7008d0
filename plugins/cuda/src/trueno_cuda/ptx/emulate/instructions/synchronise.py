"""bar.warp.sync and the mbarrier instructions; block and cluster barriers are the scheduler's."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from trueno_cuda.ptx.emulate.compile import Compiler, Step, opcode
from trueno_cuda.ptx.emulate.group import Group
from trueno_cuda.ptx.emulate.instructions.data import space_of
from trueno_cuda.ptx.emulate.syntax import Address, Immediate, Instruction
from trueno_cuda.ptx.emulate.types import B64, PRED, U32, Array

if TYPE_CHECKING:
    from trueno_cuda.ptx.emulate.machine import Machine

Test = Callable[["Machine", Group], Array]


@opcode("bar", "barrier")
def warp_barrier(c: Compiler, ins: Instruction) -> Step:
    """Reached with bar.warp.sync alone."""

    def run(m: "Machine", g: Group, sel: Array | None) -> None:
        if m.shadow is not None:
            m.shadow.warp_sync(g.warps)

    return run


def chosen(g: Group, sel: Array | None, value: Array) -> Array:
    """A value of the lanes that take part."""
    value = np.broadcast_to(value, g.n)
    return value if sel is None else value[sel]


def wait_test(c: Compiler, ins: Instruction) -> Test:
    """Whether each lane's phase has completed, for mbarrier.try_wait and test_wait; copies land on the way."""
    address = c.address(ins.operands[1])
    parity = "parity" in ins.mods
    state = c.fetch(ins.operands[2], U32 if parity else B64)
    space = space_of(ins)

    def test(m: "Machine", g: Group) -> Array:
        slots = m.phases.slots(ins, g, g.lanes, np.broadcast_to(address(m, g), g.n), space)
        m.phases.check(ins, g.lanes, slots)
        m.phases.land(slots)
        done = m.phases.passed(slots, np.broadcast_to(state(m, g), g.n).astype(np.int64), parity)
        if m.shadow is not None and done.any():
            m.shadow.wait(slots[done], g.lanes[done] >> 5)
        return done

    return test


@opcode("mbarrier")
def mbarrier(c: Compiler, ins: Instruction) -> Step:
    mods = ins.mods
    if "try_wait" in mods:
        true = np.array([True])
        store = c.store(ins.operands[0], PRED)
        return lambda m, g, sel: store(g, true, sel)  # the scheduler lets only those through whose phase is complete
    if "test_wait" in mods:
        test = wait_test(c, ins)
        store = c.store(ins.operands[0], PRED)
        return lambda m, g, sel: store(g, test(m, g), sel)
    if "pending_count" in mods:
        raise ValueError("mbarrier.pending_count is not emulated")
    if "arrive" in mods or "arrive_drop" in mods:
        return arrive(c, ins)
    address, space = c.address(ins.operands[0]), space_of(ins)
    amount = c.fetch(ins.operands[1] if len(ins.operands) > 1 else Immediate(0), U32)
    what = next(m for m in mods if m in ("init", "inval", "expect_tx", "complete_tx"))

    def run(m: "Machine", g: Group, sel: Array | None) -> None:
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


def arrive(c: Compiler, ins: Instruction) -> Step:
    """arrive, arrive_drop, with or without expect_tx; the state that they return is the phase's number."""
    returns = not isinstance(ins.operands[0], Address)
    store = c.store(ins.operands[0], B64) if returns else None
    address, space = c.address(ins.operands[1 if returns else 0]), space_of(ins)
    rest = ins.operands[2 if returns else 1 :]
    expects = "expect_tx" in ins.mods
    amount = c.fetch(rest[0], U32) if rest else c.fetch(Immediate(1), U32)
    drop = "arrive_drop" in ins.mods

    def run(m: "Machine", g: Group, sel: Array | None) -> None:
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
