"""The guard's layer around a kernel: a healthy call costs one check of the kernel's status bits.

The kernel computes those bits while it computes the results (`trueno.programs.guarded`); without such a kernel this
layer reads the results once more.  It scans operands only after a trip; a watched call never overwrites them.
"""

from collections.abc import Callable, Sequence
from functools import reduce
from operator import or_
from typing import Any, cast

import numpy as np

from trueno.discovery import registry
from trueno.discovery.protocol import Call, DeviceBackend, Kernel
from trueno.dispatch.transfer import download, empty, upload, write
from trueno.guards import health
from trueno.guards.inspection import Inspection
from trueno.guards.rules import BITS, Rules
from trueno.locks import ForkSafeLock
from trueno.select.keeper import Keeper

_locks: dict[str, ForkSafeLock] = {}
"""One lock per device whose kernels may leave their bits to `synchronize`, so that each call gets its own bits."""


def watch(
    kernel: Kernel, call: Call, name: str, rules: Rules, fused: bool, state: Keeper, across: bool = False
) -> Kernel:
    """The kernel of backend `name`, with its results checked by `rules`; it returns 0 or -1, or raises GuardError.

    fused: the kernel returns status bits.  across: rows lie across memory.  On the host, it refuses results that
    overlap operands before it writes, and the general path passes new ones: operands are unchanged if a guard stops the
    call or computes it again.
    """
    kinds = [condition.kind for condition, _ in rules]
    always = "divergence" in kinds
    # If an op only moves data, an unhealthy result comes from an operand.
    wanted = 0 if call.op.flops_text == "0" else reduce(or_, (BITS[kind] for kind in kinds), 0)
    device = call.residency != "host"
    if fused and (device or registry.entries()[name].foreign):
        kernel = _one_by_one(kernel, name, device)
    if not wanted and not always:
        return _deaf(kernel) if fused else kernel
    inspection = Inspection(call, name, rules, state)
    judge = _by_rows(inspection) if across else inspection
    specs = call.op.signature.outputs
    blocks = any(spec.blocks for spec in specs)  # a kernel's bits do not cover the numbers in blocks
    if device:
        return _on_device(kernel, call, name, inspection, wanted, always, fused and not blocks)
    inputs, outs, share = len(call.op.operands), len(call.op.signature.outputs), np.may_share_memory
    look = wanted and (blocks or not fused)

    def watched(*args: Any) -> int:
        for out in args[-outs:]:
            own = out.flags.owndata
            for x in args[:inputs]:  # two arrays that both own their memory share none, which is cheaper to check
                if out is x or (not (own and x.flags.owndata) and share(out, x)):
                    return -1
        status = kernel(*args)
        if status == -1:
            return -1
        if look:
            status = health.status(health.floats(call, args[-outs:], specs) if blocks else args[-outs:])
        if always or (status and status & wanted):
            results = args[-outs:]
            for out, better in zip(results, judge(args[:inputs], args[inputs:-outs], results), strict=True):
                if better is not out:
                    np.copyto(out, better)
        return 0

    return watched


def _by_rows(judge: Callable[..., list[Any]]) -> Callable[..., list[Any]]:
    """`judge` for arrays whose rows lie across memory: it gets copies in which they lie along memory."""

    def turned(x: Any) -> Any:
        return x.transpose(0, 2, 1).reshape(-1, x.shape[1]) if x.ndim == 3 else x.reshape(-1)

    def back(rows: Any, x: Any) -> Any:
        return rows.reshape(x.shape[0], x.shape[2], -1).transpose(0, 2, 1) if x.ndim == 3 else rows.reshape(x.shape)

    def judged(operands: Sequence[Any], params: Sequence[float], results: Sequence[Any]) -> list[Any]:
        before = list(map(turned, results))
        after = judge(list(map(turned, operands)), params, before)
        return [x if b is a else back(a, x) for x, b, a in zip(results, before, after, strict=True)]

    return judged


def _deaf(kernel: Kernel) -> Kernel:
    """A guarded kernel whose bits are ignored."""
    return lambda *args: -1 if kernel(*args) == -1 else 0


def _one_by_one(kernel: Kernel, name: str, wait: bool) -> Kernel:
    """A device's guarded kernel, one call at a time; wait: add the bits that the kernel leaves to `synchronize`."""

    def alone(*args: Any) -> int:
        with _locks.get(name) or _locks.setdefault(name, ForkSafeLock()):
            status: int = kernel(*args) or 0
            if wait and status != -1:
                status |= registry.load(name).synchronize() or 0
            return status

    return alone


def _on_device(
    kernel: Kernel, call: Call, name: str, judge: Inspection, wanted: int, always: bool, fused: bool
) -> Kernel:
    """`watch` for device arrays, which it copies to the host for a check; if the kernel is fused, only after a trip.

    If a result is an operand, the first run writes to scratch arrays, and only a healthy call runs again in place.
    """
    op = call.op.name
    backend = cast(DeviceBackend, registry.load(name))
    inputs, outs = len(call.op.operands), len(call.op.signature.outputs)

    def home(arrays: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(download(backend, x, None, op) for x in arrays)

    def watched(*args: Any) -> int:
        results = targets = args[-outs:]
        inside = any(out is x for out in results for x in args[:inputs])
        if inside:
            targets = tuple(empty(backend, tuple(r.shape), np.dtype(r.dtype)) for r in results)
        status: int = kernel(*args[:-outs], *targets) or 0
        if status == -1:
            return -1
        host_results: tuple[Any, ...] = ()
        if wanted and not fused:
            host_results = home(targets)
            status = health.status(health.floats(call, host_results, call.op.signature.outputs))
        if always or status & wanted:
            host_results = host_results or home(targets)
            healthy = judge(home(args[:inputs]), args[inputs:-outs], host_results)
            if any(better is not r for better, r in zip(healthy, host_results, strict=True)):
                for out, better in zip(results, healthy, strict=True):
                    _put(backend, op, out, better)
                return 0
        return -1 if inside and kernel(*args) == -1 else 0

    return watched


def _put(backend: DeviceBackend, op: str, out: Any, result: np.ndarray[Any, Any]) -> None:
    """Copy a host array into one on a device, of its shape and dtype."""
    result = np.asarray(result, order="C")
    if hasattr(backend, "write"):
        write(backend, result, out, op)
    else:
        backend.copy(upload(backend, result, op), out)
