"""Products of many rows of x by tensor cores: blocks are decoded in bands, to bfloat16, and multiplied as such.

    bf16        x and w are rounded to bfloat16, once each
    f32, q8     each number is three of bfloat16, and a product of them six (see `parts`): float32's precision

"q8" is multiplied in 8 bits by `tiles` up to MOST_TILED rows, and where x is normalized first.

A band is as many rows of w as fit, decoded, into BAND bytes, which all calls of a stream share; each is multiplied by
the project's product of bfloat16 into its columns of the result: wgmma on sm_90a, mma.sync elsewhere.  Sums are of
float32.

Floor: 2 m n k flops, or six times that, at 989e12 a second on an H200, of which products in bfloat16 reach 0.71 to 0.8,
and the bands: the blocks read, 2 n k bytes written or six times that, and read again.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from trueno.backend import FORMATS, Format

from trueno_cuda.device.protocol import ArrayLaunch, Device
from trueno_cuda.kernels import cast
from trueno_cuda.kernels.epilogue import Epilogue
from trueno_cuda.kernels.gemm.choice import choose_tensor
from trueno_cuda.kernels.gemm.matmul import product_launches
from trueno_cuda.kernels.gemm.problem import Problem
from trueno_cuda.kernels.product import ProductLaunch
from trueno_cuda.kernels.quant import decoding
from trueno_cuda.kernels.quant.parts import RIGHT, ByRow, parts
from trueno_cuda.kernels.quant.task import Norm, Numbered, Task, aligned
from trueno_cuda.kernels.quant.tiling import Tiled
from trueno_cuda.kernels.store import Store
from trueno_cuda.ptx import bf16, f32

BAND = 384 << 20
"""Bytes of decoded weights at a time: all of any matrix of a layer of a 7B model, and a third of its output's."""
ROWS = 256
"""A band is a multiple of so many rows: the widest tile."""
COLUMNS = 16
"""Where blocks do not lie along k, a band is a multiple of so many blocks, which begin at multiples of 16 bytes."""
MOST_TILED = 320
"""Rows of x up to which "q8" is multiplied in 8 bits, by `tiles`, which read w again for every 64 of them."""


@dataclass(frozen=True, slots=True)
class Band:
    """Some rows of w: how they are decoded, and multiplied.  first: their number; at: the byte where they begin."""

    first: int
    at: int
    decoding: list[ArrayLaunch]
    product: ProductLaunch


