"""The CUDA backend on a GPU of paper: every op chooses its kernels, and none of them runs.

It is registered in this process alone, under a name of its own for each architecture, and runs only when it is named.
"""

from importlib import import_module
from typing import Any

from trueno.backend import Call, Device, Kernel, Probe, Rates
from trueno.errors import ParameterError

from trueno_cuda.backend import PtxBackend
from trueno_cuda.device.hardware.targets import LEAST, arch
from trueno_cuda.mapping.device import Array, Planner, Request
from trueno_cuda.ptx.analyze.machine import MACHINES, Machine, machine

_backends: dict[str, "PlannedBackend"] = {}


class PlannedBackend(PtxBackend):
    """Records launches.  device: keeps them; machine: the card that it stands for."""

    def __init__(self, name: str, device: Planner, card: Machine) -> None:
        self.name, self.device, self.machine = name, device, card  # type: ignore[assignment]

    @property
    def planner(self) -> Planner:
        return self.device  # type: ignore[return-value]

    def probe(self, level: int) -> Probe:
        return Probe(True, devices=(Device("a plan", self.device.arch, software=True),))

    def rates(self, call: Call) -> Rates:
        """Of no use: this backend runs only when it is named."""
        return Rates(launch_s=1.0, flops=1.0, bytes=1.0)

    def kernel(self, call: Call) -> Kernel:
        run, planner = super().kernel(call), self.planner

        def kernel(*arguments: Any) -> int | None:
            outer, planner.request = planner.request, Request(call, arguments)
            try:
                return run(*arguments)
            finally:
                planner.request = outer

        return kernel


def card_of(name: str) -> Machine:
    """The card that stands for an architecture; ParameterError for one that the CUDA backend does not run on."""
    card = machine(name)
    if card is None or int(card.arch.removeprefix("sm_")) < LEAST[0] * 10 + LEAST[1]:
        known = ", ".join(a for a in MACHINES if int(a.removeprefix("sm_")) >= LEAST[0] * 10 + LEAST[1])
        raise ParameterError(f"ptx-map: --arch {name!r} is not known; known: {known}")
    return card


def planned(name: str) -> PlannedBackend:
    """The backend for an architecture, `sm_90`; its kernels are built for the target that such a card gets, `sm_90a`.

    Its launches are forgotten.  ParameterError for an architecture that the CUDA backend does not run on.
    """
    card = card_of(name)
    target = arch(divmod(int(card.arch.removeprefix("sm_")), 10))
    if card.arch not in _backends:
        own = f"cuda_planned_{card.arch}"
        kind = type(f"Array_{card.arch}", (Array,), {"__slots__": (), "__module__": __name__})
        device = Planner(target, card.card, card.sms, kind)
        backend = PlannedBackend(own, device, card)
        trueno: Any = import_module("trueno")  # through the public API: a plugin must not use the registry
        manifest = {
            "name": own, "api": [1, 1], "kind": "gpu", "opt_in": True, "atomic": True, "half": ["*"],
            "arrays": [f"{__name__}:{kind.__qualname__}"], "install": "pip install trueno-cuda",
        }  # fmt: skip
        trueno.register(manifest, factory=backend)
        _backends[card.arch] = backend
    backend = _backends[card.arch]
    backend.planner.launches.clear()
    return backend
