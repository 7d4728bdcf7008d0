"""Calls on operands of the host that the fast path does not take.

`call` validates operands, parameters and `out`, broadcasts, converts a row program's operands to canonical form
(one row [n], or [rows, n] with operands that vary along rows, elements, both or neither), copies arrays that are
strided, unaligned, byte-swapped or overlapping, and calls the plan of that form.
"""

from contextlib import suppress
from dataclasses import replace
from functools import partial
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from trueno.contiguous import compact, is_plain
from trueno.discovery import registry
from trueno.discovery.protocol import Call, Refused
from trueno.dispatch import state
from trueno.dispatch.axes import Geometry, OperandView, Views, geometry, located, refuse_empty, structured
from trueno.dispatch.cache import store_host
from trueno.dispatch.cache_host import bound
from trueno.dispatch.coerce import cache_bytes, coerce, coerce_params
from trueno.dispatch.fallback import passes
from trueno.dispatch.half import WIDE, is_half, put, rounded, widened
from trueno.dispatch.plan import Plan
from trueno.dispatch.results import check_apart, check_fit, listed
from trueno.errors import DtypeError, GuardError, KernelError, OutError, OutOfMemory
from trueno.ops.op import Op
from trueno.ops.signature import ArraySpec

Array = npt.NDArray[Any]
Shape = tuple[int, ...]


def call(op: Op, operands: tuple[Any, ...], scalars: dict[str, Any], out: Any) -> Any:
    """Run `op` on operands of the host: NumPy arrays and objects that NumPy can convert, numbers, lists.

    `scalars` holds the parameters by name, and `axis` and `keepdims` where the op has them.
    """
    generation = state.generation
    arrays, user_dtype, wrap = coerce(op, operands)
    params, static = coerce_params(op, scalars)
    shapes = tuple(a.shape for a in arrays)
    request, views, rows = _requested(op, shapes, static, user_dtype, scalars)
    dtype = request.dtype
    arrays = arrays if dtype is user_dtype else widened(op, arrays)
    if rows is not None:
        refuse_empty(op, rows.form, shapes)
    if op.check is not None:
        op.check(*arrays, **{name: static[name] for name in op.checked})
    results = _outs(op, out, tuple(view.final for view in views[1]), dtype, user_dtype, static)
    try:
        across = None if rows is None else rows.across
        plan = None if across is None else _run_across(request, arrays, params, results, across)
        views = views if plan is None or across is None else across
        plan = plan or _run(request, arrays, params, results, views)
    except GuardError as error:
        if rows is not None:
            located(error, op, rows.form.shapes, rows.user_shape)
        raise
    except (KernelError, DtypeError):
        if not is_half(dtype) or is_half(_requested(op, shapes, static, user_dtype, scalars)[0].dtype):
            raise
        return call(op, operands, scalars, out)  # the kernel for 16 bits failed, and is in quarantine: widen
    for r in results:
        r.deliver()
    if plan is not None and state.current.get().guarding() is None and not is_half(user_dtype) and op.check is None:
        bind = partial(bound, plan.kernel, op, params, dtype, *views, operands, out)
        store_host(op, operands, scalars, out, dtype, bind, generation)
    finished = [r.user if r.user is not None else wrap(r.array if r.array.ndim else r.array[()]) for r in results]
    return finished[0] if len(finished) == 1 else tuple(finished)


class _Result:
    """One result: the array in which it is computed, and what the user requests: an object, its array and its dtype."""

    __slots__ = ("array", "dtype", "target", "user")

    def __init__(self, array: Array, user: Any, target: Array | None, dtype: np.dtype[Any]) -> None:
        self.array = array
        self.user = user
        self.target = target
        self.dtype = dtype

    def deliver(self) -> None:
        target = self.target
        if target is None:
            if self.array.dtype != self.dtype:
                self.array = rounded(self.array, self.dtype)
        elif target is not self.array:
            put(self.array, target)


def _outs(
    op: Op, out: Any, shapes: tuple[tuple[int, ...], ...], dtype: np.dtype[Any], user_dtype: np.dtype[Any],
    static: dict[str, Any],
) -> list[_Result]:  # fmt: skip
    """The results of a call that computes in `dtype`, for operands of dtype `user_dtype`."""
    specs = op.signature.outputs
    dtypes, computed = [s.holds(user_dtype) for s in specs], [s.holds(dtype) for s in specs]
    if out is None:
        kinds = zip(specs, shapes, computed, dtypes, strict=True)
        return [_Result(_room(op, spec, s, c), None, None, d) for spec, s, c, d in kinds]
    outs = listed(op, out)
    arrays = [getattr(user, "array", user) for user in outs]
    results = []
    for user, array, spec, shape, wanted, type_ in zip(outs, arrays, specs, shapes, dtypes, computed, strict=True):
        if not isinstance(array, np.ndarray) or isinstance(array, np.ma.MaskedArray):
            raise OutError(f"{op.name}: out for {spec.name} is {type(user).__name__}; it must be a NumPy array")
        array = cache_bytes(op, np.asarray(array), static["format"]) if spec.cache else np.asarray(array)
        check_fit(op, spec, array, shape, wanted)
        if not array.flags.writeable:
            raise OutError(f"{op.name}: out for {spec.name} is read-only; give an array that can be written")
        direct = is_plain(array) and type_ == wanted
        results.append(_Result(array if direct else _room(op, spec, shape, type_), user, array, wanted))
    check_apart(op, arrays, _share)
    return results


