"""The call cache: calls that are like an earlier one go straight to the kernel.

Its key is op, operands and scalars: of arrays of the host class, shape, dtype and flags, of arrays of a device class,
shape and dtype, of Python's numbers among the operands the class alone.  A state keeps what the first such call found
out: of the host a function (`trueno.dispatch.cache_host`), of a device a `CachedCall`.  Anything unlike goes the long
way, which also finds the words for errors.
"""

from collections.abc import Callable
from math import copysign
from typing import Any, Final, NamedTuple

import numpy as np

from trueno.discovery.entry import Entry
from trueno.discovery.protocol import Kernel, Refused
from trueno.dispatch import state
from trueno.dispatch.cache_host import NEVER, NUMBERS, Cached
from trueno.dispatch.fallback import passes, wrapping_errors
from trueno.dispatch.state import State
from trueno.dispatch.table import Table
from trueno.ops.op import Op
from trueno.select import policy

Shape = tuple[int, ...]
KEPT = 1024
"""Calls that a state remembers; then it begins again."""
PLAIN = (int, str, bool)


class CachedCall(NamedTuple):
    """Of a call that went well.

    shaped: shapes as the kernel wants its arrays, operands and results, None where they are those already.
    direct: whether a kernel that fails leaves an `out` of the caller's as it was.
    """

    entry: Entry
    kernel: Kernel
    empty: Callable[[Shape, np.dtype[Any]], Any]
    params: tuple[float, ...]
    results: tuple[tuple[Shape, np.dtype[Any]], ...]
    shaped: tuple[Shape, ...] | None
    direct: bool


def _device_key(op: Op, operands: tuple[Any, ...], scalars: dict[str, Any]) -> tuple[Any, ...] | None:
    """What makes calls on a device alike; None for one that is not kept.  `written` has it in code of its own."""
    parts: list[Any] = [op.name]
    for x in operands:
        parts += x.__class__, x.shape, x.dtype
    return with_scalars(tuple(parts), scalars)


def _host_key(op: Op, operands: tuple[Any, ...], scalars: dict[str, Any], out: Any) -> tuple[Any, ...] | None:
    """The same of calls on the host."""
    parts: list[Any] = [op.name]
    for x in operands:
        kind = x.__class__
        if kind is np.ndarray:
            parts += x.shape, x.dtype, x.flags.num
        elif kind in NUMBERS:
            parts += None, None, kind
        else:
            return None
    if out is not None:
        if out.__class__ is not np.ndarray:
            return None
        parts += out.shape, out.dtype, out.flags.num
    return with_scalars(tuple(parts), scalars)


def with_scalars(operands: tuple[Any, ...], scalars: dict[str, Any]) -> tuple[Any, ...] | None:
    """The key of a call: of its operands, which are given, and of these scalars; None for one that is not kept.

    Equal keys must mean equal calls: 1, 1.0 and True are equal, as are 0.0 and −0.0, and NaN is not even itself.  An
    object of any other class may be another number the next time, or hide a −0.0.
    """
    parts: list[Any] = []
    for value in scalars.values():
        kind = value.__class__
        if kind is float:
            if value != value or (value == 0.0 and copysign(1.0, value) < 0):
                return None
        elif kind not in PLAIN and value is not None:
            return None
        parts += kind, value
    return (*operands, *parts)


def _at_length(op: Op, ready: CachedCall, operands: tuple[Any, ...], out: Any) -> Any:
    """A call with anything beside its operands and one result, whose shapes the kernel may want otherwise."""
    entry, kernel, empty, params, results, shaped, direct = ready
    try:
        if out is None:
            outs = [empty(shape, dtype) for shape, dtype in results]
        else:
            outs = [out]
            shape, dtype = results[0]
            if not direct or len(results) > 1 or out.__class__ is not operands[0].__class__:
                return NEVER
            if out.shape != shape or out.dtype != dtype:
                return NEVER
        if shaped is None:
            status = kernel(*operands, *params, *outs)
        elif not all(map(in_order, (*operands, *outs))):  # another shape would be a copy
            return NEVER
        else:
            views = [x if x.shape == s else x.reshape(s) for x, s in zip((*operands, *outs), shaped, strict=True)]
            status = kernel(*views[: len(operands)], *params, *views[len(operands) :])
    except Refused:
        return NEVER
    except Exception:  # a context manager around all of it takes a microsecond, even where nothing is wrong
        with wrapping_errors(op.name, entry.name):
            raise
    if status:
        return NEVER
    return outs[0] if len(outs) == 1 else tuple(outs)


def in_order(x: Any) -> bool:
    """Whether an array's elements lie in C order, as those of types that cannot say do: a reshape is no copy then."""
    flags = getattr(x, "flags", None)
    return flags is None or bool(flags.c_contiguous)


def store(now: State, op: Op, operands: tuple[Any, ...], scalars: dict[str, Any], cached: CachedCall,
          generation: int) -> None:  # fmt: skip
    """Remember a device's call that went well, unless plans were dropped since `generation`."""
    try:
        call = _device_key(op, operands, scalars)
        hash(call)
    except (TypeError, AttributeError):
        return
    shape, dtype = cached.results[0]
    kernel = None
    if len(cached.results) == 1 and not cached.params:
        bind = getattr(cached.kernel, "bind", None)
        if bind is not None:
            kernel = bind(cached.shaped or (*(tuple(x.shape) for x in operands), shape))
        elif cached.shaped is None:
            kernel = cached.kernel
    _put(now, call, (cached, cached.entry.load, kernel, shape, dtype), generation)


