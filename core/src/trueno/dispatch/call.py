"""The general path: every call that the fast path does not take.

It determines where the operands live, and passes the call to `trueno.dispatch.device` or `trueno.dispatch.host`.  If
the fast path has failed, this path returns the result or raises an error that explains the cause.
"""

from inspect import Signature
from typing import Any, Final

from trueno.discovery.protocol import Call
from trueno.dispatch import cache, host
from trueno.dispatch.coerce import unpack
from trueno.dispatch.operands import on_device
from trueno.dispatch.parameters import parameters as declared
from trueno.errors import ParameterError
from trueno.floatenv import ieee
from trueno.interop import calls
from trueno.ops.op import Op
from trueno.table import Table


def call(op: Op, operands: tuple[Any, ...], scalars: dict[str, Any], out: Any) -> Any:
    """Run `op` on operands that it accepts; raise the error that names the cause for all others.

    `scalars` holds the parameters by name, and `axis` and `keepdims` where the op has them.
    """
    return ENTRANCES[len(operands)](op, operands, scalars, out)


def _anew(op: Op, operands: tuple[Any, ...], scalars: dict[str, Any], out: Any) -> Any:
    """Run a call that no cached call matches."""
    if calls.foreign(operands, out):
        return calls.run(op, operands, scalars, out)
    operands, scalars = unpack(op, operands, scalars)
    data = on_device(op, operands)
    with ieee():  # numbers are rounded before a kernel, and results after it
        if data is None:
            return host.call(op, operands, scalars, out)
        from trueno.dispatch import device  # start-up

        return device.call(op, operands, data, scalars, out)


ENTRANCES: Final = Table(lambda operands: cache.written(operands, _anew))
"""The general path by number of operands: `call`, with one frame less."""


def request(op: Op, operands: tuple[Any, ...], parameters: dict[str, Any]) -> Call:
    """The selector's request for a call of `op`; an invalid call raises its errors."""
    try:
        bound = Signature(declared(op)).bind(*operands, **parameters)
    except TypeError as error:
        raise ParameterError(f"{op.name}: {error}") from None
    bound.apply_defaults()
    scalars = dict(bound.arguments)
    values = tuple(scalars.pop(name) for name in op.operands)
    scalars.pop("out", None)
    values, scalars = unpack(op, calls.bare(op, values), scalars)
    data = on_device(op, values)
    if data is None:
        return host.request(op, values, scalars)
    from trueno.dispatch import device  # start-up

    return device.request(op, data, scalars)


__all__ = ["ENTRANCES", "call", "request"]
