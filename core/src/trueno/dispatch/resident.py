"""Ops on arrays that live on a device: compute follows data, and the results stay there.

Operands on two devices are an error that says how to move one; nothing is moved in silence.  What a kernel cannot take
as it lies is rearranged, and 16-bit floats are widened and rounded, by the device where it offers that; else at home,
and the transfers show it.
"""

from dataclasses import dataclass, replace
from math import prod
from typing import Any, cast

import numpy as np

from trueno.discovery import registry
from trueno.discovery.protocol import Backend, Call, DeviceBackend, Kernel, Refused
from trueno.discovery.registry import Entry
from trueno.dispatch import host, state
from trueno.dispatch.arrange import Arranged, View, arranged
from trueno.dispatch.axes import located, result_shapes
from trueno.dispatch.cache import RUNS, CachedCall, in_order, store
from trueno.dispatch.cache_host import NEVER
from trueno.dispatch.canonical import canonical
from trueno.dispatch.coerce import coerce_params, is_number, number
from trueno.dispatch.fallback import telling
from trueno.dispatch.half import TAKEN, WIDE, is_float, is_half
from trueno.dispatch.transfer import download, empty, held, home, upload
from trueno.errors import DeviceError, DtypeError, GuardError, KernelError, OutError
from trueno.floatenv import ieee
from trueno.ops.op import Op
from trueno.select import policy

Shape = tuple[int, ...]


def device(op: Op, operands: tuple[Any, ...]) -> Entry | None:
    """Where a call's operands live: one device for all (numbers go anywhere), or None for the host."""
    homes = [(name, home(x), x) for name, x in zip(op.operands, operands, strict=True)]
    first = next(((name, entry) for name, entry, _ in homes if entry is not None), None)
    if first is None:
        return None
    for name, entry, x in homes:
        if entry is not first[1] and not is_number(x):
            where = f"on {entry.name}" if entry is not None else "on the host"
            remedy = f"trueno.to({name}, {first[1].name!r})"
            raise DeviceError(
                f"{op.name}: {name} is {where}, but {first[0]} is on {first[1].name}; move one: {remedy}, "
                f"or trueno.numpy({first[0]})"
            )
    return first[1]


@dataclass(frozen=True, slots=True)
class _Laid:
    """A call whose operands a kernel takes: shapes as the kernel sees them, and of the results.

    final: of the results as the user sees them.  arranged: the views of operands and results that the device makes
    first and last; None where all of them lie so.
    """

    request: Call
    operands: tuple[Shape, ...]
    results: tuple[Shape, ...]
    final: tuple[Shape, ...]
    arranged: Arranged | None = None


def _lay(op: Op, entry: Entry, operands: tuple[Any, ...], dtype: np.dtype[Any], static: dict[str, Any], axis: Any,
         keepdims: Any) -> _Laid | None:  # fmt: skip
    """None for what has to be done at home: values to be checked, empty arrays, rearranging without the device."""
    shapes = tuple(tuple(np.shape(x) if home(x) is None else x.shape) for x in operands)
    backend, values = registry.load(entry.name), tuple(static.items())
    if op.structured:
        index = [spec.index for spec in op.signature.inputs]
        if op.check is not None and not any(index):
            return None
        final = op.result_shapes(shapes, static)
        if not all(map(all, (*shapes, *final))):
            return None
        sizes = tuple(prod(s).bit_length() for s in shapes)
        laid = _Laid(Call(op, dtype, op.layout, len(shapes[0]), sizes, values, entry.name), shapes, final, final)
        if op.check is None:
            return laid
        # Kernels of devices bear an index that nobody has looked at; one that is at home, or has no kernel, is checked.
        there = all(home(x) for x, is_index in zip(operands, index, strict=True) if is_index)
        return laid if there and policy.rejection(backend, laid.request) is None else None
    found: Arranged | None = None
    plain = axis.__class__ is int and axis == -1 and keepdims is False
    form = canonical(op.name, shapes) if plain else None
    if form is not None and not any(e is not None for e in form.expand):
        final = form.shapes
    else:
        made = arranged(op, shapes, axis, keepdims)
        form, final = made.rows.form, made.rows.final
        found = made if any((*made.operands, *made.results)) else None
    if not (form.n and form.rows) or (found is not None and not hasattr(backend, "strided")):
        return None
    size = (form.rows * form.n).bit_length()
    request = Call(op, dtype, form.layout, form.rank, (size,), values, entry.name)
    return _Laid(request, form.operands, form.results, final, found)


