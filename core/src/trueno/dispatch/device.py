"""Ops on arrays that live on a device: compute follows data, and the results stay there.

Operands on two devices are an error that says how to move one; no array is moved silently.  The device rearranges
arrays whose layout a kernel does not accept, and widens and rounds 16-bit floats, if it offers that; otherwise the host
does both, and the trace shows the transfers.
"""

from dataclasses import dataclass, replace
from math import prod
from typing import Any, cast

import numpy as np

from trueno.discovery.protocol import Backend, Call, DeviceBackend, Kernel, Refused
from trueno.dispatch import host, state
from trueno.dispatch.axes import located, result_shapes
from trueno.dispatch.cache import RUNS, CachedCall, in_order, store
from trueno.dispatch.cache_host import NEVER
from trueno.dispatch.coerce import coerce_params, number
from trueno.dispatch.fallback import wrapping_errors
from trueno.dispatch.half import WIDE, is_half
from trueno.dispatch.operands import OnDevice, settled
from trueno.dispatch.results import check_apart, check_fit, listed
from trueno.dispatch.transfer import device_of, download, empty, unwrap, upload
from trueno.dispatch.views import View, ViewPlan, view_plan
from trueno.errors import GuardError, KernelError, OutError
from trueno.floatenv import ieee
from trueno.ops.op import Op
from trueno.select import policy

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Laid:
    """A call whose operands a kernel accepts, with the kernel's shapes of operands and results.

    final: the user's shapes of the results.  views: the views of operands that the device copies before the kernel, and
    those of results that it copies after it; None if no array needs one.
    """

    request: Call
    operands: tuple[Shape, ...]
    results: tuple[Shape, ...]
    final: tuple[Shape, ...]
    views: ViewPlan | None = None


def _lay(op: Op, data: OnDevice, static: dict[str, Any], scalars: dict[str, Any]) -> _Laid | None:
    """The call for a kernel; None if the host must run it: to check values, for empty arrays, or without views."""
    shapes, name, values = data.shapes, data.entry.name, tuple(static.items())
    if op.structured:
        index = [spec.index for spec in op.signature.inputs]
        if op.check is not None and not any(index):
            return None
        final = op.result_shapes(shapes, static)
        if not all(map(all, (*shapes, *final))):
            return None
        sizes = tuple(prod(s).bit_length() for s in shapes)
        laid = _Laid(Call(op, data.dtype, op.layout, len(shapes[0]), sizes, values, name), shapes, final, final)
        if op.check is None:
            return laid
        # Kernels of devices accept an unchecked index; the host checks a number, and an op without a kernel.
        there = all(own for own, is_index in zip(data.there, index, strict=True) if is_index)
        return laid if there and policy.rejection(data.backend, laid.request) is None else None
    plan = view_plan(op, shapes, scalars.get("axis", -1), scalars.get("keepdims", False))
    form, views = plan.rows.form, plan if plan.any else None
    if not (form.n and form.rows) or (views is not None and not hasattr(data.backend, "strided")):
        return None
    size = (form.rows * form.n).bit_length()
    request = Call(op, data.dtype, form.layout, form.rank, (size,), values, name)
    return _Laid(request, form.operands, form.results, plan.rows.final, views)


def request(op: Op, data: OnDevice, scalars: dict[str, Any]) -> Call:
    """The selector's request for a call of `op` on operands of a device."""
    _, static = coerce_params(op, scalars)
    laid = _lay(op, data, static, scalars)
    dtype = WIDE if is_half(data.dtype) and not _native(op, data, laid) else data.dtype
    if laid is not None:
        return replace(laid.request, dtype=dtype)
    sizes = tuple(prod(s).bit_length() for s in data.shapes)[: len(data.shapes) if op.structured else 1]
    rank = min(len(data.shapes[0]), 2)
    return Call(op, dtype, op.layout, rank, sizes, tuple(static.items()), data.entry.name)


def call(op: Op, operands: tuple[Any, ...], data: OnDevice, scalars: dict[str, Any], out: Any) -> Any:
    """Run `op` on the device where its operands, `data`, live; the results stay there.

    If an operand is a `Vector` or `Matrix`, results of one or two dimensions are too; `out` is returned unchanged.
    """
    wrap = next((x._wrap_result for x in operands if hasattr(type(x), "_wrap_result")), None)
    bare = [unwrap(o) for o in out] if isinstance(out, (tuple, list)) else unwrap(out)
    result = _call(op, data, scalars, bare)
    if out is not None:
        return tuple(out) if isinstance(out, list) else out
    if wrap is None:
        return result
    return tuple(map(wrap, result)) if isinstance(result, tuple) else wrap(result)


