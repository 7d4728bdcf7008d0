"""What two GPUs of a process share: access to each other's memory, and the order of their streams."""

from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from typing import Any, Protocol

from trueno.errors import KernelError

from trueno_cuda.device.hardware.driver import Driver


class Peer(Protocol):
    """One of them, as `Gpu` is.  context: the driver's handle.  caller: gives the calling thread's stream."""

    driver: Driver
    handle: int
    context: int
    caller: Callable[[], int]

    def current(self) -> AbstractContextManager[Any]: ...


def meet(one: Peer, other: Peer) -> None:
    """Let kernels and copies of each reach the other's memory, where they can."""
    for here, there in ((one, other), (other, one)):
        if one is not other and one.driver.reaches(here.handle, there.handle):
            with here.current(), suppress(KernelError):  # CuPy or PyTorch may have done so before
                one.driver.call("cuCtxEnablePeerAccess", there.context, 0)


def follow(one: Peer, other: Peer) -> None:
    """Let this thread's next work on one GPU begin when its work so far on another one is done."""
    with other.current():
        event = other.driver.event()
        other.driver.call("cuEventRecord", event, other.caller())
    with one.current():
        one.driver.call("cuStreamWaitEvent", one.caller(), event, 0)
        one.driver.call("cuEventDestroy_v2", event)  # when it has occurred
