"""Asynchronous calls: inline, or in a worker thread and awaited."""

import asyncio
import inspect
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from contextvars import copy_context
from threading import local
from time import perf_counter
from typing import Any

from trueno.aio import threads, turns
from trueno.aio.inline import PROMISE, kind
from trueno.border import refused
from trueno.dispatch.function import function
from trueno.dispatch.parameters import parameters
from trueno.ops.op import Op


class _Spent(local):
    """Seconds for which calls have blocked this thread's event loop since its last turn."""

    seconds = 0.0


_spent = _Spent()


async def call(op: Op, run: Callable[..., Any], operands: tuple[Any, ...], given: dict[str, Any], out: Any) -> Any:
    """`run(*operands, **given, out=out)`, where it blocks the event loop least."""
    inline_kind = kind(op, operands, given)
    if inline_kind is None:
        return await away(run, operands, given if out is None else {**given, "out": out}, keep=out is not None)
    if _spent.seconds > PROMISE:
        _spent.seconds = 0.0
        await asyncio.sleep(0)
    start = perf_counter()
    try:
        return run(*operands, **given, out=out)
    finally:
        seconds = perf_counter() - start
        _spent.seconds += seconds
        if seconds > PROMISE:
            inline_kind.late(seconds)


async def away(run: Callable[..., Any], args: tuple[Any, ...], kw: dict[str, Any], *, keep: bool = False) -> Any:
    """Call `run` in a worker thread, in a copy of the caller's context.

    When the caller is cancelled, a call that has not begun never begins, and the result of one that has is dropped.
    keep: it writes into the caller's arrays, so one that has begun is waited for before the cancellation continues.
    """
    if not threads.possible():
        await asyncio.sleep(0)
        return await turns.run(run, args, kw)
    loop = asyncio.get_running_loop()
    work = threads.submit(copy_context().run, run, *args, **kw)
    try:
        return await asyncio.wrap_future(work, loop=loop)
    except asyncio.CancelledError:
        if keep and not work.cancel():
            await ended(work, loop)
        raise
    finally:
        del work  # it holds the error, whose traceback holds this frame, and with it the operands


async def ended(work: "Future[Any]", loop: asyncio.AbstractEventLoop) -> None:
    """Wait until a call has ended, whatever happens to the waiting task; its result or error is dropped."""
    over = asyncio.Event()

    def tell(_: "Future[Any]") -> None:
        with suppress(RuntimeError):  # the loop was closed under a task that was still waiting
            loop.call_soon_threadsafe(over.set)

    work.add_done_callback(tell)
    while not work.done():
        with suppress(asyncio.CancelledError):  # again; the first one will be raised
            await over.wait()


def build(op: Op) -> Callable[..., Coroutine[Any, Any, Any]]:
    """The asynchronous function of an op, with the op's signature."""
    listed = parameters(op)
    positional = [p for p in listed if p.kind is not p.KEYWORD_ONLY]
    keyword = [p for p in listed if p.kind is p.KEYWORD_ONLY]

    def declared(p: inspect.Parameter) -> str:
        return p.name if p.default is p.empty else f"{p.name}={p.default!r}"

    shown = ", ".join([*map(declared, positional), "*_more", *map(declared, keyword), "**_other"])
    scalars = ", ".join(f"{p.name!r}: {p.name}" for p in listed if p.name != "out" and p.name not in op.operands)
    operands = ", ".join(op.operands)
    source = f"async def {op.name}({shown}):\n    if _more or _other:\n        _refused(_op, _more, _other)\n"
    source += f"    return await _call(_op, _run, ({operands},), {{{scalars}}}, out)\n"
    run = function(op.name)
    namespace: dict[str, Any] = {"_call": call, "_op": op, "_refused": refused, "_run": run}
    exec(compile(source, f"<trueno.aio.{op.name}>", "exec"), namespace)
    wrapper: Any = namespace[op.name]
    wrapper.__doc__ = run.__doc__
    wrapper.__module__ = "trueno.aio"
    wrapper.__signature__ = inspect.Signature(listed)
    wrapper.__annotations__ = {p.name: p.annotation for p in listed}
    wrapper.op = op
    return wrapper  # type: ignore[no-any-return]
