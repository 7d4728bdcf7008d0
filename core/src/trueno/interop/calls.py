"""Calls of public functions with arrays of other libraries.

The operands become arrays in the same memory, the public function runs as if the caller had passed those, and the
results become arrays of the caller's library.  One call has arrays of one library: beside a tensor a NumPy array is an
error, beside a pandas object it is not.  Numbers and lists stand beside both.  Beside a `Vector` or `Matrix`, results
are such.  A library that a plugin has added runs the whole call itself.
"""

from collections.abc import Callable, Iterable
from typing import Any, Final, cast

import numpy as np

from trueno.errors import DtypeError, OutError
from trueno.interop import frames, tensors
from trueno.interop.kinds import library
from trueno.interop.library import Library
from trueno.interop.plugins import Runner
from trueno.ops.op import Op

FUNCTIONS: Final[dict[str, Callable[..., Any]]] = {}
"""The public functions that exist, by op; `trueno.dispatch.function` fills it."""
FAST: Final[dict[type, tuple[Callable[..., Any], ...]]] = {}
"""The short way, by the class of the first operand: a function from an operand to a NumPy array or number, or to None
where `run` must take the call; the same for indices; one from an array to a result; and one from any other result.
"""


def short_way(op: Op, parameters: Iterable[str]) -> list[str]:
    """The lines of a public function that take the short way, for a call that its own fast path refused."""
    inputs = op.signature.inputs
    if any(spec.type not in ("", "index") for spec in inputs):
        return []
    first, names = op.operands[0], [f"_a{i}" for i in range(len(inputs))]
    taken = [f"{a} = {'_whole' if spec.index else '_take'}({spec.name})" for a, spec in zip(names, inputs, strict=True)]
    given = ", ".join([*names, *(f"{name}={name}" for name in parameters)])
    several = len(op.signature.outputs) > 1  # out is a tuple then
    return [
        f"    if {first}.__class__ is not _ndarray and (_ways := _FAST.get({first}.__class__)) is not None:",
        "        _take, _whole, _back, _give = _ways",
        *(f"        {line}" for line in taken),
        f"        if {' and '.join(f'{a} is not None' for a in names)}:",
        "            if out is None:",
        f"                _result = {op.name}({given})",
        "                return _back(_result) if _result.__class__ is _ndarray else _give(_result)",
        f"            _out = {None if several else f'_take(out) if out.__class__ is {first}.__class__ else None'}",
        "            if _out is not None:",
        f"                {op.name}({given}, out=_out)",
        "                return out",
    ]


def foreign(operands: tuple[Any, ...], out: Any) -> bool:
    """Whether an operand, or an array of `out`, is of another library."""
    for x in operands:
        if x.__class__ is not np.ndarray and library(type(x)) is not None:
            return True
    if out is None or out.__class__ is np.ndarray:
        return False
    return any(library(type(x)) is not None for x in _listed(out))


def runner(operands: tuple[Any, ...], out: Any) -> Runner | None:
    """The library of an operand, or of an array of `out`, that runs calls itself; None if there is none."""
    for x in (*operands, *_listed(out)):
        known = None if x.__class__ is np.ndarray else library(type(x))
        if hasattr(known, "call"):
            return cast(Runner, known)
    return None


def bare(op: Op, operands: tuple[Any, ...]) -> tuple[Any, ...]:
    """The operands of a call that is not run, with arrays of other libraries as those that a kernel would get."""
    if not foreign(operands, None):
        return operands
    named = {spec.name: x for spec, x in zip(op.signature.inputs, operands, strict=False)}
    return (*_converted(op, _one(op, named, ()), named, {}).values(), *operands[len(named) :])


def host(what: str, name: str, x: Any) -> Any:
    """An array of another library as a NumPy array in the same memory; any other object unchanged."""
    known = library(type(x))
    return x if known is None else known.host(what, name, x)


def taken(what: str, name: str, x: Any) -> Any:
    """An array of another library as NumPy's, or its device's, in the same memory; any other object unchanged."""
    known = library(type(x))
    return x if known is None else known.take(what, name, x)


def aimed(what: str, x: Any) -> Any:
    """`out`, an array of any library, as NumPy's or its device's in the same memory; OutError where there is none."""
    known = None if x.__class__ is np.ndarray else library(type(x))
    return x if known is None else known.target(what, "out", x)


