"""Collective operations of a warp: shuffles, votes, matches, reductions, elections."""

import numpy as np

from trueno_cuda.ptx.emulate.compile import Compiler, Step
from trueno_cuda.ptx.emulate.findings import MISSING_LANES
from trueno_cuda.ptx.emulate.group import WARP, Group
from trueno_cuda.ptx.emulate.machine import Machine
from trueno_cuda.ptx.emulate.opcodes import opcode
from trueno_cuda.ptx.syntax.tree import Instruction, Operand, Pair, Sink
from trueno_cuda.ptx.syntax.types import B32, PRED, U32, Array

LANE = np.arange(WARP, dtype=np.int64)
BIT = (np.uint32(1) << np.arange(WARP, dtype=np.uint32)).astype(np.uint32)


def bits(truth: Array) -> Array:
    """[warps, 32] truths to one word a warp."""
    return np.packbits(truth, axis=1, bitorder="little").view(np.uint32)[:, 0]


def two_results(ins: Instruction) -> tuple[Operand, Operand]:
    target = ins.operands[0]
    return (target.first, target.second) if isinstance(target, Pair) else (target, Sink())


def source_lane(mode: str, b: Array, clamp: Array) -> tuple[Array, Array]:
    """The lane that each lane reads, and whether it lies in the lane's segment."""
    value, limit, segment = b & 31, clamp & 31, clamp >> 8 & 31
    least = LANE & segment
    most = least | (limit & ~segment & 31)
    if mode == "up":
        j = LANE - value
        inside = j >= most
    elif mode == "down":
        j = LANE + value
        inside = j <= most
    elif mode == "bfly":
        j = LANE ^ value
        inside = j <= most
    else:
        j = least | (value & ~segment & 31)
        inside = j <= most
    return np.where(inside, j, LANE), inside


@opcode("shfl", "5 sync up|down|bfly|idx b32", meets="warp", mask=True)
def shfl(c: Compiler, ins: Instruction) -> Step:
    mode = next(m for m in ins.mods if m in ("up", "down", "bfly", "idx"))
    a, b, clamp = (c.fetch(o, B32) for o in ins.operands[1:4])
    first, second = two_results(ins)
    store, store_p = c.store(first, B32), c.store(second, PRED)

    def run(m: Machine, g: Group, sel: Array | None) -> None:
        value, by, limit = a(m, g), b(m, g), clamp(m, g)
        if value.size == 1 and g.n > 1 and g.whole:
            value = np.broadcast_to(value, g.n)
        matrix = g.matrix(value if value.size == g.n else np.broadcast_to(value, g.n))
        if by.size == 1 and limit.size == 1:
            j, inside = source_lane(mode, by.astype(np.int64), limit.astype(np.int64))
            got = matrix[:, j]
            inside = np.broadcast_to(inside, got.shape)
            lanes = np.broadcast_to(j, got.shape)
        else:
            by = g.matrix(np.broadcast_to(by, g.n)).astype(np.int64)
            limit = g.matrix(np.broadcast_to(limit, g.n)).astype(np.int64)
            lanes, inside = source_lane(mode, by, limit)
            got = np.take_along_axis(matrix, lanes, axis=1)
        if not g.whole:
            absent = ~np.take_along_axis(g.present(), lanes, axis=1)
            bad = g.lanewise(absent)
            if bad.any():
                k = int(np.argmax(bad))
                m.find(MISSING_LANES, ins, f"reads lane {int(g.lanewise(lanes)[k])}, which is not here", g.lanes[k],
                       int(np.count_nonzero(bad)))  # fmt: skip
        store(g, g.lanewise(got), None)
        store_p(g, g.lanewise(inside), None)

    return run


@opcode("vote", "3 sync any|all|uni pred", "3 sync ballot b32", meets="warp", mask=True)
def vote(c: Compiler, ins: Instruction) -> Step:
    mode = next(m for m in ins.mods if m in ("any", "all", "uni", "ballot"))
    predicate, mask = c.fetch(ins.operands[1], PRED), c.fetch(ins.operands[2], B32)
    store = c.store(ins.operands[0], B32 if mode == "ballot" else PRED)

    def run(m: Machine, g: Group, sel: Array | None) -> None:
        members = mask(m, g)
        here = bits(g.present())[:, None] & _rows(g, members)
        yes = bits(g.matrix(np.broadcast_to(predicate(m, g), g.n), False))[:, None] & here
        if mode == "ballot":
            out = yes
        elif mode == "any":
            out = yes != 0
        elif mode == "all":
            out = yes == here
        else:
            out = (yes == here) | (yes == 0)
        store(g, g.lanewise(np.broadcast_to(out, (len(g.warps), WARP))), None)

    return run


