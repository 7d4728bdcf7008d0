"""The WGSL printer: a lowered row program becomes a shader, or a few.

    flat      nothing folds: one invocation for ITEMS elements
    rows      a team of `lanes` invocations a row, 256 / lanes rows a workgroup, folds joined in workgroup memory
    part k    pass k over chunks of long rows: a workgroup joins what earlier passes left of its row, sweeps its chunk
              and leaves its own partial folds in the scratch buffer
    finish    joins the last partials and stores what there is one of a row

Loops have few trips by construction, for software adapters end a loop in silence at 65 535: ITEMS in `flat`; a row's
elements over the lanes in `rows`, a chunk's over 256 in `part`, plus the joins (see `trueno_wgpu.rowprogram`).
A sum adds blocks of plain additions exactly, in two floats; so chains stay short however long the row.

All invocations of a workgroup reach every barrier: those beyond the data have no trips instead of an early return.
"""

from dataclasses import dataclass
from math import inf, isinf, isnan
from struct import pack, unpack

from trueno.ops.lower import Pass, Plan

from trueno_wgpu.shader import Shader
from trueno_wgpu.wgsl.expressions import ARITHMETIC, EXPRESSIONS, SUMS
from trueno_wgpu.wgsl.folds import BLOCKED, FOLDS, PACK, FoldText
from trueno_wgpu.wgsl.prelude import prelude

THREADS = 256
ITEMS = 4
BLOCK = 32
"""Plain additions of a lane before they are added exactly."""
ROOMS = 6
"""Folds that are joined at once: each takes 2 KiB of workgroup memory, of which WebGPU promises 16."""
FIELDS = ("zero", "items", "n", "start", "chunk", "chunks", "here", "inf", "nan", "length")
"""Of the uniforms, before the parameters.  items: elements (flat) or rows of this launch.  start: the element, row or
chunk that it begins with.  chunk, chunks, here: elements of a chunk, chunks of a row, and of a row in this launch."""
Lines = list[str]
CLEAR = ["var bad = 0u;", "if (lid == 0u) { atomicStore(&found, 0u); }", "workgroupBarrier();"]
"""WebGPU says that workgroup memory is zero at first; lavapipe's atomics are not."""


@dataclass(frozen=True, slots=True)
class Printed:
    """A shader, and the slots (see `Printer`) of the buffers that it binds, in order."""

    shader: Shader
    slots: tuple[int, ...]


