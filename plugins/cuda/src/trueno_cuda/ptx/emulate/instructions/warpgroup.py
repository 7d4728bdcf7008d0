"""wgmma: matrix products of four warps, from descriptors of shared memory, that land at wgmma.wait_group."""

import numpy as np

from trueno_cuda.ptx.emulate import floats
from trueno_cuda.ptx.emulate.compile import Compiler, Fetch, Step, literal, vector
from trueno_cuda.ptx.emulate.findings import OUT_OF_BOUNDS, WGMMA
from trueno_cuda.ptx.emulate.fragments import a_places, c_places
from trueno_cuda.ptx.emulate.group import Group
from trueno_cuda.ptx.emulate.instructions.matrix import elements
from trueno_cuda.ptx.emulate.machine import Machine
from trueno_cuda.ptx.emulate.memory import SHARED_BASE
from trueno_cuda.ptx.emulate.opcodes import opcode
from trueno_cuda.ptx.emulate.products import Product, Shape, operand_bytes
from trueno_cuda.ptx.syntax.errors import Refusal
from trueno_cuda.ptx.syntax.tree import Instruction, Register, Vector
from trueno_cuda.ptx.syntax.types import B32, PRED, S32, TYPES, U64, Array, Type


@opcode("wgmma", *(
    f"{operands} mma_async sync aligned {'|'.join(f'm64n{n}k{k}' for n in range(8, 257, 8))} {types}"
    for operands, k, types in (
        ("7-8", 16, "f16|f32 f16 f16"), ("7-8", 16, "f32 bf16 bf16"), ("6", 8, "f32 tf32 tf32"),
        ("6", 32, "f16|f32 e4m3|e5m2 e4m3|e5m2"), ("4", 32, "satfinite? s32 u8|s8 u8|s8"),
    )
), accumulates=True, meets="group", flops=2)  # fmt: skip
@opcode("wgmma", "0 fence|commit_group sync aligned", "1 wait_group sync aligned", result=False, meets="group")
def wgmma(c: Compiler, ins: Instruction) -> Step:
    if "fence" in ins.mods:
        return fence
    if "commit_group" in ins.mods:
        return commit
    if "wait_group" in ins.mods:
        return wait(literal(ins.operands[0]))
    return product(c, ins)


def groups_of(g: Group) -> Array:
    """Numbers of the warp groups here; a group of lanes at a wgmma is made of whole ones."""
    return g.lanes[::128] >> 7


def fence(m: Machine, g: Group, sel: Array | None) -> None:
    m.fenced[groups_of(g)] = True


def commit(m: Machine, g: Group, sel: Array | None) -> None:
    m.product_group[groups_of(g)] += 1


