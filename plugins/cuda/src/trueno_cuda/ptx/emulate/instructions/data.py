"""mov, ld, st, and the instructions that only advise the hardware."""

import numpy as np

from trueno_cuda.ptx.emulate.compile import Compiler, Step, Store, vector
from trueno_cuda.ptx.emulate.group import Group
from trueno_cuda.ptx.emulate.machine import Machine
from trueno_cuda.ptx.emulate.memory import CLUSTER_SHIFT, SHARED, WINDOW
from trueno_cuda.ptx.emulate.opcodes import opcode
from trueno_cuda.ptx.emulate.places import SPACES as WINDOWS
from trueno_cuda.ptx.emulate.special import special
from trueno_cuda.ptx.syntax.errors import Refusal
from trueno_cuda.ptx.syntax.tree import Address, Instruction, Register, Symbol, Variable, Vector
from trueno_cuda.ptx.syntax.types import B64, PRED, TYPES, U32, U64, Array, Type

SPACES = ("global", "shared", "local", "param", "const")


def space_of(ins: Instruction) -> str:
    """The address space that an instruction names."""
    return next((m.split("::")[0] for m in ins.mods if m.split("::")[0] in SPACES), "generic")


@opcode("mov", "2 pred|BITS|INT|f32|f64")
def mov(c: Compiler, ins: Instruction) -> Step:
    kind = c.type(ins)
    source, target = ins.operands[1], ins.operands[0]
    if isinstance(source, Register) and isinstance(target, Register) and source.type == target.type:
        a, b = source.index, target.index

        def copy(m: Machine, g: Group, sel: Array | None) -> None:
            v = g.registers[a]
            old = g.registers[b]
            assert v is not None
            g.registers[b] = v if sel is None else np.where(sel, v, v.dtype.type(0) if old is None else old)

        return copy
    if isinstance(source, Symbol) and source.variable is not None and source.variable.space in ("param", "local") and (
        id(source.variable) in c.params
    ):  # fmt: skip
        where, offset = source.variable, source.offset
        return c.value(ins, kind, lambda a: a, lambda m, g: (np.array([m.address(where)]) + offset).astype(kind.dtype))
    if isinstance(source, Vector):
        part = part_of(source, kind)
        parts = [c.fetch(o, part) for o in source.items]
        store_whole = c.store(target, kind)
        return lambda m, g, sel: store_whole(g, pack([p(m, g) for p in parts], kind), sel)
    if isinstance(target, Vector):
        part = part_of(target, kind)
        whole, stores = c.fetch(source, kind), [c.store(o, part) for o in target.items]

        def unpack(m: Machine, g: Group, sel: Array | None) -> None:
            raw = whole(m, g)
            for k, store in enumerate(stores):
                store(g, (raw >> raw.dtype.type(k * part.bits)).astype(part.dtype), sel)

        return unpack
    return c.value(ins, kind, lambda a: a, c.fetch(source, kind))


def part_of(operand: Vector, kind: Type) -> Type:
    """The type of the registers that are side by side in one value."""
    count = len(operand.items)
    if kind.kind != "b" or count not in (2, 4) or kind.bits // count < 8:
        raise Refusal(f"{count} parts of .{kind.name}")
    return TYPES[f"b{kind.bits // count}"]


def pack(parts: list[Array], kind: Type) -> Array:
    """Narrow values to one wide one, lowest first."""
    wide = np.dtype(f"u{kind.bytes}")
    bits = kind.bits // len(parts)
    out = parts[0].astype(wide)
    for k, part in enumerate(parts[1:], 1):
        out = out | (part.astype(wide) << wide.type(k * bits))
    return out.view(kind.dtype)


def vector_of(ins: Instruction) -> int:
    return next((int(m[1:]) for m in ins.mods if m in ("v2", "v4", "v8")), 1)


CACHED = "ca|cg|cs|lu|cv? nc? EVICT1? EVICT2? AHEAD?"
LOADED = f"weak|volatile|relaxed|acquire|mmio? SCOPE? SPACE? unified? {CACHED} v2|v4|v8? STORED"


@opcode("ld", f"2 {LOADED}", f"3 {LOADED} HINT", spins=("volatile", "acquire", "relaxed"))
@opcode("ldu", "2 global? v2|v4? STORED")
def ld(c: Compiler, ins: Instruction) -> Step:
    kind, count, space = c.type(ins), vector_of(ins), space_of(ins)
    source = ins.operands[1]
    stores = [c.store(t, kind, extend=True) for t in vector(ins.operands[0], count)]
    if not isinstance(source, Address):
        raise Refusal("an address in brackets is wanted")
    if space == "param":
        if isinstance(source.base, Variable) and id(source.base) in c.params:
            return parameter(ins, c, source.base, source.offset, kind, stores)
        if isinstance(source.base, Variable):
            space = "local"  # of a call: the emulator keeps them with the lane's own memory
    address = c.address(source)
    if count == 1:
        (store,) = stores

        def one(m: Machine, g: Group, sel: Array | None) -> None:
            store(g, m.access.load(ins, g, sel, address(m, g), space, kind, 1)[0], sel)

        return one

    def run(m: Machine, g: Group, sel: Array | None) -> None:
        for store, v in zip(stores, m.access.load(ins, g, sel, address(m, g), space, kind, count), strict=True):
            store(g, v, sel)

    return run