def request(op: Op, entry: Entry, operands: tuple[Any, ...], scalars: dict[str, Any]) -> Call:
    """What the selector would be asked for a call of `op` on operands that live on `entry`."""
    axis, keepdims = scalars.pop("axis", -1), scalars.pop("keepdims", False)
    _, static = coerce_params(op, scalars)
    dtype = _dtype(op, operands)
    laid = _lay(op, entry, operands, dtype, static, axis, keepdims)
    if is_half(dtype) and not _native(op, entry, laid):
        dtype = WIDE
    if laid is not None:
        return replace(laid.request, dtype=dtype)
    shapes = tuple(tuple(np.shape(x) if home(x) is None else x.shape) for x in operands)
    sizes = tuple(prod(s).bit_length() for s in shapes)[: len(shapes) if op.structured else 1]
    return Call(op, dtype, op.layout, min(len(shapes[0]), 2), sizes, tuple(static.items()), entry.name)


def call(op: Op, entry: Entry, operands: tuple[Any, ...], scalars: dict[str, Any], out: Any) -> Any:
    """Run `op` on the device where its operands live; the results stay there.

    Where an operand is a `Vector` or `Matrix`, results of one or two dimensions are too; `out` is returned as given.
    """
    wrap = next((x._wrap_result for x in operands if hasattr(type(x), "_wrap_result")), None)
    bare = [held(o) for o in out] if isinstance(out, (tuple, list)) else held(out)
    result = _call(op, entry, tuple(map(held, operands)), scalars, bare)
    if out is not None:
        return tuple(out) if isinstance(out, list) else out
    if wrap is None:
        return result
    return tuple(map(wrap, result)) if isinstance(result, tuple) else wrap(result)


def _call(op: Op, entry: Entry, operands: tuple[Any, ...], scalars: dict[str, Any], out: Any) -> Any:
    backend = registry.load(entry.name)
    given = {k: v for k, v in scalars.items() if k not in ("axis", "keepdims")}
    params, static = coerce_params(op, given)
    dtype = _dtype(op, operands)
    laid = _lay(op, entry, operands, dtype, static, scalars.get("axis", -1), scalars.get("keepdims", False))
    if is_half(dtype) and not _native(op, entry, laid):
        if hasattr(backend, "cast"):
            return _widened(op, entry, cast(DeviceBackend, backend), operands, scalars, dtype, out)
        return _by_way_of_the_host(op, entry, backend, operands, scalars, dtype, out)
    if laid is None:
        return _by_way_of_the_host(op, entry, backend, operands, scalars, dtype, out)
    with telling(op.name, entry.name):
        return _run(op, entry, backend, laid, operands, params, dtype, out, scalars)


def _native(op: Op, entry: Entry, laid: _Laid | None) -> bool:
    """Whether the device has a kernel for 16-bit floats themselves; guards look at results in float32."""
    if laid is None or not registry.half(entry, op.name) or state.current.get().guarding() is not None:
        return False
    return policy.rejection(registry.load(entry.name), laid.request) is None


def _final(op: Op, operands: tuple[Any, ...], scalars: dict[str, Any]) -> tuple[Shape, ...]:
    """Shapes of the results as the user sees them."""
    shapes = tuple(tuple(np.shape(x) if home(x) is None else x.shape) for x in operands)
    given = {k: v for k, v in scalars.items() if k not in ("axis", "keepdims")}
    _, static = coerce_params(op, given)
    return result_shapes(op, shapes, static, scalars.get("axis", -1), scalars.get("keepdims", False))


def _widened(
    op: Op, entry: Entry, backend: DeviceBackend, operands: tuple[Any, ...], scalars: dict[str, Any],
    dtype: np.dtype[Any], out: Any,
) -> Any:  # fmt: skip
    """16-bit operands in float32, by the device; its results in the operands' type, each rounded once."""
    targets = None if out is None else _results(op, entry, backend, _final(op, operands, scalars), dtype, out)
    made: dict[int, Any] = {}
    with telling(op.name, entry.name):
        for spec, x in zip(op.signature.inputs, operands, strict=True):
            if id(x) in made:
                continue
            if home(x) is None:
                made[id(x)] = x if spec.type else float(number(op, x, dtype))
            elif spec.type:
                made[id(x)] = x
            else:
                made[id(x)] = empty(backend, tuple(x.shape), WIDE)
                backend.cast(x, made[id(x)])
    found = _anew(op, entry, tuple(made[id(x)] for x in operands), scalars)
    results = list(found) if isinstance(found, tuple) else [found]
    with telling(op.name, entry.name):
        for k, (spec, r) in enumerate(zip(op.signature.outputs, results, strict=True)):
            if targets is None and spec.type:
                continue
            target = empty(backend, tuple(r.shape), dtype) if targets is None else targets[k]
            (backend.copy if spec.type else backend.cast)(r, target)
            results[k] = target
    return results[0] if len(results) == 1 else tuple(results)