def _room(op: Op, spec: ArraySpec, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    try:
        return np.empty(shape, dtype)
    except (MemoryError, ValueError) as error:  # a ValueError for a size beyond the address space
        problem = f"there is no room for {spec.name}, {dtype} of shape {shape}"
        raise OutOfMemory(f"{op.name}: {problem} ({error}); compute it in parts") from None


def _same(a: Array, b: Array) -> bool:
    """Whether two arrays are the same elements of memory."""
    return a.ctypes.data == b.ctypes.data and a.shape == b.shape and a.strides == b.strides


def _share(a: Array, b: Array) -> bool:
    try:
        return np.shares_memory(a, b, max_work=10_000)  # type: ignore[arg-type]
    except np.exceptions.TooHardError:
        return True


def request(op: Op, operands: tuple[Any, ...], scalars: dict[str, Any]) -> Call:
    """The selector's request for such a call."""
    arrays, dtype, _ = coerce(op, operands)
    _, static = coerce_params(op, scalars)
    return _requested(op, tuple(a.shape for a in arrays), static, dtype, scalars)[0]


def _requested(op: Op, shapes: tuple[Shape, ...], static: dict[str, Any], dtype: np.dtype[Any], scalars: dict[str, Any]
               ) -> tuple[Call, Views, Geometry | None]:  # fmt: skip
    """As `_viewed`; 16-bit operands in float32, as guards check it, unless the chosen backend has a kernel for them."""
    now, half = state.current.get(), is_half(dtype)
    viewed = _viewed(op, shapes, static, WIDE if half else dtype, scalars)
    if half and now.guarding() is None and all(viewed[0].sizes):
        wide = now.chosen(viewed[0])
        if wide is not None and registry.entries()[wide.backend.name].half(op.name, host=True):
            native = replace(viewed[0], dtype=dtype)
            with suppress(KernelError, DtypeError):  # it takes no such call, or it failed
                if getattr(now.chosen(native), "backend", None) is wide.backend:
                    return native, *viewed[1:]
    return viewed


def _viewed(op: Op, shapes: tuple[Shape, ...], static: dict[str, Any], dtype: np.dtype[Any], scalars: dict[str, Any]
            ) -> tuple[Call, Views, Geometry | None]:  # fmt: skip
    """The request for a kernel, the views of its arrays, and the geometry of a row program (None for other ops)."""
    values = tuple(static.items())
    if op.structured:
        views = structured(op, shapes, op.result_shapes(shapes, static))
        sizes = tuple(prod(view.shape).bit_length() for view in views[0])
        return Call(op, dtype, op.layout, len(views[0][0].shape), sizes, values), views, None
    rows = geometry(op, shapes, scalars.get("axis", -1), scalars.get("keepdims", False))
    form = rows.form
    size = (form.rows * form.n).bit_length()
    return Call(op, dtype, form.layout, form.rank, (size,), values), (rows.operands, rows.results), rows


def _run(request: Call, arrays: list[Array], params: tuple[float, ...], results: list[_Result], views: Views
         ) -> Plan | None:  # fmt: skip
    """Compute the results, and return the plan if calls like this one may go straight to its kernel, else None."""
    operand_views, result_views = views
    targets = [r.array if v.order is None else r.array.transpose(v.order)
               for r, v in zip(results, result_views, strict=True)]  # fmt: skip
    no_operand = not all(prod(view.shape) for view in operand_views) and request.op.flops_text != "0"  # not of a copy
    if no_operand or not any(target.size for target in targets):
        for target in targets:
            # there are no elements, or only reductions of none: sums, norms and products are 0
            target[...] = arrays[0] if request.op.updates else 0
        return None
    passed = [compact_view(a, view) for a, view in zip(arrays, operand_views, strict=True)]
    now = state.current.get()
    own = (
        request.op.updates and not now.guarding() and _same(targets[0], passed[0])
    )  # guards keep operands as they were
    read = passed[1:] if own else passed
    overlap = any(np.may_share_memory(target, a) for target in targets for a in read)
    never = overlap and request.op.structured
    direct = [is_plain(target) and not never for target in targets]
    filled = [t.reshape(v.shape) if d else np.empty(v.shape, t.dtype)
              for t, v, d in zip(targets, result_views, direct, strict=True)]  # fmt: skip
    plan, status = now.run(request, (*passed, *params, *filled), further=never or not overlap)
    if status == -1:  # the first candidate refused; another one might refuse after it overwrote half of an operand
        plan, direct = None, [False] * len(targets)
        filled = [np.empty(v.shape, t.dtype) for t, v in zip(targets, result_views, strict=True)]
        now.run(request, (*passed, *params, *filled))
    for target, result, done in zip(targets, filled, direct, strict=True):
        if not done:
            target[...] = result.reshape(target.shape)
    return plan


def _run_across(request: Call, arrays: list[Array], params: tuple[float, ...], results: list[_Result],
                views: Views) -> Plan | None:  # fmt: skip
    """Compute rows that lie across memory without a copy, and return the plan; None if that is not possible."""
    now = state.current.get()
    plan = now.across(request) if all(map(is_plain, arrays)) else None
    if plan is None:
        return None
    operands = [a.reshape(view.shape) for a, view in zip(arrays, views[0], strict=True)]
    filled = [r.array.reshape(view.shape) for r, view in zip(results, views[1], strict=True)]
    try:
        status = plan.kernel(*operands, *params, *filled)
    except Refused:
        return None
    except BaseException as error:
        if passes(error):
            raise
        now.failed(request, plan.backend.name, error)
        return None
    return None if status else plan


def compact_view(a: Array, view: OperandView) -> Array:
    """An operand with the axes, shape and layout that kernels accept."""
    if view.order is not None:
        a = a.transpose(view.order)
    if view.expand is not None:
        a = np.broadcast_to(a, view.expand)
    return compact(a).reshape(view.shape)
