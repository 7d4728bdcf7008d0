"""mma.sync, ldmatrix, stmatrix, movmatrix.

Products are summed in float64 and rounded once to the accumulator's type: closer to the truth than the tensor
cores, which truncate as they align.
"""

import numpy as np

from trueno_cuda.ptx.emulate import floats
from trueno_cuda.ptx.emulate.access import BASES
from trueno_cuda.ptx.emulate.compile import Compiler, Fetch, Step, Store
from trueno_cuda.ptx.emulate.findings import MISSING_LANES
from trueno_cuda.ptx.emulate.fragments import GROUP, WITHIN, a_places, b_places, c_places
from trueno_cuda.ptx.emulate.group import Group
from trueno_cuda.ptx.emulate.instructions.data import space_of
from trueno_cuda.ptx.emulate.machine import Machine
from trueno_cuda.ptx.emulate.opcodes import opcode
from trueno_cuda.ptx.syntax.errors import Refusal
from trueno_cuda.ptx.syntax.tree import Instruction, Operand, Vector
from trueno_cuda.ptx.syntax.types import B32, F64, TYPES, Array, Type


def items(operand: Operand) -> tuple[Operand, ...]:
    return operand.items if isinstance(operand, Vector) else (operand,)


def elements(values: list[Array], g: Group, kind: Type) -> Array:
    """Registers to elements [warps, 32, registers, elements a register], as numbers."""
    word = np.stack([np.ascontiguousarray(g.matrix(np.broadcast_to(v, g.n))) for v in values], axis=2)
    if kind is F64:
        return word[..., None]
    split = word.view(kind.dtype).reshape(*word.shape, -1)
    return floats.decode(split, kind) if kind.kind == "f" else split


def full(g: Group, m: Machine, ins: Instruction) -> None:
    if not g.whole:
        m.find(MISSING_LANES, ins, "some lanes of the warp are not here", g.lanes[0])


@opcode("mma", *(f"4 sync aligned {form}" for form in (
    "m8n8k4 row col f64 f64 f64 f64", "m16n8k4|m16n8k8|m16n8k16 row col RND? f64 f64 f64 f64",
    "m16n8k8|m16n8k16 row col f16|f32 f16 f16 f16|f32", "m16n8k8|m16n8k16 row col f32 bf16 bf16 f32",
    "m16n8k4|m16n8k8 row col f32 tf32 tf32 f32", "m16n8k16|m16n8k32 row col f16|f32 e4m3|e5m2 e4m3|e5m2 f16|f32",
    "m8n8k16|m16n8k16|m16n8k32 row col satfinite? s32 u8|s8 u8|s8 s32",
)), meets="warp", flops=2)  # fmt: skip
def mma(c: Compiler, ins: Instruction) -> Step:
    shape = next(x for x in ins.mods if x[0] == "m" and "n" in x and "k" in x)
    m_, _, k_ = (int(x) for x in shape[1:].replace("n", " ").replace("k", " ").split())
    types = [TYPES[x] for x in ins.mods if x in TYPES]
    d_type, a_type, b_type, c_type = types
    word = F64 if a_type is F64 else B32
    e = 1 if a_type is F64 else 32 // a_type.bits
    a_at, b_at, c_at = a_places(m_, k_, e), b_places(k_, e), c_places(m_)
    a, b = ([c.fetch(o, word) for o in items(ins.operands[k])] for k in (1, 2))
    if len(a) != a_at[0].shape[1] or len(b) != b_at[0].shape[1]:
        raise Refusal(f"A has {a_at[0].shape[1]} registers and B {b_at[0].shape[1]}")
    load_c, store_d = accumulator(c, ins.operands[3], c_type, c_at), result(c, ins.operands[0], d_type, c_at)
    limit = "satfinite" in ins.mods
    integer = d_type.kind == "s"

    def run(m: Machine, g: Group, sel: Array | None) -> None:
        full(g, m, ins)
        x = elements([f(m, g) for f in a], g, a_type)
        y = elements([f(m, g) for f in b], g, b_type)
        rows = len(g.warps)
        left, right = np.empty((rows, m_, k_)), np.empty((rows, k_, 8))
        left[:, a_at[0], a_at[1]] = x
        right[:, b_at[0], b_at[1]] = y
        total = left @ right + load_c(m, g)
        if integer:
            if limit:
                total = np.clip(total, -(2.0**31), 2.0**31 - 1)
            store_d(g, total.astype(np.int64).astype(np.int32))
        else:
            store_d(g, total)

    return run


def accumulator(c: Compiler, operand: Operand, kind: Type, places: tuple[Array, Array]):  # type: ignore[no-untyped-def]
    """How to read C as [warps, rows, columns] of float64; f16 accumulators are two to a register."""
    packed = kind.bits == 16
    fetches = [c.fetch(o, B32 if packed else kind) for o in items(operand)]
    rows, columns = places
    if len(fetches) * (2 if packed else 1) != rows.shape[1]:
        raise Refusal(f"C has {len(fetches)} registers of {kind.name}")
    height, width = int(rows.max()) + 1, int(columns.max()) + 1

    def load(m: Machine, g: Group) -> Array:
        values = np.stack([np.ascontiguousarray(g.matrix(np.broadcast_to(f(m, g), g.n))) for f in fetches], axis=2)
        if packed:
            values = floats.decode(values.view(kind.dtype), kind)
        out = np.empty((len(g.warps), height, width))
        out[:, rows, columns] = values
        return out

    return load


