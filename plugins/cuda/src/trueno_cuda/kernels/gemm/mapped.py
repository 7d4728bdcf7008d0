"""Launches of `wgmma`: tensor maps of the operands, made from the addresses of each call."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from trueno_cuda.device.protocol import Device, Launch
from trueno_cuda.device.repeated import fixed
from trueno_cuda.kernels import transpose
from trueno_cuda.kernels.gemm.problem import MOST, Problem
from trueno_cuda.kernels.gemm.wgmma import Tile, wgmma
from trueno_cuda.kernels.product import ProductLaunch
from trueno_cuda.kernels.store import Store
from trueno_cuda.ptx import Type, bf16, f16, f32

SWIZZLE = 128


def takes(problem: Problem, element: Type, turned: bool) -> bool:
    """Whether tensor maps reach all of a product: rows of whole 16 bytes, and stacks that lie evenly, or not at all."""
    m, n, depth, unit = problem.m, problem.n, problem.depth, 16 // element.bytes
    even = depth % unit == 0 and (turned or n % unit == 0 or element is f32) and depth > 0
    stacked = len(problem.lead) <= 1 and set(problem.a_gaps) <= {0, m * depth} and set(problem.b_gaps) <= {0, depth * n}
    if element is f32 and not turned:  # b is transposed first, one matrix
        stacked = stacked and not any(problem.b_gaps)
    return element in (bf16, f16, f32) and even and stacked and problem.count * max(m, n) < MOST


@dataclass(slots=True)
class Mapped:
    """A launch that is given addresses where its kernel takes maps.  turns: of float32 b, which is transposed first."""

    device: Device
    launch: Launch
    element: str
    shapes: tuple[tuple[int, ...], ...]
    boxes: tuple[tuple[int, ...], ...]
    turns: Sequence[Any] = ()

    def __call__(self, pointers: Sequence[int], floats: Sequence[float] = ()) -> None:
        if self.turns:
            a, b, *rest = pointers
            turned = self.device.empty(self.shapes[1], np.dtype(np.float32))
            for launch, offsets in self.turns:
                from_, to = offsets or (0, 0)
                launch((b + from_, turned.data.ptr + to))
            pointers = (a, turned.data.ptr, *rest)
        self.launch(self._mapped(pointers), floats)

    def bound(self, pointers: Sequence[int]) -> Callable[[], None]:
        """The launch with these pointers, whose maps are made once."""
        return partial(self, pointers) if self.turns else fixed(self.launch, self._mapped(pointers))

    def _mapped(self, pointers: Sequence[int]) -> list[int | bytes]:
        """Maps of the first pointers, and the others as they are."""
        maps: list[int | bytes] = [
            self.device.tensor_map(address, self.element, shape, box, SWIZZLE)
            for address, shape, box in zip(pointers, self.shapes, self.boxes, strict=False)
        ]
        return [*maps, *pointers[len(maps) :]]


def mapped_launch(
    device: Device, problem: Problem, element: Type, result: Type, tile: Tile, turned: bool, store: Store,
    blocks: int = 1,
) -> ProductLaunch:  # fmt: skip
    """The launch of a product that `takes` accepts, with operands and result at multiples of 16 bytes.

    blocks: of a cluster that share a tile.
    """
    m, n, depth, count = problem.m, problem.n, problem.depth, problem.count
    wide = n | problem.line
    unit = 1 if wide % 2 else 8 if wide % 8 == 0 and result.bits == 16 else 2
    turns = transpose.launches(device, depth, n, element.bytes, wide=True) if element is f32 and not turned else ()
    turned = turned or bool(turns)
    kernel = wgmma(element, result, tile, turned, unit, store, blocks)
    down, across = -(-m // tile.rows), -(-n // tile.columns)
    steps = [int(any(gaps)) for gaps in (problem.a_gaps, problem.b_gaps)]
    tiles = down * across * count
    grid = (tiles if blocks > 1 else min(device.sms, tiles), blocks, 1)
    numbers = m, n, depth, problem.line, down, across, count, tile.height(m), *steps
    launch = device.prepare(kernel, grid, numbers)
    many_a, many_b = (count if step else 1 for step in steps)
    shapes: Any = (many_a, m, depth), (many_b, n, depth) if turned else (many_b, depth, n)
    name = "tf32" if element is f32 else element.name
    return ProductLaunch(Mapped(device, launch, name, shapes, tile.boxes(m, element, turned), turns), (0, 0, 0, 0))
