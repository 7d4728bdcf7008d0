"""The commands, put together; and what every command has in common when something goes wrong."""

import warnings
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from trueno.cli import bench, demo, doctor, ops, warmup
from trueno.cli.report import errors
from trueno.errors import TruenoError, TruenoWarning


class Group(TyperGroup):
    """Says what Trueno raises on purpose in one line and exits with 2; anything else is a bug and is shown whole."""

    def invoke(self, ctx: Any) -> Any:  # a Context of click, or of the click inside typer
        with warnings.catch_warnings():
            warnings.simplefilter("always", TruenoWarning)
            plainly = warnings.showwarning

            def show(message: Any, category: type[Warning], *rest: Any, **kw: Any) -> None:
                if issubclass(category, TruenoWarning):
                    errors().print(f"trueno: warning: {message}", soft_wrap=True)
                else:
                    plainly(message, category, *rest, **kw)

            warnings.showwarning = show
            try:
                return super().invoke(ctx)
            except TruenoError as error:
                errors().print(f"trueno: {error}", soft_wrap=True)
                raise typer.Exit(2) from None


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


for module in (demo, doctor, ops, warmup, bench):
    app.command(module.__name__.rpartition(".")[2])(module.command)

# Commands of plugins (hook `trueno_commands`) are added here, after the core's own.
