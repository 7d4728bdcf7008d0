"""The call cache: calls that are like an earlier one go straight to the kernel.

Its key consists of op, operands and scalars: class, shape, dtype and flags of host arrays, class, shape and dtype of
device arrays, and only the class of Python numbers among the operands.  A state keeps the result of the first such
call: a function on the host (`trueno.dispatch.cache_host`), a `CachedCall` on a device.  Any other call takes the
general path, which also raises the errors.
"""

from collections.abc import Callable
from math import copysign
from typing import Any, Final, NamedTuple

import numpy as np

from trueno.discovery import registry
from trueno.discovery.entry import Entry
from trueno.discovery.protocol import Kernel, Refused
from trueno.dispatch import state
from trueno.dispatch.cache_host import NEVER, NUMBERS, Cached
from trueno.dispatch.fallback import passes, wrapping_errors
from trueno.dispatch.state import State
from trueno.dispatch.transfer import device_of
from trueno.ops.op import Op
from trueno.select import policy
from trueno.table import Table

Shape = tuple[int, ...]
KEPT = 1024
"""The most calls that a state remembers; one more call clears the cache."""
PLAIN = (int, str, bool)


class CachedCall(NamedTuple):
    """What a state remembers of a successful call on a device.

    shaped: the shapes of operands and results that the kernel requires; None if the arrays have them already.
    direct: whether a kernel that fails leaves the caller's `out` unchanged.
    """

    entry: Entry
    kernel: Kernel
    empty: Callable[[Shape, np.dtype[Any]], Any]
    params: tuple[float, ...]
    results: tuple[tuple[Shape, np.dtype[Any]], ...]
    shaped: tuple[Shape, ...] | None
    direct: bool


def _device_key(op: Op, operands: tuple[Any, ...], scalars: dict[str, Any]) -> tuple[Any, ...] | None:
    """The key of a call on a device; None for a call that is not kept.  `written` generates code for the same key."""
    parts: list[Any] = [op.name]
    for x in operands:
        parts += x.__class__, x.shape, x.dtype
    parts += map(device_of, operands) if registry.numbered else ()
    return with_scalars(tuple(parts), scalars)


def _host_key(op: Op, operands: tuple[Any, ...], scalars: dict[str, Any], out: Any) -> tuple[Any, ...] | None:
    """The key of a call on the host; None for a call that is not kept."""
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
    """The key of a call, from the key of its operands and from its scalars; None for a call that is not kept.

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
    """Run a call that has parameters, several results, or arrays that the kernel requires in other shapes."""
    entry, kernel, empty, params, results, shaped, direct = ready
    try:
        if out is None:
            outs = [empty(shape, dtype) for shape, dtype in results]
        else:
            outs = [out]
            shape, dtype = results[0]
            if not direct or len(results) > 1 or out.__class__ is not operands[0].__class__:
                return NEVER
            if out.shape != shape or out.dtype != dtype or (registry.numbered and device_of(out) is not entry):
                return NEVER
        if shaped is None:
            status = kernel(*operands, *params, *outs)
        elif not all(map(in_order, (*operands, *outs))):  # a reshape would copy
            return NEVER
        else:
            views = [x if x.shape == s else x.reshape(s) for x, s in zip((*operands, *outs), shaped, strict=True)]
            status = kernel(*views[: len(operands)], *params, *views[len(operands) :])
    except Refused:
        return NEVER
    except Exception:  # a context manager around the whole block costs a microsecond, even without an error
        with wrapping_errors(op.name, entry.name):
            raise
    if status:
        return NEVER
    return outs[0] if len(outs) == 1 else tuple(outs)


def in_order(x: Any) -> bool:
    """Whether an array is in C order, so that a reshape does not copy; a type without flags always is."""
    flags = getattr(x, "flags", None)
    return flags is None or bool(flags.c_contiguous)


def store(now: State, op: Op, operands: tuple[Any, ...], scalars: dict[str, Any], cached: CachedCall,
          generation: int) -> None:  # fmt: skip
    """Remember a successful call on a device, unless plans were dropped since `generation`."""
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
    """Remember a successful call on the host, as `store` does, when it occurs a second time.

    A parameter that changes with every call, such as a learning rate, would otherwise cost one function per call.
    """
    now = state.current.get()
    call = _host_key(op, operands, scalars, out)
    if call is None or policy.nested():
        return
    for spec, x in zip(op.signature.inputs, operands, strict=True):
        if spec.type if x.__class__ in NUMBERS else x.dtype.newbyteorder("=") != spec.holds(dtype):
            return  # indices that are converted to int64 first
    _put(now, call, bind() if call in now.calls else _seen, generation)


def _seen(*_: Any) -> Any:
    """A placeholder for a call that has occurred once."""
    return NEVER


def _put(now: State, call: tuple[Any, ...] | None, cached: Any, generation: int) -> None:
    if call is None or generation != state.generation:
        return
    if len(now.calls) >= KEPT:
        now.calls.clear()
    now.calls[call] = cached


def written(operands: int, otherwise: Callable[..., Any]) -> Callable[..., Any]:
    """`run(op, operands, scalars, out)` for this number of operands: the result, or that of `otherwise`.

    The code is generated because loops over operands would take as long as everything else in it.
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
        "        if numbered:",
        "            key = *key, *map(device_of, operands)",
        "        cached = current().calls.get(with_scalars(key, scalars) if scalars else key)",
        "    except Exception:",  # an argument that cannot be a key, or is not an array
        "        cached = None",
        "    if cached is None:",
        "        return otherwise(op, operands, scalars, out)",
        "    ready, load, kernel, shape, dtype = cached",
        "    load()",  # raises if the device is lost, or belongs to the parent of a fork
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
        "        ) and not (numbered and device_of(out) is not ready.entry):",
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
        "otherwise": otherwise, "numbered": registry.numbered, "device_of": device_of,
    }  # fmt: skip
    exec(compile("\n".join([*head, *host, *device]), "<trueno.dispatch.cache>", "exec"), space)
    return space["run"]  # type: ignore[no-any-return]


def _host_part(i: int) -> list[str]:
    """The lines that compute operand `i`'s part of the key, for a call whose first operand is on the host."""
    lines = [f"        k{i} = a{i}.__class__"] if i else []
    lines += [
        f"        if k{i} is ndarray:",
        f"            s{i} = a{i}.shape; d{i} = a{i}.dtype; f{i} = a{i}.flags.num",
        f"        elif k{i} is float or k{i} is int:",
        f"            s{i} = d{i} = None; f{i} = k{i}",
    ]
    return [*lines, "        else:", "            return otherwise(op, operands, scalars, out)"] if i else lines


RUNS: Final = Table(lambda operands: written(operands, _seen))
"""By number of operands: `run(op, operands, scalars, out)`, which returns the result or `NEVER`."""
