"""Video instructions on two halves or four bytes of a register: `vabsdiff4.u32.u32.u32 d, a, b, c`."""

from collections.abc import Callable

import numpy as np

from trueno_cuda.ptx.emulate.compile import Compiler, Step
from trueno_cuda.ptx.emulate.opcodes import opcode
from trueno_cuda.ptx.syntax.tree import Instruction
from trueno_cuda.ptx.syntax.types import B32, TYPES, Array

LANES: dict[str, Callable[[Array, Array], Array]] = {
    "vadd": np.add,
    "vsub": np.subtract,
    "vmin": np.minimum,
    "vmax": np.maximum,
    "vavrg": lambda a, b: (a + b + 1) >> 1,
    "vabsdiff": lambda a, b: np.abs(a - b),
}
NAMES = [f"{name}{count}" for name in LANES for count in (2, 4)]


@opcode(" ".join(NAMES), "4 u32|s32 u32|s32 u32|s32 sat? add?")
def video(c: Compiler, ins: Instruction) -> Step:
    """Lane by lane in 64 bits; `.add` adds the results to c, without it c stands for lanes that a mask leaves out."""
    count = int(ins.opcode[-1])
    function = LANES[ins.opcode[:-1]]
    result, first, second = (TYPES[m] for m in ins.mods if m in TYPES)
    width = 32 // count
    signs = {"s": f"i{width // 8}", "u": f"u{width // 8}"}
    info = np.iinfo(signs[result.kind])

    def lanes(x: Array, kind: str) -> Array:
        return np.asarray(np.ascontiguousarray(x).view(signs[kind])).reshape(-1, count).astype(np.int64)

    def run(a: Array, b: Array, d: Array) -> Array:
        result: Array = function(lanes(a, first.kind), lanes(b, second.kind))
        if "sat" in ins.mods:
            result = np.clip(result, info.min, info.max)
        if "add" in ins.mods:
            return np.asarray(result.sum(1) + d).astype(np.uint32)
        return result.astype(f"u{width // 8}").view(np.uint32).reshape(-1)

    return c.value(ins, B32, run, *(c.fetch(o, B32) for o in ins.operands[1:4]))
