"""A backend without faults, for the others to spoil: the core's reference under a name of its own."""

from typing import Any

import numpy as np
from trueno.backend import Call, Device, Kernel, Probe, Rates, ReferenceBackend


class Sound(ReferenceBackend):
    """Computes what is right; its subclasses each do one thing wrong.

    It says that it is fast, so that an automatic choice meets it first.
    """

    name = ""

    def __init__(self) -> None:
        if not self.name:
            words = "".join(f"_{c.lower()}" if c.isupper() else c for c in type(self).__name__)
            self.name = words.lstrip("_")

    def probe(self, level: int) -> Probe:
        return Probe(True, devices=(Device("chaos"),))

    def rates(self, call: Call) -> Rates:
        return Rates(launch_s=1e-9, flops=1e15, bytes=1e15)

    def right(self, call: Call) -> Kernel:
        """The kernel that computes what is right."""
        return super().kernel(call)


def results(call: Call, args: tuple[Any, ...]) -> tuple[np.ndarray[Any, Any], ...]:
    """The arrays for results among a kernel's arguments."""
    return args[-len(call.op.signature.outputs) :]


def spoil(out: np.ndarray[Any, Any], value: float = 77) -> None:
    """Write over the first half of an array."""
    flat = out.reshape(-1)
    flat[: (flat.size + 1) // 2] = value
