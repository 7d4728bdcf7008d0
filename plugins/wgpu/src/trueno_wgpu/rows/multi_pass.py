"""Shaders of programs that fold: rows in teams of lanes, long rows in chunks.

    rows      a team of `lanes` invocations a row, 256 / lanes rows a workgroup, folds joined in workgroup memory
    partial   pass k over chunks of long rows: a workgroup joins what earlier passes left of its row, sweeps its chunk
              and leaves its own partial folds in the scratch buffer
    final     joins the last partials and stores what there is one of a row

Loops have few trips by construction, for software adapters end a loop silently at 65 535: a row's elements over its
lanes in `rows`, a chunk's over 256 in `partial`, plus the joins (see `rowprogram`).  A long sum adds blocks
of plain additions exactly, in two floats; so chains stay short however long the row.

All invocations of a workgroup reach every barrier: those beyond the data have no trips instead of an early return.
"""

import re

from trueno.backend import Pass

from trueno_wgpu.rows.folds import BLOCKED, FOLDS, PACK, FoldText
from trueno_wgpu.rows.printer import THREADS, Lines, Printed, Printer, indent

BLOCK = 32
"""Plain additions of a lane before they are added exactly."""
AHEAD = 4
"""Elements that an invocation loads before it works on them, a vector of WGSL's."""
ROOMS = 6
"""Folds that are joined at once: each takes 2 KiB of workgroup memory, of which WebGPU promises 16."""


