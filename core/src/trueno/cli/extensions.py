"""Commands that plugins add to the command line, through the hook `trueno_commands`."""

from collections.abc import Container
from typing import Any

import typer
from typer.main import get_group

from trueno import hooks


def commands(taken: Container[str]) -> dict[str, Any]:
    """The commands of all plugins by name, as typer makes them; names that are `taken` are left out and reported.

    Each plugin fills its own app, so one that fails half-way, or uses a name of the core's, affects only
    its own part.
    """
    accepted: dict[str, Any] = {}
    owners: dict[str, str] = {}
    for plugin, app in hooks.commands(_app):
        try:
            brought = get_group(app).commands
        except (Exception, SystemExit) as error:  # a signature that typer cannot read
            hooks.report(f'hooks: the commands of the plugin "{plugin}" are refused: {type(error).__name__}: {error}')
            continue
        for name, command in brought.items():
            if not name.isprintable():
                hooks.report(f'hooks: the plugin "{plugin}" brings a command {name!r}, which is not a name')
            elif name in taken:
                hooks.report(f'hooks: the plugin "{plugin}" brings a command {name}, but that is Trueno\'s own')
            elif name in accepted:
                hooks.report(f'hooks: the plugin "{plugin}" brings a command {name}, but so does "{owners[name]}"')
            else:
                accepted[name], owners[name] = command, plugin
    return accepted


def _app() -> typer.Typer:
    return typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
