"""How arrays are bound: apart from each other, and in bands of rows where one binding cannot hold them.

WebGPU binds a range of a buffer, up to a limit (128 MiB is the least that an adapter may offer), from an offset that is
a multiple of 256 bytes.
"""

from dataclasses import dataclass
from math import gcd, lcm
from typing import Any

from trueno.errors import KernelError

from trueno_wgpu.device.gpu import Buffer, Limits, View

ALIGNMENT = 256  # of an offset, on every adapter


@dataclass(frozen=True, slots=True)
class Band:
    """Rows `first` to `first + count` of an array; None stands for all of it where a band is asked for."""

    first: int
    count: int
    row_bytes: int

    def of(self, buffer: Buffer) -> View:
        return View(buffer, self.first * self.row_bytes, self.count * self.row_bytes)


def whole(buffer: Buffer, nbytes: int, limits: Limits) -> Buffer | View:
    """All of an array; its buffer may be larger than the array, and than a binding."""
    return buffer if buffer.nbytes <= limits.binding else View(buffer, 0, nbytes)


def bind(band: Band | None, buffer: Buffer, nbytes: int, limits: Limits) -> Buffer | View:
    return whole(buffer, nbytes, limits) if band is None else band.of(buffer)


def bands(
    op: str, name: str, rows: int, row_bytes: tuple[int, ...], limits: Limits, most: int = 0, *,
    multiple: int = 1, wanted: int = 1,
) -> list[tuple[int, int]]:  # fmt: skip
    """Runs of rows, (first, count), of arrays that share their rows: each run fits into a binding of each array.

    most: rows of a run, at most, for another reason; 0 for none.  multiple: runs begin at multiples of it,
    and of `wanted` where that fits.  KernelError where no run fits.
    """
    most = most or rows
    widest = max(row_bytes, default=0)
    if rows * widest <= limits.binding and rows <= most:
        return [(0, rows)]
    step = lcm(multiple, *(ALIGNMENT // gcd(ALIGNMENT, b) for b in row_bytes if b))
    fit = min(limits.binding // widest, max(most, step)) // step * step
    if fit >= lcm(step, wanted):
        fit = fit // lcm(step, wanted) * lcm(step, wanted)
    if fit == 0:
        raise KernelError(
            f"{op}: {name} has {rows} rows of {widest} bytes, {rows * widest} in all, and this adapter binds "
            f"{limits.binding} bytes, which do not hold {step} of them; split {name} or use another backend"
        )
    return [(first, min(fit, rows - first)) for first in range(0, rows, fit)]


def clashes(out: Any, *operands: Any) -> bool:
    """Whether a result lies in an operand's buffer, which no shader may read and write through two bindings."""
    return any(out.buffer is x.buffer for x in operands)


def zero(out: Any) -> int:
    """A sum over no products."""
    out.buffer.gpu.write(out.buffer, bytes(out.nbytes))
    return 0