def _call(op: Op, data: OnDevice, scalars: dict[str, Any], out: Any) -> Any:
    params, static = coerce_params(op, scalars)
    laid = _lay(op, data, static, scalars)
    half = is_half(data.dtype) and not _native(op, data, laid)
    if half and hasattr(data.backend, "cast"):
        return _widened(op, data, scalars, out)
    if half or laid is None:
        return _by_way_of_the_host(op, data, scalars, out)
    with wrapping_errors(op.name, data.entry.name):
        return _run(op, data, laid, params, scalars, out)


def _native(op: Op, data: OnDevice, laid: _Laid | None) -> bool:
    """Whether the device has a kernel for 16-bit floats themselves; guards check results in float32."""
    if laid is None or not data.entry.half(op.name) or state.current.get().guarding() is not None:
        return False
    return policy.rejection(data.backend, laid.request) is None


def _targets(op: Op, data: OnDevice, scalars: dict[str, Any], out: Any) -> list[Any] | None:
    """The user's own arrays for the results of a call that consists of several steps; None without `out`."""
    if out is None:
        return None
    _, static = coerce_params(op, scalars)
    axis, keepdims = scalars.get("axis", -1), scalars.get("keepdims", False)
    return _results(op, data, result_shapes(op, data.shapes, static, axis, keepdims), out)


def _widened(op: Op, data: OnDevice, scalars: dict[str, Any], out: Any) -> Any:
    """Widen 16-bit operands on the device, compute in float32, and round each result once to the operands' type."""
    targets = _targets(op, data, scalars, out)
    backend = cast(DeviceBackend, data.backend)
    wide: dict[int, Any] = {}
    with wrapping_errors(op.name, data.entry.name):
        for spec, x, there in zip(op.signature.inputs, data.arrays, data.there, strict=True):
            if id(x) in wide:
                continue
            if spec.type:
                wide[id(x)] = x
            elif not there:
                wide[id(x)] = float(number(op, x, data.dtype))
            else:
                wide[id(x)] = empty(backend, tuple(x.shape), WIDE)
                backend.cast(x, wide[id(x)])
    computed = _anew(op, data, tuple(wide[id(x)] for x in data.arrays), scalars)
    results = list(computed) if isinstance(computed, tuple) else [computed]
    with wrapping_errors(op.name, data.entry.name):
        for k, (spec, r) in enumerate(zip(op.signature.outputs, results, strict=True)):
            if targets is None and spec.type:
                continue
            target = empty(backend, tuple(r.shape), data.dtype) if targets is None else targets[k]
            (backend.copy if spec.type else backend.cast)(r, target)
            results[k] = target
    return results[0] if len(results) == 1 else tuple(results)


def _anew(op: Op, data: OnDevice, operands: tuple[Any, ...], scalars: dict[str, Any]) -> Any:
    """Run a call within a call, on other operands of the device."""
    result = RUNS[len(operands)](op, operands, scalars, None)
    if result is not NEVER:
        return result
    with ieee():  # rounding below must not depend on the caller's modes
        return _call(op, settled(op, data.entry, operands, data.there), scalars, None)


def _run(op: Op, data: OnDevice, laid: _Laid, params: tuple[float, ...], scalars: dict[str, Any], out: Any) -> Any:
    generation = state.generation
    backend = data.backend
    arrays = [x if own else upload(backend, number(op, x, data.dtype), op.name)
              for x, own in zip(data.arrays, data.there, strict=True)]  # fmt: skip
    results = _results(op, data, laid.final, out)
    if laid.views is not None:
        return _through_views(op, backend, laid, laid.views, arrays, params, results, out is not None)
    scratch = results
    now = state.current.get()
    if out is not None and (
        not data.entry.atomic or now.guarding()  # the kernel may fail, and out may be an operand
        or any(tuple(r.shape) != s and not in_order(r) for r, s in zip(results, laid.results, strict=True))
    ):  # fmt: skip
        scratch = _fresh(backend, results)
    plan = now.chosen(laid.request)
    assert plan is not None  # a device's decision has one candidate
    passed = [_laid_out(backend, a, s) for a, s in zip(arrays, laid.operands, strict=True)]
    try:
        status = _status(plan.kernel, *passed, *params, *map(_shaped, scratch, laid.results))
    except GuardError as error:
        located(error, op, laid.final)
        raise
    if status == -1 and out is not None and scratch is results:  # out may be an operand that the kernel still reads
        scratch = _fresh(backend, results)
        status = _status(plan.kernel, *passed, *params, *map(_shaped, scratch, laid.results))
    if status == -1:
        into = " into this out" if out is not None else ""
        raise KernelError(f"{op.name}: {backend.name} refused operands of shapes {list(laid.operands)}{into}")
    if scratch is not results:
        for target, result in zip(results, scratch, strict=True):
            cast(DeviceBackend, backend).copy(result, target)
    elif now.guarding() is None and all(data.there):
        wanted = (*laid.operands, *laid.results)
        alike = wanted == tuple(tuple(x.shape) for x in (*arrays, *results))
        kinds = tuple((tuple(r.shape), np.dtype(r.dtype)) for r in results)
        direct = data.entry.atomic
        cached = CachedCall(data.entry, plan.kernel, backend.empty, params, kinds, None if alike else wanted, direct)
        store(now, op, data.arrays, scalars, cached, generation)
    return results[0] if len(results) == 1 else tuple(results)