def product(c: Compiler, ins: Instruction) -> Step:
    shape = next(x for x in ins.mods if x.startswith("m64n"))
    n, k = (int(x) for x in shape[4:].split("k"))
    d_type, a_type, b_type = (TYPES[x] for x in ins.mods if x in TYPES)
    packed = d_type.bits == 16
    word = B32 if packed else d_type
    target = vector(ins.operands[0], n // (4 if packed else 2))
    registers = [r.index for r in target if isinstance(r, Register) and r.type.bits == word.bits]
    if len(set(registers)) != len(target):
        raise Refusal(f"D is made of {len(target)} different registers of {word.bits} bits")
    in_registers = isinstance(ins.operands[1], Vector)
    a: list[Fetch] = (
        [c.fetch(o, B32) for o in vector(ins.operands[1], 4)] if in_registers else [c.fetch(ins.operands[1], U64)]
    )
    b = c.fetch(ins.operands[2], U64)
    scale_d = ins.operands[3]
    scale = c.fetch(scale_d, PRED if isinstance(scale_d, Register) and scale_d.type is PRED else S32)
    rest = [literal(o) for o in ins.operands[4:]] + [0] * 4
    floating = a_type.kind == "f"
    turns = rest[2:] if floating else [0, 0]
    negate_a, negate_b = floating and rest[0] == -1, floating and rest[1] == -1
    turn_a, turn_b = bool(turns[0]) and not in_registers, bool(turns[0 if in_registers else 1])
    limit = "satfinite" in ins.mods
    spec = Shape(n, k, d_type, a_type, b_type, registers, negate_a, negate_b, turn_a, turn_b, limit)
    if (spec.transpose_a or spec.transpose_b) and a_type.bits != 16:
        raise Refusal("only 16-bit types can be transposed")
    e = 32 // a_type.bits
    a_at = a_places(16, k, e)
    flags = {r: c.flags[r] for r in registers if r in c.flags}

    def run(m: Machine, g: Group, sel: Array | None) -> None:
        groups = groups_of(g)
        adds = np.broadcast_to(scale(m, g) != 0, g.n)[::128]
        if adds.any():
            for r, flag in flags.items():
                m.need_written(ins, g, None, flag, r)
        if not m.fenced[groups].all():
            m.find(WGMMA, ins, "no wgmma.fence before the first product since the registers were touched", g.lanes[0])
        if in_registers:
            left = np.empty((len(g.warps), 16, k))
            left[:, a_at[0], a_at[1]] = elements([f(m, g) for f in a], g, a_type)
            first: Array = left.reshape(-1, 64, k)
        else:
            first = np.broadcast_to(a[0](m, g).astype(np.int64), g.n)[::128]
        second = np.broadcast_to(b(m, g).astype(np.int64), g.n)[::128]
        m.products.append(Product(ins, groups, m.product_group[groups], first, in_registers, second, adds, spec))
        m.flying_registers |= set(registers)

    return run


def wait(keep: int) -> Step:
    keep = min(keep, 2**31)  # more groups than any kernel commits

    def run(m: Machine, g: Group, sel: Array | None) -> None:
        groups = groups_of(g)
        limit = np.full(len(m.product_group), -1, np.int64)
        limit[groups] = m.product_group[groups] - keep
        kept = []
        for one in m.products:
            hit = one.number < limit[one.groups]
            if hit.any():
                land(m, g, one, hit)
            if not hit.all():
                rest = ~hit
                kept.append(Product(one.ins, one.groups[rest], one.number[rest], one.a[rest], one.a_in_registers,
                                    one.b[rest], one.scale[rest], one.spec))  # fmt: skip
        m.products[:] = kept
        m.fenced[groups] = False
        m.flying_registers = {r for one in kept for r in one.spec.registers}

    return run


def shared_operand(
    m: Machine, one: Product, descriptors: Array, hit: Array, rows: int, transposed: bool, kind: Type
) -> Array:
    """[groups, rows, k] of an operand in shared memory, as numbers."""
    spec = one.spec
    wide = kind.bytes
    address = operand_bytes(descriptors[hit], rows, spec.k * wide, wide, transposed)
    block = (one.groups[hit] << 7) // m.block_lanes
    offset = address - SHARED_BASE
    bad = (offset < 0) | (offset + wide > m.shared_size)
    if bad.any():
        where = int(address[bad][0])
        words = (
            f"a descriptor leads to {where - SHARED_BASE}, outside the block's {m.shared_size} bytes of shared memory"
        )
        m.find(OUT_OF_BOUNDS, one.ins, words, int(one.groups[hit][0]) << 7, int(bad.sum()), where)
        offset = np.where(bad, 0, offset)
    index = block[:, None, None] * m.shared_size + offset
    if m.shadow is not None:
        words = index.reshape(len(index), -1)
        for row, group in zip(words, one.groups[hit].tolist(), strict=True):
            distinct = np.unique(row >> m.shadow.shift) << m.shadow.shift
            for warp in range(4):  # each of them is done with the operands only when it has waited
                m.shadow.read(one.ins, np.full(len(distinct), (group << 7) + 32 * warp), distinct, 1 << m.shadow.shift)
    raw = m.shared.view(kind.dtype)[index // wide]
    return (floats.decode(raw, kind) if kind.kind == "f" else raw).astype(np.float64)


def land(m: Machine, g: Group, one: Product, hit: Array) -> None:
    """D += A · B for the chosen warp groups, in their registers."""
    spec = one.spec
    left = one.a[hit] if one.a_in_registers else shared_operand(m, one, one.a, hit, 64, spec.transpose_a, spec.a_type)
    right = shared_operand(m, one, one.b, hit, spec.n, spec.transpose_b, spec.b_type)
    total = left @ right.transpose(0, 2, 1)
    if spec.negate_a != spec.negate_b:
        total = -total
    rows, columns = c_places(16, spec.n)
    lanes = (one.groups[hit][:, None] * 128 + np.arange(128)).reshape(-1)
    where = np.searchsorted(g.lanes, lanes)
    # [groups, 64, n] → [groups, 4 warps, 32 lanes, values]
    values = total.reshape(len(total), 4, 16, spec.n)[:, :, rows, columns].reshape(len(lanes), -1)
    add = np.repeat(one.scale[hit], 128)
    packed = spec.d_type.bits == 16
    for k, r in enumerate(spec.registers):
        old = g.registers[r]
        current = np.zeros(g.n, np.uint32) if old is None else np.array(np.broadcast_to(old, g.n)).view(np.uint32)
        if packed:
            part = floats.decode(np.ascontiguousarray(current[where]).view(spec.d_type.dtype), spec.d_type)
            base = np.where(add[:, None], part.reshape(-1, 2), 0).astype(np.float64)
            fresh = floats.encode(values[:, 2 * k : 2 * k + 2] + base, spec.d_type)
            current[where] = np.ascontiguousarray(fresh).view(np.uint32)[:, 0]
        elif spec.d_type.kind == "s":
            base = np.where(add, current[where].view(np.int32), 0)
            sum_ = values[:, k].astype(np.int64) + base
            if spec.limit:
                sum_ = np.clip(sum_, -(2**31), 2**31 - 1)
            current[where] = sum_.astype(np.int32).view(np.uint32)
        else:
            base = np.where(add, current[where].view(np.float32), 0)
            current[where] = (values[:, k] + base).astype(np.float32).view(np.uint32)
        g.registers[r] = current.view(m.layout.registers[r].type.dtype)
