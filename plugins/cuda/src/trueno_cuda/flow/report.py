"""A flow as a table, as JSON and as a graph for Graphviz."""

from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text
from trueno.backend import escape

from trueno_cuda.flow.evidence import ROLES
from trueno_cuda.flow.graph import Call, Flow, Node

COLOURS = {"emit": "green", "load": "magenta", "analyze": "cyan", "consume": "yellow"}
FILLS = {"emit": "#d7f0d3", "load": "#ead6f5", "analyze": "#d3ecf5", "consume": "#f7efcf"}
"""The same on paper."""
DARK = {"emit": "#24472a", "load": "#4a2f5c", "analyze": "#1f4656", "consume": "#54481c"}
"""The same on a dark page."""


def record(flow: Flow) -> dict[str, Any]:
    """JSON: functions with their roles and why, calls among them, and what was left out."""
    return {
        "files": flow.files,
        "functions": flow.functions,
        "modules": flow.modules(),
        "nodes": [_node(node) for node in flow.nodes.values()],
        "calls": [_call(call) for call in flow.calls],
        "notes": [{"path": note.path, "reason": note.reason} for note in flow.notes],
    }


def _node(node: Node) -> dict[str, Any]:
    return {
        "id": node.id,
        "module": node.module,
        "name": node.name,
        "path": node.path,
        "line": node.line,
        "roles": node.roles,
        "distance": node.distance,
        "evidence": [{"role": e.role, "line": e.line, "what": e.what} for e in node.evidence],
    }


def _call(call: Call) -> dict[str, Any]:
    return {"caller": call.caller, "callee": call.callee, "line": call.line, "kind": call.kind}


def show(whole: Flow, steps: int, console: Console) -> None:
    """Two tables, of all modules and of the functions within some steps, and the notes."""
    modules = Table(box=None, pad_edge=False)
    modules.add_column("module", no_wrap=True, overflow="ignore")
    for role in ROLES:
        modules.add_column(Text(role, COLOURS[role]), justify="right")
    for module, counts in whole.modules().items():
        modules.add_row(_safe(module), *(str(counts[role] or "") for role in ROLES))
    console.print(modules)
    console.print()
    flow = whole.within(steps)
    callees: dict[str, list[str]] = {}
    for call in flow.calls:
        if call.kind != "define":
            callees.setdefault(call.caller, []).append(flow.nodes[call.callee].name)
    functions = Table(box=None, pad_edge=False)
    functions.add_column("function", no_wrap=True, overflow="ignore")
    for heading in ("roles", "why", "calls"):
        functions.add_column(heading, overflow="fold")
    for node in sorted(flow.nodes.values(), key=lambda n: (n.path, n.line)):
        roles = Text(" ").join(Text(role, COLOURS[role]) for role in node.roles)
        functions.add_row(_safe(f"{node.path}:{node.line} {node.name}"), roles, _safe(_why(node)),
                          _safe(_some(callees.get(node.id, []))))  # fmt: skip
    console.print(functions)
    console.print()
    console.print(_safe(_summary(whole)))
    for note in whole.notes:
        console.print(_safe(f"note: {note.path}: {note.reason}"))


def _summary(flow: Flow) -> str:
    counts = {role: sum(role in node.roles for node in flow.nodes.values()) for role in ROLES}
    words = ", ".join(f"{count} {role}" for role, count in counts.items())
    return f"{flow.functions} functions in {flow.files} file{'s' * (flow.files != 1)}: {words}"


def _why(node: Node) -> str:
    rest = len(node.evidence) - 1
    return node.evidence[0].what + (f", and {rest} more" if rest else "")


def _some(names: list[str]) -> str:
    names = list(dict.fromkeys(names))
    return ", ".join(names[:4]) + (f", and {len(names) - 4} more" if len(names) > 4 else "")


def _safe(text: str) -> Text:
    return Text(escape.escaped(text))


def dot(flow: Flow) -> str:
    """The graph in Graphviz' language, a cluster per module."""
    lines = ["digraph ptx {", "  rankdir=LR;", '  node [shape=box, style="filled,rounded", fontname="sans-serif"];']
    modules: dict[str, list[Node]] = {}
    for node in flow.nodes.values():
        modules.setdefault(node.module, []).append(node)
    for number, (module, nodes) in enumerate(sorted(modules.items())):
        lines += [f"  subgraph cluster_{number} {{", f"    label={_quoted(module)};"]
        for node in nodes:
            label = f"{node.name}\n{' '.join(node.roles)}"
            lines.append(f"    {_quoted(node.id)} [label={_quoted(label)}, fillcolor={_quoted(FILLS[node.roles[0]])}];")
        lines.append("  }")
    for call in flow.calls:
        style = "" if call.kind == "call" else " [style=dashed]"
        lines.append(f"  {_quoted(call.caller)} -> {_quoted(call.callee)}{style};")
    return "\n".join([*lines, "}"])


def _quoted(text: str) -> str:
    """A string of Graphviz; a line end there is the two characters of an escape."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + escape.escaped(escaped.replace("\n", "\\n")) + '"'
