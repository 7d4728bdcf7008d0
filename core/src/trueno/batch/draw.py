"""`b.to_mermaid()` and the picture that a notebook shows of a batch: its kernels, and what each of them fuses.

Layers from top to bottom, as Sugiyama, Tagawa and Toda draw them ("Methods for Visual Understanding of Hierarchical
System Structures", 1981): a kernel stands below all that it reads, each layer is ordered by the mean place of what its
members read, and a line that passes a layer gets a place of its own there.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from itertools import pairwise
from typing import TYPE_CHECKING

from trueno.batch.graph import Graph
from trueno.batch.show import LINES, heading, placed
from trueno.batch.step import Step
from trueno.batch.steps import Schedule
from trueno.escape import escaped

if TYPE_CHECKING:
    from trueno.dispatch.state import State

CHARACTER, LINE, GAP, BETWEEN, PAD = 7.3, 17, 26, 46, 10
"""Pixels: of a character's width, of a line, between boxes side by side, between layers, inside a box."""
FILLS = {"upload": "#dbe7f6", "kernel": "#fbe8c8", "result": "#d9efdc", "more": "#e6e6e6"}
"""Boxes are light with dark text, and lines are grey, so that a picture is readable on light and on dark pages."""


@dataclass(slots=True)
class Box:
    """An upload, a kernel or a result.  reads: the boxes above it, with the shape of what comes from there."""

    kind: str
    lines: list[str]
    reads: dict[str, str] = field(default_factory=dict)


def drawn(how: str, name: str, graph: Graph, plan: Schedule, now: "State") -> str:
    """A plan as `mermaid` or as `svg`."""
    shown = boxes(graph, plan.steps, plan.results, placed(plan.steps, now))
    return mermaid(shown) if how == "mermaid" else svg(heading(name, graph, plan.steps), shown)


def boxes(graph: Graph, steps: Sequence[Step], results: set[int], where: Sequence[str]) -> dict[str, Box]:
    """The boxes by name; a batch of more than `LINES` kernels shows its first ones."""
    drawn: dict[str, Box] = {}
    makers: dict[int, str] = {}
    for at, (step, backend) in enumerate(zip(steps[:LINES], where, strict=False), 1):
        ops = [graph.ops[i].op.name for i in step.ops]
        box = Box("kernel", [f"{at} · {backend}", *ops])
        for v, shape in step.reads:
            whole = graph.whole(v)
            if whole not in makers:
                if graph.values[whole].maker >= 0:  # of a kernel that is not shown
                    continue
                makers[whole] = f"v{whole}"
                drawn[f"v{whole}"] = Box("upload", [f"h{whole}", described(graph, whole)])
            box.reads[makers[whole]] = "×".join(map(str, shape)) or "1"
        drawn[f"k{at}"] = box
        makers |= {graph.whole(v): f"k{at}" for v, _ in step.makes}
    for v in sorted(results):
        if makers.get(graph.whole(v), "").startswith("k"):
            drawn[f"r{v}"] = Box("result", [f"h{v}", described(graph, v)], {makers[graph.whole(v)]: ""})
    if len(steps) > LINES:
        drawn["more"] = Box("more", [f"and {len(steps) - LINES} more kernels"])
    return drawn


def described(graph: Graph, v: int) -> str:
    value = graph.values[v]
    return f"{'×'.join(map(str, value.shape)) or '1'} {value.blocks or value.dtype}"


def mermaid(drawn: dict[str, Box]) -> str:
    """A flowchart in Mermaid's language; a kernel is a group of its ops, in the order in which they run."""
    lines, edges = ["flowchart TB"], []
    last = {name: f"{name}o{len(box.lines) - 1}" if box.kind == "kernel" else name for name, box in drawn.items()}
    for name, box in drawn.items():
        if box.kind == "kernel":
            ops = [f"{name}o{i}" for i in range(1, len(box.lines))]
            lines.append(f'  subgraph {name}["{_quoted(box.lines[0])}"]')
            lines += [f'    {op}["{_quoted(word)}"]' for op, word in zip(ops, box.lines[1:], strict=True)]
            lines += [f"    {' --> '.join(ops)}"] if len(ops) > 1 else []
            lines.append("  end")
            edges += [f'  {last[above]} -->|"{_quoted(shape)}"| {ops[0]}' for above, shape in box.reads.items()]
        else:
            lines.append(f'  {name}(["{_quoted(" ".join(box.lines))}"])')
            edges += [f"  {last[above]} --> {name}" for above in box.reads]
    return "\n".join([*lines, *edges]) + "\n"


def _quoted(text: str) -> str:
    """A text inside Mermaid's quotes: what has a meaning there becomes an entity."""
    return "".join(c if c.isalnum() or c in " _×·.,-" else f"#{ord(c)};" for c in escaped(text))


