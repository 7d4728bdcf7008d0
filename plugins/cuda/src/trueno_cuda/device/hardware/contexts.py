"""The GPU's primary context, made current in a thread for the time of an operation."""

from threading import local

from trueno.errors import TruenoError

from trueno_cuda.device.hardware.driver import Driver


class _Here(local):
    entered = False


class Context:
    """`with context:` around calls of the driver.  It holds no state of its own, so any threads may be in it at once.

    alone: whether there is no other GPU, and the context may stay current; else the thread gets its own back.
    gone: why it cannot be used any more.
    """

    def __init__(self, driver: Driver, device: int, alone: bool) -> None:
        self.driver = driver
        self.alone = alone
        self.gone: TruenoError | None = None
        self._device = device
        self.handle = driver.retain(device)
        self._here = _Here()

    def __enter__(self) -> None:
        if self.gone is not None:
            raise self.gone
        if not self.alone:
            self.driver.call("cuCtxPushCurrent_v2", self.handle)
        elif not self._here.entered:
            self.driver.call("cuCtxSetCurrent", self.handle)
            self._here.entered = True

    def __exit__(self, *_: object) -> None:
        if not self.alone:
            self.driver.handle("cuCtxPopCurrent_v2")

    def forget(self) -> None:
        """This thread's current context was found to be another one."""
        self._here.entered = False

    def release(self) -> None:
        self.driver.call("cuDevicePrimaryCtxRelease_v2", self._device)