def result(c: Compiler, operand: Operand, kind: Type, places: tuple[Array, Array]):  # type: ignore[no-untyped-def]
    packed = kind.bits == 16
    stores: list[Store] = [c.store(o, B32 if packed else kind) for o in items(operand)]
    rows, columns = places
    if len(stores) * (2 if packed else 1) != rows.shape[1]:
        raise Refusal(f"D has {len(stores)} registers of {kind.name}")

    def save(g: Group, total: Array) -> None:
        values = total[:, rows, columns]
        if kind.kind == "f":
            values = floats.encode(np.ascontiguousarray(values), kind)
        if packed:
            values = np.ascontiguousarray(values).view(np.uint32)
        for k, store in enumerate(stores):
            store(g, g.lanewise(values[:, :, k]), None)

    return save


# ---- ldmatrix and stmatrix ------------------------------------------------------------------------


def matrix_shape(ins: Instruction) -> tuple[int, bool, str]:
    count = int(next(x for x in ins.mods if x in ("x1", "x2", "x4"))[1])
    return count, "trans" in ins.mods, space_of(ins)


def row_places(m: Machine, ins: Instruction, g: Group, address: Fetch, count: int, space: str) -> tuple[Array, Array]:
    """Byte places [warps, matrices, 8] of the rows of 16 bytes, and who gave each address."""
    full(g, m, ins)
    at = np.broadcast_to(address(m, g), g.n)
    if space == "generic":
        at = at - BASES["shared"]
    rows = g.matrix(at)[:, : 8 * count].reshape(-1)
    lanes = g.matrix(g.lanes)[:, : 8 * count].reshape(-1)
    if not g.whole:
        present = g.present()[:, : 8 * count].reshape(-1)
        rows, lanes = np.where(present, rows, rows[0]), np.where(present, lanes, lanes[0])
    place = m.access.place(ins, g, lanes, rows, "shared", 16, 16)
    index = np.broadcast_to(place.at, lanes.shape)
    if m.launch.traffic is not None:
        step = -(-len(index) // (8 * 4 * 64))
        words = (rows.reshape(-1, 8)[::step, :, None] // 4 + np.arange(4)).reshape(-1, 32)
        m.launch.traffic.count(ins, words, np.ones(words.shape, bool), len(words))
    key = "shared written" if ins.opcode == "stmatrix" else "shared read"
    m.report.bytes[key] = m.report.bytes.get(key, 0) + 16 * len(lanes)
    return index, lanes


@opcode("ldmatrix", "2 sync aligned m8n8 x1|x2|x4 trans? SHARED? b16", meets="warp")
def ldmatrix(c: Compiler, ins: Instruction) -> Step:
    """8 by 8 matrices of 16-bit elements: a lane gets two neighbours of a row, of the transpose's with .trans."""
    count, trans, space = matrix_shape(ins)
    stores = [c.store(o, B32) for o in items(ins.operands[0])]
    if len(stores) != count:
        raise Refusal(f"{count} registers are wanted")
    address = c.address(ins.operands[1])

    def run(m: Machine, g: Group, sel: Array | None) -> None:
        index, lanes = row_places(m, ins, g, address, count, space)
        if m.shadow is not None:
            m.shadow.read(ins, lanes, index, 16)
        halves = m.shared.view(np.uint16)[(index >> 1)[:, None] + np.arange(8)]
        matrices = halves.reshape(-1, count, 8, 8).astype(np.uint32)
        if trans:
            matrices = matrices.transpose(0, 1, 3, 2)
        words = matrices[:, :, GROUP, 2 * WITHIN] | (matrices[:, :, GROUP, 2 * WITHIN + 1] << np.uint32(16))
        for k, store in enumerate(stores):
            store(g, g.lanewise(words[:, k]), None)

    return run


@opcode("stmatrix", "2 sync aligned m8n8 x1|x2|x4 trans? SHARED? b16", meets="warp")
def stmatrix(c: Compiler, ins: Instruction) -> Step:
    count, trans, space = matrix_shape(ins)
    address = c.address(ins.operands[0])
    values = [c.fetch(o, B32) for o in items(ins.operands[1])]
    if len(values) != count:
        raise Refusal(f"{count} registers are wanted")

    def run(m: Machine, g: Group, sel: Array | None) -> None:
        index, lanes = row_places(m, ins, g, address, count, space)
        words = np.stack([g.matrix(np.broadcast_to(v(m, g), g.n)) for v in values], axis=1)
        matrices = np.empty((len(words), count, 8, 8), np.uint16)
        matrices[:, :, GROUP, 2 * WITHIN] = words & 0xFFFF
        matrices[:, :, GROUP, 2 * WITHIN + 1] = words >> 16
        if trans:
            matrices = matrices.transpose(0, 1, 3, 2)
        if m.shadow is not None:
            m.shadow.write(ins, lanes, index, 16)
        m.shared.view(np.uint16)[(index >> 1)[:, None] + np.arange(8)] = matrices.reshape(-1, 8)
        m.launch.changes += 1

    return run


@opcode("movmatrix", "2 sync aligned m8n8 trans b16", meets="warp")
def movmatrix(c: Compiler, ins: Instruction) -> Step:
    """The transpose of an 8 by 8 matrix that lies across the warp."""
    value, store = c.fetch(ins.operands[1], B32), c.store(ins.operands[0], B32)

    def run(m: Machine, g: Group, sel: Array | None) -> None:
        words = g.matrix(np.broadcast_to(value(m, g), g.n))
        halves = np.ascontiguousarray(words).view(np.uint16).reshape(-1, 8, 8)
        turned = np.ascontiguousarray(halves.transpose(0, 2, 1)).reshape(-1, 64).view(np.uint32)
        store(g, g.lanewise(turned), None)

    return run
