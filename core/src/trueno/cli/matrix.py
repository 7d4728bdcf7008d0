"""Which backend takes which op in which dtype: the facts of `trueno ops --matrix` and of a report."""

from collections.abc import Iterable

from rich.text import Text

from trueno.cli.report import Screen, table
from trueno.discovery import registry
from trueno.discovery.entry import Entry
from trueno.dispatch.half import NAMES
from trueno.ops.op import Op
from trueno.report.facts import SHORT, SIGNS, Matrix
from trueno.testing.checks import rejected
from trueno.testing.halves import declare, known


def matrix(ops: Iterable[Op]) -> Matrix:
    """By op, available backend and dtype: `yes`, `widened`, or why no call is taken."""
    entries = [entry for entry in registry.entries().values() if entry.available]
    halves = known()
    for name in halves:
        declare(name)
    dtypes = ["float32", "float64", *halves]
    return {op.name: {e.name: {d: _cell(op, e, d) for d in dtypes} for e in entries} for op in ops}


def _cell(op: Op, entry: Entry, dtype: str) -> str:
    reject = rejected(op, entry.name, dtype)
    if reject is not None:
        return reject.detail or reject.code
    return "widened" if dtype in NAMES and not entry.half(op.name, host=not entry.foreign) else "yes"


def show(facts: Matrix, console: Screen) -> None:
    """The matrix on a terminal: a sign for each dtype that is known here."""
    names = list(next(iter(facts.values()), {}))
    rows = table("op", *names)
    rows.columns[0].no_wrap = True
    for op, by_backend in facts.items():
        rows.add_row(op, *(_signs(by_backend[name]) for name in names))
    dtypes = " ".join(SHORT[d] for d in next(iter(by_backend.values())))
    console.print(rows)
    signs = "● a kernel, ◐ the core computes in float32 and rounds, · no kernel"
    console.print(f"{dtypes}, in this order: {signs}", soft_wrap=True)


def _signs(verdicts: dict[str, str]) -> Text:
    styles = {"●": "green", "◐": "yellow", "·": "dim"}
    signs = [SIGNS.get(verdict, "·") for verdict in verdicts.values()]
    return Text(" ").join(Text(sign, style=styles[sign]) for sign in signs)
