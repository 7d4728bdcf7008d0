"""cp.async, cp.async.bulk and cp.async.bulk.tensor: copies that land only when they are waited for."""

import numpy as np

from trueno_cuda.ptx.emulate.compile import Compiler, Fetch, Step, literal, vector
from trueno_cuda.ptx.emulate.copies import BulkCopy, ThreadCopy
from trueno_cuda.ptx.emulate.findings import ASYNCHRONOUS_COPY
from trueno_cuda.ptx.emulate.group import Group
from trueno_cuda.ptx.emulate.instructions.synchronise import chosen
from trueno_cuda.ptx.emulate.machine import Machine
from trueno_cuda.ptx.emulate.memory import CLUSTER_SHIFT, GLOBAL, PARAM
from trueno_cuda.ptx.emulate.opcodes import opcode
from trueno_cuda.ptx.emulate.tensor_map import TensorMap, number_of, swizzle
from trueno_cuda.ptx.syntax.errors import Refusal
from trueno_cuda.ptx.syntax.tree import Address, Immediate, Instruction, Register, Vector
from trueno_cuda.ptx.syntax.types import PRED, S32, U16, U32, Array

ALL = 1 << 60
BYTES = "mbarrier::complete_tx::bytes"
INTO, TENSOR = f"shared::cluster|shared::cta global {BYTES}", "tensor 1d|2d|3d|4d|5d tile?"


@opcode("cp", "1 async wait_group", "1 async bulk wait_group read?", result=False)
@opcode("cp", *(f"{count} async {form}" for count, form in (
    ("3-4", "ca|cg SHARED global AHEAD?"), ("4-5", "ca|cg SHARED global AHEAD? HINT"),
    ("0", "commit_group|wait_all"), ("1", "mbarrier arrive noinc? SHARED? b64"),
    ("0", "bulk commit_group"),
    ("2", "bulk prefetch L2 global"), ("3", "bulk prefetch L2 global HINT"),
    ("4", f"bulk {INTO}"), ("5", f"bulk {INTO} HINT|multicast::cluster"), ("6", f"bulk {INTO} HINT multicast::cluster"),
    ("4", f"bulk shared::cluster shared::cta {BYTES}"),
    ("3", "bulk global shared::cta bulk_group"), ("4", "bulk global shared::cta bulk_group HINT"),
    ("1", f"bulk prefetch {TENSOR} L2 global"), ("2", f"bulk prefetch {TENSOR} L2 global HINT"),
    ("3", f"bulk {TENSOR} {INTO}"), ("4", f"bulk {TENSOR} {INTO} HINT|multicast::cluster"),
    ("5", f"bulk {TENSOR} {INTO} HINT multicast::cluster"),
    ("2", f"bulk {TENSOR} global shared::cta bulk_group"), ("3", f"bulk {TENSOR} global shared::cta bulk_group HINT"),
)))  # fmt: skip
def cp(c: Compiler, ins: Instruction) -> Step:
    mods = ins.mods
    bulk = "bulk" in mods
    if "commit_group" in mods:
        return commit(bulk)
    if "wait_group" in mods or "wait_all" in mods:
        return wait(c, ins, bulk)
    if "prefetch" in mods:
        return lambda m, g, sel: None
    if "mbarrier" in mods and "arrive" in mods:
        return arrive_when_done(c, ins)
    if bulk:
        return tensor_copy(c, ins) if "tensor" in mods else bulk_copy(c, ins)
    return thread_copy(c, ins)


# ---- cp.async: each thread its 4, 8 or 16 bytes ---------------------------------------------------