def returned(like: Any, result: Any) -> Any:
    """A result as an array of the library of `like`; itself beside arrays and pandas objects."""
    known = library(type(like))
    return result if known is None or known.MIXES else known.give(result, like)


def run(op: Op, operands: tuple[Any, ...], scalars: dict[str, Any], out: Any) -> Any:
    """Run a call with arrays of another library; the results are such arrays, or what the caller passed as `out`."""
    own = runner(operands, out)
    if own is not None:
        return own.call(op, operands, scalars, out)
    outs = _listed(out)
    named = {spec.name: x for spec, x in zip(op.signature.inputs, operands, strict=True)}
    tensors.hasten(FAST)
    used, owner = _one(op, named, outs)
    with used.context(named.get(owner, outs[-1] if outs else None)):
        memo: dict[int, Any] = {}
        arrays = _converted(op, (used, owner), named, memo)
        if outs:
            targets = tuple(_target(op, used, x, memo) for x in outs)
            FUNCTIONS[op.name](
                *arrays.values(), **scalars, out=targets if isinstance(out, (tuple, list)) else targets[0]
            )
            return out if len(op.signature.outputs) == 1 else tuple(outs)
        result = FUNCTIONS[op.name](*arrays.values(), **scalars)
        if any(hasattr(type(x), "_wrap_result") for x in operands):
            return result
        results = result if isinstance(result, tuple) else (result,)
        if used is frames:
            given = frames.labelled(op, operands, results, scalars)
        else:
            given = tuple(used.give(r, named[owner]) for r in results)
    return given if isinstance(result, tuple) else given[0]


def _listed(out: Any) -> tuple[Any, ...]:
    return () if out is None else tuple(out) if isinstance(out, (tuple, list)) else (out,)


def _one(op: Op, named: dict[str, Any], outs: tuple[Any, ...]) -> tuple[Library, str]:
    """The library of a call, and the operand, or `out`, that has it; DtypeError for a second one."""
    used, owner = None, ""
    for name, x in [*named.items(), *(("out", x) for x in outs)]:
        other = None if x.__class__ is np.ndarray else library(type(x))
        if other is None:
            continue
        if used is not None and other is not used:
            problem = f"{owner} is a {used.NOUN}, but {name} is a {other.NOUN}"
            raise DtypeError(f"{op.name}: {problem}; give both as one kind of array")
        if used is None:
            used, owner = other, name
    assert used is not None
    if used.MIXES:
        return used, owner
    for spec in op.signature.inputs:
        x = named.get(spec.name)
        if isinstance(x, np.ndarray) and not spec.blocks:  # the blocks of a QuantizedMatrix are NumPy's
            raise _mixed(op, used, owner, spec.name, OutError if owner == "out" else DtypeError)
    if owner != "out" and any(isinstance(x, np.ndarray) for x in outs):
        raise _mixed(op, used, owner, "out", OutError)
    return used, owner


def _mixed(op: Op, used: Library, owner: str, name: str, error: type[Exception]) -> Exception:
    return error(
        f"{op.name}: {owner} is a {used.NOUN}, but {name} is a NumPy array; convert one: {used.convert(owner, name)}"
    )


def _converted(op: Op, used: tuple[Library, str], named: dict[str, Any], memo: dict[int, Any]) -> dict[str, Any]:
    """The operands as arrays that the public functions accept; one object for each that the caller passed."""
    arrays = {}
    for spec, (name, x) in zip(op.signature.inputs, named.items(), strict=False):
        if x.__class__ is not np.ndarray and library(type(x)) is not None:
            wrong = used[0].wrong(op.name, name, x) if not spec.type else None
            if wrong is not None:
                raise wrong
            if id(x) not in memo:
                memo[id(x)] = used[0].take(op.name, name, x)
            x = memo[id(x)]
        arrays[name] = x
    return arrays


def _target(op: Op, used: Library, x: Any, memo: dict[int, Any]) -> Any:
    if x.__class__ is np.ndarray or library(type(x)) is None:
        return x
    if id(x) not in memo or used.MIXES:  # pandas has no targets at all
        memo[id(x)] = used.target(op.name, "out", x)
    return memo[id(x)]
