"""The step between a sum and the result: an epilogue, and the check of what is stored.

An epilogue is an elementwise row program over the sum and the arrays beside it.  In a guarded kernel each thread notes
whether it saw a NaN (1) or an Inf (2); a warp that saw any ORs its bits into the device's word, so a clean result costs
no atomic.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

from trueno_cuda.kernels.epilogue import Epilogue
from trueno_cuda.ptx import Type, Value, f32, pred, ptr, u32
from trueno_cuda.ptx.builder import ParamType


@dataclass(frozen=True, slots=True)
class Store:
    """What a kernel does with its sums.  partial: nothing, because another pass adds them up."""

    guarded: bool = False
    epilogue: Epilogue | None = None
    partial: bool = False

    @property
    def plain(self) -> bool:
        """Whether what is stored is the sums themselves, which are not used."""
        return self.epilogue is None and not self.guarded

    @property
    def word(self) -> str:
        """Part of a kernel's name."""
        return "".join(
            f"_{w}" for w in (self.epilogue and self.epilogue.name, self.guarded and "guarded", self.partial and "part")
            if w
        )  # fmt: skip

    def pointers(self, element: Type) -> dict[str, ParamType]:
        """Parameters after the result."""
        beside = len(self.epilogue.beside) if self.epilogue else 0
        params: dict[str, ParamType] = {f"beside{i}": ptr(element) for i in range(beside)}
        return params | {"status": ptr(u32)} if self.guarded else params

    def floats(self, element: Type) -> dict[str, ParamType]:
        """Parameters after the whole numbers."""
        return {f"number{i}": element for i in range(self.epilogue.numbers if self.epilogue else 0)}


PLAIN = Store()
PARTIAL = Store(partial=True)


class Finish:
    """Writes, inside a kernel, what a `Store` says."""

    def __init__(self, k: Any, p: Any, store: Store) -> None:
        self.k, self.p, self.store = k, p, store
        self.nan: Any = k.var(pred, False) if store.guarded else None
        self.inf: Any = k.var(pred, False) if store.guarded else None

    def __call__(
        self, values: Sequence[Value], at: Any, row: Any, column: Any, where: Value | None = None
    ) -> list[Value]:
        """What to store for neighbouring sums.

        at: index of the first in the whole result; row, column: its place, over all leading axes, and along the last.
        where: which threads store; the others must not be looked at.
        """
        epilogue, k = self.store.epilogue, self.k
        stored = list(values)
        if epilogue is not None:
            beside = [getattr(self.p, f"beside{i}") for i in range(len(epilogue.beside))]
            numbers = [getattr(self.p, f"number{i}") for i in range(epilogue.numbers)]
            places = {"e": at, "r": row, "w": column, "u": 0}
            for i, value in enumerate(values):
                others = [
                    x.load(places[kind] + i if kind in "ew" else places[kind], where=where, cache="nc" * (kind != "e"))
                    for x, kind in zip(beside, epilogue.beside, strict=True)
                ]
                stored[i] = epilogue.write(k, value, others, numbers)
        if self.store.guarded:
            for value in stored:
                wide = value if value.type.bits >= 32 else value.to(f32)
                nan, infinite = wide != wide, k.abs(wide) == inf
                self.nan |= nan if where is None else nan & where
                self.inf |= infinite if where is None else infinite & where
        return stored

    def end(self) -> None:
        """The kernel's last statement, which whole warps reach."""
        if not self.store.guarded:
            return
        k = self.k
        bits = k.warp_reduce(k.select(self.nan, k.const(u32, 1), 0) | k.select(self.inf, k.const(u32, 2), 0), "or_")
        with k.when((k.lane == 0) & (bits != 0)):
            self.p.status.reduce("or", 0, bits)
