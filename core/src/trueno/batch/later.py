"""Execution in a worker thread, which is always tracked to its end."""

import asyncio
from collections.abc import Callable
from contextvars import copy_context

from trueno.aio import threads
from trueno.aio.calls import ended

Stopped = Callable[[], bool]


async def later(execute: Callable[[Stopped], None], over: Callable[[], None]) -> None:
    """Run `execute` in one of the worker threads of `trueno.aio`, in a copy of the caller's context.

    `execute` gets a function that says whether it should end early: once the awaiting task was cancelled.  That
    cancellation continues when `execute` has ended.  `over` is called when it has ended, or will never begin, also
    if the event loop and all waiting tasks are gone by then.
    """
    given_up: list[bool] = []
    if not threads.possible():
        try:
            await asyncio.sleep(0)
            execute(lambda: False)
        finally:
            over()
        return
    try:
        loop = asyncio.get_running_loop()
        work = threads.submit(copy_context().run, execute, lambda: bool(given_up))
    except BaseException:
        over()
        raise
    work.add_done_callback(lambda _: over())
    try:
        await asyncio.wrap_future(work, loop=loop)
    except BaseException as error:
        given_up.append(True)
        if isinstance(error, asyncio.CancelledError) and not work.cancel():
            await ended(work, loop)
        raise
    finally:
        del work  # it holds the error, whose traceback holds this frame
