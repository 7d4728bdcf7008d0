"""Functions for host calls that are like an earlier one: each converts its operands and calls the kernel.

The source of a function contains only the steps that its call needs: it converts numbers, and copies, reorders,
broadcasts or reshapes arrays; shapes and kernel are bound.  Calls that need the same steps share one compiled source
(`_compiled`), so that a new shape costs a few microseconds.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from trueno.contiguous import LARGE, compact, is_plain
from trueno.discovery.protocol import Kernel
from trueno.dispatch.axes import OperandView, ResultView
from trueno.dispatch.coerce import number
from trueno.floatenv import standard
from trueno.ops.op import Op

NEVER = object()
"""No result: the general path, which also raises the errors, takes the call."""
NUMBERS = (float, int)
"""The classes of Python numbers, whose values are not part of a key."""
PATTERNS = 1024
"""The most sources that are kept compiled."""

Cached = Callable[..., Any]
"""`cached(*operands, out)` returns the result, or `NEVER`."""


def bound(
    kernel: Kernel, op: Op, params: tuple[float, ...], dtype: np.dtype[Any], operand_views: tuple[OperandView, ...],
    result_views: tuple[ResultView, ...], operands: tuple[Any, ...], out: Any,
) -> Cached:  # fmt: skip
    """`cached(*operands, out)` for calls like the one with `operands` and `out`; it returns `NEVER` without a result.

    The kernel itself checks for overlaps, as it does for the public function: `out` is passed to it unchanged.
    """
    values: dict[str, Any] = {"kernel": kernel, "op": op, "dtype": dtype, "most": float(np.finfo(dtype).max)}
    lines: list[str] = []
    if any(x.__class__ in NUMBERS for x in operands):  # rounded to nearest, whatever rounding mode the caller set
        lines.append("if not standard(): return NEVER")
    for i, (spec, x, view) in enumerate(zip(op.signature.inputs, operands, operand_views, strict=True)):
        lines += _operand(f"a{i}", x, view, spec.holds(dtype), values)
    own = out is not None and is_plain(out)  # the kernel may fill it
    filled, results = [], []
    ends: list[str] = []
    for k, (output, result) in enumerate(zip(op.signature.outputs, result_views, strict=True)):
        values |= {f"final{k}": result.final, f"holds{k}": output.holds(dtype)}
        lines.append(f"r{k} = out" if own else f"r{k} = empty(final{k}, holds{k})")
        filled.append(_result(f"r{k}", k, result, lines, ends, values))
        results.append(f"r{k}" if result.final else f"r{k}[()]")
    names = [f"a{i}" for i in range(len(operands))]
    numbers = [f"p{i}" for i in range(len(params))]
    values |= dict(zip(numbers, params, strict=True))
    lines += [f"if kernel({', '.join([*names, *numbers, *filled])}): return NEVER", *ends]
    if out is None:
        lines.append(f"return {', '.join(results)}")
    else:
        lines += ["return out"] if own else ["out[...] = r0", "return out"]
    return _compiled(tuple(values), tuple(names), tuple(lines))(**values)


def _operand(name: str, x: Any, view: OperandView, dtype: np.dtype[Any], values: dict[str, Any]) -> list[str]:
    """The lines that convert an operand to the kernel's shape."""
    lines = []
    if x.__class__ in NUMBERS:
        # `number` handles NaN and numbers beyond the dtype's range.
        lines.append(f"{name} = asarray({name}, dtype) if -most <= {name} <= most else number(op, {name}, dtype)")
        x = np.empty((), dtype)
    fixed = x.flags.forc  # whether shape and flags determine the strides, and so those in another order of axes
    if view.order is not None:
        values[f"o_{name}"] = view.order
        lines.append(f"{name} = {name}.transpose(o_{name})")
        x = x.transpose(view.order)
    shape = x.shape
    if view.expand is not None or not is_plain(x) or not (fixed or view.order is None):
        if view.expand is None and (not (fixed or view.order is None) or (x.ndim == 2 and x.size >= LARGE)):
            lines.append(f"{name} = compact({name})")
        elif view.expand is None and x.dtype.isnative:
            lines.append(f"{name} = {name}.copy()")  # in C order, and NumPy's fastest copy
        else:
            shape = view.expand or shape
            values |= {f"e_{name}": shape, f"d_{name}": dtype}
            lines += [f"b = empty(e_{name}, d_{name})", f"b[...] = {name}", f"{name} = b"]
    if shape != view.shape:
        values[f"s_{name}"] = view.shape
        lines.append(f"{name} = {name}.reshape(s_{name})")
    return lines


def _result(name: str, k: int, view: ResultView, lines: list[str], ends: list[str], values: dict[str, Any]) -> str:
    """The name of the array that the kernel fills; `lines` creates it, and `ends` processes it after the kernel."""
    if view.order is not None:
        values |= {f"order{k}": view.order, f"ordered{k}": view.ordered, f"shape{k}": view.shape}
        if np.empty(view.final, bool).transpose(view.order).flags.c_contiguous:
            lines.append(f"w{k} = {name}.transpose(order{k}).reshape(shape{k})")
        else:
            lines.append(f"w{k} = empty(shape{k}, holds{k})")
            ends.append(f"{name}.transpose(order{k})[...] = w{k}.reshape(ordered{k})")
    elif view.final != view.shape:
        values[f"shape{k}"] = view.shape
        lines.append(f"w{k} = {name}.reshape(shape{k})")
    else:
        return name
    return f"w{k}"


@lru_cache(maxsize=PATTERNS)
def _compiled(values: tuple[str, ...], operands: tuple[str, ...], lines: tuple[str, ...]) -> Callable[..., Cached]:
    """`bind(**values)`, which returns the function whose body is these lines."""
    body = "".join(f"        {line}\n" for line in lines)
    text = f"def bind({', '.join(values)}):\n    def cached({', '.join(operands)}, out):\n{body}    return cached\n"
    space: dict[str, Any] = {
        "empty": np.empty, "asarray": np.asarray, "number": number, "compact": compact, "standard": standard,
        "NEVER": NEVER,
    }  # fmt: skip
    exec(compile(text, "<trueno.dispatch.cache_host>", "exec"), space)
    return space["bind"]  # type: ignore[no-any-return]
