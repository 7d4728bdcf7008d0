"""What can go wrong before a backend has run anything."""

import os
import signal
import time
from types import SimpleNamespace
from typing import Any

from trueno.backend import Device, Probe

from trueno_chaos.marks import mark
from trueno_chaos.sound import Sound

HOME = os.getpid()


class RaisesInFactory(Sound):
    def __init__(self) -> None:
        raise OSError("the licence server of chaos does not answer")


class RaisesInProbe(Sound):
    def probe(self, level: int) -> Probe:
        try:
            raise KeyError("pci 0000:01:00.0")
        except KeyError as error:
            raise RuntimeError("the chaos driver is version 3, but 4 is needed") from error


class SaysNo(Sound):
    def probe(self, level: int) -> Probe:
        return Probe(False, "no chaos device; plug one in")


class SaysNothing(Sound):
    def probe(self, level: int) -> Probe:
        return Probe(False)


class SaysTooMuch(Sound):
    """A reason of a megabyte, with line breaks, colours, a null and a character that no encoding knows."""

    def probe(self, level: int) -> Probe:
        return Probe(False, "chaos is büsy 💥\n\x1b[31m\x00\ud800 " + "very " * 200_000)


class ProbeIsNoProbe(Sound):
    def probe(self, level: int) -> Any:
        return "fine"


class DevicesAreNone(Sound):
    def probe(self, level: int) -> Any:
        return SimpleNamespace(ok=True, reason=None, devices=None)


class HangsInProbe(Sound):
    def probe(self, level: int) -> Probe:
        if level > 1:
            mark("hangs")
            time.sleep(600)
        return super().probe(level)


class DiesInProbe(Sound):
    """As a driver does that reads address 0."""

    def probe(self, level: int) -> Probe:
        if level > 1:
            os.kill(os.getpid(), signal.SIGSEGV)
        return super().probe(level)


class ExitsInProbe(Sound):
    """Ends the process without a message, and with the code for success."""

    def probe(self, level: int) -> Probe:
        if level > 1:
            os._exit(0)
        return super().probe(level)


class Incomplete:
    """Three methods are missing: supports, kernel, rates."""

    name = "incomplete"
    kind = "cpu"

    def probe(self, level: int) -> Probe:
        return Probe(True)

    def empty(self, shape: tuple[int, ...], dtype: Any) -> None: ...

    def to_device(self, x: Any) -> Any: ...

    def to_host(self, x: Any, out: Any = None) -> Any: ...

    def synchronize(self) -> None: ...

    def close(self) -> None: ...


class Misnamed(Sound):
    """Calls itself by another's name."""

    name = "scalar"


class Software(Sound):
    """Works, on an emulator."""

    def probe(self, level: int) -> Probe:
        return Probe(True, devices=(Device("llvmpipe", software=True),))


class FailsAtHome(Sound):
    """Passes in the process that tries it and fails in the one that wants it."""

    def probe(self, level: int) -> Probe:
        if os.environ.get("CHAOS_HOME") == str(HOME):
            raise RuntimeError("chaos allows one process at a time")
        return super().probe(level)
