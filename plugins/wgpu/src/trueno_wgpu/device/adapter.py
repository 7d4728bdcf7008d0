"""The choice among the machine's adapters, and the error if there is none.

Hardware first, and software (Mesa's llvmpipe, SwiftShader) only where TRUENO_WGPU_ADAPTER names it: a CPU that emulates
a GPU is slower than NumPy on that CPU.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from trueno.errors import BackendUnavailable

SETTING = "TRUENO_WGPU_ADAPTER"
SOFTWARE = "software"
TYPES = ("DiscreteGPU", "IntegratedGPU", "VirtualGPU", "Unknown", "unknown")
"""Best first; `CPU` is software.  OpenGL reports all adapters as `Unknown`."""
BACKENDS = ("Vulkan", "Metal", "D3D12", "D3D11", "OpenGL", "OpenGLES")
"""Best first.  OpenGL has neither f16 nor subgroups, and often lists the same device as Vulkan."""
SOFTWARE_HINT = f"apt-get install mesa-vulkan-drivers libvulkan1, and set {SETTING}={SOFTWARE}"


class NoAdapter(BackendUnavailable):
    """No adapter is suitable.  wanted: the setting's value."""

    def __init__(self, message: str, wanted: str = "") -> None:
        super().__init__(message)
        self.wanted = wanted.strip()


@dataclass(frozen=True, slots=True)
class Adapter:
    """WebGPU's description of an adapter: `kind` its adapter_type, `through` its backend_type, `driver` for people."""

    name: str
    kind: str
    through: str
    driver: str = ""

    @property
    def software(self) -> bool:
        return self.kind == "CPU"

    def __str__(self) -> str:
        return f"{self.name or 'one without a name'} ({self.through}, {self.kind})"


def choose(adapters: Sequence[Adapter], wanted: str) -> Adapter | None:
    """The best adapter for a value of the setting; None if none is suitable."""
    named = [a for a in adapters if matches(a, wanted)]
    return min(named, key=_rank, default=None)


def matches(adapter: Adapter, wanted: str) -> bool:
    """Whether a value of the setting means this adapter."""
    word = wanted.strip().lower()
    if not word:
        return not adapter.software
    if word == SOFTWARE:
        return adapter.software
    return word in adapter.name.lower()


def _rank(adapter: Adapter) -> tuple[int, int, int]:
    """OpenGL only for devices that no other API reaches; hardware before software; then by type, then by API."""
    api = BACKENDS.index(adapter.through) if adapter.through in BACKENDS else len(BACKENDS)
    kind = TYPES.index(adapter.kind) if adapter.kind in TYPES else len(TYPES)
    return int(adapter.through.startswith("OpenGL")), kind, api


def absent(adapters: Sequence[Adapter], wanted: str, platform: str) -> str:
    """Why no adapter is suitable, as a sentence with its remedy."""
    word = wanted.strip()
    there = ", ".join(dict.fromkeys(map(str, adapters)))
    if not adapters:
        remedy = f"; without a GPU, software can emulate one: {SOFTWARE_HINT}" if platform.startswith("linux") else ""
        loader = " and libvulkan1" if platform.startswith("linux") else ""
        return f"no adapter was found through Vulkan, Metal, DX12 or OpenGL; install the GPU's driver{loader}{remedy}"
    if word.lower() == SOFTWARE:
        return f"{SETTING} is {word}, and there is no software adapter, only {there}; {SOFTWARE_HINT}"
    if word:
        return f"{SETTING} is {word!r}, which is in the name of no adapter; there is {there}"
    return (
        f"there is no GPU, only software that emulates one: {there}; install the GPU's driver, "
        f"or set {SETTING}={SOFTWARE} to use that, for trying things out: it is slower than the CPU's own backends"
    )
