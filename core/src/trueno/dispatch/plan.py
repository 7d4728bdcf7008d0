"""Plans: a backend's kernel, ready to be called for one key.

`prepare` adds once the layers that a key needs around the bare kernel, each with the kernel's own signature:
moving host arrays (`transfer.stage`), failing without loss (`catch_failures`), the guard (`watch`), the
trace (`timed`), the default floating-point environment (`steady`).  A key that needs no layer gets the bare kernel.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from trueno.discovery import registry
from trueno.discovery.protocol import Backend, Call, Kernel, Refused
from trueno.dispatch.fallback import passes
from trueno.dispatch.transfer import stage
from trueno.errors import KernelError
from trueno.events.stream import emit, verbose
from trueno.floatenv import steady
from trueno.ops.op import Op
from trueno.select import policy
from trueno.select.keeper import Keeper

if TYPE_CHECKING:
    from trueno.guards.rules import Rules


@dataclass(frozen=True, slots=True)
class Plan:
    """The backend that runs the calls of one key, and the function to call.  key: the state's key of this plan.

    code: the kernel's machine code, for entries (`trueno.door`); 0 if it has none, or if there is a layer around it.
    columns: makes the kernel for rows that lie across memory, once; None if a layer but a trace's is around the other.
    """

    backend: Backend
    kernel: Kernel
    key: tuple[Any, ...]
    code: int = 0
    columns: Callable[[], Kernel | None] | None = None


class PluginFailed(Exception):
    """A plugin raised `error` while it made its kernel."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


def keys(op: Op) -> int:
    """The number of operands whose size classes a plan's key holds: one, or all for a structured op."""
    return len(op.signature.inputs) if op.structured else 1


def key(call: Call) -> tuple[Any, ...]:
    """The key under which a state keeps the plan of `call`; whether it is guarded depends on the state."""
    return (call.op.name, call.dtype, call.layout, call.rank, call.sizes, call.static, call.residency)


def prepare(call: Call, name: str, state: Keeper, guarded: "Rules | None") -> Plan:
    """The plan of `call` on backend `name` under `state`; PluginFailed with the plugin's error."""
    entry = registry.entries()[name]
    backend = registry.load(name)
    fused = guarded is not None and policy.rejection(backend, replace(call, guarded=True)) is None
    kernel = bare = _kernel(backend, replace(call, guarded=fused))
    entry.active = True
    if entry.foreign and call.residency == "host":
        kernel = stage(kernel, backend, call, guarded=fused)
    if not entry.atomic:
        kernel = catch_failures(kernel, call, name, state, fused)
    if guarded is not None:
        from trueno.dispatch.watch import watch  # start-up

        kernel = watch(kernel, call, name, guarded, fused, state)
    traced = state.traced or "run" in verbose()
    alone = kernel is bare and call.residency == "host" and _own_environment(backend, call)
    columns = cache(partial(_columns, backend, call, traced)) if alone else None
    if traced:
        kernel = timed(kernel, call, name)
    if kernel is not bare or not _own_environment(backend, call):
        kernel = steady(kernel)
    return Plan(backend, kernel, key(call), getattr(kernel, "code", 0) if alone and not traced else 0, columns)


def _columns(backend: Any, call: Call, traced: bool) -> Kernel | None:
    """The backend's kernel for rows that lie across memory; calls have another way where it cannot be made."""
    make = getattr(backend, "columns", None)
    if make is None or call.rank != 2 or call.op.structured:
        return None
    try:
        with policy.asking(backend.name):
            kernel: Kernel | None = make(call)
    except RecursionError:  # the caller used up the stack
        raise
    except Exception:
        return None
    return steady(timed(kernel, call, backend.name)) if traced and kernel is not None else kernel


def _own_environment(backend: Backend, call: Call) -> bool:
    own = getattr(backend, "own_environment", None)
    return own is not None and bool(own(call))


def _kernel(backend: Backend, call: Call) -> Kernel:
    """The backend's own kernel; the time to compile or load it is an event."""
    start = perf_counter()
    try:
        with policy.asking(backend.name):
            kernel = backend.kernel(call)
        if not callable(kernel):
            raise KernelError(f"its kernel() returned {type(kernel).__name__}, but must return a function")
    except RecursionError:  # the caller used up the stack
        raise
    except Exception as error:
        raise PluginFailed(error) from error
    emit("compile", call.op.name, backend.name, start=start, seconds=perf_counter() - start)
    return kernel


def catch_failures(kernel: Kernel, call: Call, name: str, state: Keeper, fused: bool) -> Kernel:
    """A kernel whose failure loses no data: an exception sends the call to the next candidate.

    A kernel that fails may have written half a result, so this one never writes over an operand: it refuses, and the
    general path passes new arrays.  A TypeError is raised again: the fast path does not check everything that may make
    a kernel fail, and the general path, which does, calls it once more.
    """
    inputs = len(call.op.operands)
    outs = len(call.op.signature.outputs)
    host = call.residency == "host"
    known_statuses = (0, None, -1, 1, 2, 3) if fused else (0, None, -1)

    def caught(*args: Any) -> Any:
        if host:
            for out in args[-outs:]:
                for x in args[:inputs]:
                    if np.may_share_memory(out, x):
                        return -1
        try:
            status = kernel(*args)
            if status not in known_statuses:
                raise KernelError(f"its kernel returned the status {status!r}")
        except Refused:
            return -1
        except TypeError:
            raise
        except BaseException as error:
            if passes(error):
                raise
            state.failed(call, name, error)
            return -1
        return status

    return caught


def timed(kernel: Kernel, call: Call, name: str) -> Kernel:
    """A kernel whose calls emit events of kind `run`."""
    op, inputs = call.op.name, len(call.op.operands)

    def traced(*args: Any) -> Any:
        start = perf_counter()
        status = kernel(*args)
        seconds = perf_counter() - start
        if status != -1:
            shapes = [tuple(a.shape) for a in args[:inputs]]
            emit("run", op, name, start=start, seconds=seconds, shapes=shapes, dtype=call.dtype.name)
        return status

    return traced
