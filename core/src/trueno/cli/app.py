"""The commands, put together; and what every command has in common when something goes wrong."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
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
    new_backend,
    ops,
    warmup,
)
from trueno.cli.report import errors
from trueno.errors import TruenoError, TruenoWarning


@contextmanager
def _plain_warnings() -> Iterator[None]:
    """Say Trueno's own warnings in one line each; all others as ever."""
    with warnings.catch_warnings():
        warnings.simplefilter("always", TruenoWarning)
        plainly = warnings.showwarning

        def show(message: Any, category: type[Warning], *rest: Any, **kw: Any) -> None:
            if issubclass(category, TruenoWarning):
                errors().print(f"trueno: warning: {message}", soft_wrap=True)
            else:
                plainly(message, category, *rest, **kw)

        warnings.showwarning = show
        yield


class Group(TyperGroup):
    """Says what Trueno raises on purpose in one line and exits with 2; anything else is a bug and is shown whole.

    Plugins are asked for their commands when a name is not the core's, or all are listed: a core command runs
    without them, whatever is wrong with them.
    """

    _extended = False

    def invoke(self, ctx: Any) -> Any:  # a Context of click, or of the click inside typer
        with _plain_warnings():
            try:
                return super().invoke(ctx)
            except TruenoError as error:
                errors().print(f"trueno: {error}", soft_wrap=True)
                raise typer.Exit(2) from None

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
    help="Vector and matrix operations on the best hardware that the machine has.",
)


def _version(wanted: bool) -> None:
    if wanted:
        import trueno

        print(f"trueno {trueno.__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Vector and matrix operations on the best hardware that the machine has."""


for module in (demo, doctor, ops, explain, warmup, calibrate, bench, conformance, new_backend):
    app.command(module.__name__.rpartition(".")[2].replace("_", "-"))(module.command)
