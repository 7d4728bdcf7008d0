"""Pictures of an entry as SVG: its control flow, and where the lanes of a warp go with one access."""

from html import escape as quoted

import numpy as np
from trueno.backend import escape

from trueno_cuda.ptx.analyze.access import BANKS, SECTOR, Access, offsets
from trueno_cuda.ptx.analyze.effects import waits
from trueno_cuda.ptx.analyze.entry import Entry
from trueno_cuda.ptx.analyze.graph import OUT
from trueno_cuda.ptx.syntax.types import Array

MOST = 300
"""Blocks of a picture; a larger one cannot be read."""
WIDTH, HEIGHT, GAP_X, GAP_Y = 170, 36, 26, 30
COLUMN, ROW = 26, 120
"""Width of a sector or a bank, and the height between lanes and memory."""


def markup(text: str) -> str:
    """Text from outside: only what is visible, and no markup."""
    return quoted(escape.escaped(text, keep=escape.LINES))


# ---- control flow -------------------------------------------------------------------------------


def control_flow(entry: Entry, worst: dict[int, str], anchor: str) -> str:
    """The blocks within reach, from top to bottom; worst: the gravest severity of a finding in a block."""
    graph = entry.graph
    order = graph.order
    if not order or len(order) > MOST:
        return f"<p>{len(order)} blocks: no picture, which shows at most {MOST}.</p>"
    place = {n: k for k, n in enumerate(order)}
    rank = dict.fromkeys(order, 0)
    for n in order:
        for t in graph.blocks[n].successors:
            if t != OUT and place[t] > place[n]:
                rank[t] = max(rank[t], rank[n] + 1)
    rows: dict[int, list[int]] = {}
    for n in sorted(order):
        rows.setdefault(rank[n], []).append(n)
    left = 60 + 8 * sum(size for size in map(graph.loops.size, graph.loops.heads) if size < 4)
    left = min(left, 140)
    corner: dict[int, tuple[int, int]] = {}
    for r, members in rows.items():
        for k, n in enumerate(members):
            corner[n] = left + k * (WIDTH + GAP_X), 16 + r * (HEIGHT + GAP_Y)
    wide = max(x for x, _ in corner.values()) + WIDTH + 20
    high = max(y for _, y in corner.values()) + HEIGHT + 40
    end = left + WIDTH // 2, high - 16
    parts = [_open("flow", wide, high, f"Control flow of {markup(entry.name)}")]
    for n in order:
        for k, t in enumerate(graph.blocks[n].successors):
            x, y = corner[n][0] + WIDTH // 2 + 12 * k, corner[n][1] + HEIGHT
            kind = "taken" if k == 0 and len(graph.blocks[n].successors) > 1 else "next"
            if t == OUT:
                path = f"M{x} {y} C{x} {y + 20} {end[0]} {end[1] - 24} {end[0]} {end[1] - 8}"
            elif place[t] > place[n]:
                u, v = corner[t][0] + WIDTH // 2, corner[t][1]
                path = f"M{x} {y} C{x} {y + GAP_Y} {u} {v - GAP_Y} {u} {v}"
                if rank[t] > rank[n] + 1 and abs(x - u) < WIDTH // 2:  # around what stands between
                    side = max(x, u) + WIDTH // 2 + 14
                    path = f"M{x} {y} C{x} {y + 20} {side} {y} {side} {(y + v) // 2} S{u} {v - 20} {u} {v}"
            else:
                kind = "back"
                v, reach = corner[t][1] + HEIGHT // 2, corner[t][0] - 20 - 8 * (rank[n] - rank[t]) % 40
                path = f"M{x} {y} C{x} {y + 24} {reach} {y + 24} {reach} {(y + v) // 2} S{reach} {v} {corner[t][0]} {v}"
            parts.append(f'<path class="{kind}" d="{path}"/>')
    names = {at: name.partition("#")[0] for name, at in reversed(graph.labels.items())}
    for n in order:
        block, (x, y) = graph.blocks[n], corner[n]
        code = graph.code[block.start : block.end]
        first, last = code[0].line, code[-1].line
        lines = f"line {first}" if first == last else f"lines {first} to {last}"
        waiting = any(waits(ins) for ins in code)
        depth = min(graph.loops.around(n), 3)
        title = f"{len(code)} instructions{', with a barrier' if waiting else ''}"
        name = names.get(block.start, f"block {n}")[:18] + " · bar" * waiting
        parts += [
            f'<a href="#{anchor}-L{first}"><g class="block depth{depth} {worst.get(n, "")}"><title>{title}</title>',
            f'<rect x="{x}" y="{y}" width="{WIDTH}" height="{HEIGHT}" rx="4"/>',
            f'<text x="{x + 8}" y="{y + 15}">{markup(name)}</text>',
            _small(x + 8, y + 29, f"{lines}, {len(code)} instr."),
            "</g></a>",
        ]
    parts.append(f'<text x="{end[0] - 12}" y="{end[1] + 6}">end</text></svg>')
    return "".join(parts)


