"""A flow as one HTML file: a picture of its modules, and a table of its functions with filters; it needs no network."""

import json
from collections import defaultdict
from html import escape as markup
from importlib.resources import files

from trueno_cuda.flow.evidence import ROLES
from trueno_cuda.flow.graph import Flow
from trueno_cuda.flow.report import DARK, FILLS, record

WIDTH, HEIGHT, GAP_X, GAP_Y = 240, 26, 90, 12
LONGEST = 32
"""Characters of a module's name that fit into its box."""


def html(flow: Flow, title: str) -> str:
    """The page."""
    data = json.dumps(record(flow)).replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
    text = files(__package__).joinpath("page.html").read_text("utf-8")
    light, dark = (";".join(f"--{role}:{colour}" for role, colour in fills.items()) for fills in (FILLS, DARK))
    values = {"TITLE": markup(title), "FILLS": light, "DARK": dark, "PICTURE": picture(flow), "DATA": data}
    for name, value in values.items():
        text = text.replace(f"<!--{name}-->", value)  # of which no value has one: `<` is escaped
    return text


def main_role(counts: dict[str, int]) -> str:
    """What most functions of a module do; consuming, only if they do nothing else."""
    working = {role: counts[role] for role in ROLES[:3]}
    best = max(working, key=lambda role: working[role])
    return best if working[best] else ROLES[3]


def picture(flow: Flow) -> str:
    """The modules as SVG, callers to the left of what they call."""
    modules = flow.modules()
    arrows: dict[tuple[str, str], int] = defaultdict(int)
    for call in flow.calls:
        pair = flow.nodes[call.caller].module, flow.nodes[call.callee].module
        if pair[0] != pair[1] and call.kind != "define":
            arrows[pair] += 1
    columns: dict[int, list[str]] = defaultdict(list)
    for module, depth in _depths(list(modules), list(arrows)).items():
        columns[depth].append(module)
    place: dict[str, tuple[int, int]] = {}
    for column, depth in enumerate(sorted(columns)):
        for row, module in enumerate(columns[depth]):
            place[module] = 20 + column * (WIDTH + GAP_X), 20 + row * (HEIGHT + GAP_Y)
    wide = max((x for x, _ in place.values()), default=0) + WIDTH + 20
    high = max((y for _, y in place.values()), default=0) + HEIGHT + 20
    size = f'viewBox="0 0 {wide} {high}" width="{wide}" height="{high}"'
    parts = [f'<svg id="picture" {size} role="img" aria-label="Modules, and which calls which">']
    for (caller, callee), count in arrows.items():
        (x, y), (u, v) = place[caller], place[callee]
        start, end = (x + WIDTH, u) if u > x else (x, u + WIDTH) if u < x else (x + WIDTH, u + WIDTH)
        bend = GAP_X * 0.6 * (1 if start == x + WIDTH else -1)
        back = GAP_X * 0.6 * (-1 if end == u else 1)
        y, v = y + HEIGHT // 2, v + HEIGHT // 2
        path = f"M{start} {y} C{start + bend} {y} {end + back} {v} {end} {v}"
        source, target = markup(caller), markup(callee)
        parts.append(
            f'<path class="arrow" data-from="{source}" data-to="{target}" d="{path}">'
            f"<title>{source} calls {target}: {count}</title></path>"
        )
    for module, (x, y) in place.items():
        role = main_role(modules[module])
        words = ", ".join(f"{count} {name}" for name, count in modules[module].items() if count)
        short = _short(module)
        parts.append(
            f'<g class="module {role}" data-module="{markup(module)}" tabindex="0"><title>{markup(module)}: '
            f'{words}</title><rect x="{x}" y="{y}" width="{WIDTH}" height="{HEIGHT}" rx="4"/>'
            f'<text x="{x + 8}" y="{y + 17}">{markup(short)}</text></g>'
        )
    return "".join([*parts, "</svg>"])


def _short(module: str) -> str:
    """The last parts of a module's name, as many as fit."""
    if len(module) <= LONGEST:
        return module
    parts = module[-(LONGEST - 1) :].partition(".")
    return f"…{parts[2] or parts[0]}"


def _depths(modules: list[str], arrows: list[tuple[str, str]]) -> dict[str, int]:
    """The longest way from a module that no other calls; an arrow that closes a circle does not count."""
    callees: dict[str, list[str]] = defaultdict(list)
    for caller, callee in arrows:
        callees[caller].append(callee)
    order: list[str] = []
    state: dict[str, int] = {}
    forward: set[tuple[str, str]] = set()
    for root in modules:
        stack = [(root, iter(callees[root]))] if root not in state else []
        state.setdefault(root, 1)
        while stack:
            module, rest = stack[-1]
            for callee in rest:
                if state.get(callee) != 1:
                    forward.add((module, callee))
                if callee not in state:
                    state[callee] = 1
                    stack.append((callee, iter(callees[callee])))
                    break
            else:
                state[module] = 2
                order.append(module)
                stack.pop()
    depths = dict.fromkeys(modules, 0)
    for module in reversed(order):
        for callee in callees[module]:
            if (module, callee) in forward:
                depths[callee] = max(depths[callee], depths[module] + 1)
    return depths
