"""The interface of the scheduler for code that makes lanes wait."""

from collections.abc import Mapping
from typing import Protocol

from trueno_cuda.ptx.emulate.group import Group
from trueno_cuda.ptx.syntax.types import Array


class Parking(Protocol):
    """Groups by the block that they stand at: `parked` ones wait for lanes, `yielded` ones may be spinning."""

    @property
    def ready(self) -> Mapping[int, Group]: ...
    @property
    def yielded(self) -> Mapping[int, Group]: ...
    @property
    def parked(self) -> Mapping[int, Group]: ...

    def park(self, g: Group, at: int) -> None:
        """A group waits at a block, with those who do already."""

    def free(self, at: int, mask: Array, block: int) -> Group:
        """The lanes of a mask wait no longer; they keep the registers that `block` needs."""

    def pass_meeting(self, g: Group, at: int) -> None:
        """Freed lanes run the instruction that they waited at, and go on."""

    def went_on(self, g: Group, at: int) -> None:
        """Freed lanes whose instruction has been done go on."""
