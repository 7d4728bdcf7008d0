"""`KernelParity`: batched kernels and their forms for one vector, compared as texts and by running both.

A kernel that has a batched form says so where it is declared (`entry.Parity`).  `violations` reads the two texts:
where the vectors are, that both take the same operands, that shared memory grows as the strategy says and has 32-bit
addresses.
`compared` runs both on the emulator, or on a GPU, on the same operands: one batched launch, and one launch per vector.
Their results must have the same bits, because each vector's sums are taken in the same order.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from trueno_cuda.catalogue import registry
from trueno_cuda.catalogue.entry import CatalogueEntry, Parity
from trueno_cuda.device.protocol import Device
from trueno_cuda.ptx import Kernel
from trueno_cuda.ptx.types import ptr

ALONG_Y = "%ctaid.y"
WIDE_SHARED = re.compile(r"\.shared[.\w:]*\s[^;\n\[]*\[%rd[^;\n]*;")
"""An access to shared memory through a 64-bit register; its first address is the one in shared memory."""
PRODUCTS = ("dp4a.", "fma.")
UNROLLED = "columns"
"""The constant that says how many vectors a thread has in registers."""


@dataclass(frozen=True)
class KernelParity:
    """A batched kernel and the kernel of one vector that it must equal."""

    entry: CatalogueEntry
    parity: Parity
    batched: Kernel
    single: Kernel

    @property
    def name(self) -> str:
        return self.entry.name

    @property
    def vectors(self) -> int:
        """The vectors of a batched launch that stand in the text; 1 where the launch says how many."""
        return int(self.parity.batched.get(UNROLLED, 1))

    def violations(self) -> list[str]:
        """What the two texts have wrong, a sentence each."""
        return list(_violations(self))


@dataclass(frozen=True)
class Compared:
    """Results of a batched launch beside those of single launches: numbers, and how many of them differ in a bit."""

    numbers: int
    differing: int


@cache
def pairs(arch: str = registry.ARCH) -> tuple[KernelParity, ...]:
    """Every pair of the catalogue, printed for an architecture."""
    found = []
    for entry in registry.catalogue().values():
        if entry.parity is not None and arch in entry.arches:
            (batched,) = registry.build(entry, arch, entry.parity.batched)
            (single,) = registry.build(entry, arch, entry.parity.single)
            found.append(KernelParity(entry, entry.parity, batched, single))
    return tuple(found)


def compared(pair: KernelParity, device: Device, rng: np.random.Generator) -> Compared:
    """Run both kernels on the same operands."""
    batched, single = pair.parity.both(device, rng, pair.batched, pair.single)
    if batched.shape != single.shape:
        raise ValueError(f"{pair.name}: one launch gives {batched.shape}, and single launches give {single.shape}")
    bits = f"u{batched.dtype.itemsize}"
    return Compared(batched.size, int((batched.view(bits) != single.view(bits)).sum()))


def record(pair: KernelParity) -> dict[str, Any]:
    """A pair as plain data: the two kernels, the strategy, and what the texts have wrong."""
    return {
        "kernel": pair.name,
        "strategy": pair.parity.strategy,
        "batched": pair.batched.name,
        "single": pair.single.name,
        "shared_bytes": [pair.batched.shared_bytes, pair.single.shared_bytes],
        "violations": pair.violations(),
    }


def _violations(pair: KernelParity) -> Iterator[str]:
    batched, single, strategy = pair.batched, pair.single, pair.parity.strategy
    if batched.text == single.text:
        yield "the batched kernel is the text of the single one"
    if ALONG_Y in single.text:
        yield f"{single.name} reads %ctaid.y, and it is for one vector"
    if strategy == "grid_y" and ALONG_Y not in batched.text:
        yield f"{batched.name} does not read %ctaid.y, along which its vectors are"
    if strategy == "register_unroll":
        if ALONG_Y in batched.text:
            yield f"{batched.name} reads %ctaid.y, but its vectors are in registers"
        products = [sum(map(k.text.count, PRODUCTS)) for k in (batched, single)]
        if pair.vectors < 2 or not products[1] or products[0] != pair.vectors * products[1]:
            yield f"{batched.name} has {products[0]} products, and {pair.vectors} times those of one are not as many"
    for kernel in (batched, single):
        for match in WIDE_SHARED.finditer(kernel.text):
            yield f"{kernel.name} addresses shared memory in 64 bits: {match[0].strip()}"
    kinds = [[(p.name, str(p.type)) for p in k.params if _operand(p.type)] for k in (batched, single)]
    if kinds[0] != kinds[1]:
        yield f"the operands differ: {_names(kinds[0])} and {_names(kinds[1])}"
    sizes = [[p.name for p in k.params if not _operand(p.type)] for k in (batched, single)]
    if more := [name for name in sizes[0] if name not in sizes[1]]:
        yield f"{batched.name} takes sizes that the single kernel does not have: {', '.join(more)}"
    if batched.shared_bytes != single.shared_bytes * pair.vectors:
        yield (
            f"{batched.name} has {batched.shared_bytes} bytes of shared memory, and {pair.vectors} times the single "
            f"kernel's are {single.shared_bytes * pair.vectors}"
        )


def _operand(kind: Any) -> bool:
    """Whether a parameter is an array or a float, not a size."""
    return isinstance(kind, ptr) or not getattr(kind, "integer", False)


def _names(kinds: list[tuple[str, str]]) -> str:
    return ", ".join(name for name, _ in kinds)
