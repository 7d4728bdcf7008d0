"""`trueno ptx-flow`: which functions of a Python code base emit, load, analyze and consume PTX."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from trueno.backend import escape
from trueno.errors import ParameterError

from trueno_cuda.flow import files, page, report
from trueno_cuda.flow.graph import Flow, flow

PIPE = 100_000
"""Columns where the output is not a terminal: nothing is wrapped."""


def add(to: typer.Typer) -> None:
    """Register the command."""
    to.command("ptx-flow")(command)


def command(
    paths: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[PATH]...", help="Files and folders; by default this folder.", show_default=False),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON: every function, at any distance.")] = False,
    dot: Annotated[bool, typer.Option("--dot", help="Print a graph for Graphviz.")] = False,
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="Write one HTML file, which needs no network.")
    ] = None,
    steps: Annotated[int, typer.Option(min=0, help="How far a consumer may be from a function that it uses.")] = 1,
) -> None:
    """Show which functions of a Python code base emit, load, analyze and consume PTX, and which calls which.

    It reads the files, and neither imports nor runs them. What cannot be read is listed as a note.
    """
    if json and dot:
        raise ParameterError("ptx-flow: --json and --dot both print to the output; choose one")
    given = paths or [Path()]
    result = flow(*files.read(given))
    if html is not None:
        _write(html, page.html(result, f"PTX in {', '.join(path.absolute().name or str(path) for path in given)}"))
    if json:
        print(escape.dumps(report.record(result), indent=2))
    elif dot:
        print(report.dot(result.within(steps)))
    elif html is not None:
        print(escape.escaped(f"{html}: {len(result.nodes)} functions"))
    else:
        _show(result, steps)


def _show(result: Flow, steps: int) -> None:
    console = Console(highlight=False)
    if console.is_terminal:
        report.show(result, steps, console)
        return
    console = Console(highlight=False, width=PIPE)
    with console.capture() as table:
        report.show(result, steps, console)
    print("\n".join(line.rstrip() for line in table.get().splitlines()))  # the last column is not filled with blanks


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, "utf-8")
    except OSError as error:
        raise ParameterError(f"ptx-flow: {path} cannot be written: {error.strerror or error}") from None