def _anew(op: Op, entry: Entry, operands: tuple[Any, ...], scalars: dict[str, Any]) -> Any:
    """A call within a call, on other operands of the device."""
    result = RUNS[len(operands)](op, operands, scalars, None)
    if result is not NEVER:
        return result
    with ieee():  # a batch comes here by itself
        return call(op, entry, operands, scalars, None)


def _run(
    op: Op, entry: Entry, backend: Backend, laid: _Laid, operands: tuple[Any, ...], params: tuple[float, ...],
    dtype: np.dtype[Any], out: Any, scalars: dict[str, Any],
) -> Any:  # fmt: skip
    generation = state.generation
    arrays = [x if home(x) else upload(backend, number(op, x, dtype), op.name) for x in operands]
    results = _results(op, entry, backend, laid.final, dtype, out)
    if laid.arranged is not None:
        return _rearranged(op, backend, laid, laid.arranged, arrays, params, results, out is not None)
    scratch = results
    now = state.current.get()
    if out is not None and (
        not registry.atomic(entry) or now.guarding()  # it may fail, and out may be an operand
        or any(tuple(r.shape) != s and not in_order(r) for r, s in zip(results, laid.results, strict=True))
    ):  # fmt: skip
        scratch = [empty(backend, tuple(r.shape), np.dtype(r.dtype)) for r in results]
    plan = now.chosen(laid.request)
    assert plan is not None  # a resident decision has one candidate
    passed = [_laid_out(backend, a, s) for a, s in zip(arrays, laid.operands, strict=True)]
    views = [_shaped(r, s) for r, s in zip(scratch, laid.results, strict=True)]
    try:
        status = _status(plan.kernel, *passed, *params, *views)
    except GuardError as error:
        located(error, op, laid.final)
        raise
    if status == -1 and out is not None and scratch is results:  # out may be an operand that the kernel still reads
        scratch = [empty(backend, tuple(r.shape), np.dtype(r.dtype)) for r in results]
        views = [_shaped(r, s) for r, s in zip(scratch, laid.results, strict=True)]
        status = _status(plan.kernel, *passed, *params, *views)
    if status == -1:
        into = " into this out" if out is not None else ""
        raise KernelError(f"{op.name}: {entry.name} refused operands of shapes {list(laid.operands)}{into}")
    if scratch is not results:
        for target, result in zip(results, scratch, strict=True):
            cast(DeviceBackend, backend).copy(result, target)
    elif now.guarding() is None and all(a is x for a, x in zip(arrays, operands, strict=True)):
        wanted = (*laid.operands, *laid.results)
        alike = wanted == tuple(tuple(x.shape) for x in (*arrays, *results))
        made = tuple((tuple(r.shape), np.dtype(r.dtype)) for r in results)
        shaped = None if alike else wanted
        ready = CachedCall(entry, plan.kernel, backend.empty, params, made, shaped, registry.atomic(entry))
        store(now, op, operands, scalars, ready, generation)
    return results[0] if len(results) == 1 else tuple(results)


def _rearranged(
    op: Op, backend: Backend, laid: _Laid, found: Arranged, arrays: list[Any], params: tuple[float, ...],
    results: list[Any], given: bool,
) -> Any:  # fmt: skip
    """A call whose operands or results the device copies into another order; given: results are the user's own."""
    device = cast(DeviceBackend, backend)
    plan = state.current.get().chosen(laid.request)
    assert plan is not None  # a resident decision has one candidate

    def ordered(x: Any, view: View | None) -> Any:
        return x if view is None else device.strided(x, view.shape, view.strides)

    passed = [ordered(a, v) for a, v in zip(arrays, found.operands, strict=True)]
    passed = [_laid_out(backend, a, s) for a, s in zip(passed, laid.operands, strict=True)]
    made = [empty(backend, s, np.dtype(r.dtype)) for s, r in zip(laid.results, results, strict=True)]
    try:
        status = _status(plan.kernel, *passed, *params, *made)
    except GuardError as error:
        located(error, op, found.rows.form.shapes, found.rows.user_shape)
        raise
    if status == -1:
        raise KernelError(f"{op.name}: {backend.name} refused operands of shapes {list(laid.operands)}")
    ends = zip(made, found.rows.form.shapes, found.results, laid.final, strict=True)
    finished = [_shaped(ordered(_shaped(r, s), view), final) for r, s, view, final in ends]
    if given:
        for r, target in zip(finished, results, strict=True):
            device.copy(r, target)
        finished = results
    return finished[0] if len(finished) == 1 else tuple(finished)


