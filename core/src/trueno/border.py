"""The border of the ops' public functions: what they have beside their fast path and the general path.

That is documentation for `help` and `inspect`, tracebacks without internal frames, sentences for keywords of other
libraries, and reductions over several axes.  None of it is on the path of a call that the fast path takes.
"""

import inspect
from collections.abc import Callable, Mapping
from math import prod
from typing import Any, NoReturn

import numpy as np

from trueno.dispatch.axes import row_axis
from trueno.dispatch.coerce import coerce, shown
from trueno.dispatch.parameters import parameters
from trueno.dispatch.transfer import device_of
from trueno.errors import OutError, ParameterError, SettingError, TruenoError, UnknownKeyword
from trueno.hints import excess, keyword
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
    function.__doc__ = f"{op.doc}\n\nSignature: {op.signature.text}\nArguments:{_arguments(op)}"
    function.__module__ = "trueno"
    function.__annotations__ = {p.name: p.annotation for p in listed}
    function.__signature__ = inspect.Signature(listed)
    function.__wrapped__ = op.body


TAKEN = {
    "": "of one float dtype; a list becomes float32, a number takes the dtype of the others",
    "index": "whole numbers",
    "blocks": "a QuantizedMatrix, or its bytes",
    "cache": "an array of float32, float16 or bfloat16, or bytes",
    "bytes": "of uint8",
}
"""What operands of a type are, for `help`."""


def _arguments(op: Op) -> str:
    """The operands and parameters of an op's function, a line for each, for `help`."""
    kinds = {s.type: [t.name for t in op.signature.inputs if t.type == s.type] for s in op.signature.inputs}
    lines = [f"{', '.join(names)}: {TAKEN[kind]}" for kind, names in kinds.items()]
    for p in op.params:
        choices = " or ".join(map(repr, p.choices)) if len(p.choices) < 6 else "one of ggml's formats"
        rules = " and ".join(rule for rule in op.rules if p.name in rule.split())
        kind = {float: "a number", int: "a whole number", bool: "True or False"}.get(p.type, "")
        lines.append(f"{p.name}: {choices or kind}{'; ' + rules if rules else ''}")
    if op.over is not None and not op.structured:
        several = ", some as a tuple" * (not any(spec.index for spec in op.signature.outputs))
        lines.append(
            f"axis: that of the rows{several + ', or None for all' if op.reduces else ''}; by default the last"
        )
        lines += ["keepdims: whether the result keeps that axis, with one element"] * op.reduces
    arrays = "arrays" if len(op.signature.outputs) > 1 else "an array"
    lines.append(f"out: {arrays} for the result, and what the call then returns")
    return "".join(f"\n    {line}" for line in lines)


def _shortened(lines: list[str]) -> list[str]:
    """The lines in a `try` whose errors end at the caller's line."""
    return ["    try:", *lines, "    except _TruenoError as _error:", "        _shorten(_error)", "        raise"]


def refusal() -> list[str]:
    """The lines of a generated function that refuse `_more` and `_other`: arguments that the op does not have."""
    return ["    if _more or _other:", *("    " + x for x in _shortened(["        _refused(_op, _more, _other)"]))]


def ending(name: str, passed: str, returned: Callable[[str, str], list[str]], *, along: bool) -> list[str]:
    """The last lines of a generated function: the general path, which is called with `passed`, and its errors.

    returned: the lines that return a value, at an indentation.  along: whether the op has an axis.
    """
    over = ["        if axis.__class__ is tuple:", f"            return _over(_op, {name}, {passed})"]
    return _shortened([*(over if along else []), *returned("        ", f"_general(_op, {passed})")])


def refused(op: Op, more: tuple[Any, ...], other: Mapping[str, Any], *, out: bool = True) -> NoReturn:
    """Raise UnknownKeyword for values by position, or for keywords, that the op does not have.

    out: whether the function has the keyword `out`.
    """
    listed = [p for p in parameters(op) if out or p.name != "out"]
    if more:
        by_place = [p.name for p in listed if p.kind is not p.KEYWORD_ONLY]
        raise UnknownKeyword(excess(op.name, by_place, more, [p.name for p in listed if p.kind is p.KEYWORD_ONLY]))
    name = next(iter(other))
    known = [p.name for p in listed if p.default is not p.empty]
    raise UnknownKeyword(keyword(op.name, name, other[name], known, op.operands))


def over(
    op: Op, function: Callable[..., Any], operands: tuple[Any, ...], scalars: Mapping[str, Any], out: Any
) -> Any:  # fmt: skip
    """A reduction over several axes: they become the last one of a view or a copy; ParameterError if there is none."""
    given = dict(scalars)
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


NAMES = {
    "_over": over, "_refused": refused, "_shorten": shorten, "_TruenoError": TruenoError, "__tracebackhide__": True,
}  # fmt: skip
"""What the generated functions use of this module; pytest hides their frames."""
