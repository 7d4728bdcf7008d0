"""The interface of the state that the layers around a kernel use."""

from contextlib import AbstractContextManager
from typing import Any, Protocol

from trueno.discovery.protocol import Call
from trueno.select.decision import Request


class Keeper(Protocol):
    """A state: `trueno.dispatch.state.State`."""

    traced: bool

    @property
    def request(self) -> Request:
        """The request in force."""

    def failed(self, call: Call, name: str, error: BaseException) -> None:
        """Backend `name` raised in calls like this one."""

    def leave_out(self, call: Call, name: str, reason: str) -> None:
        """Backend `name` must not get calls like this one any more."""

    def unguarded(self) -> AbstractContextManager["Keeper"]:
        """Run everything inside without a guard; gives the state for that."""

    def run(self, call: Call, arguments: tuple[Any, ...]) -> Any:
        """Call the plan."""
