"""`trueno ops`: the table of ops, or all facts about one of them."""

import inspect
from typing import Annotated, Any

import numpy as np
import typer
from rich.text import Text

from trueno.cli import matrix as backends
from trueno.cli.report import Screen, find_op, screen, table, write_json
from trueno.discovery import registry
from trueno.discovery.protocol import Call
from trueno.dispatch.parameters import parameters
from trueno.ops import ALIASES, FAMILIES, TABLE
from trueno.ops.op import Op
from trueno.programs.lower import lower


def command(
    name: Annotated[str, typer.Argument(metavar="[NAME]", help="An op to describe.", show_default=False)] = "",
    matrix: Annotated[bool, typer.Option("--matrix", help="Show which backend takes which op in which dtype.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List the ops, or describe one of them.

    The description has its formula, parameters and passes, and the backends with a kernel.
    """
    if matrix:
        _matrix(name, json)
    elif name:
        op = find_op(name)
        if json:
            write_json(brief(op) | detail(op))
        else:
            _show(op, screen())
    elif json:
        write_json({"ops": [brief(op) for op in TABLE.values()]})
    else:
        _list(screen())


def _matrix(name: str, json: bool) -> None:
    facts = backends.matrix([find_op(name)] if name else TABLE.values())
    if json:
        write_json(facts)
    else:
        backends.show(facts, screen())


def declaration(op: Op) -> str:
    """`clamp(x, min, max, *, out=None)`: how the op is called."""
    plain = [p.replace(annotation=inspect.Parameter.empty) for p in parameters(op)]
    return f"{op.name}{inspect.Signature(plain)}"


def brief(op: Op) -> dict[str, Any]:
    """One row of the list."""
    return {
        "name": op.name,
        "family": op.family,
        "signature": op.signature.text,
        "call": declaration(op),
        "summary": op.doc.partition("\n")[0],
        "aliases": list(op.aliases),
        "structured": op.structured,
    }


def detail(op: Op) -> dict[str, Any]:
    """The details that the list leaves out."""
    rows = [
        {
            "name": p.name,
            "type": p.type.__name__,
            "default": None if p.required else p.default,
            "required": p.required,
            "choices": list(p.choices),
        }
        for p in op.params
    ]
    return {"doc": op.doc, "parameters": rows, "rules": list(op.rules), "passes": passes(op), "kernels": kernels(op)}


def passes(op: Op) -> list[str]:
    """One line for each pass over a row; none for a structured op."""
    if op.structured:
        return []
    nodes = op.program().nodes
    lines = []
    for sweep in lower(op.program()).passes:
        steps = len(sweep.body)
        parts = [f"reads {', '.join(_source(op, s) for _, s in sweep.loads)}"] if sweep.loads else []
        parts += [f"{steps} step{'s' if steps > 1 else ''}"] if steps else []
        parts += [f"folds {', '.join(nodes[f].kind for f in sweep.folds)}"] if sweep.folds else []
        parts += [f"writes {', '.join(op.signature.outputs[k].name for k, _ in sweep.stores)}"] if sweep.stores else []
        lines.append("; ".join(parts))
    return lines


def _source(op: Op, source: str | int) -> str:
    """An operand, or the output that holds a value from an earlier pass."""
    return source if isinstance(source, str) else op.signature.outputs[source].name


def kernels(op: Op) -> dict[str, str]:
    """For each installed backend: `yes`, or why it has no kernel; float32, defaults."""
    static = tuple((p.name, p.typical) for p in op.static)
    rank = max(len(op.signature.inputs[0].dims), 1)
    call = Call(op, np.dtype(np.float32), op.layout, rank, (10,), static)
    support = {}
    for name, entry in registry.entries().items():
        if not entry.available:
            support[name] = f"not available: {entry.reason}"
            continue
        reject = registry.load(name).supports(call)
        support[name] = "yes" if reject is None else f"no: {reject.detail or reject.code}"
    return support


def _list(console: Screen) -> None:
    rows = table("op", "signature", "meaning")
    rows.columns[0].no_wrap = True
    rows.columns[1].max_width = 32 if console.width < 120 else None
    families = list(dict.fromkeys((*FAMILIES, *(op.family for op in TABLE.values()))))
    for i, family in enumerate(families):
        if i:
            rows.add_row()
        rows.add_row(Text(family, style="bold"), "", "")
        for op in (op for op in TABLE.values() if op.family == family):
            rows.add_row(f"  {op.name}", op.signature.text, op.doc.partition("\n")[0])
    console.print(rows)
    console.print(f"{len(TABLE)} ops, {len(ALIASES)} aliases; trueno ops NAME describes one")


def _show(op: Op, console: Screen) -> None:
    facts = brief(op) | detail(op)
    console.print(Text(f"trueno.{facts['call']}", style="bold"), soft_wrap=True)
    console.print(f"{op.signature.text}    ({op.family})", soft_wrap=True)
    console.print()
    console.lines(op.doc)
    if op.params:
        console.print()
        rows = table("parameter", "type", "default", "values")
        for p in op.params:
            rules = [r for r in op.rules if p.name in r.split()]
            values = " or ".join(map(repr, p.choices)) or "; ".join(rules)
            rows.add_row(p.name, p.type.__name__, "must be given" if p.required else repr(p.default), values)
        console.print(rows)
    console.print()
    if op.aliases:
        console.print(f"Aliases: {', '.join(op.aliases)}")
    if op.structured:
        console.print("A structured op: each backend has a hand-written kernel.")
    else:
        lines = facts["passes"]
        console.print(f"A row program of {len(lines)} pass{'es' if len(lines) != 1 else ''}:")
        for i, line in enumerate(lines, 1):
            console.print(f"  {i}. {line}", soft_wrap=True)
    console.print()
    rows = table("backend", "kernel")
    for name, verdict in facts["kernels"].items():
        rows.add_row(name, verdict)
    console.print(rows)