# ---- lanes --------------------------------------------------------------------------------------


def lanes(entry: Entry, access: Access) -> str:
    """Where a warp's lanes go: sectors of global memory, banks of shared memory; "" where that is not known."""
    first = offsets(entry.warp_lanes, access.form) if access.space in ("global", "shared") else None
    if first is None or not access.bytes:
        return ""
    return _sectors(first, access) if access.space == "global" else _banks(first[: access.lanes], access)


def _open(kind: str, wide: int, high: int, label: str) -> str:
    size = f'viewBox="0 0 {wide} {high}" width="{wide}" height="{high}"'
    return f'<svg class="{kind}" {size} role="img" aria-label="{label}">'


def _frame(columns: int, label: str, body: list[str]) -> str:
    return "".join([_open("lanes", columns * COLUMN + 40, ROW + 70, label), *body, "</svg>"])


def _lane(lane: int, count: int, columns: int) -> float:
    """Where a lane stands."""
    return 20 + (lane + 0.5) * columns * COLUMN / count


def _sectors(first: Array, access: Access) -> str:
    touched = first[:, None] + np.arange(access.bytes)
    sectors = np.unique(touched // SECTOR).tolist()
    used = np.unique(touched)
    place = {sector: k for k, sector in enumerate(sectors)}
    columns, count = max(len(sectors), 26), len(first)
    body = []
    for sector, k in place.items():
        share = int((used // SECTOR == sector).sum())
        x, filled = 20 + k * COLUMN, 24 * share // SECTOR
        start = sector * SECTOR
        body += [
            f'<g class="cell"><title>bytes {start} to {start + SECTOR - 1} behind the base: {share} used</title>',
            f'<rect x="{x}" y="{ROW + 20}" width="{COLUMN - 3}" height="24"/>',
            f'<rect class="used" x="{x}" y="{ROW + 44 - filled}" width="{COLUMN - 3}" height="{filled}"/></g>',
        ]
        if k and sectors[k - 1] != sector - 1:
            body.append(f'<path class="gap" d="M{x - 2} {ROW + 14} V{ROW + 50}"/>')
    for lane, address in enumerate(first.tolist()):
        middle = address + access.bytes / 2
        x = 20 + (place[address // SECTOR] + (middle - address // SECTOR * SECTOR) / SECTOR) * COLUMN
        body.append(_arrow(lane, _lane(lane, count, columns), x, f"byte {address}", ""))
    body.append(_small(20, ROW + 62, f"{len(sectors)} sectors of {SECTOR} bytes; a line stands for a gap"))
    return _frame(columns, "Lanes of a warp and the sectors that they access", body)


def _banks(first: Array, access: Access) -> str:
    together = {8: 16, 16: 8}.get(access.bytes, 32)
    part = first[:together]
    words: dict[int, set[int]] = {}
    for address in part.tolist():
        for byte in range(0, access.bytes, 4):
            words.setdefault((address + byte) // 4 % BANKS, set()).add((address + byte) // 4)
    body = []
    for bank in range(BANKS):
        count, x = len(words.get(bank, ())), 20 + bank * COLUMN
        kind = "clash" if count > 1 else "used" if count else ""
        shown = f"{count}×" if count > 1 else str(bank)
        body += [
            f'<g class="cell"><title>bank {bank}: {count} words</title>',
            f'<rect class="{kind}" x="{x}" y="{ROW + 20}" width="{COLUMN - 3}" height="24"/>',
            f"{_small(x + 4, ROW + 36, shown)}</g>",
        ]
    for lane, address in enumerate(part.tolist()):
        bank = address // 4 % BANKS
        end = min(20 + (bank + max(access.bytes // 4, 1) / 2) * COLUMN, 20 + BANKS * COLUMN)
        kind = "clash" if len(words[bank]) > 1 else ""
        body.append(_arrow(lane, _lane(lane, len(part), BANKS), end, f"byte {address}", kind))
    which = f"lanes 0 to {len(part) - 1}, which are served together; " if together < 32 else ""
    most = max(map(len, words.values()))
    body.append(_small(20, ROW + 62, f"{which}{BANKS} banks, {most} word{'' if most == 1 else 's'} at most in one"))
    return _frame(BANKS, "Lanes of a warp and the banks that they access", body)


def _arrow(lane: int, start: float, end: float, words: str, kind: str) -> str:
    title = f"<title>lane {lane}: {words}</title>"
    path = f'<path d="M{start:.1f} 22 L{end:.1f} {ROW + 20}"/><circle cx="{start:.1f}" cy="14" r="8"/>'
    return f'<g class="lane {kind}">{title}{path}{_small(start - 5, 18, str(lane))}</g>'


def _small(x: float, y: float, words: str) -> str:
    return f'<text class="small" x="{x:.1f}" y="{y}">{words}</text>'
