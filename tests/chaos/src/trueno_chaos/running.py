"""What can go wrong once a backend runs.  `control.at` arms those that pass their probe and fail later."""

from collections.abc import Callable
from typing import Any

import numpy as np
from trueno.backend import Call, Kernel, Rates
from trueno.errors import DeviceLost

from trueno_chaos.sound import Sound, results, spoil


class Control:
    """at: the kernel call, counted from 1, that goes wrong (0: none); those after it do, too, while `forever`.

    fail: what `Fails` and `FailsMidRun` do then.
    """

    def __init__(self) -> None:
        self.at = 0
        self.forever = False
        self.calls = 0
        self.fail: Callable[[], Any] = lambda: None

    def arm(self, at: int = 1, *, forever: bool = True) -> None:
        self.at, self.forever, self.calls = at, forever, 0

    def due(self) -> bool:
        self.calls += 1
        return bool(self.at) and (self.calls >= self.at if self.forever else self.calls == self.at)


control = Control()


class Later(Sound):
    """Right until `control` says otherwise; then half of the result is spoilt and `misbehave` decides the rest."""

    def kernel(self, call: Call) -> Kernel:
        right = self.right(call)

        def kernel(*args: Any) -> Any:
            if not control.due():
                return right(*args)
            for out in results(call, args):
                spoil(out)
            return self.misbehave(call, args)

        return kernel

    def misbehave(self, call: Call, args: tuple[Any, ...]) -> Any:
        raise NotImplementedError


class RaisesMidRun(Later):
    def misbehave(self, call: Call, args: tuple[Any, ...]) -> Any:
        raise RuntimeError("chaos: the launch timed out")


class Fails(Sound):
    """Whatever a test wants, before anything is written: its manifest says so."""

    def kernel(self, call: Call) -> Kernel:
        right = self.right(call)
        return lambda *args: control.fail() if control.due() else right(*args)


class FailsMidRun(Later):
    def misbehave(self, call: Call, args: tuple[Any, ...]) -> Any:
        return control.fail()


class TypeErrorMidRun(Later):
    """Looks like a refusal of the arguments, but it has written."""

    def misbehave(self, call: Call, args: tuple[Any, ...]) -> Any:
        raise TypeError("chaos: unsupported operand type(s)")


class MemoryErrorMidRun(Later):
    def misbehave(self, call: Call, args: tuple[Any, ...]) -> Any:
        raise MemoryError("chaos: no scratch left")


class LostMidRun(Later):
    def misbehave(self, call: Call, args: tuple[Any, ...]) -> Any:
        raise DeviceLost("chaos fell off the bus")


class InterruptsMidRun(Later):
    def misbehave(self, call: Call, args: tuple[Any, ...]) -> Any:
        raise KeyboardInterrupt


class ExitsMidRun(Later):
    def misbehave(self, call: Call, args: tuple[Any, ...]) -> Any:
        raise SystemExit(3)


class RefusesAfterWriting(Later):
    """−1 says that nothing was written.  This one lies."""

    def misbehave(self, call: Call, args: tuple[Any, ...]) -> Any:
        return -1


class StrangeStatus(Later):
    """A kernel gives a whole number; this one a word."""

    def misbehave(self, call: Call, args: tuple[Any, ...]) -> Any:
        return "done"


class NanLater(Later):
    """Says that all is well, and half of its result is NaN."""

    def misbehave(self, call: Call, args: tuple[Any, ...]) -> Any:
        self.right(call)(*args)
        for out in results(call, args):
            spoil(out, np.nan)
        return 1 if call.guarded else 0


class WrongLater(Later):
    """Off by a thousandth."""

    def misbehave(self, call: Call, args: tuple[Any, ...]) -> Any:
        self.right(call)(*args)
        for out in results(call, args):
            out *= out.dtype.type(1.001)
        return 0


class AlwaysNan(Sound):
    def kernel(self, call: Call) -> Kernel:
        def kernel(*args: Any) -> int:
            for out in results(call, args):
                out[...] = np.nan
            return 0

        return kernel


class AlwaysWrong(Sound):
    def kernel(self, call: Call) -> Kernel:
        right = self.right(call)

        def kernel(*args: Any) -> int:
            status = right(*args)
            for out in results(call, args):
                out += 1
            return int(status)

        return kernel


class SupportsRaises(Sound):
    def supports(self, call: Call) -> Any:
        raise ZeroDivisionError("chaos divided by the number of its devices")


class SupportsNonsense(Sound):
    def supports(self, call: Call) -> Any:
        return "maybe"


class KernelRaises(Sound):
    def kernel(self, call: Call) -> Kernel:
        raise RuntimeError("chaos: the compiler found no registers")


class KernelIsNone(Sound):
    def kernel(self, call: Call) -> Any:
        return None


class RatesRaise(Sound):
    def rates(self, call: Call) -> Rates:
        raise RuntimeError("chaos: not measured yet")


class RatesNan(Sound):
    def rates(self, call: Call) -> Rates:
        return Rates(launch_s=float("nan"), flops=float("nan"), bytes=float("nan"))


class RatesNegative(Sound):
    def rates(self, call: Call) -> Rates:
        return Rates(launch_s=-1.0, flops=-1e12, bytes=-1e12)


class RatesNone(Sound):
    def rates(self, call: Call) -> Any:
        return None


class LiesAboutCost(Sound):
    """Right, slow, and by its own account faster than light."""

    def rates(self, call: Call) -> Rates:
        return Rates(launch_s=1e-12, flops=1e18, bytes=1e18)