def thread_copy(c: Compiler, ins: Instruction) -> Step:
    target, source = c.address(ins.operands[0]), c.address(ins.operands[1])
    size_operand = ins.operands[2]
    if not isinstance(size_operand, Immediate) or size_operand.value not in (4, 8, 16):
        raise Refusal("cp.async copies 4, 8 or 16 bytes")
    size = int(size_operand.value)
    if "cg" in ins.mods and size != 16:
        raise Refusal("cp.async.cg copies 16 bytes")
    rest = ins.operands[3:]
    if "cache_hint" in ".".join(ins.mods):
        rest = rest[:-1]
    ignored: Fetch | None = None
    amount: Fetch | None = None
    if rest:
        if isinstance(rest[0], Register) and rest[0].type is PRED:
            ignored = c.fetch(rest[0], PRED)
        else:
            amount = c.fetch(rest[0], U32)

    def run(m: Machine, g: Group, sel: Array | None) -> None:
        lanes = chosen(g, sel, g.lanes)
        to, out_of = chosen(g, sel, target(m, g)), chosen(g, sel, source(m, g))
        count = np.full(len(lanes), size, np.int64)
        if amount is not None:
            count = np.minimum(chosen(g, sel, amount(m, g)), size).astype(np.int64)
        if ignored is not None:
            count = np.where(chosen(g, sel, ignored(m, g)), 0, count)
        place = m.access.place(ins, g, lanes, to, "shared", size, size)
        index = np.broadcast_to(place.at, lanes.shape)
        data = np.zeros((len(lanes), size), np.uint8)
        some = np.flatnonzero(count > 0)
        if len(some):
            begin = m.access.place(ins, g, lanes[some], out_of[some], "global", 1, size)
            if begin.good is None:
                m.access.outside(ins, lanes[some], out_of[some] + count[some] - 1, 1)
            at = begin.at[:, None] + np.arange(size)
            got = m.arena.bytes[np.minimum(at, len(m.arena.bytes) - 1)]
            data[some] = np.where(np.arange(size) < count[some][:, None], got, 0)
            m.access._account(ins, g, sel if len(some) == len(lanes) else spread(g, sel, some), source(m, g), "global",
                              size, len(some), "read")  # fmt: skip
        m.access._account(ins, g, sel, target(m, g), "shared", size, len(lanes), "written")
        if place.good is not None:
            lanes, index, data = lanes[place.good], index[place.good], data[place.good]
        if m.shadow is not None and len(lanes):
            m.shadow.write(ins, lanes, index, size)
            m.shadow.depart(m.shadow.words(index, size))
        m.copies.threads.append(ThreadCopy(ins, lanes, index, data, m.copies.group[lanes]))

    return run


def spread(g: Group, sel: Array | None, some: Array) -> Array:
    """The mask of some of the selected lanes."""
    out = np.zeros(g.n, bool)
    out[(np.arange(g.n) if sel is None else np.flatnonzero(sel))[some]] = True
    return out


def commit(bulk: bool) -> Step:
    def run(m: Machine, g: Group, sel: Array | None) -> None:
        lanes = chosen(g, sel, g.lanes)
        (m.copies.bulk_group if bulk else m.copies.group)[lanes] += 1

    return run


def wait(c: Compiler, ins: Instruction, bulk: bool) -> Step:
    keep = literal(ins.operands[0]) if ins.operands else 0
    everything = "wait_all" in ins.mods

    def run(m: Machine, g: Group, sel: Array | None) -> None:
        lanes = chosen(g, sel, g.lanes)
        if bulk:
            limit = dict(zip(lanes.tolist(), (m.copies.bulk_group[lanes] - keep).tolist(), strict=True))
            kept = []
            for number, copy in m.copies.bulk:
                if number < limit.get(copy.lane, -1):
                    copy.land(m, m.shadow)
                else:
                    kept.append((number, copy))
            m.copies.bulk[:] = kept
        elif m.copies.threads:
            m.copies.land(lanes, np.full(len(lanes), ALL) if everything else m.copies.group[lanes] - keep)

    return run


def arrive_when_done(c: Compiler, ins: Instruction) -> Step:
    """cp.async.mbarrier.arrive: the mbarrier is told once the thread's copies so far have landed."""
    address = c.address(ins.operands[0])
    noinc = "noinc" in ins.mods

    def run(m: Machine, g: Group, sel: Array | None) -> None:
        lanes = chosen(g, sel, g.lanes)
        slots = m.phases.slots(ins, g, lanes, chosen(g, sel, address(m, g)))
        m.phases.check(ins, lanes, slots)
        m.copies.group[lanes] += 1
        for slot in np.unique(slots).tolist():
            who = lanes[slots == slot]
            if not noinc:
                m.phases.pending[slot] += len(who)
            m.phases.deferred.setdefault(slot, []).append((who, m.copies.group[who].copy()))

    return run


