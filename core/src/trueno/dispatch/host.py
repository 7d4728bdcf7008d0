"""Calls on operands of the host that the fast path does not take.

It validates operands, parameters and `out`, broadcasts, brings a row program's operands to canonical form
(one row [n], or [rows, n] with operands that vary along rows, elements, both or neither), copies what is
strided, unaligned, byte-swapped or overlapping, and calls the plan of that form.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from trueno.discovery.protocol import Call
from trueno.dispatch import state
from trueno.dispatch.axes import forward, located, move_axis, row_axis, seen
from trueno.dispatch.canonical import Form, canonical
from trueno.dispatch.coerce import coerce, coerce_params
from trueno.dispatch.half import WIDE, is_half, put, rounded, widened
from trueno.errors import GuardError, OutError, OutOfMemory, ShapeError
from trueno.ops.op import Op
from trueno.ops.signature import ArraySpec

Array = npt.NDArray[Any]
LARGE, STRIPE = 1 << 16, 16
"""From so many elements on a transposed matrix is copied in stripes of so many rows, which fill a cache line of each
result row: NumPy's own copy visits every line of the result once an element, and takes eight times as long."""


def call(op: Op, operands: tuple[Any, ...], scalars: dict[str, Any], out: Any) -> Any:
    """Run `op` on operands of the host: NumPy's arrays and what NumPy can take, numbers, lists.

    `scalars` holds the parameters by name, and `axis` and `keepdims` where the op has them; it is used up.
    """
    arrays, given, wrap = coerce(op, operands)
    dtype = given
    if is_half(given):
        arrays, dtype = widened(op, arrays), WIDE
    axis, keepdims = scalars.pop("axis", -1), scalars.pop("keepdims", False)
    params, static = coerce_params(op, scalars)
    if op.structured:
        shapes = op.result_shapes(tuple(a.shape for a in arrays), static)
        if op.check is not None:
            op.check(*arrays)
        results = _outs(op, out, shapes, dtype, given)
        _run_structured(op, arrays, params, static, dtype, results)
    elif axis.__class__ is int and axis == -1 and keepdims is False:
        form = canonical(op.name, tuple(a.shape for a in arrays))
        results = _outs(op, out, form.shapes, dtype, given)
        try:
            _run_program(op, form, arrays, params, static, dtype, [r.array for r in results])
        except GuardError as error:
            located(error, op, form.shapes)
            raise
    else:
        axis = row_axis(op, arrays, axis, keepdims)
        moved = move_axis(op, arrays, axis)
        form = canonical(op.name, tuple(a.shape for a in moved))
        rank = max(a.ndim for a in arrays)
        shapes = tuple(seen(s, op, k, axis, keepdims, rank) for k, s in enumerate(form.shapes))
        results = _outs(op, out, shapes, dtype, given)
        views = [forward(r.array, op, k, axis, keepdims, form.shapes[k]) for k, r in enumerate(results)]
        try:
            _run_program(op, form, moved, params, static, dtype, views)
        except GuardError as error:
            located(error, op, form.shapes, lambda s, k: seen(s, op, k, axis, keepdims, rank))
            raise
    for r in results:
        r.deliver()
    finished = [r.user if r.user is not None else wrap(r.array if r.array.ndim else r.array[()]) for r in results]
    return finished[0] if len(finished) == 1 else tuple(finished)


class _Result:
    """Where one result is computed, and where and in what type the user wants it."""

    __slots__ = ("array", "dtype", "user")

    def __init__(self, array: Array, user: Any, dtype: np.dtype[Any]) -> None:
        self.array = array
        self.user = user
        self.dtype = dtype

    def deliver(self) -> None:
        target = getattr(self.user, "array", self.user)
        if target is None:
            if self.array.dtype != self.dtype:
                self.array = rounded(self.array, self.dtype)
        elif target is not self.array:
            put(self.array, target)


