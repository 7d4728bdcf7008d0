"""atom and red: read, combine, write, one lane after the other."""

import numpy as np

from trueno_cuda.ptx.emulate import floats
from trueno_cuda.ptx.emulate.access import Combine
from trueno_cuda.ptx.emulate.compile import Compiler, Step, vector
from trueno_cuda.ptx.emulate.group import Group
from trueno_cuda.ptx.emulate.instructions.arithmetic import half_of, halves
from trueno_cuda.ptx.emulate.instructions.data import space_of, vector_of
from trueno_cuda.ptx.emulate.machine import Machine
from trueno_cuda.ptx.emulate.opcodes import opcode
from trueno_cuda.ptx.syntax.tree import Instruction, Operand, Register
from trueno_cuda.ptx.syntax.types import Array, Type

QUICK = {"add": np.add, "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor, "min": np.minimum,
         "max": np.maximum}  # fmt: skip


ORDER = "relaxed|acquire|release|acq_rel? SCOPE? global|CLUSTER?"
SUMS = ("add u32|s32|u64|f32|f64", "add noftz f16|f16x2|bf16|bf16x2", "min|max u32|s32|u64|s64", "inc|dec u32",
        "and|or|xor b32|b64", "add v2|v4 f32", "add noftz v2|v4|v8 f16|bf16", "add noftz v2|v4 f16x2|bf16x2",
        "min|max noftz v2|v4|v8 f16")  # fmt: skip


def narrow_sum(kind: Type) -> Combine:
    half = half_of(kind)

    def one(a: Array, b: Array) -> Array:
        x = floats.decode(a, half).astype(np.float64) + floats.decode(b, half)
        return floats.encode(x, half)

    return lambda old, v: halves(one, kind)(old, v[0]) if kind.name.endswith("x2") else one(old, v[0])


def combination(op: str, kind: Type) -> Combine:
    """What an atomic writes, given the old value and the operands."""
    one = kind.dtype.type(1)
    table: dict[str, Combine] = {
        "add": lambda old, v: old + v[0],
        "min": lambda old, v: np.minimum(old, v[0]),
        "max": lambda old, v: np.maximum(old, v[0]),
        "and": lambda old, v: old & v[0],
        "or": lambda old, v: old | v[0],
        "xor": lambda old, v: old ^ v[0],
        "exch": lambda old, v: v[0],
        "cas": lambda old, v: np.where(old == v[0], v[1], old),
        "inc": lambda old, v: np.where(old >= v[0], kind.dtype.type(0), old + one),
        "dec": lambda old, v: np.where((old == 0) | (old > v[0]), v[0], old - one),
    }
    if kind.kind == "f" and op == "add" and kind.name not in ("f32", "f64"):
        return narrow_sum(kind)
    return table[op]


@opcode("atom", *(f"{count} {ORDER} {form}" for form in SUMS for count in ("3", "4 HINT")), spins=True)
@opcode(
    "atom",
    *(
        f"{count} {ORDER} {form}"
        for form, count in (
            ("exch b32|b64", "3"),
            ("exch b32|b64", "4 HINT"),
            ("cas b16|b32|b64", "4"),
            ("cas b16|b32|b64", "5 HINT"),
        )
    ),
    spins=True,
)
@opcode("red", *(f"{count} {ORDER} {form}" for form in SUMS for count in ("2", "3 HINT")))  # fmt: skip
def atomic(c: Compiler, ins: Instruction) -> Step:
    kind, space = c.type(ins), space_of(ins)
    op = next(m for m in ins.mods if m in (*QUICK, "exch", "cas", "inc", "dec"))
    returns = ins.opcode == "atom"
    target = ins.operands[0] if returns else None
    address = c.address(ins.operands[1 if returns else 0])
    operands = ins.operands[2 if returns else 1 :]
    count = vector_of(ins)
    wanted = returns and not (isinstance(target, Register) and target.index not in c.used)
    plain = kind.kind != "f" or kind.name in ("f32", "f64")
    quick = QUICK[op].at if op in QUICK and plain else None
    combine = combination(op, kind)
    if count > 1:
        values = [[c.fetch(o, kind)] for o in vector(operands[0], count)]
        targets: list[Operand | None] = [None] * count if target is None else list(vector(target, count))
    else:
        values = [[c.fetch(o, kind) for o in operands[: 2 if op == "cas" else 1]]]  # behind them, a cache policy
        targets = [target]
    stores = [c.store(t, kind) if t is not None and wanted else None for t in targets]
    width = kind.bytes * count

    def run(m: Machine, g: Group, sel: Array | None) -> None:
        at = address(m, g)
        for k, (sources, store) in enumerate(zip(values, stores, strict=True)):
            old = m.access.atomic(ins, g, sel, at, space, kind, combine, [v(m, g) for v in sources], quick, wanted, k,
                                  width)  # fmt: skip
            if store is not None and old is not None:
                store(g, old, sel)

    return run
