"""The commands, put together, and their common handling of errors."""

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Annotated, Any

import typer
from rich.markup import escape
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
    lz4,
    new_backend,
    ops,
    qa,
    report_page,
    warmup,
    web,
)
from trueno.cli.report import complain, screen
from trueno.cli.streams import UNWRITABLE, failed, open_streams
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
MODE = "rich"
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


def _unwritable(error: OSError) -> int:
    """Report that the report could not be written, unless its reader has gone; return the exit code."""
    code, sentence = failed(error)
    with suppress(OSError):
        if sentence:
            complain(sentence)
    return code


def _rich_help(command: Any, ctx: Any) -> None:
    from typer.rich_utils import rich_format_help  # only if help is wanted

    rich_format_help(obj=command, ctx=ctx, markup_mode="rich")


def _flowing(text: str) -> str:
    """A help text whose paragraphs are one line each, which the terminal's width divides; \\b keeps a paragraph."""
    paragraphs = text.split("\n\n")
    return "\n\n".join(p if "\b" in p else " ".join(p.split()) for p in paragraphs)


def _dress(command: Any) -> None:
    """Give a command, and those of a group, rich help whose texts are no markup: `[n]` in one is part of a signature.

    The commands' own mode stays None until then, and the group's for good, so that errors about a command line stay
    plain lines.
    """
    if getattr(command, "rich_markup_mode", MODE) == MODE:
        return
    command.rich_markup_mode = MODE
    for part in (command, *command.params):
        for name in ("help", "short_help", "epilog"):
            text = getattr(part, name, None)
            if isinstance(text, str):
                setattr(part, name, escape(escaped(_flowing(text), keep="\n\b")))
    for inner in getattr(command, "commands", {}).values():
        _dress(inner)


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
        open_streams()
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
        command = super().get_command(ctx, cmd_name)
        if command is not None:
            _dress(command)
        return command

    def format_help(self, ctx: Any, formatter: Any) -> None:
        _rich_help(self, ctx)

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


for module in (demo, doctor, ops, explain, warmup, calibrate, bench, conformance, qa, new_backend):
    app.command(module.__name__.rpartition(".")[2].replace("_", "-"))(module.command)
app.command("report")(report_page.command)
app.add_typer(gguf.app, name="gguf")
app.add_typer(lz4.app, name="lz4")
app.add_typer(web.app, name="web")