class Printer:
    """Prints one plan for buffers that may be shared.

    Slots number what a call hands over: operands, then results, then the scratch buffer and the status word.
    alias: for every operand and result the first slot of the same buffer, its own where it shares none.
    """

    def __init__(self, plan: Plan, title: str, *, guarded: bool = False, alias: tuple[int, ...] = ()) -> None:
        self.plan, self.title, self.guarded = plan, title, guarded
        self.program = plan.program
        self.nodes = plan.program.nodes
        self.kinds = dict(self.program.operands)
        self.slots = {name: i for i, name in enumerate(self.kinds)}
        self.first_out = len(self.kinds)
        self.scratch = self.first_out + len(self.program.outputs)
        self.status = self.scratch + 1
        self.alias = (*(alias or range(self.scratch)), self.scratch, self.status)
        self.used: dict[int, bool] = {}  # slot of a buffer → whether it is written
        self.rooms = 0

    # ---- a module -------------------------------------------------------------------------------------

    def shader(self, name: str, lines: Lines) -> Printed:
        """Wrap the body of `main`: uniforms, bindings, functions, flags."""
        flags = any("bad |=" in line for line in lines)
        body = [*self.preamble(), *(CLEAR if flags else []), *lines, *(self.report() if flags else [])]
        constants = self.constants()
        text = "\n".join([*constants, *body])
        params = [f"p{i}" for i in range(len(self.program.params))]
        fields = [f"{f}: {'f32' if f in ('inf', 'nan', 'length') else 'u32'}" for f in FIELDS]
        head = [f"// {line}" for line in [self.title, *self.program.text.split("\n")]]
        head += ["", f"struct Uniforms {{ {', '.join([*fields, *(f'{p}: f32' for p in params)])} }}"]
        head.append("@group(0) @binding(0) var<uniform> u: Uniforms;")
        bound = sorted(self.used)
        for i, slot in enumerate(bound, 1):
            access = "read_write" if self.used[slot] else "read"
            head.append(f"@group(0) @binding({i}) var<storage, {access}> {self.buffer(slot)}: {self.content(slot)};")
        head += [f"var<workgroup> room{i}: array<vec2<u32>, {THREADS}>;" for i in range(self.rooms)]
        head += ["var<workgroup> found: atomic<u32>;"] if self.status in self.used else []
        builtins = [
            "workgroup_id) wid: vec3<u32>",
            "num_workgroups) grid: vec3<u32>",
            "local_invocation_index) lid: u32",
        ]
        entry = [f"@compute @workgroup_size({THREADS})", f"fn main({', '.join(f'@builtin({b}' for b in builtins)}) {{"]
        source = "\n".join([*head, "", *filter(None, [prelude(text), ""]), *constants, *entry, *indent(body), "}", ""])
        return Printed(Shader(name, source, tuple(self.used[s] for s in bound)), tuple(bound))

    def buffer(self, slot: int) -> str:
        if slot >= self.scratch:
            return "scratch" if slot == self.scratch else "status"
        return f"in{slot}" if slot < self.first_out else f"out{slot - self.first_out}"

    def content(self, slot: int) -> str:
        if slot == self.status:
            return "atomic<u32>"
        words = slot == self.scratch or (slot >= self.first_out and self.output_type(slot - self.first_out) == "index")
        return "array<vec2<u32>>" if words else "array<f32>"

    def output_type(self, k: int) -> str:
        return self.nodes[self.program.outputs[k]].type

    def bind(self, slot: int, write: bool = False) -> str:
        """The name of a slot's buffer, which will be bound."""
        slot = self.alias[slot]
        self.used[slot] = self.used.get(slot, False) or write
        return self.buffer(slot)

    # ---- values ---------------------------------------------------------------------------------------

    def name(self, i: int) -> str:
        node = self.nodes[i]
        match node.kind:
            case "const":
                return f"c{i}"
            case "param":
                return f"u.p{self.program.params.index(str(node.value))}"
            case "count":
                return "u.length"
            case "position":
                return "col"
        return f"{'v' if node.space == 'e' else 'r'}{i}"

    def constants(self) -> Lines:
        """Constants that WGSL can write; infinities, NaN and zero are values of the call (`preamble`)."""
        values = {i: float32(float(n.value)) for i, n in enumerate(self.nodes) if n.kind == "const"}  # type: ignore[arg-type]
        return [f"const c{i} = {literal(v)};" for i, v in values.items() if v != 0 and not isinf(v) and not isnan(v)]

    def preamble(self) -> Lines:
        """Zero is hidden: x · 0 and x + 0 must not be folded away, for x may be Inf, NaN or −0."""
        lines = []
        for i, n in enumerate(self.nodes):
            if n.kind == "const":
                v = float32(float(n.value))  # type: ignore[arg-type]
                if isnan(v) or isinf(v):
                    lines.append(f"let c{i} = {'u.nan' if isnan(v) else 'u.inf' if v > 0 else 'negative(u.inf)'};")
                elif v == 0:
                    negative = str(v)[0] == "-"
                    lines.append(f"let c{i} = bitcast<f32>(u.zero{' | 0x80000000u' if negative else ''});")
        return lines

    def expression(self, i: int) -> str:
        """An op's text.  Intermediates that a compiler could regroup or cancel are hidden from it.

        What stays in sight is a product that is added, for contraction is no error.
        """
        node = self.nodes[i]
        apart = node.kind in ("mul", "fma")
        if node.kind in ("add", "sub"):
            a, b = ({*self.nodes[x].args, x} if self.nodes[x].kind in ARITHMETIC else {x} for x in node.args)
            apart = bool(a & b)
        given = []
        for a in node.args:
            hidden = self.nodes[a].kind in (ARITHMETIC if apart else SUMS) and node.kind in ARITHMETIC
            given.append(f"hide({self.name(a)})" if hidden else self.name(a))
        if node.kind == "sub" and node.args[0] == node.args[1]:
            given[1] = f"hide({self.name(node.args[1])})"
        return EXPRESSIONS[node.kind].format(*given)

    def element(self, sweep: Pass, at: str) -> Lines:
        """One element at `at` of the arrays and `col` of its row: its loads, then its ops."""
        lines = []
        for i, source in sweep.loads:
            slot = self.slots[source] if isinstance(source, str) else self.first_out + source
            shared = isinstance(source, str) and self.kinds[source] == "w"
            lines.append(f"let v{i} = {self.bind(slot)}[{self.shared if shared else at}];")
        return lines + [f"let v{i} = {self.expression(i)};" for i in sweep.body if self.nodes[i].kind != "position"]

    shared = "col"
    """Index of a shared row's element."""

    def stores(self, sweep: Pass, at: str) -> Lines:
        lines = []
        for k, i in sweep.stores:
            lines.append(f"{self.bind(self.first_out + k, True)}[{at}] = {self.name(i)};")
            if self.guarded and self.program.outputs[k] == i:
                lines.append(f"bad |= trouble({self.name(i)});")
        return lines

    def row_leaves(self, row: str) -> Lines:
        lines = []
        for i, n in enumerate(self.nodes):
            if n.kind == "leaf" and n.space != "e":
                at = row if self.kinds[str(n.value)] == "r" else "0"
                lines.append(f"let r{i} = {self.bind(self.slots[str(n.value)])}[{at}];")
        return lines

    def row_ops(self, ops: tuple[int, ...]) -> Lines:
        return [f"let r{i} = {self.expression(i)};" for i in ops]

    def row_stores(self, row: str) -> Lines:
        """What there is one of a row."""
        lines = []
        for k in self.plan.row_outputs:
            name = self.name(self.program.outputs[k])
            index = self.output_type(k) == "index"
            value = f"vec2<u32>({name}, 0u)" if index else name
            lines.append(f"{self.bind(self.first_out + k, True)}[{row}] = {value};")
            if self.guarded and not index:
                lines.append(f"bad |= trouble({name});")
        return lines

    def report(self) -> Lines:
        """The workgroup's flags go to the status word, once."""
        self.bind(self.status, True)
        return [
            "if (bad != 0u) { atomicOr(&found, bad); }",
            "workgroupBarrier();",
            "if (lid == 0u) {",
            "    let all_bad = atomicLoad(&found);",
            "    if (all_bad != 0u) { atomicOr(&status, all_bad); }",
            "}",
        ]

    # ---- nothing folds --------------------------------------------------------------------------------

    def flat(self) -> Printed:
        """rows · n elements, one after the other."""
        sweep = self.plan.passes[0]
        by_row = self.by_row
        place = ["let place = u.start + i;", "let row = place / u.n;", "let col = place - row * u.n;"] if by_row else []
        inside = [*place, *self.row_leaves("row"), *self.row_ops(sweep.before)]
        inside += [*self.element(sweep, "i"), *self.stores(sweep, "i")]
        body = [
            f"let first = (wid.x + wid.y * grid.x) * {THREADS * ITEMS}u + lid;",
            f"for (var k = 0u; k < {ITEMS}u; k++) {{",
            f"    let i = first + k * {THREADS}u;",
            "    if (i < u.items) {",
            *indent(inside, 2),
            "    }",
            "}",
        ]
        return self.shader("flat", body)

    @property
    def by_row(self) -> bool:
        """Whether an element's row or column matters."""
        kinds = {self.kinds[str(n.value)] for n in self.nodes if n.kind == "leaf"}
        return bool(kinds & {"w", "r"}) or any(n.kind == "position" for n in self.nodes)

    # ---- sweeps with folds ----------------------------------------------------------------------------

    def fold(self, f: int) -> FoldText:
        return FOLDS[self.nodes[f].kind]

    def step(self, f: int, state: str) -> str:
        v = self.nodes[f].args[0]
        truth = self.nodes[f].type == "bool" and self.nodes[v].type == "T"
        value = f"size_bits({self.name(v)}) != 0u" if truth else self.name(v)
        return f"{state} = {self.fold(f).step.format(s=state, v=value, i='col')};"

    def sweep(self, sweep: Pass, start: str, stop: str, stride: int, at: str, blocked: bool) -> Lines:
        """One pass over elements start, start + stride … below stop; its folds are left in `s`."""
        inside = self.element(sweep, "at")
        blocks = [f for f in sweep.folds if blocked and self.nodes[f].kind in BLOCKED]
        lines = []
        for f in sweep.folds:
            state, start_value = f"s{f}", self.fold(f).start
            if f in blocks:
                lines.append(f"var pair{f} = vec2<f32>(0.0, 0.0);")
            else:
                lines.append(f"var {state} = {start_value};")
            inside.append(self.step(f, state))
        inside = [f"let at = {at};", *inside, *self.stores(sweep, "at")]
        if not blocks:
            lines.append(f"for (var col = {start}; col < {stop}; col += {stride}u) {{")
            return [*lines, *indent(inside), "}"]
        lines.append(f"for (var low = {start}; low < {stop}; low += {stride * BLOCK}u) {{")
        lines += [f"    var s{f} = 0.0;" for f in blocks]
        lines.append(f"    let end = min({stop}, low + {stride * BLOCK}u);")
        lines.append(f"    for (var col = low; col < end; col += {stride}u) {{")
        lines += [*indent(inside, 2), "    }"]
        lines += [f"    pair{f} = add_exactly(pair{f}, s{f});" for f in blocks]
        return [*lines, "}", *(f"var s{f} = whole(pair{f});" for f in blocks)]

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
        for sweep in self.plan.passes:
            lines += self.row_ops(sweep.before)
            lines += self.sweep(sweep, "lane", "n", lanes, "base + col", blocked)
            lines += self.joined([str(f) for f in sweep.folds], lanes) if sweep.folds and lanes > 1 else []
            lines += self.results(sweep.folds)
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
        for sweep in self.plan.passes[:k]:
            lines += self.row_ops(sweep.before)
            if not sweep.folds:
                continue
            lines += [f"var s{f} = {self.fold(f).start};" for f in sweep.folds]
            lines.append(f"for (var c = lane; c < u.chunks; c += {THREADS}u) {{")
            for f in sweep.folds:
                at = f"({self.place(f)}u * u.items + row) * u.chunks + c"
                lines.append(f"    let t{f} = {self.unpacked(f, f'{self.bind(self.scratch)}[{at}]')};")
                lines.append(f"    s{f} = {self.fold(f).join.format(s=f's{f}', t=f't{f}')};")
            lines += ["}", *self.joined([str(f) for f in sweep.folds], THREADS), *self.results(sweep.folds)]
        return lines

    def part(self, k: int) -> Printed:
        """Pass k over chunks."""
        sweep = self.plan.passes[k]
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
            *self.row_ops(sweep.before),
            *self.sweep(sweep, "from_col + lane", "stop", THREADS, "base + col", True),
        ]
        if sweep.folds:
            lines += self.joined([str(f) for f in sweep.folds], THREADS)
            lines.append("if (lane == 0u && group < u.items * u.here) {")
            for f in sweep.folds:
                at = f"({self.place(f)}u * u.items + row) * u.chunks + number"
                lines.append(f"    {self.bind(self.scratch, True)}[{at}] = {self.packed(f, f's{f}')};")
            lines.append("}")
        return self.shader(f"part {k}", lines)

    def finish(self) -> Printed:
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


def float32(value: float) -> float:
    """Rounded to float32; infinite beyond it."""
    try:
        return float(unpack("f", pack("f", value))[0])
    except OverflowError:
        return inf if value > 0 else -inf


def literal(value: float) -> str:
    """A float32 as WGSL text; a subnormal by its bits, for compilers need not take it as a number."""
    if abs(value) < 2.0**-126:
        return f"bitcast<f32>(0x{unpack('I', pack('f', value))[0]:08x}u)"
    return f"{value:.9g}f" if value != int(value) or abs(value) >= 1e9 else f"{int(value)}.0f"


def indent(lines: Lines, by: int = 1) -> Lines:
    return ["    " * by + line for line in lines]
