"""The function that a page calls: every kernel with its arguments, in order, as LLVM's text.

Where arrays are in memory is known beforehand, so that all arguments are constants.  What kernels expect of a host's
process is here in its simplest form: there is no lock of Python's, and the thread pool has no worker.  A fused
multiply-add, which WebAssembly lacks and other targets take from the C library, is computed in float64: the product is
exact there, and a sum that is not gets an odd last bit, so that rounding it to float32 is as good as rounding once.

Source: Boldo and Melquiond, Emulation of FMA and correctly rounded sums: proved algorithms using rounding to odd.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from trueno_simd.door.sequence import takes
from trueno_simd.llvm import convention
from trueno_simd.threads.words import WORDS

Array = np.ndarray[Any, Any]
ENTRY = "run"
LIBRARY = ("fmaf",)
"""Functions that LLVM calls by name for what it cannot translate, so that they must not be hidden from it."""
HOST = f"""
@trueno_pool = constant [{8 * WORDS} x i8] zeroinitializer, align 64
define i64 @PyEval_SaveThread() {{ ret i64 0 }}
define void @PyEval_RestoreThread(i64) {{ ret void }}
define void @PyErr_SetInterrupt() {{ ret void }}
define float @fmaf(float %a, float %b, float %c) {{
  %x = fpext float %a to double
  %y = fpext float %b to double
  %z = fpext float %c to double
  %product = fmul double %x, %y
  %sum = fadd double %product, %z
  %of_z = fsub double %sum, %product
  %of_product = fsub double %sum, %of_z
  %lost = fsub double %product, %of_product
  %also_lost = fsub double %z, %of_z
  %error = fadd double %lost, %also_lost
  %inexact = fcmp one double %error, 0.0
  %bits = bitcast double %sum to i64
  %last = and i64 %bits, 1
  %even = icmp eq i64 %last, 0
  %moves = and i1 %inexact, %even
  %up = fcmp ogt double %error, 0.0
  %positive = icmp sge i64 %bits, 0
  %inwards = xor i1 %up, %positive
  %step = select i1 %inwards, i64 -1, i64 1
  %neighbour = add i64 %bits, %step
  %odd = select i1 %moves, i64 %neighbour, i64 %bits
  %wide = bitcast i64 %odd to double
  %rounded = fptrunc double %wide to float
  ret float %rounded
}}
"""


class Unfit(Exception):
    """A call that compiled code alone cannot make."""


@dataclass
class Program:
    """memory: the arrays of a batch, whose first byte is `base` in the module's memory.  scratch: where that is."""

    memory: Array
    base: int
    scratch: int
    globals: list[str] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    steps: int = 0

    def call(self, symbol: str, kinds: Sequence[str], arguments: Sequence[Any], room: int) -> None:
        """Append the call of a kernel; room: the bytes of scratch behind its arguments."""
        if len(kinds) != len(arguments) + bool(room):
            raise Unfit("its kernel takes other arguments")
        parts = ["ptr %result", "ptr %exception"]
        for kind, x in zip(kinds, arguments, strict=False):
            parts += self._argument(kind, x)
        if room:
            parts += self._array(f"inttoptr (i32 {self.scratch} to ptr)", room, 1, (room,), (1,))
        self.steps += 1
        n = self.steps
        self.lines += [
            f"  %raised{n} = call i32 @{quoted(symbol)}({', '.join(parts)})",
            f"  %wide{n} = zext i32 %raised{n} to i64",
            f"  %status{n} = load i64, ptr %result",
            f"  %both{n} = or i64 %wide{n}, %status{n}",
            f"  %fine{n} = icmp eq i64 %both{n}, 0",
            f"  br i1 %fine{n}, label %after{n}, label %refused{n}",
            f"refused{n}:",
            f"  ret i32 {n}",
            f"after{n}:",
        ]

    def _argument(self, kind: str, x: Any) -> list[str]:
        if kind == convention.NUMBER:
            return [f"double 0x{int(np.float64(x).view(np.int64)) % (1 << 64):016X}"]
        if kind == convention.WHOLE:
            return [f"i64 {int(x)}"]
        if not takes(kind, x):
            raise Unfit(f"its kernel takes {kind}, and an argument is {getattr(x, 'dtype', type(x).__name__)}")
        return self._array(self._place(x), x.size, x.itemsize, x.shape, x.strides)

    def _array(self, place: str, size: int, itemsize: int, shape: Any, strides: Any) -> list[str]:
        numbers = ", ".join(f"i64 {n}" for n in (*shape, *strides))
        return ["ptr null", "ptr null", f"i64 {size}", f"i64 {itemsize}", f"ptr {place}", *filter(None, [numbers])]

    def _place(self, x: Array) -> str:
        """Where an array is: in the batch's memory, or in the module's own, where a kernel brings one with it."""
        offset = x.ctypes.data - self.memory.ctypes.data
        if 0 <= offset <= self.memory.nbytes - x.nbytes:
            return f"inttoptr (i32 {self.base + offset} to ptr)"
        name = f"@given{len(self.globals)}"
        text = "".join(f"\\{byte:02X}" for byte in x.tobytes())
        self.globals.append(f'{name} = global [{x.nbytes} x i8] c"{text}", align 64')
        return name

    def text(self, declarations: Sequence[str]) -> str:
        """The module's text; declarations: those of the kernels that it calls."""
        head = [HOST, *self.globals, *declarations]
        body = [f"define i32 @{ENTRY}() {{", "  %result = alloca i64", "  %exception = alloca ptr", *self.lines,
                "  ret i32 0", "}"]  # fmt: skip
        return "\n".join([*head, *body, ""])


def quoted(symbol: str) -> str:
    """A name as LLVM writes it: within quotation marks where it has signs of Numba's."""
    if re.fullmatch(r"[-a-zA-Z$._][-a-zA-Z$._0-9]*", symbol):
        return symbol
    return '"' + "".join(c if 32 <= ord(c) < 127 and c not in '"\\' else f"\\{ord(c):02X}" for c in symbol) + '"'


__all__ = ["ENTRY", "LIBRARY", "Program", "Unfit", "quoted"]
