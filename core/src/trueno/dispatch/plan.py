"""Plans: a backend's kernel, ready to be called for one key.

`prepare` adds once the layers that a key needs around the bare kernel, each with the kernel's own signature:
moving host arrays (`transfer.stage`), failing without loss (`catch_failures`), the guard (`watch`), the
trace (`timed`), the default floating-point environment (`steady`).  A key that needs no layer gets the bare kernel.
"""

from dataclasses import dataclass, replace
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
from trueno.waiting import announced

if TYPE_CHECKING:
    from trueno.guards.rules import Rules


@dataclass(frozen=True, slots=True)
class Plan:
    """The backend that runs the calls of one key, and the function to call.  key: the state's key of this plan.

    code: the kernel's machine code, for entries (`trueno.door`); 0 if it has none, or if there is a layer around it.
    """

    backend: Backend
    kernel: Kernel
    key: tuple[Any, ...]
    code: int = 0


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


def prepare(call: Call, name: str, state: Keeper, guarded: "Rules | None", across: bool = False) -> Plan | None:
    """The plan of `call` on backend `name` under `state`; PluginFailed with the plugin's error.

    across: for rows that lie across memory; None if the backend has no kernel for them, or moves or may lose data.
    """
    entry = registry.entries()[name]
    backend = registry.load(name)
    if across and (entry.foreign or not entry.atomic or call.rank != 2 or not hasattr(backend, "columns")):
        return None
    fused = guarded is not None and policy.rejection(backend, replace(call, guarded=True)) is None
    kernel = bare = _kernel(backend, replace(call, guarded=fused), across)
    if kernel is None:
        return None
    entry.active = True
    if entry.foreign and call.residency == "host":
        kernel = stage(kernel, backend, call, guarded=fused)
    if not entry.atomic:
        kernel = catch_failures(kernel, call, name, state, fused)
    if guarded is not None:
        from trueno.dispatch.watch import watch  # start-up

        kernel = watch(kernel, call, name, guarded, fused, state, across)
    if state.traced or "run" in verbose():
        kernel = timed(kernel, call, name)
    own = getattr(backend, "own_environment", None)
    if kernel is not bare or own is None or not own(call):
        kernel = steady(kernel)
    alone = kernel is bare and call.residency == "host" and not across
    return Plan(backend, kernel, key(call), getattr(kernel, "code", 0) if alone else 0)


def _kernel(backend: Any, call: Call, across: bool) -> Kernel | None:
    """The backend's own kernel, None if it has none for rows across memory; the time to compile it is an event."""
    start, method = perf_counter(), "columns" if across else "kernel"
    try:
        with policy.asking(backend.name), announced(call.op.name, backend.name):
            kernel: Kernel | None = getattr(backend, method)(call)
        if across and kernel is None:
            return None
        if not callable(kernel):
            raise KernelError(f"its {method}() returned {type(kernel).__name__}, but must return a function")
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
    inputs, kept = len(call.op.operands), int(call.op.updates)  # what an op updates may be its result
    outs = len(call.op.signature.outputs)
    host = call.residency == "host"
    known_statuses = (0, None, -1, 1, 2, 3) if fused else (0, None, -1)

    def caught(*args: Any) -> Any:
        if host:
            for out in args[-outs:]:
                for x in args[kept:inputs]:
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
    whole = not (call.op.updates or any(spec.index for spec in call.op.signature.inputs))  # or only a part is read

    def traced(*args: Any) -> Any:
        start = perf_counter()
        status = kernel(*args)
        seconds = perf_counter() - start
        if status != -1:
            shapes, moved = [tuple(a.shape) for a in args[:inputs]], sum(getattr(a, "nbytes", 0) for a in args) * whole
            emit("run", op, name, start=start, seconds=seconds, bytes=moved, shapes=shapes, dtype=call.dtype.name)
        return status

    return traced
