"""What the backends print for an op: WGSL, and its PTX twin.  Neither needs a GPU."""

from collections import deque
from collections.abc import Callable, Hashable
from contextlib import suppress
from functools import cache
from typing import Any

import numpy as np
from trueno.backend import Rates
from trueno.errors import TruenoError

NAME = "wgpu_on_paper"
NEVER = Rates(launch_s=1.0, flops=1.0, bytes=1.0)
LONGEST = 4000
"""Elements of an operand of the call that is printed."""


class Paper:
    """A device of WebGPU on paper: it has limits and memory without contents, and collects what it is to run."""

    name, software = "paper", False

    def __init__(self) -> None:
        from trueno_wgpu.device.limits import Limits

        self.limits = Limits(128 << 20, 256 << 20, 16384, 256, 256, 65535, 0)  # WebGPU's defaults
        self.shaders: dict[Any, None] = {}
        self.status = self.alloc(4)

    def alloc(self, nbytes: int) -> Any:
        """A buffer that holds nothing."""
        from trueno_wgpu.device.memory import Buffer, Memory

        size = max(nbytes + 3 & ~3, 4)
        return Buffer(self, Memory(None, size), size, deque())  # type: ignore[arg-type]

    def run(self, shader: Any, _buffers: Any, _uniforms: bytes, _groups: Any) -> None:
        """Keep the shader, once."""
        self.shaders[shader] = None

    def once(self, _source: Any, _key: Hashable, make: Callable[[], Any]) -> Any:
        """What is made from an array is made here each time."""
        return make()

    def write(self, _buffer: Any, _data: Any, _offset: int = 0) -> None:
        """Memory has no contents."""

    copy = write


def names() -> list[str]:
    """The ops for which both plugins have a kernel, in the order of the table."""
    from trueno.ops import TABLE
    from trueno_cuda.catalogue import registry

    return [name for name in TABLE if name in registry.catalogue()]


def ptx(name: str) -> str:
    """The module that the CUDA plugin prints for an op."""
    from trueno_cuda.catalogue import registry

    entry = registry.find(name)
    return str(registry.module(registry.build(entry, registry.usual(entry))))


def wgsl(name: str) -> list[str]:
    """The shaders that the wgpu plugin runs for a call of an op, in order; none if it takes none of the kit's calls."""
    from trueno.ops import TABLE
    from trueno.testing import cases
    from trueno.testing.calls import Declined, invoke

    op, paper = TABLE[name], _paper()
    found = [case for case in cases(op, "float32", long=False, every_layout=False)
             if all(np.size(x) <= LONGEST for x in case.operands)]  # fmt: skip
    for case in sorted(found, key=lambda case: -sum(np.size(x) for x in case.operands)):
        paper.shaders.clear()
        with suppress(Declined, TruenoError):
            invoke(op, case.operands, case.kwargs, NAME)
        if paper.shaders:
            return [shader.source.strip() + "\n" for shader in paper.shaders]
    return []


@cache
def _paper() -> Paper:
    """The paper device of a backend that is the wgpu plugin's in everything else."""
    import trueno
    from trueno.backend import Probe
    from trueno_wgpu.backend import WgpuBackend

    class OnPaper(WgpuBackend):
        name = NAME
        gpu: Any = Paper()

        def probe(self, level: int) -> Probe:
            return Probe(True)

        def rates(self, call: Any) -> Any:
            return NEVER

        def to_host(self, x: Any, out: Any = None) -> Any:
            return np.zeros(x.shape, x.dtype) if out is None else out

        def synchronize(self) -> int:
            return 0

    manifest = {"name": NAME, "api": [1, 1], "kind": "gpu", "opt_in": True, "arrays": ["trueno_wgpu:Array"]}
    trueno.register(manifest, factory=OnPaper)
    return OnPaper.gpu  # type: ignore[no-any-return]
