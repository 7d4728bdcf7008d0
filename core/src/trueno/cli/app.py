"""The commands, put together, and their common handling of errors."""

import errno
import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from trueno.cli import (
    bench,
    calibrate,
    conformance,
    demo,
    doctor,
    explain,
    extensions,
    gguf,
    new_backend,
    ops,
    warmup,
)
from trueno.cli.report import complain, screen
from trueno.errors import TruenoError, TruenoWarning
from trueno.escape import escaped


@contextmanager
def _plain_warnings() -> Iterator[None]:
    """Print Trueno's own warnings as one line each; leave all others as they are."""
    with warnings.catch_warnings():
        warnings.simplefilter("always", TruenoWarning)
        plainly = warnings.showwarning

        def show(message: Any, category: type[Warning], *rest: Any, **kw: Any) -> None:
            if issubclass(category, TruenoWarning):
                complain(f"warning: {message}")
            else:
                plainly(message, category, *rest, **kw)

        warnings.showwarning = show
        yield


_UsageError: Any = typer.BadParameter.__base__  # of click, or of the click inside typer
_HELP = "NoArgsIsHelpError"  # a usage error whose message is the help text; older versions of click have no such class


@contextmanager
def _plain_usage() -> Iterator[None]:
    """typer's message about a wrong command line, which typer prints itself, quotes words of it."""
    try:
        yield
    except _UsageError as error:
        if error.__class__.__name__ != _HELP:
            error.message = escaped(error.message)
        raise


PIPE_CLOSED, NOT_WRITTEN = 141, 74
"""Exit codes if the report could not be written: that of a process that SIGPIPE ended, and EX_IOERR."""
UNWRITABLE = (errno.EPIPE, errno.ENOSPC, errno.EBADF, errno.EIO)


def _open_streams() -> None:
    """If stdout or stderr was closed (`>&-`), print nothing; a file opened later must not get its number."""
    for number, name in ((1, "stdout"), (2, "stderr")):
        if getattr(sys, name) is None:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            if nowhere != number:
                os.dup2(nowhere, number)
                os.close(nowhere)
            setattr(sys, name, os.fdopen(number, "w", encoding="utf-8", errors="replace", closefd=False))


def _unwritable(error: OSError) -> int:
    """Report that the report could not be written, unless its reader has gone; return the exit code."""
    nowhere = os.open(os.devnull, os.O_WRONLY)  # Python flushes the rest when it ends
    os.dup2(nowhere, 1)
    if error.errno == errno.EPIPE:
        return PIPE_CLOSED
    with suppress(OSError):
        complain(f"stdout cannot be written: {error.strerror}")
    return NOT_WRITTEN


class Group(TyperGroup):
    """Prints Trueno's deliberate errors in one line and exits with 2; other errors are bugs and shown in full.

    Plugins provide commands only when a name is not the core's, or all are listed: a core command runs
    without them, whatever is wrong with them.
    """

    _extended = False

    def make_context(self, *args: Any, **extra: Any) -> Any:
        with _plain_usage():
            return super().make_context(*args, **extra)

    def invoke(self, ctx: Any) -> Any:  # a Context of click, or of the click inside typer
        _open_streams()
        try:
            with _plain_warnings(), _plain_usage():
                try:
                    return super().invoke(ctx)
                except TruenoError as error:
                    complain(str(error))
                    raise typer.Exit(2) from None
                finally:
                    sys.stdout.flush()  # not at the end of Python, where a failure could not be reported
        except OSError as error:
            if error.errno not in UNWRITABLE:
                raise
            raise typer.Exit(_unwritable(error)) from None

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in self.commands:
            self._extend()
        return super().get_command(ctx, cmd_name)

    def list_commands(self, ctx: Any) -> list[str]:
        self._extend()
        return super().list_commands(ctx)

    def _extend(self) -> None:
        if not self._extended:
            self._extended = True
            with _plain_warnings():
                self.commands.update(extensions.commands(self.commands))


app = typer.Typer(
    cls=Group,
    name="trueno",
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Vector and matrix operations on the best hardware of the machine.",
)


def _version(wanted: bool) -> None:
    if wanted:
        import trueno  # start-up

        screen().print(f"trueno {trueno.__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Vector and matrix operations on the best hardware of the machine."""


for module in (demo, doctor, ops, explain, warmup, calibrate, bench, conformance, new_backend):
    app.command(module.__name__.rpartition(".")[2].replace("_", "-"))(module.command)
app.add_typer(gguf.app, name="gguf")