class Many:
    """out[m, n] = x[m, k] · w[n, k]ᵀ for one set of sizes, none of them 0; or x · w[k, n], if blocks are not `along` k.

    wide: all arrays begin at multiples of 16 bytes.  band: bytes of decoded weights, BAND unless told.
    nbytes: of scratch that `run` needs.  partner: says, for one x, whether two of these round it alike.
    """

    def __init__(
        self, device: Device, f: Format, activations: str, m: int, n: int, k: int, wide: bool, *,
        epilogue: Epilogue | None = None, guarded: bool = False, band: int = BAND, along: bool = True,
    ) -> None:  # fmt: skip
        self.kinds = epilogue.beside if epilogue else ""
        self.split = activations != "bf16"
        self.partner = {"bf16": "bf16", "f32": ""}.get(activations, f.activations)
        depth = k * (len(RIGHT) if self.split else 1)
        store = Store(guarded, ByRow(epilogue) if self.split else epilogue)  # type: ignore[arg-type]  # ByRow is like one
        if self.split:
            launch = device.prepare(parts(device.arch, self.partner), (m, 1, 1), (k,))
            self.rounding = [ArrayLaunch(launch)]
        else:
            self.rounding = cast.launches(device, m * k, "float32", "bfloat16", wide=wide)
        unit = ROWS if along else COLUMNS * f.elements
        step = min(max(band // (2 * depth) // unit, 1) * unit, -(-n // unit) * unit)
        step = -(-n // -(-n // step) // unit) * unit  # bands alike
        self.factors = aligned(2 * m * depth)
        self.numbers = self.factors + (aligned(4 * m) if self.split else 0)
        self.nbytes = aligned(self.numbers + 2 * min(step, n) * depth)
        self.bands = []
        for first in range(0, n, step):
            rows = min(step, n - first)
            problem = Problem(m, rows, depth, pitch=n)
            choice = choose_tensor(problem, bf16, device, along, wide)
            (product,) = product_launches(device, problem, bf16, store, wide, choice, result=f32, turned=along)
            at = first * f.row_bytes(k) if along else f.row_bytes(first)
            even = wide and at % 16 == 0
            if not along:
                launches = [decoding.parted(device, f, k, rows, n, even, RIGHT, rows, rows * k)]
            elif self.split:
                launches = [decoding.parted(device, f, rows, k, k, even, RIGHT, depth, k)]
            else:
                launches = decoding.launches(device, f, rows, k, bf16, even)
            self.bands.append(Band(first, at, launches, product))

    def run(
        self, scratch: int, w: int, x: int, out: int, *, beside: Sequence[int] = (), status: Sequence[int] = (),
        floats: Sequence[float] = (), rounded: bool = False,
    ) -> None:  # fmt: skip
        """Launch it all, on these addresses.  beside: what the epilogue reads.  rounded: scratch has x already."""
        right, factors = scratch + self.numbers, (scratch + self.factors,) if self.split else ()
        for launch, offsets in () if rounded else self.rounding:
            at, to = offsets or (0, 0)
            launch((x + at, *factors, scratch + to))
        for band in self.bands:
            blocks, left = w + band.at, 4 * band.first
            for launch, offsets in band.decoding:
                at, to = offsets or (0, 0)
                launch((blocks + at, right + to))
            others = [p + (left if kind in "ew" else 0) for p, kind in zip(beside, self.kinds, strict=True)]
            band.product.launch((scratch, right, out + left, *factors, *others, *status), floats)


class Together:
    """The launches of all products of a call.

    Pointers: every operand, every result, and the status word where it is guarded.  A product whose result is not
    kept, because another one's epilogue reads it, may leave it in scratch.
    """

    def __init__(
        self, device: Device, members: Sequence[Task], activations: str, x: int, operands: int, m: int, k: int,
        guarded: bool, norm: Norm | None = None,
    ) -> None:  # fmt: skip
        self.device, self.members, self.x, self.operands, self.norm = device, members, x, operands, norm
        self.sizes, self.activations, self.guarded = (m, k), activations, guarded
        self._planned: dict[bool, list[tuple[Many | Tiled, list[Numbered]]]] = {}
        self.results = [4 * m * p.n if p.result < 0 else 0 for p in members]

    def _plan(self, wide: bool) -> list[tuple[Many | Tiled, list[Numbered]]]:
        """What is launched, and for which products; a matrix without rows needs nothing."""
        if wide in self._planned:
            return self._planned[wide]
        device, (m, k), tasks = self.device, self.sizes, [(i, p) for i, p in enumerate(self.members) if p.n]
        plan: list[tuple[Many | Tiled, list[Numbered]]] = []
        if self.activations == "q8" and (m <= MOST_TILED or self.norm):
            for _, run in groupby(tasks, lambda each: FORMATS[each[1].format].activations):
                some = list(run)
                plan.append((Tiled(device, some, m, k, wide, guarded=self.guarded, norm=self.norm), some))
        else:
            for i, p in tasks:
                guarded = self.guarded and p.result >= 0
                many = Many(device, FORMATS[p.format], self.activations, m, p.n, k, wide, epilogue=p.epilogue,
                            guarded=guarded)  # fmt: skip
                plan.append((many, [(i, p)]))
        self._planned[wide] = plan
        return plan

    def __call__(self, pointers: Sequence[int], floats: Sequence[float] = ()) -> None:
        operands, results = pointers[: self.operands], pointers[self.operands :]
        status = results[-1:] if self.guarded else ()
        plan = self._plan(not any(p % 16 for p in (*operands, *results)))
        need = max(each.nbytes for each, _ in plan)
        memory = self.device.scratch(need + sum(map(aligned, self.results)))
        scratch, made = memory.data.ptr, list[int]()
        at, partner, x = scratch + need, None, operands[self.x]  # partner: of the rounding that scratch holds
        for p, nbytes in zip(self.members, self.results, strict=True):
            made.append(at if p.result < 0 else results[p.result])
            at += aligned(nbytes)
        for each, tasks in plan:
            if isinstance(each, Tiled):
                each.run(scratch, x, operands, made, floats, status)
                continue
            ((i, p),) = tasks
            beside = [made[n] if where == "result" else operands[n] for where, n in p.beside]
            each.run(
                scratch, operands[p.matrix], x, made[i], beside=beside, floats=floats[p.floats],
                status=status if p.result >= 0 else (), rounded=each.partner == partner,
            )  # fmt: skip
            partner = each.partner