class MultiPass(Printer):
    """Prints the passes of a plan."""

    def fold(self, f: int) -> FoldText:
        return FOLDS[self.nodes[f].kind]

    def step(self, f: int, state: str) -> str:
        v = self.nodes[f].args[0]
        truth = self.nodes[f].type == "bool" and self.nodes[v].type == "T"
        value = f"size_bits({self.name(v)}) != 0u" if truth else self.name(v)
        return f"{state} = {self.fold(f).step.format(s=state, v=value, i='col')};"

    def one_pass(self, pass_: Pass, start: str, stop: str, stride: int, at: str, blocked: bool) -> Lines:
        """One pass over elements start, start + stride … below stop; its folds are left in `s`."""
        near = bool(blocked and pass_.loads)
        inside = self.ops(pass_) if near else self.element(pass_, "at")
        blocks = [f for f in pass_.folds if blocked and self.nodes[f].kind in BLOCKED]
        lines = []
        for f in pass_.folds:
            state, start_value = f"s{f}", self.fold(f).start
            if f in blocks:
                lines.append(f"var pair{f} = vec2<f32>(0.0, 0.0);")
            else:
                lines.append(f"var {state} = {start_value};")
            inside.append(self.step(f, state))
        inside = [f"let at = {at};", *inside, *self.stores(pass_, "at")]
        if not blocks:
            return [*lines, *self.loop(pass_, start, stop, stride, at, inside, near)]
        lines.append(f"for (var low = {start}; low < {stop}; low += {stride * BLOCK}u) {{")
        lines += [f"    var s{f} = 0.0;" for f in blocks]
        lines.append(f"    let end = min({stop}, low + {stride * BLOCK}u);")
        lines += indent(self.loop(pass_, "low", "end", stride, at, inside, near))
        lines += [f"    pair{f} = add_exactly(pair{f}, s{f});" for f in blocks]
        return [*lines, "}", *(f"var s{f} = whole(pair{f});" for f in blocks)]

    def loop(self, pass_: Pass, start: str, stop: str, stride: int, at: str, inside: Lines, near: bool) -> Lines:
        """`inside` for each element.  near: it finds AHEAD of them loaded, for a store may be to where a load is from.

        So a compiler leaves loads behind the stores that are before them, and an invocation waits for each.
        """
        if not near:
            return [f"for (var col = {start}; col < {stop}; col += {stride}u) {{", *indent(inside), "}"]
        lines = [f"let far{k} = min(near + {k * stride}u, {stop} - 1u);" for k in range(1, AHEAD)]
        for i, load in self.loads(pass_, at):
            loads = [re.sub(r"\bcol\b", f"far{k}" if k else "near", load) for k in range(AHEAD)]
            lines.append(f"let all{i} = vec{AHEAD}<f32>({', '.join(loads)});")
        taken = [f"let v{i} = all{i}[k];" for i, _ in pass_.loads]
        inner = [f"let col = near + k * {stride}u;", f"if (col >= {stop}) {{ break; }}", *taken, *inside]
        lines += [f"for (var k = 0u; k < {AHEAD}u; k++) {{", *indent(inner), "}"]
        return [f"for (var near = {start}; near < {stop}; near += {AHEAD * stride}u) {{", *indent(lines), "}"]

    def packed(self, f: int, state: str) -> str:
        return PACK[self.fold(f).type][0].format(s=state)

    def unpacked(self, f: int, words: str) -> str:
        return PACK[self.fold(f).type][1].format(s=words)

    def joined(self, folds: Lines, lanes: int) -> Lines:
        """States of all lanes of a team become one, in `s` of each lane."""
        lines: Lines = []
        for some in (folds[i : i + ROOMS] for i in range(0, len(folds), ROOMS)):
            self.rooms = max(self.rooms, len(some))
            numbered = [(int(f), f"room{j}") for j, f in enumerate(some)]
            lines += [f"{room}[lid] = {self.packed(f, f's{f}')};" for f, room in numbered]
            lines += ["workgroupBarrier();", f"for (var step = {lanes // 2}u; step > 0u; step = step >> 1u) {{"]
            lines.append("    if (lane < step) {")
            for f, room in numbered:
                lines.append(f"        let t{f} = {self.unpacked(f, f'{room}[lid + step]')};")
                lines.append(f"        s{f} = {self.fold(f).join.format(s=f's{f}', t=f't{f}')};")
                lines.append(f"        {room}[lid] = {self.packed(f, f's{f}')};")
            lines += ["    }", "    workgroupBarrier();", "}"]
            lines += [f"s{f} = {self.unpacked(f, f'{room}[lid - lane]')};" for f, room in numbered]
            lines.append("workgroupBarrier();")
        return lines

    def results(self, folds: tuple[int, ...]) -> Lines:
        return [f"let r{f} = {self.fold(f).result.format(s=f's{f}')};" for f in folds]

    # ---- rows -----------------------------------------------------------------------------------------

    def rows(self, lanes: int, blocked: bool) -> Printed:
        """A team of `lanes` a row; blocked: rows may have more than BLOCK · lanes elements."""
        lines = [
            f"let lane = lid % {lanes}u;",
            f"let team = (wid.x + wid.y * grid.x) * {THREADS // lanes}u + lid / {lanes}u;",
            "let row = min(team, u.items - 1u);",
            "let n = select(0u, u.n, team < u.items);",
            "let base = row * u.n;",
            *self.row_leaves("u.start + row"),
        ]
        for pass_ in self.plan.passes:
            lines += self.row_ops(pass_.before)
            lines += self.one_pass(pass_, "lane", "n", lanes, "base + col", blocked)
            lines += self.joined([str(f) for f in pass_.folds], lanes) if pass_.folds and lanes > 1 else []
            lines += self.results(pass_.folds)
        lines += self.row_ops(self.plan.tail)
        if stores := self.row_stores("u.start + row"):
            lines += ["if (lane == 0u && team < u.items) {", *indent(stores), "}"]
        return self.shader(f"rows of {lanes} lanes", lines)

    # ---- long rows ------------------------------------------------------------------------------------

    def place(self, f: int) -> int:
        """Where in the scratch buffer a fold's partials are, in units of rows · chunks."""
        return self.program.folds.index(f)

    def gathered(self, k: int) -> Lines:
        """Row values before pass k: partials of the folds of all earlier passes, joined, and the row ops between."""
        lines = []
        for pass_ in self.plan.passes[:k]:
            lines += self.row_ops(pass_.before)
            if not pass_.folds:
                continue
            lines += [f"var s{f} = {self.fold(f).start};" for f in pass_.folds]
            lines.append(f"for (var c = lane; c < u.chunks; c += {THREADS}u) {{")
            for f in pass_.folds:
                at = f"({self.place(f)}u * u.items + row) * u.chunks + c"
                lines.append(f"    let t{f} = {self.unpacked(f, f'{self.bind(self.scratch)}[{at}]')};")
                lines.append(f"    s{f} = {self.fold(f).join.format(s=f's{f}', t=f't{f}')};")
            lines += ["}", *self.joined([str(f) for f in pass_.folds], THREADS), *self.results(pass_.folds)]
        return lines

    def partial(self, k: int) -> Printed:
        """Pass k over chunks."""
        pass_ = self.plan.passes[k]
        self.shared = "col - skipped"
        lines = [
            "let lane = lid;",
            "let group = wid.x + wid.y * grid.x;",
            "let row = min(group / u.here, u.items - 1u);",
            "let number = u.start + group % u.here;",
            "let skipped = u.start * u.chunk;",
            "let base = row * u.n - skipped;",
            "let from_col = number * u.chunk;",
            "let stop = select(from_col, min(from_col + u.chunk, u.n), group < u.items * u.here);",
            *self.row_leaves("row"),
            *self.gathered(k),
            *self.row_ops(pass_.before),
            *self.one_pass(pass_, "from_col + lane", "stop", THREADS, "base + col", True),
        ]
        if pass_.folds:
            lines += self.joined([str(f) for f in pass_.folds], THREADS)
            lines.append("if (lane == 0u && group < u.items * u.here) {")
            for f in pass_.folds:
                at = f"({self.place(f)}u * u.items + row) * u.chunks + number"
                lines.append(f"    {self.bind(self.scratch, True)}[{at}] = {self.packed(f, f's{f}')};")
            lines.append("}")
        return self.shader(f"part {k}", lines)

    def final(self) -> Printed:
        """What there is one of a row."""
        lines = [
            "let lane = lid;",
            "let group = wid.x + wid.y * grid.x;",
            "let row = min(group, u.items - 1u);",
            *self.row_leaves("row"),
            *self.gathered(len(self.plan.passes)),
            *self.row_ops(self.plan.tail),
            "if (lane == 0u && group < u.items) {",
            *indent(self.row_stores("row")),
            "}",
        ]
        return self.shader("finish", lines)