def _rows(g: Group, members: Array) -> Array:
    """Member masks as [warps, 32], or [1, 1] where all agree."""
    return members.reshape(1, 1) if members.size == 1 else g.matrix(members)


@opcode("match", "3 any|all sync b32|b64", meets="warp", mask=True)
def match(c: Compiler, ins: Instruction) -> Step:
    kind = c.type(ins)
    value, mask = c.fetch(ins.operands[1], kind), c.fetch(ins.operands[2], B32)
    first, second = two_results(ins)
    store, store_p = c.store(first, B32), c.store(second, PRED)
    every = "all" in ins.mods

    def run(m: Machine, g: Group, sel: Array | None) -> None:
        v = g.matrix(np.broadcast_to(value(m, g), g.n))
        members = np.broadcast_to(_rows(g, mask(m, g)), v.shape) & bits(g.present())[:, None]
        same = (v[:, :, None] == v[:, None, :]).astype(np.uint32)
        equal = (same * BIT).sum(axis=2, dtype=np.uint32) & members
        if every:
            hit = equal == members
            store(g, g.lanewise(np.where(hit, members, np.uint32(0))), None)
            store_p(g, g.lanewise(hit), None)
        else:
            store(g, g.lanewise(equal), None)

    return run


@opcode("redux", "3 sync add|min|max u32|s32", "3 sync and|or|xor b32", meets="warp", mask=True)
def redux(c: Compiler, ins: Instruction) -> Step:
    kind = c.type(ins)
    op = next(m for m in ins.mods if m in ("add", "min", "max", "and", "or", "xor"))
    ufunc = {"add": np.add, "min": np.minimum, "max": np.maximum, "and": np.bitwise_and, "or": np.bitwise_or,
             "xor": np.bitwise_xor}[op]  # fmt: skip
    info = np.iinfo(kind.dtype)
    neutral = {"add": 0, "min": info.max, "max": info.min, "and": -1 if kind.kind == "s" else info.max, "or": 0,
               "xor": 0}[op]  # fmt: skip
    value, mask = c.fetch(ins.operands[1], kind), c.fetch(ins.operands[2], B32)
    store = c.store(ins.operands[0], kind)

    def run(m: Machine, g: Group, sel: Array | None) -> None:
        v = g.matrix(np.broadcast_to(value(m, g), g.n))
        members = np.broadcast_to(_rows(g, mask(m, g)), v.shape) & bits(g.present())[:, None]
        out = np.zeros_like(v)
        for one in np.unique(members).tolist():
            taking = (np.uint32(one) & BIT) != 0
            row = ufunc.reduce(np.where(taking, v, kind.dtype.type(neutral)), axis=1)
            out = np.where(members == one, row[:, None], out)
        store(g, g.lanewise(out.astype(kind.dtype)), None)

    return run


@opcode("activemask", "1 b32")
def activemask(c: Compiler, ins: Instruction) -> Step:
    store = c.store(ins.operands[0], B32)

    def run(m: Machine, g: Group, sel: Array | None) -> None:
        here = g.present() if sel is None else g.matrix(sel, False)
        store(g, g.lanewise(np.broadcast_to(bits(here)[:, None], here.shape)), sel)

    return run


@opcode("elect", "2 sync", meets="warp", mask=True)
def elect(c: Compiler, ins: Instruction) -> Step:
    """The lowest lane of the mask is the leader."""
    mask = c.fetch(ins.operands[1], B32)
    first, second = two_results(ins)
    store, store_p = c.store(first, U32), c.store(second, PRED)

    def run(m: Machine, g: Group, sel: Array | None) -> None:
        members = np.broadcast_to(_rows(g, mask(m, g)), (len(g.warps), WARP)) & bits(g.present())[:, None]
        lowest = members & (~members + np.uint32(1))
        leader = np.bitwise_count(lowest - np.uint32(1)).astype(np.uint32)
        store(g, g.lanewise(leader), None)
        store_p(g, g.lanewise(leader == LANE), None)

    return run
