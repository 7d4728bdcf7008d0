"""What this plugin adds to Trueno beside its backends, through the entry points of the group `trueno.hooks`.

It is imported wherever hooks are, so it imports nothing else until a command is asked for.
"""

from typing import TYPE_CHECKING

from pluggy import HookimplMarker

if TYPE_CHECKING:
    import typer

hookimpl = HookimplMarker("trueno")


@hookimpl
def trueno_commands(app: "typer.Typer") -> None:
    from trueno_cuda.commands import app as ptx

    app.add_typer(ptx, name="ptx")