def _outs(
    op: Op, out: Any, shapes: tuple[tuple[int, ...], ...], dtype: np.dtype[Any], given: np.dtype[Any]
) -> list[_Result]:
    """Results of a call that computes in `dtype`, for operands that the user gave in another, perhaps."""
    specs = op.signature.outputs
    dtypes, computed = [s.holds(given) for s in specs], [s.holds(dtype) for s in specs]
    if out is None:
        kinds = zip(specs, shapes, computed, dtypes, strict=True)
        return [_Result(_room(op, spec, s, c), None, d) for spec, s, c, d in kinds]
    outs = out if isinstance(out, (tuple, list)) and len(specs) > 1 else (out,)
    if len(outs) != len(specs):
        raise OutError(f"{op.name}: out has {len(outs)} array(s), but there are {len(specs)} results")
    found = []
    for user, spec, shape, wanted, type_ in zip(outs, specs, shapes, dtypes, computed, strict=True):
        array = getattr(user, "array", user)
        if not isinstance(array, np.ndarray) or isinstance(array, np.ma.MaskedArray):
            raise OutError(f"{op.name}: out for {spec.name} is {type(user).__name__}; it must be a NumPy array")
        array = np.asarray(array)
        if array.shape != shape:
            raise OutError(f"{op.name}: out for {spec.name} has shape {array.shape}, but the result has {shape}")
        if array.dtype != wanted:
            raise OutError(
                f"{op.name}: out for {spec.name} is {array.dtype}, but the result is {wanted}; give such an array"
            )
        if not array.flags.writeable:
            raise OutError(f"{op.name}: out for {spec.name} is read-only")
        direct = _plain(array) and type_ == wanted
        found.append(_Result(array if direct else _room(op, spec, shape, type_), user, wanted))
    for i, one in enumerate(found):
        for other in found[:i]:
            if _share(getattr(one.user, "array", one.user), getattr(other.user, "array", other.user)):
                raise OutError(f"{op.name}: two results share the memory of out")
    return found