def parameter(ins: Instruction, c: Compiler, var: Variable, offset: int, kind: Type, stores: list[Store]) -> Step:
    """ld.param of an entry's parameter: the same for all lanes."""
    at = c.layout.offsets[id(var)] + offset
    if offset < 0 or offset + kind.bytes * len(stores) > var.size:
        raise Refusal(f"{var.name} has {var.size} bytes; {kind.bytes * len(stores)} at {offset} are read")
    if at % kind.bytes:
        raise Refusal(f"{var.name}+{offset} is not aligned to {kind.bytes} bytes")

    def run(m: Machine, g: Group, sel: Array | None) -> None:
        for k, store in enumerate(stores):
            first = at + k * kind.bytes
            store(g, m.params[first : first + kind.bytes].view(kind.dtype), sel)

    return run


STORES = "weak|volatile|relaxed|release|mmio? SCOPE? SPACE? wb|cg|cs|wt? EVICT1? EVICT2? v2|v4|v8? STORED"


@opcode("st", f"2 {STORES}", f"3 {STORES} HINT")
def st(c: Compiler, ins: Instruction) -> Step:
    kind, count, space = c.type(ins), vector_of(ins), space_of(ins)
    target = ins.operands[0]
    if space == "param" and isinstance(target, Address) and isinstance(target.base, Variable):
        space = "local"
    address = c.address(target)
    values = [c.fetch(s, kind, wide=True) for s in vector(ins.operands[1], count)]

    def run(m: Machine, g: Group, sel: Array | None) -> None:
        m.access.store(ins, g, sel, address(m, g), space, kind, [v(m, g) for v in values])

    return run


@opcode("prefetch", "1 global|local? L1|L2", "1 global L2::evict_last|L2::evict_normal", "1 const|param? tensormap",
        result=False)  # fmt: skip
@opcode("prefetchu", "1 L1", result=False)
@opcode("discard", "2 global? L2", result=False)
@opcode("applypriority", "2 global? L2::evict_normal", result=False)
@opcode("griddepcontrol", "0 launch_dependents|wait")
@opcode("setmaxnreg", "1 inc|dec sync aligned u32", result=False)
@opcode("nanosleep", "1 u32", result=False, spins=True)
@opcode("membar", "0 cta|gl|sys")
@opcode(
    "fence",
    "0 sc|acq_rel|acquire|release? SCOPE",
    "0 mbarrier_init release cluster",
    "0 acquire|release sync_restrict::shared::cta|sync_restrict::shared::cluster cluster",
    "0 proxy tensormap::generic release SCOPE",
    "2 proxy tensormap::generic acquire SCOPE",
    "0 proxy async::generic acquire|release sync_restrict::shared::cta|sync_restrict::shared::cluster cluster",
    result=False,
)
@opcode("membar fence", "0 proxy alias|async", "0 proxy async global|CLUSTER")
@opcode("pmevent", "1 mask?", result=False)
@opcode("brkpt", "0")  # fmt: skip
def nothing(c: Compiler, ins: Instruction) -> Step:
    """Advice, and orders that the emulator keeps anyway: its memory is sequentially consistent."""
    return lambda m, g, sel: None


@opcode("createpolicy", "1-2 fractional EVICT2 EVICT2? b64", "4 range global? EVICT2 EVICT2? b64", "2 cvt L2 b64")
def createpolicy(c: Compiler, ins: Instruction) -> Step:
    zero = np.zeros(1, np.uint64)
    store = c.store(ins.operands[0], B64)
    return lambda m, g, sel: store(g, zero, sel)


@opcode("isspacep", "2 SPACE")
def isspacep(c: Compiler, ins: Instruction) -> Step:
    space = space_of(ins)
    address = c.fetch(ins.operands[1], U64)
    windows = [w for w, name in WINDOWS.items() if name == space]
    return c.value(ins, PRED, lambda a: np.isin(a >> np.uint64(WINDOW), windows), address)


@opcode("mapa", "3 CLUSTER? u32|u64")
@opcode("getctarank", "2 CLUSTER? u32|u64")
def mapa(c: Compiler, ins: Instruction) -> Step:
    """The address of the same shared memory in another block of the cluster; the rank in such an address."""
    kind = c.type(ins)
    base = 0 if space_of(ins) == "shared" else SHARED
    if isinstance(ins.operands[1], Symbol) and ins.operands[1].variable is not None:
        base = 0
    a = c.fetch(ins.operands[1], kind)
    if ins.opcode == "getctarank":
        store = c.store(ins.operands[0], U32)

        def rank(m: Machine, g: Group, sel: Array | None) -> None:
            window = (a(m, g).astype(np.int64) - base) >> CLUSTER_SHIFT
            own = special(m, g, "cluster_ctarank").astype(np.int64)
            store(g, np.where(window > 0, window - 1, own).astype(np.uint32), sel)

        return rank
    low = (1 << CLUSTER_SHIFT) - 1

    def run(x: Array, r: Array) -> Array:
        offset = (x.astype(np.int64) - base) & low
        return (base + ((r.astype(np.int64) + 1) << CLUSTER_SHIFT) + offset).astype(kind.dtype)

    return c.value(ins, kind, run, a, c.fetch(ins.operands[2], U32))