def store_host(op: Op, operands: tuple[Any, ...], scalars: dict[str, Any], out: Any, dtype: np.dtype[Any],
               bind: Callable[[], Cached], generation: int) -> None:  # fmt: skip
    """Remember a call on the host that went well, as `store` does, once it came a second time.

    A parameter that changes with every call, as a learning rate does, would otherwise cost a function each time.
    """
    now = state.current.get()
    call = _host_key(op, operands, scalars, out)
    if call is None or policy.nested():
        return
    for spec, x in zip(op.signature.inputs, operands, strict=True):
        if spec.type if x.__class__ in NUMBERS else x.dtype.newbyteorder("=") != spec.holds(dtype):
            return  # indices that become int64 first
    _put(now, call, bind() if call in now.calls else _seen, generation)


def _seen(*_: Any) -> Any:
    """Stands for a call that came once."""
    return NEVER


def _put(now: State, call: tuple[Any, ...] | None, cached: Any, generation: int) -> None:
    if call is None or generation != state.generation:
        return
    if len(now.calls) >= KEPT:
        now.calls.clear()
    now.calls[call] = cached


def written(operands: int, otherwise: Callable[..., Any]) -> Callable[..., Any]:
    """`run(op, operands, scalars, out)` for so many operands: the result, or what `otherwise` gives for the same.

    Loops over operands would take as long as the rest of it.
    """
    names = [f"a{i}" for i in range(operands)]
    listed = ", ".join(names)
    host = [
        "    if k0 is ndarray or k0 is float or k0 is int:",
        *(line for i in range(operands) for line in _host_part(i)),
        f"        key = op.name, {', '.join(f's{i}, d{i}, f{i}' for i in range(operands))}",
        "        if out is not None:",
        "            if out.__class__ is not ndarray:",
        "                return otherwise(op, operands, scalars, out)",
        "            key = *key, out.shape, out.dtype, out.flags.num",
        "        cached = current().calls.get(with_scalars(key, scalars) if scalars else key)",
        "        if cached is not None:",
        "            try:",
        f"                result = cached({listed}, out)",
        "                if result is not NEVER:",
        "                    return result",
        "            except Refused:",
        "                pass",
        "            except BaseException as error:",
        "                if passes(error):",
        "                    raise",
        "        return otherwise(op, operands, scalars, out)",
    ]
    device = [
        "    try:",
        f"        key = op.name, {', '.join(f'{x}.__class__, {x}.shape, {x}.dtype' for x in names)}",
        "        cached = current().calls.get(with_scalars(key, scalars) if scalars else key)",
        "    except Exception:",  # what cannot be a key, or is not an array
        "        cached = None",
        "    if cached is None:",
        "        return otherwise(op, operands, scalars, out)",
        "    ready, load, kernel, shape, dtype = cached",
        "    load()",  # a device that is lost, or stayed in the parent, says so
        "    if kernel is None:",
        "        result = at_length(op, ready, operands, out)",
        "        return otherwise(op, operands, scalars, out) if result is NEVER else result",
        "    try:",
        "        if out is None:",
        "            result = ready.empty(shape, dtype)",
        f"            if not kernel({listed}, result):",
        "                return result",
        "        elif ready.direct and out.__class__ is k0 and out.shape == shape and (",
        "            out.dtype is dtype or out.dtype == dtype",
        "        ):",
        f"            if not kernel({listed}, out):",
        "                return out",
        "    except Refused:",
        "        pass",
        "    except Exception:",
        "        with wrapping_errors(op.name, ready.entry.name):",
        "            raise",
        "    return otherwise(op, operands, scalars, out)",
    ]
    head = ["def run(op, operands, scalars, out):", f"    {listed}, = operands", "    k0 = a0.__class__"]
    space: dict[str, Any] = {
        "current": state.current.get, "with_scalars": with_scalars, "NEVER": NEVER, "at_length": _at_length,
        "wrapping_errors": wrapping_errors, "Refused": Refused, "passes": passes, "ndarray": np.ndarray,
        "otherwise": otherwise,
    }  # fmt: skip
    exec(compile("\n".join([*head, *host, *device]), "<trueno.dispatch.cache>", "exec"), space)
    return space["run"]  # type: ignore[no-any-return]


def _host_part(i: int) -> list[str]:
    """Lines that make operand `i`'s part of the key, of a call whose first operand is one of the host's."""
    lines = [f"        k{i} = a{i}.__class__"] if i else []
    lines += [
        f"        if k{i} is ndarray:",
        f"            s{i} = a{i}.shape; d{i} = a{i}.dtype; f{i} = a{i}.flags.num",
        f"        elif k{i} is float or k{i} is int:",
        f"            s{i} = d{i} = None; f{i} = k{i}",
    ]
    return [*lines, "        else:", "            return otherwise(op, operands, scalars, out)"] if i else lines


RUNS: Final = Table(lambda operands: written(operands, _seen))
"""`run(op, operands, scalars, out)` by the number of operands: the result, or `NEVER`."""