def _room(op: Op, spec: ArraySpec, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    try:
        return np.empty(shape, dtype)
    except (MemoryError, ValueError) as error:  # a ValueError for what no address reaches
        said = f"there is no room for {spec.name}, {dtype} of shape {shape}"
        raise OutOfMemory(f"{op.name}: {said} ({error}); compute it in parts") from None


def _share(a: Array, b: Array) -> bool:
    try:
        return np.shares_memory(a, b, max_work=10_000)  # type: ignore[arg-type]
    except np.exceptions.TooHardError:
        return True


def _run_program(
    op: Op,
    form: Form,
    arrays: list[Array],
    params: tuple[float, ...],
    static: dict[str, Any],
    dtype: np.dtype[Any],
    views: list[Array],
) -> None:
    """Compute into `views`, the results with their row axis last."""
    if form.n == 0 and op.empty_is_error:
        shape = arrays[0].shape
        raise ShapeError(f"{op.name}: {op.operands[0]} has an empty row (shape {shape}), which has no value")
    if form.n == 0 or form.rows == 0:
        for view in views:
            view[...] = 0  # no elements at all, or the folds of an empty row: sums and norms are 0
        return
    given = []
    for a, expand, shape in zip(arrays, form.expand, form.operands, strict=True):
        given.append(_compact(a if expand is None else np.broadcast_to(a, expand)).reshape(shape))
    overlap = any(np.may_share_memory(v, a) for v in views for a in given)
    targets = [v.reshape(s) if _plain(v) else np.empty(s, v.dtype) for v, s in zip(views, form.results, strict=True)]
    request = _program_call(op, form, static, dtype)
    if _attempt(op, request, given, params, targets, fresh=not overlap) is None:
        targets = [np.empty(s, v.dtype) for v, s in zip(views, form.results, strict=True)]
        _attempt(op, request, given, params, targets, fresh=True)
    elif all(map(_plain, views)):
        return
    for view, target in zip(views, targets, strict=True):
        if not np.may_share_memory(view, target):
            view[...] = target.reshape(view.shape)


def _run_structured(
    op: Op,
    arrays: list[Array],
    params: tuple[float, ...],
    static: dict[str, Any],
    dtype: np.dtype[Any],
    results: list[_Result],
) -> None:
    if all(r.array.size == 0 for r in results):
        return
    compact = [_compact(a) for a in _spread(op, arrays)]
    if any(a.size == 0 for a in compact):
        for r in results:
            r.array[...] = 0  # a sum over no products
        return
    overlap = any(np.may_share_memory(r.array, a) for r in results for a in compact)
    request = _structured_call(op, compact, static, dtype)
    targets = [np.empty(r.array.shape, r.array.dtype) if overlap else r.array for r in results]
    _attempt(op, request, compact, params, targets, fresh=True)
    if overlap:
        for r, target in zip(results, targets, strict=True):
            np.copyto(r.array, target)


def request(op: Op, operands: tuple[Any, ...], scalars: dict[str, Any]) -> Call:
    """What the selector would be asked for such a call; `scalars` is used up."""
    arrays, dtype, _ = coerce(op, operands)
    dtype = WIDE if is_half(dtype) else dtype
    axis, keepdims = scalars.pop("axis", -1), scalars.pop("keepdims", False)
    _, static = coerce_params(op, scalars)
    if op.structured:
        op.result_shapes(tuple(a.shape for a in arrays), static)
        return _structured_call(op, _spread(op, arrays), static, dtype)
    moved = move_axis(op, arrays, row_axis(op, arrays, axis, keepdims))
    return _program_call(op, canonical(op.name, tuple(a.shape for a in moved)), static, dtype)


def _program_call(op: Op, form: Form, static: dict[str, Any], dtype: np.dtype[Any]) -> Call:
    size = (form.rows * form.n).bit_length()
    return Call(op, dtype, form.layout, form.rank, (size,), tuple(static.items()))


def _structured_call(op: Op, arrays: list[Array], static: dict[str, Any], dtype: np.dtype[Any]) -> Call:
    sizes = tuple(a.size.bit_length() for a in arrays)
    return Call(op, dtype, op.layout, arrays[0].ndim, sizes, tuple(static.items()))


def _spread(op: Op, arrays: list[Array]) -> list[Array]:
    """The operands with their leading axes broadcast to one another's."""
    inputs = op.signature.inputs
    if op.shapes is not None or sum(spec.leading for spec in inputs) < 2:
        return arrays
    _, leading = op.signature.bind(op.name, tuple(a.shape for a in arrays))
    whole = [(*leading, *a.shape[a.ndim - len(spec.dims) :]) for spec, a in zip(inputs, arrays, strict=True)]
    spread = zip(inputs, arrays, whole, strict=True)
    return [np.broadcast_to(a, shape) if spec.leading else a for spec, a, shape in spread]


def _attempt(
    op: Op, request: Call, arrays: list[Array], params: tuple[float, ...], targets: list[Array], *, fresh: bool
) -> int | None:
    """Call the plan, and the next candidates while they refuse.

    None: the first candidate refused and the results overlap operands, so the caller offers fresh arrays.
    """
    _, status = state.current.get().run(request, (*arrays, *params, *targets), further=fresh)
    return None if status == -1 else status


def _plain(a: Array) -> bool:
    """Whether kernels can take an array as it is: C-contiguous, aligned, native."""
    flags = a.flags
    return flags.c_contiguous and flags.aligned and a.dtype.isnative


def _compact(a: Array) -> Array:
    """C-contiguous, aligned and native, copying only if it is not so already."""
    if _plain(a):
        return a
    if a.ndim == 2 and a.T.flags.c_contiguous and a.size >= LARGE:  # w.T of a linear layer
        rows, made = a.T, np.empty(a.shape, a.dtype.newbyteorder("="))
        for i in range(0, len(rows), STRIPE):
            made[:, i : i + STRIPE] = rows[i : i + STRIPE].T
        return made
    return np.array(a, a.dtype.newbyteorder("="), order="C")