def _through_views(
    op: Op, backend: Backend, laid: _Laid, views: ViewPlan, arrays: list[Any], params: tuple[float, ...],
    results: list[Any], given: bool,
) -> Any:  # fmt: skip
    """Run a call whose operands or results the device copies into another order; given: results are the user's own."""
    device = cast(DeviceBackend, backend)
    plan = state.current.get().chosen(laid.request)
    assert plan is not None  # a device's decision has one candidate
    form = views.rows.form

    def ordered(x: Any, view: View | None) -> Any:
        return x if view is None else device.strided(x, view.shape, view.strides)

    passed = [_laid_out(backend, ordered(a, v), s)
              for a, v, s in zip(arrays, views.operands, laid.operands, strict=True)]  # fmt: skip
    filled = [empty(backend, s, np.dtype(r.dtype)) for s, r in zip(laid.results, results, strict=True)]
    try:
        status = _status(plan.kernel, *passed, *params, *filled)
    except GuardError as error:
        located(error, op, form.shapes, views.rows.user_shape)
        raise
    if status == -1:
        raise KernelError(f"{op.name}: {backend.name} refused operands of shapes {list(laid.operands)}")
    ends = zip(filled, form.shapes, views.results, laid.final, strict=True)
    finished = [_shaped(ordered(_shaped(r, s), view), final) for r, s, view, final in ends]
    if given:
        for r, target in zip(finished, results, strict=True):
            device.copy(r, target)
        finished = results
    return finished[0] if len(finished) == 1 else tuple(finished)


def _fresh(backend: Backend, results: list[Any]) -> list[Any]:
    return [empty(backend, tuple(r.shape), np.dtype(r.dtype)) for r in results]


def _status(kernel: Kernel, *arguments: Any) -> Any:
    """The status of a kernel: -1 if it refuses, also if it raises `Refused`."""
    try:
        return kernel(*arguments)
    except Refused:
        return -1


def _shaped(x: Any, shape: Shape) -> Any:
    return x if tuple(x.shape) == shape else x.reshape(shape)


def _laid_out(backend: Backend, x: Any, shape: Shape) -> Any:
    """An operand in another shape; the backend's own kernel, if it has one, copies an operand with gaps."""
    if tuple(x.shape) != shape and not in_order(x) and hasattr(backend, "contiguous"):
        x = backend.contiguous(x)
    return _shaped(x, shape)


def _results(op: Op, data: OnDevice, shapes: tuple[Shape, ...], out: Any) -> list[Any]:
    """The arrays for the results: new ones, or the user's own."""
    specs = op.signature.outputs
    dtypes = [s.holds(data.dtype) for s in specs]
    if out is None:
        return [empty(data.backend, s, d) for s, d in zip(shapes, dtypes, strict=True)]
    outs = listed(op, out)
    check_apart(op, outs, _share)
    for array, spec, shape, dtype in zip(outs, specs, shapes, dtypes, strict=True):
        if device_of(array) is not data.entry:
            problem = f"out for {spec.name} is {type(array).__name__}; the operands live on {data.entry.name}"
            raise OutError(f"{op.name}: {problem}")
        check_fit(op, spec, array, shape, dtype)
    return outs


def _share(a: Any, b: Any) -> bool:
    """Whether two arrays of a device are the same object, or overlap in memory if they expose their addresses."""
    first, second = (getattr(getattr(x, "data", None), "ptr", None) for x in (a, b))
    if first is None or second is None:
        return a is b
    return bool(first < second + b.nbytes and second < first + a.nbytes)


def _by_way_of_the_host(op: Op, data: OnDevice, scalars: dict[str, Any], out: Any) -> Any:
    """Run a call on the host: for layouts and 16-bit floats that the device does not support, and for empty arrays.

    `trueno.trace()` shows these transfers like all others.
    """
    targets, backend = _targets(op, data, scalars, out), data.backend
    with wrapping_errors(op.name, backend.name):
        brought = tuple(download(backend, x, None, op.name) if own else x
                        for x, own in zip(data.arrays, data.there, strict=True))  # fmt: skip
    with ieee():  # rounding below must not depend on the caller's modes
        result = host.call(op, brought, scalars, None)
    results = result if isinstance(result, tuple) else (result,)
    with wrapping_errors(op.name, backend.name):
        sent = [upload(backend, np.ascontiguousarray(r).reshape(np.shape(r)), op.name) for r in results]
        if targets is not None:
            for r, target in zip(sent, targets, strict=True):
                cast(DeviceBackend, backend).copy(r, target)
            sent = targets
    return sent[0] if len(sent) == 1 else tuple(sent)