# ---- bulk copies: one thread, many bytes ----------------------------------------------------------


def each(g: Group, sel: Array | None) -> list[int]:
    """Positions in the group of the lanes that take part."""
    return list(range(g.n)) if sel is None else np.flatnonzero(sel).tolist()


def blocks_of(m: Machine, lane: int, mask: int | None) -> list[int]:
    """The blocks (of this chunk) that a multicast reaches; None: the lane's own."""
    own = lane // m.block_lanes
    if mask is None:
        return [own]
    first = own // m.launch.cluster_blocks * m.launch.cluster_blocks
    return [first + k for k in range(m.launch.cluster_blocks) if mask >> k & 1]


def bulk_copy(c: Compiler, ins: Instruction) -> Step:
    """cp.async.bulk of `size` bytes between global and shared memory, or to another block's shared memory."""
    to_shared = BYTES in ins.mods
    spaces = ("shared", "global" if "global" in ins.mods else "shared") if to_shared else ("global", "shared")
    target, source = c.address(ins.operands[0]), c.address(ins.operands[1])
    amount = c.fetch(ins.operands[2], U32)
    barrier = c.address(ins.operands[3]) if to_shared else None
    multicast = "multicast::cluster" in ins.mods
    mask = c.fetch(ins.operands[4], U16) if multicast else None

    def run(m: Machine, g: Group, sel: Array | None) -> None:
        sizes, to, out_of = (np.broadcast_to(f(m, g), g.n) for f in (amount, target, source))
        for k in each(g, sel):
            lane, size = g.lanes[k : k + 1], int(sizes[k])
            if size % 16:
                m.find(ASYNCHRONOUS_COPY, ins, f"a bulk copy of {size} bytes is not a multiple of 16", lane[0])
                continue
            if size == 0:
                continue
            a = m.access.place(ins, g, lane, to[k : k + 1], spaces[0], size, 16)
            b = m.access.place(ins, g, lane, out_of[k : k + 1], spaces[1], size, 16)
            if a.good is not None or b.good is not None:
                continue
            first, start = int(a.at[0]), int(b.at[0])
            key = f"{spaces[1]} read"
            m.report.bytes[key] = m.report.bytes.get(key, 0) + size
            if to_shared:
                assert barrier is not None
                where = int(np.broadcast_to(barrier(m, g), g.n)[k])
                data = b.buffer[start : start + size].copy()
                chosen_mask = None if mask is None else int(np.broadcast_to(mask(m, g), g.n)[k])
                send(m, ins, g, k, first, data, where, chosen_mask)
            else:
                copy = BulkCopy(ins, int(lane[0]), size, np.arange(first, first + size), None,
                                np.arange(start, start + size))  # fmt: skip
                m.copies.bulk.append((int(m.copies.bulk_group[lane[0]]), copy))

    return run


def send(
    m: Machine, ins: Instruction, g: Group, k: int, first: int, data: Array, barrier: int, mask: int | None,
    order: Array | None = None,
) -> None:  # fmt: skip
    """Start copies of `data` to byte `first` of shared memory (in each block of a mask), reporting to a barrier."""
    lane = int(g.lanes[k])
    own = lane // m.block_lanes
    for block in blocks_of(m, lane, mask):
        shift = (block - own) * m.shared_size
        index = first + shift + (np.arange(len(data)) if order is None else order)
        slot = int(m.phases.slots(ins, g, g.lanes[k : k + 1], np.array([barrier]))[0]) + shift // 8
        m.phases.check(ins, g.lanes[k : k + 1], np.array([slot]))
        # In another block, the copy counts as its first lane's, so that its barrier orders what it wrote.
        copy = BulkCopy(ins, lane if block == own else block * m.block_lanes, len(data), index, data)
        if m.shadow is not None and block == own:
            words = np.unique(index >> m.shadow.shift) << m.shadow.shift
            m.shadow.write(ins, np.full(len(words), lane), words, 1 << m.shadow.shift)
        copy.start(m.shadow)
        m.phases.copies.setdefault(slot, []).append(copy)
    m.launch.changes += 1