def svg(title: str, drawn: dict[str, Box]) -> str:
    """The picture as SVG."""
    layers, paths = _layers(drawn)
    size = {name: _size(box) for name, box in drawn.items()}
    wide = [sum(size.get(n, (0, 0))[0] + GAP for n in layer) for layer in layers]
    width, y, places = max([*wide, CHARACTER * len(title)], default=0.0) + GAP, 2.0 * LINE, {}
    for layer, all_wide in zip(layers, wide, strict=True):
        x, high = (width - all_wide + GAP) / 2, max(size.get(n, (0, 0))[1] for n in layer)
        for name in layer:
            w, h = size.get(name, (0.0, high))
            places[name] = (x + w / 2, y, h)
            x += w + GAP
        y += high + BETWEEN
    parts = [f'<text x="{GAP / 2}" y="{LINE}" fill="#808080">{escape(escaped(title))}</text>']
    for path, shape in paths:
        x, top, h = places[path[0]]
        d = f"M{x:.1f} {top + h:.1f}"
        for name in path[1:]:
            below_x, below, h = places[name]
            middle = (float(d.split()[-1]) + below) / 2
            d += f" C{x:.1f} {middle:.1f} {below_x:.1f} {middle:.1f} {below_x:.1f} {below:.1f}"
            x = below_x
            if name != path[-1]:
                d += f" L{x:.1f} {below + h:.1f}"
        head = f"M{x - 4:.1f} {below - 7:.1f} L{x:.1f} {below:.1f} L{x + 4:.1f} {below - 7:.1f}"
        tip = f"<title>{escape(shape)}</title>" if shape else ""
        parts.append(f'<path d="{d} {head}" fill="none" stroke="#8a8a8a" stroke-width="1.3">{tip}</path>')
    for name, box in drawn.items():
        (x, top, _), (w, h) = places[name], size[name]
        round_ = 4 if box.kind == "kernel" else 14
        parts.append(f'<rect x="{x - w / 2:.1f}" y="{top:.1f}" width="{w:.1f}" height="{h}" rx="{round_}" '
                     f'fill="{FILLS[box.kind]}" stroke="#8a8a8a"/>')  # fmt: skip
        for i, word in enumerate(box.lines):
            fill = "#6a6a6a" if i == 0 and box.kind == "kernel" else "#1c2126"
            line_y = top + PAD / 2 + (i + 0.78) * LINE
            parts.append(f'<text x="{x:.1f}" y="{line_y:.1f}" text-anchor="middle" fill="{fill}">'
                         f"{escape(escaped(word))}</text>")  # fmt: skip
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{max(y - BETWEEN, LINE) + PAD:.0f}" '
        f'font-family="ui-monospace, monospace" font-size="12">\n' + "\n".join(parts) + "\n</svg>"
    )


def _size(box: Box) -> tuple[float, float]:
    return CHARACTER * max(map(len, box.lines)) + 2 * PAD, float(len(box.lines) * LINE + PAD)


def _layers(drawn: dict[str, Box]) -> tuple[list[list[str]], list[tuple[list[str], str]]]:
    """Names by layer, and the path of each line: from box to box, by way of a place in each layer that it passes."""
    depth: dict[str, int] = {}
    for name, box in drawn.items():  # what a box reads comes before it
        depth[name] = 1 + max((depth[above] for above in box.reads), default=-1)
    for name, box in drawn.items():  # an upload stands close to its first reader
        if box.kind == "upload":
            depth[name] = min(depth[reader] for reader, other in drawn.items() if name in other.reads) - 1
    depth = {name: d - min(depth.values()) for name, d in depth.items()}
    layers: list[list[str]] = [[] for _ in range(max(depth.values(), default=-1) + 1)]
    for name, d in depth.items():
        layers[d].append(name)
    paths, neighbours = [], defaultdict(list)
    for name, box in drawn.items():
        for above, shape in box.reads.items():
            passed = [f"{above}>{name}>{d}" for d in range(depth[above] + 1, depth[name])]
            for d, place in enumerate(passed, depth[above] + 1):
                layers[d].append(place)
            path = [above, *passed, name]
            paths.append((path, shape))
            for one, other in pairwise(path):
                neighbours[one].append(other)
                neighbours[other].append(one)
    for turn in range(4):  # downwards, upwards, and again
        order = range(1, len(layers)) if turn % 2 == 0 else range(len(layers) - 2, -1, -1)
        for d in order:
            beside = layers[d - 1] if turn % 2 == 0 else layers[d + 1]
            position = {name: i for i, name in enumerate(beside)}
            means = {}
            for own, name in enumerate(layers[d]):
                near = [position[other] for other in neighbours[name] if other in position]
                means[name] = sum(near) / len(near) if near else own
            layers[d].sort(key=means.__getitem__)
    return layers, paths