def _status(kernel: Kernel, *arguments: Any) -> Any:
    """What a kernel answers, in whichever way it refuses."""
    try:
        return kernel(*arguments)
    except Refused:
        return -1


def _shaped(x: Any, shape: Shape) -> Any:
    return x if tuple(x.shape) == shape else x.reshape(shape)


def _laid_out(backend: Backend, x: Any, shape: Shape) -> Any:
    """An operand under another shape; one with gaps is copied by the backend's own kernel, where it has one."""
    if tuple(x.shape) != shape and not in_order(x) and hasattr(backend, "contiguous"):
        x = backend.contiguous(x)
    return _shaped(x, shape)


def _dtype(op: Op, operands: tuple[Any, ...]) -> np.dtype[Any]:
    found: list[tuple[str, np.dtype[Any]]] = []
    for spec, x in zip(op.signature.inputs, operands, strict=True):
        if home(x) is None:
            continue
        kind = np.dtype(x.dtype)
        if spec.index:
            if kind != np.int64:
                raise DtypeError(f"{op.name}: {spec.name} is {kind}; indices on a device are int64")
        elif spec.blocks:
            if kind != np.uint8:
                raise DtypeError(f"{op.name}: {spec.name} is {kind}; blocks are bytes, uint8")
        elif not is_float(kind):
            raise DtypeError(f"{op.name}: {spec.name} is {kind}; {TAKEN}")
        else:
            if op.quantized and kind != np.float32:
                raise DtypeError(f"{op.name}: {spec.name} is {kind}; blocks go with float32")
            found.append((spec.name, kind))
    for name, kind in found:
        if kind != found[0][1]:
            raise DtypeError(f"{op.name}: {name} is {kind}, but {found[0][0]} is {found[0][1]}; convert one of them")
    if not found and op.quantized:
        return np.dtype(np.float32)
    if not found:
        raise DtypeError(f"{op.name}: no operand says of which float type the result is")
    return found[0][1]


def _results(
    op: Op, entry: Entry, backend: Backend, shapes: tuple[tuple[int, ...], ...], dtype: np.dtype[Any], out: Any
) -> list[Any]:
    specs = op.signature.outputs
    dtypes = [s.holds(dtype) for s in specs]
    if out is None:
        return [empty(backend, s, d) for s, d in zip(shapes, dtypes, strict=True)]
    given = list(out) if isinstance(out, (tuple, list)) and len(specs) > 1 else [out]
    if len(given) != len(specs):
        raise OutError(f"{op.name}: out has {len(given)} array(s), but there are {len(specs)} results")
    if any(_share(a, b) for i, a in enumerate(given) for b in given[:i]):
        raise OutError(f"{op.name}: two results share the memory of out; give an array for each")
    for array, spec, shape, wanted in zip(given, specs, shapes, dtypes, strict=True):
        if home(array) is not entry:
            raise OutError(
                f"{op.name}: out for {spec.name} is {type(array).__name__}; the operands live on {entry.name}"
            )
        if tuple(array.shape) != shape or np.dtype(array.dtype) != wanted:
            raise OutError(
                f"{op.name}: out for {spec.name} is {np.dtype(array.dtype)} of shape {tuple(array.shape)}, "
                f"but the result is {wanted} of shape {shape}"
            )
    return given


def _share(a: Any, b: Any) -> bool:
    """Whether two arrays of a device are one, or lie in the same memory as far as they say where they lie."""
    first, second = (getattr(getattr(x, "data", None), "ptr", None) for x in (a, b))
    if first is None or second is None:
        return a is b
    return bool(first < second + b.nbytes and second < first + a.nbytes)


def _by_way_of_the_host(
    op: Op, entry: Entry, backend: Backend, operands: tuple[Any, ...], scalars: dict[str, Any], dtype: np.dtype[Any],
    out: Any,
) -> Any:  # fmt: skip
    """What the device neither takes as it lies nor rearranges or widens itself, and empty arrays: done at home.

    The moves show in `trueno.trace()` like all others.
    """
    targets = None if out is None else _results(op, entry, backend, _final(op, operands, scalars), dtype, out)
    with telling(op.name, backend.name):
        brought = tuple(download(backend, x, None, op.name) if home(x) else x for x in operands)
    with ieee():  # a batch comes here by itself
        result = host.call(op, brought, scalars, None)
    results = result if isinstance(result, tuple) else (result,)
    with telling(op.name, backend.name):
        sent = [upload(backend, np.ascontiguousarray(r).reshape(np.shape(r)), op.name) for r in results]
        if targets is not None:
            for r, target in zip(sent, targets, strict=True):
                cast(DeviceBackend, backend).copy(r, target)
            sent = targets
    return sent[0] if len(sent) == 1 else tuple(sent)