def map_of(m: Machine, ins: Instruction, lane: int, address: int) -> TensorMap | None:
    """The tensor map at a generic address."""
    offset = address - PARAM if address >= PARAM else address
    if offset >= 0 and offset + 128 <= len(m.params):
        number = number_of(m.params[offset : offset + 128].tobytes())
    elif m.arena.outside(np.array([address]), 128) is None:
        number = number_of(m.arena.bytes[address - GLOBAL : address - GLOBAL + 128].tobytes())
    else:
        number = None
    if number is None:
        m.find(ASYNCHRONOUS_COPY, ins, f"{address:#x} holds no tensor map", lane)
        return None
    return m.launch.tensor_maps[number]


def tensor_copy(c: Compiler, ins: Instruction) -> Step:
    """cp.async.bulk.tensor: a box of an array to shared memory, or back."""
    to_shared = BYTES in ins.mods
    tensor = ins.operands[1 if to_shared else 0]
    rank = next(int(x[0]) for x in ins.mods if x in ("1d", "2d", "3d", "4d", "5d"))
    if not isinstance(tensor, Address) or len(tensor.rest) != 1 or not isinstance(tensor.rest[0], Vector):
        raise Refusal("a tensor is written [map, {coordinates}]")
    map_address = c.address(Address(tensor.base, tensor.offset))
    coordinates = [c.fetch(o, S32) for o in vector(tensor.rest[0], rank)]
    shared = c.address(ins.operands[0 if to_shared else 1])
    barrier = c.address(ins.operands[2]) if to_shared else None
    mask = c.fetch(ins.operands[3], U16) if "multicast::cluster" in ins.mods else None

    def run(m: Machine, g: Group, sel: Array | None) -> None:
        for k in each(g, sel):
            lane = int(g.lanes[k])
            tensor = map_of(m, ins, lane, int(np.broadcast_to(map_address(m, g), g.n)[k]))
            if tensor is None:
                continue
            if tensor.array.ndim != rank or len(coordinates) != rank:
                m.find(ASYNCHRONOUS_COPY, ins, f"the tensor map has {tensor.array.ndim} axes", lane)
                continue
            at = [int(np.broadcast_to(f(m, g), g.n)[k]) for f in coordinates]
            flat, inside = tensor.elements(at)
            wide = tensor.array.itemsize
            where = np.broadcast_to(shared(m, g), g.n)[k : k + 1]
            align = {0: 16, 32: 256, 64: 512, 128: 1024}[tensor.width] if tensor.width else 128
            place = m.access.place(ins, g, g.lanes[k : k + 1], where, "shared", tensor.size, min(align, 128))
            if place.good is not None:
                continue
            first = int(place.at[0])
            base = int(where[0]) & ((1 << CLUSTER_SHIFT) - 1)
            linear = np.arange(tensor.size)
            order = swizzle(base + linear, tensor.width) - base
            start = m.launch.arena.add("tensor map", tensor.array).start - GLOBAL
            source = (start + flat[:, None] * wide + np.arange(wide)).reshape(-1)
            here = np.repeat(inside, wide)
            if to_shared:
                data = np.where(here, m.arena.bytes[np.where(here, source, start)], 0).astype(np.uint8)
                if tensor.fill != tensor.fill and not here.all():
                    nan = np.array([tensor.fill], tensor.array.dtype).view(np.uint8)
                    data = np.where(here, data, np.tile(nan, len(flat)))
                assert barrier is not None
                one = None if mask is None else int(np.broadcast_to(mask(m, g), g.n)[k])
                send(
                    m, ins, g, k, first, tensor.converted(data), int(np.broadcast_to(barrier(m, g), g.n)[k]), one, order
                )
            else:
                copy = BulkCopy(ins, lane, tensor.size, source[here], None, (first + order)[here])
                m.copies.bulk.append((int(m.copies.bulk_group[lane]), copy))
            key = "global read" if to_shared else "global written"
            m.report.bytes[key] = m.report.bytes.get(key, 0) + int(here.sum())

    return run
