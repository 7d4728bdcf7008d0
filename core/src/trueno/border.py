"""The border of the ops' public functions: what they have beside their fast path and the general path.

That is documentation for `help` and `inspect`, tracebacks without internal frames, sentences for keywords of other
libraries, and reductions over several axes.  None of it is on the path of a call that the fast path takes.
"""

import inspect
from collections.abc import Callable, Mapping
from math import prod
from typing import Any

import numpy as np

from trueno.dispatch.axes import row_axis
from trueno.dispatch.coerce import coerce, shown
from trueno.dispatch.parameters import parameters
from trueno.dispatch.transfer import device_of
from trueno.errors import OutError, ParameterError, SettingError, TruenoError, UnknownKeyword
from trueno.hints import keyword
from trueno.interop.calls import runner
from trueno.ops.op import Op
from trueno.settings import settings


def shorten(error: TruenoError) -> None:
    """Drop the frames in which the error arose, so that its traceback ends at the caller's line.

    The caller raises it again by a bare `raise`, which adds no frame.  Its cause keeps its own traceback.
    TRUENO_TRACEBACK=full keeps all frames.
    """
    try:
        full = settings.get("TRUENO_TRACEBACK") == "full"
    except SettingError:  # of any setting, and perhaps the error itself
        full = False
    if not full:
        error.__traceback__ = None


def describe(op: Op, function: Any) -> None:
    """Give a generated function its documentation; its source is the op's body, for `inspect` and IPython's `??`."""
    listed = parameters(op)
    function.__doc__ = f"{op.doc}\n\nSignature: {op.signature.text}"
    function.__module__ = "trueno"
    function.__annotations__ = {p.name: p.annotation for p in listed}
    function.__signature__ = inspect.Signature(listed)
    function.__wrapped__ = op.body


def ending(name: str, passed: str, returned: Callable[[str, str], list[str]], *, along: bool, other: bool) -> list[str]:
    """The last lines of a generated function: the general path, which is called with `passed`, and its errors.

    returned: the lines that return a value, at an indentation.  along: whether the op has an axis.  other: whether the
    function takes any keyword, to name ours in an error.
    """
    unusual = [
        f"        if {'_other or ' * other}axis.__class__ is tuple:",
        f"            return _unusual(_op, {name}, {passed}, {'_other' if other else '{}'})",
    ]
    return [
        "    try:",
        *(unusual if along else []),
        *returned("        ", f"_general(_op, {passed})"),
        "    except _TruenoError as _error:",
        "        _shorten(_error)",
        "        raise",
    ]


def unusual(
    op: Op, function: Callable[..., Any], operands: tuple[Any, ...], given: Mapping[str, Any], out: Any,
    other: Mapping[str, Any],
) -> Any:  # fmt: skip
    """A call with keywords that the op does not have, or with a tuple of axes.

    UnknownKeyword for such keywords; the reduction over all these axes at once, or ParameterError if there is none.
    """
    if other:
        known = [p.name for p in parameters(op) if p.default is not p.empty]
        name = next(iter(other))
        raise UnknownKeyword(keyword(op.name, name, other[name], known))
    return _over(op, function, operands, dict(given), out)


def _over(op: Op, function: Callable[..., Any], operands: tuple[Any, ...], given: dict[str, Any], out: Any) -> Any:
    """A reduction over several axes: they become the last one of a view, or of a copy."""
    if (own := runner(operands, out)) is not None:
        return own.call(op, operands, given, out)
    axes, keepdims = given.pop("axis"), given.pop("keepdims", False)
    if not op.reduces:
        raise ParameterError(f"{op.name}: axis is {shown(axes)}; it must be an integer")
    if any(spec.index for spec in op.signature.outputs):
        raise ParameterError(
            f"{op.name}: axis is {shown(axes)}, but a position is along one axis, or None: all of them"
        )
    if any(device_of(x) is not None for x in operands):
        remedy = "give one axis or None on a device, or reduce one after the other"
        raise ParameterError(f"{op.name}: axis is {shown(axes)}; {remedy}")
    arrays, _, wrap = coerce(op, operands)
    shapes = {a.shape for a in arrays}
    try:
        whole = arrays[0].shape if len(shapes) == 1 else np.broadcast_shapes(*shapes)
    except (ValueError, RuntimeError):  # NumPy broadcasts up to 32 axes
        whole = max((a.shape for a in arrays), key=len)  # the call itself raises the error that names the operands
        op.signature.bind(op.name, tuple(a.shape for a in arrays))
    each = [row_axis(op, (whole,) * len(arrays), axis, keepdims) for axis in axes]
    places = [axis + len(whole) for axis in each if axis is not None]
    if len(places) != len(axes) or len(set(places)) != len(places):
        raise ParameterError(f"{op.name}: axis is {shown(axes)}; it must be integers, each axis once")
    kept = [i for i in range(len(whole)) if i not in places]
    lead = tuple(whole[i] for i in kept)
    rows = (*lead, prod(whole[i] for i in places))
    moved = [np.broadcast_to(a, whole).transpose([*kept, *places]).reshape(rows) for a in arrays]
    final = tuple(1 if i in places else n for i, n in enumerate(whole)) if keepdims else lead
    if out is None:
        result = np.asarray(function(*moved, **given)).reshape(final)
        return wrap(result) if result.ndim else result[()]
    target = getattr(out, "array", out)
    if isinstance(target, np.ndarray) and target.shape != final:
        raise OutError(f"{op.name}: out has shape {target.shape}, but the result has {final}")
    if keepdims and isinstance(target, np.ndarray):
        target = target.squeeze(tuple(places))
    function(*moved, **given, out=target)
    return out


NAMES = {"_unusual": unusual, "_shorten": shorten, "_TruenoError": TruenoError, "__tracebackhide__": True}
"""What the generated functions use of this module; pytest hides their frames."""
