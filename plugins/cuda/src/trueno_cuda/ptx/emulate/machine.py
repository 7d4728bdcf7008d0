"""What instructions act on: lanes, their memory with its shadows, and what is in flight."""

import numpy as np

from trueno_cuda.ptx.emulate.access import Access
from trueno_cuda.ptx.emulate.copies import Copies
from trueno_cuda.ptx.emulate.group import Group
from trueno_cuda.ptx.emulate.lanes import Lanes
from trueno_cuda.ptx.emulate.launch_state import LaunchState
from trueno_cuda.ptx.emulate.phases import Phases
from trueno_cuda.ptx.emulate.products import Product
from trueno_cuda.ptx.emulate.shadow import SharedShadow
from trueno_cuda.ptx.emulate.shadow_global import GlobalShadow


class Machine(Lanes):
    """The lanes of a chunk, with all that their instructions reach."""

    def __init__(self, launch: LaunchState, first: int, count: int, global_shadow: GlobalShadow | None) -> None:
        super().__init__(launch, first, count)
        self.shadow = SharedShadow(self) if launch.races and self.shared_size else None
        self.access = Access(self, self.shadow, global_shadow)
        self.copies = Copies(self, self.shadow)
        self.phases = Phases(self, self.access, self.copies, self.shadow)
        self.products: list[Product] = []
        self.product_group = np.zeros(self.size // 128 + 1, np.int64)
        self.fenced = np.zeros(self.size // 128 + 1, bool)
        self.flying_registers: set[int] = set()

    def products_of(self, g: Group, registers: set[int]) -> bool:
        """Whether a wgmma of these lanes is in flight that will write one of these registers."""
        here = set((g.lanes >> 7).tolist())
        return any(registers & set(p.registers) and here & set(p.groups.tolist()) for p in self.products)
