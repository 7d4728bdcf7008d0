"""`trueno qa`: run the gates on this machine, and show what each of them measured."""

import os
import tempfile
from collections import Counter
from typing import Annotated, Any

import typer
from rich.text import Text

from trueno.cli.report import progress, screen, table, write_json
from trueno.discovery import registry
from trueno.qa.registry import Outcome, chosen, run
from trueno.settings import settings
from trueno.version import __version__

STYLES = {"passed": "green", "failed": "bold red", "skipped": "yellow"}
ADAPTER = "TRUENO_WGPU_ADAPTER"


def command(
    gate: Annotated[
        list[str] | None,
        typer.Option("--gate", metavar="ID", help="Only this gate; may be repeated.", show_default=False),
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="A skipped gate counts as a failure.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Run the gates: what Trueno promises, each tried on this machine.

    What needs a GPU runs on the PTX emulator and on wgpu's software adapter, or is skipped with a reason.

    Exit code 0: no gate failed.  1: one did, or with --strict was skipped.  2: no gate has this ID.
    """
    gates = chosen(gate or ())
    _software_adapter()
    outcomes: list[Outcome] = []
    with progress() as bar:
        task = bar.add_task("gates", total=len(gates))
        for one in gates:
            bar.update(task, description=one.id)
            outcomes += run([one])
            bar.advance(task)
    counts = Counter(o.result for o in outcomes)
    if json:
        write_json(report(outcomes))
    else:
        _show(outcomes)
    if counts["failed"] or (strict and counts["skipped"]):
        raise typer.Exit(1)


def report(outcomes: list[Outcome]) -> dict[str, Any]:
    """What `--json` prints."""
    counts = Counter(o.result for o in outcomes)
    return {
        "trueno": __version__,
        "gates": [o.record for o in outcomes],
        "summary": {result: counts[result] for result in STYLES} | {"seconds": sum(o.seconds for o in outcomes)},
    }


def _software_adapter() -> None:
    """Where wgpu finds no GPU, let it use software in this process and its children: gates ask whether it is right."""
    entry = registry.entries().get("wgpu")
    if entry is not None and not entry.available and entry.code == "no_device" and not os.environ.get(ADAPTER):
        os.environ[ADAPTER] = "software"
        os.environ.setdefault("XDG_RUNTIME_DIR", tempfile.gettempdir())  # without it Mesa prints errors on stderr
        settings.reload()
        registry.forget()


def _show(outcomes: list[Outcome]) -> None:
    console = screen()
    rows = table("gate", "result", "s", "what was measured", right=("s",))
    rows.columns[0].no_wrap = rows.columns[1].no_wrap = True
    for number, o in enumerate(outcomes):
        if number:
            rows.add_row()
        text = Text(f"{o.title}\n", style="bold")
        if o.reason:
            text.append(f"{o.reason}\n", style=STYLES[o.result])
        text.append("; ".join(f"{name.replace('_', ' ')} {_value(v)}" for name, v in o.measured.items()), style="")
        rows.add_row(o.id, Text(o.result, style=STYLES[o.result]), f"{o.seconds:.1f}", text)
    console.print(rows)
    console.print()
    counts = Counter(o.result for o in outcomes)
    parts = ", ".join(f"{counts[result]} {result}" for result in STYLES)
    console.print(
        f"{parts}; {sum(o.seconds for o in outcomes):.1f} s", style=STYLES["failed" if counts["failed"] else "passed"]
    )


def _value(value: Any) -> str:
    """A fact in a few characters."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.3g}"
    if isinstance(value, dict):
        return ", ".join(f"{name} {_value(v)}" for name, v in value.items()) or "none"
    if isinstance(value, (list, tuple)):
        return ", ".join(map(_value, value)) or "none"
    return f"{value:,}".replace(",", " ") if isinstance(value, int) else str(value) or "–"
