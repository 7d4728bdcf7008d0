"""`trueno doctor`: what is installed, what can run, why not, and what to do about it."""

from collections.abc import Iterable
from typing import Annotated

import typer
from rich.text import Text

from trueno.cli.examination import HEALTH, examine, printing_aside
from trueno.cli.findings import Line, lines, setting_lines
from trueno.cli.report import Screen, given_width, screen, write_json
from trueno.discovery import registry


def command(
    refresh: Annotated[
        bool, typer.Option("--refresh", help="Probe everything again, ignoring cached verdicts.")
    ] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", help="Print everything: full reasons, all settings, files.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    explained: Annotated[
        bool, typer.Option("--settings", help="Print only the settings, and what each of them does.")
    ] = False,
) -> None:
    """Examine this installation.

    Exit code 0: all is well; a backend without a device to run on is not an error.  1: an installed
    component is broken.  2: Trueno itself is.
    """
    if refresh:
        registry.forget(refresh=True)
    with printing_aside():
        report = examine()
    console = screen()
    if json:
        write_json(report)
    elif explained:
        show(setting_lines(report, given_width(console)), console)
    else:
        show(lines(report, given_width(console), verbose), console)
    if report["health"] != "ok":
        raise typer.Exit(HEALTH.index(report["health"]))


def show(report: Iterable[Line], console: Screen) -> None:
    """Print lines as they are; they have been wrapped already."""
    for line in report:
        console.print(Text.assemble(*line), soft_wrap=True)
