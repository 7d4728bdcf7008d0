"""Kernels of programs without folds: all elements in a row, each independent of the others.

A thread loads `groups` times 16 bytes of every operand before it computes; 2 048 threads of an SM have 32 KiB a group
on their way.  Floor: the bytes of operands and results, over the memory's bandwidth.

Where operands are shared by rows, an element's row and column come from one division by the row's length.  It is a
multiplication: the launch passes `magic` and `shift` (`division`).  Source: Granlund, Montgomery (1994), Division by
Invariant Integers using Multiplication, figure 4.1; exact for dividends below 2^31.
"""

from typing import Any

from trueno_cuda.ptx import Kernel, Value, u64
from trueno_cuda.rows.printer import Lane, Printer

NUMBERS = ("items", "n", "pitch", "magic", "shift", "first")
"""Of a launch.  items: units.  n: elements of a row.  pitch: elements of a row that the launch sees, by which `magic`
and `shift` divide.  first: the column of the first of them."""
BATCHED = ("items", "n")
"""Of a batched launch.  items: units of a row.  n: elements of a row."""
MOST = 1 << 30
"""Elements of a launch: indices stay below 2^31 in threads beyond the end, too."""


def division(n: int) -> tuple[int, int]:
    """Magic and shift: x // n == (mul_hi(x, magic) + x) >> shift for x < 2^31."""
    shift = (n - 1).bit_length()
    return (((1 << shift) - n) << 32) // n + 1, shift


USUAL_GROUPS = 1
"""Of 16 bytes a thread and operand.  On an H200, 2^28 float32: relu 504 us, with two groups 523, with four 530 (a copy
507); add 733, 736, 743.  Blocks that come and go keep more bytes on their way than threads that do more each."""


class Flat(Printer):
    """Prints the kernel."""

    def flat(self, arch: str, threads: int = 256, groups: int = 0) -> Kernel:
        """`groups` of 16 bytes a thread and operand; USUAL_GROUPS where none are said."""
        groups = groups or USUAL_GROUPS
        count = groups * self.units
        pass_ = self.plan.passes[0]

        def body(items: Value, n: Value, pitch: Value, magic: Value, shift: Value, first: Value) -> None:
            k: Any = self.k
            start = k.ctaid * (threads * count) + k.tid
            live = [start + j * threads < items for j in range(count)]
            at = start * self.width
            step = threads * self.width
            loaded: list[dict[int, list[Value]]] = [{} for _ in live]
            for i, source in pass_.loads:
                if self.kinds[str(source)] == "e":
                    base = self.pointer(source) + at
                    for j, values in enumerate(loaded):
                        values[i] = self.load(base, j * step, live[j], self.width)
            outs = {number: self.pointer(number) + at for number, _ in pass_.stores}
            if not self.by_row:
                self.row_ops(pass_.before)
            for j, values in enumerate(loaded):
                column = None
                if self.by_row:
                    place = at + j * step
                    row = (k.mul_hi(place, magic) + place) >> shift
                    column = k.multiple_of(place - row * pitch, self.width)
                    self.row_leaves(row, live[j])
                    self.row_ops(pass_.before)
                    for i, source in pass_.loads:
                        if self.kinds[str(source)] == "w":
                            values[i] = self.load(self.pointer(source), column, live[j], self.width)
                lanes: list[Lane] = [{i: v[e] for i, v in values.items()} for e in range(self.width)]
                for e, lane in enumerate(lanes):
                    self.compute(pass_.body, lane, None if column is None else self.column(column + first, e))
                for number, i in pass_.stores:
                    values = [self.value(i, lane) for lane in lanes]
                    self.store(outs[number], j * step, values, live[j])
                    self.watch(values, live[j])

        wide = f"v{self.width}"
        return self.build(f"flat{threads}x{groups}_{wide}", body, NUMBERS, threads=threads, arch=arch)

    def batched(self, arch: str, threads: int = 256, groups: int = 0) -> Kernel:
        """The same with rows along the grid's y: no division finds the row of an element."""
        groups = groups or USUAL_GROUPS
        count = groups * self.units
        pass_ = self.plan.passes[0]

        def body(items: Value, n: Value) -> None:
            k: Any = self.k
            row, start = k.ctaid_y, k.ctaid * (threads * count) + k.tid
            live = [start + j * threads < items for j in range(count)]
            at, step = start * self.width, threads * self.width
            first = k.mad_wide(row, k.multiple_of(n, self.width), at.to(u64))
            self.row_leaves(row)
            self.row_ops(pass_.before)
            bases = {
                i: self.pointer(source) + (first if self.kinds[str(source)] == "e" else at) for i, source in pass_.loads
            }
            loaded = [
                {i: self.load(base, j * step, here, self.width) for i, base in bases.items()}
                for j, here in enumerate(live)
            ]
            outs = {number: self.pointer(number) + first for number, _ in pass_.stores}
            for j, values in enumerate(loaded):
                lanes: list[Lane] = [{i: v[e] for i, v in values.items()} for e in range(self.width)]
                for e, lane in enumerate(lanes):
                    self.compute(pass_.body, lane, self.column(at + j * step, e))
                for number, i in pass_.stores:
                    results = [self.value(i, lane) for lane in lanes]
                    self.store(outs[number], j * step, results, live[j])
                    self.watch(results, live[j])

        return self.build(f"flat{threads}x{groups}y_v{self.width}", body, BATCHED, threads=threads, arch=arch)
