"""Kernels as functions of a GPU: loaded once per process, and kept on disk as machine code between processes.

The reference is what the driver's JIT compiles from PTX.  The driver's linker gives a cubin that can be kept, but may
compile it differently (as code that others call), so a cubin is kept only if it uses as many registers and as much
local memory.
A file is named by the text, the architecture and the driver's version; it holds a digest, and what does not fit that,
or what the driver refuses, is a miss and written again.  `trueno.cachedir` says whether the folder can be trusted.
"""

import os
from base64 import b64decode, b64encode
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from threading import RLock
from time import perf_counter
from typing import Final

from trueno.backend import cachedir
from trueno.errors import KernelError

from trueno_cuda.device.hardware.driver import (  # fmt: skip
    DYNAMIC_SHARED,
    LOCAL,
    MAX_THREADS,
    REGISTERS,
    STATIC_SHARED,
    WIDE_CLUSTERS,
    Driver,
)
from trueno_cuda.ptx import Kernel

QUICK: Final = 0.004
"""Seconds: a load that took less was served from the driver's own cache, and nothing need be kept beside that."""
PORTABLE: Final = 8
"""Blocks of a cluster that every GPU has room for."""
FREE_SHARED: Final = 48 * 1024
"""Bytes of shared memory that a launch has without asking."""
_HEAD: Final = "trueno cubin 1"


class Modules:
    """One GPU's loaded kernels.  shared: bytes of shared memory that a block may have there."""

    def __init__(self, driver: Driver, arch: str, capability: tuple[int, int], shared: int) -> None:
        self._driver = driver
        self._arch = arch
        self._place = f"sm_{capability[0]}{capability[1]}-{driver.version}"
        self._shared = shared
        self._lock = RLock()
        self._functions: dict[str, int] = {}
        self._modules: list[int] = []
        self._granted: dict[int, int] = {}
        self.compiled = self.reused = 0

    def function(self, kernel: Kernel, dynamic: int) -> int:
        """The function of a kernel, which may be launched with `dynamic` bytes of shared memory; its context current.

        KernelError where the driver refuses the text, or a block would need more than it may have.
        """
        loaded = self._functions.get(kernel.key)
        if loaded is None or dynamic > self._granted.get(loaded, FREE_SHARED):
            with self._lock:
                loaded = self._functions.get(kernel.key)
                if loaded is None:
                    loaded = self._functions[kernel.key] = self._loaded(kernel)
                self._grant(kernel, loaded, dynamic)
        return loaded

    def figures(self, kernel: Kernel) -> dict[str, int]:
        """What a block of a kernel takes: registers and bytes of local memory a thread, of static shared memory."""
        function = self.function(kernel, 0)
        which = {"threads": MAX_THREADS, "registers": REGISTERS, "local": LOCAL, "shared": STATIC_SHARED}
        return {name: self._driver.function_attribute(function, a) for name, a in which.items()}

    def close(self) -> None:
        """Unload everything; the context is current."""
        with self._lock:
            for module in self._modules:
                with suppress(KernelError):
                    self._driver.call("cuModuleUnload", module)
            self._modules, self._functions, self._granted = [], {}, {}

    def _loaded(self, kernel: Kernel) -> int:
        path = self._path(kernel)
        cubin = path and _read(path)
        if cubin:
            with suppress(KernelError):  # of another version after all, or damaged in a way that the digest has too
                function = self._function(cubin, kernel)
                self.reused += 1
                return function
        start = perf_counter()
        function = self._function(kernel.text.encode("ascii"), kernel)
        self.compiled += 1
        if path is not None and perf_counter() - start > QUICK:
            self._keep(kernel, function, path)
        return function

    def _function(self, image: bytes, kernel: Kernel) -> int:
        module = self._driver.load(image, kernel.name)
        try:
            function = self._driver.handle("cuModuleGetFunction", module, kernel.name.encode(), what=kernel.name)
            self._driver.function_attribute(function, REGISTERS)  # loads it now: later may be inside a recording
        except KernelError:
            self._driver.call("cuModuleUnload", module)
            raise
        self._modules.append(module)
        return function

    def _grant(self, kernel: Kernel, function: int, dynamic: int) -> None:
        """Allow a function its shared memory, and clusters that not every GPU has room for."""
        if dynamic + kernel.static_shared > self._shared:
            raise KernelError(
                f"{kernel.name}: a block needs {dynamic + kernel.static_shared} bytes of shared memory, and may have "
                f"{self._shared} here; build it with smaller tiles or fewer stages"
            )
        if dynamic > self._granted.get(function, FREE_SHARED):
            self._driver.call("cuFuncSetAttribute", function, DYNAMIC_SHARED, dynamic, what=kernel.name)
            self._granted[function] = dynamic
        cluster = kernel.cluster or (1, 1, 1)
        if cluster[0] * cluster[1] * cluster[2] > PORTABLE:
            self._driver.call("cuFuncSetAttribute", function, WIDE_CLUSTERS, 1, what=kernel.name)

    # ---- on disk ---------------------------------------------------------------------------------------

    def _path(self, kernel: Kernel) -> Path | None:
        folder = cachedir.folder("cuda", self._place)
        return folder and folder / f"{kernel.key}.cubin"

    def _keep(self, kernel: Kernel, function: int, path: Path) -> None:
        """Write the linker's cubin, if it is as good as what the JIT made."""
        module = 0
        try:
            cubin = self._driver.link(kernel.text.encode("ascii"), kernel.name)
            module = self._driver.load(cubin, kernel.name)
            linked = self._driver.handle("cuModuleGetFunction", module, kernel.name.encode())
            alike = all(
                self._driver.function_attribute(linked, which) == self._driver.function_attribute(function, which)
                for which in (REGISTERS, LOCAL, STATIC_SHARED)
            )
        except KernelError:  # a driver without its linker: the kernel runs all the same
            return
        finally:
            if module:
                self._driver.call("cuModuleUnload", module)
        if alike:
            cachedir.write(path, f"{_HEAD} {sha256(cubin).hexdigest()}\n{b64encode(cubin).decode()}\n")


def _read(path: Path) -> bytes | None:
    """The machine code in a file; None where there is none, or it is not whole.  A damaged file is removed."""
    text = cachedir.read(path)
    if text is None:
        return None
    head, _, body = text.partition("\n")
    with suppress(ValueError):
        cubin = b64decode(body.strip(), validate=True)
        if head == f"{_HEAD} {sha256(cubin).hexdigest()}":
            return cubin
    with suppress(OSError):
        os.unlink(path)
    return None
