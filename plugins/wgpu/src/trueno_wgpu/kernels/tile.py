"""The text of a tiled matrix product: C[m,n] = A[m,k] B[k,n], or B given as [n,k] where `turned`.

A workgroup makes a tile of C.  Slices of A and B, `depth` steps of k, go through workgroup memory, where both lie with
k as the outer axis, so that a step reads vec4s of rows and of columns.  An invocation reads 4x4 blocks from memory
(four vec4s) and turns those that lie along k in its registers, since storing a component of a vec4 that other
invocations store too is a race in WGSL.  It keeps `height` x `width` sums as vec4s with names: no array, so no indices
to check.

An index that a compiler cannot prove is bounded by a `min`, which takes its turn beside the multiply-adds.  So the
slices are nests of arrays, of which the inner loop's constants index one axis and what is constant over the loop the
other: such a `min` is needed once, or never.  `benchmarks/wgpu_matmul.py --unchecked` tells what is left of it.

The halves of an invocation's rows and columns lie half a tile apart, so that neighbours read neighbouring vec4s.
"""

from dataclasses import dataclass
from functools import cache

from trueno_wgpu.kernels.store import PLAIN, Store
from trueno_wgpu.kernels.tile_text import BATCH, PLACE, PUT, SIZES, Reads, reader


@dataclass(frozen=True, slots=True)
class Tile:
    """Sizes of a tile, all powers of two."""

    rows: int
    columns: int
    depth: int
    height: int
    width: int
    unroll: int = 4
    """Steps of k written out, a multiple of 4."""
    ahead: bool = True
    """Whether the next slice is read from memory while this one is multiplied."""
    slices: int = 1
    """Slices in workgroup memory: with two there is one barrier a slice."""
    group: int = 8
    """Rows of tiles that neighbouring workgroups share, for what they find in the cache."""

    @property
    def invocations(self) -> int:
        return self.rows // self.height * (self.columns // self.width)

    @property
    def workgroup_bytes(self) -> int:
        return self.slices * self.depth * (self.rows + self.columns) * 4

    @property
    def trips(self) -> int:
        """Of all loops, a slice."""
        return 1 + (self.depth // self.unroll if self.unroll < self.depth else 0)

    def __str__(self) -> str:
        more = ("" if self.ahead else " late") + (f" {self.slices} slices" if self.slices > 1 else "")
        shape = f"{self.rows}x{self.columns}x{self.depth} by {self.height}x{self.width}"
        return f"{shape} unroll {self.unroll}{more}" + ("" if self.group == 8 else f" group {self.group}")


@dataclass(frozen=True, slots=True)
class Form:
    """What else changes the text."""

    reads: Reads
    turned: bool = False
    batched: bool = False
    store: Store = PLAIN


class Printer:
    """Prints one text."""

    def __init__(self, tile: Tile, form: Form) -> None:
        self.tile, self.form = tile, form
        self.a_blocks = tile.rows * tile.depth // 16
        self.blocks = self.a_blocks + tile.columns * tile.depth // 16
        self.rounds = range(-(-self.blocks // tile.invocations))

    def text(self) -> str:
        t, form = self.tile, self.form
        kind = "f32" if form.reads == "ones" else "vec4<f32>"
        width = 1 if form.reads == "ones" else 4
        memory = f"array<array<vec4<f32>, {{}}u>, {t.unroll}u>, {t.depth // t.unroll}u>"
        rows = f"array<{memory.format(t.rows // 4)}"
        columns = f"array<{memory.format(t.columns // 4)}"
        lines = [
            form.store.sizes(SIZES),
            f"@group(0) @binding(1) var<storage, read> a: array<{kind}>;",
            f"@group(0) @binding(2) var<storage, read> b: array<{kind}>;",
            f"@group(0) @binding(3) var<storage, read_write> out: array<{kind}>;",
            form.store.declarations(4),
            f"var<workgroup> rows: array<{rows}, {t.slices}u>;",
            f"var<workgroup> columns: array<{columns}, {t.slices}u>;",
            "var<private> base_a: u32;\nvar<private> base_b: u32;\nvar<private> base_c: u32;",
            "var<private> first_row: u32;\nvar<private> end: u32;\n",
            reader("a", form.reads, "sizes.m", "end", "sizes.k"),
            reader("b", form.reads, "sizes.n", "end", "sizes.k")
            if form.turned
            else reader("b", form.reads, "end - sizes.skip", "sizes.n", "sizes.n"),
            form.store.function(width, adds=True),
            f"fn put(row: u32, column: u32, v: vec4<f32>) {{\n{PUT[form.reads]}}}\n",
            f"@compute @workgroup_size({t.invocations})",
            "fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,",
            "        @builtin(local_invocation_index) me: u32) {",
            self.place(),
            self.sums(),
            self.body(),
            self.results() + form.store.end + "}",
        ]
        return "\n".join(line for line in lines if line) + "\n"

    def place(self) -> str:
        t = self.tile
        text = PLACE.replace("GROUP", str(t.group)).replace("ROWS", str(t.rows)).replace("COLUMNS", str(t.columns))
        if self.form.batched:
            text += BATCH
        elif not self.form.store.partial:
            text += "    base_c = sizes.first;\n"
        if self.form.batched or self.form.store.partial:
            text += f"    base_c = {'part' if self.form.store.partial else 'batch'} * sizes.m * sizes.n;\n"
        if self.form.store.epilogue:
            text += "    first_row += sizes.above;\n"
        across = t.columns // t.width
        return text + f"    let mine = vec2<u32>(me % {across}u, me / {across}u);\n"

    def sums(self) -> str:
        t = self.tile
        names = [f"c{i}_{h}" for i in range(t.height) for h in range(t.width // 4)]
        return "\n".join(f"    var {name} = vec4<f32>();" for name in names)

    # ---- slices: memory -> registers -> workgroup memory

    def registers(self) -> str:
        return "\n".join(f"    var r{r}_{j} = vec4<f32>();" for r in self.rounds for j in range(4))

    def slot(self, r: int) -> str:
        return f"me + {r * self.tile.invocations}u" if r else "me"

    def blocked(self, r: int, extent: int, name: str) -> tuple[str, str]:
        """Which block of an operand that lies along k the slot of round r is: (along its rows, along k).

        Eight neighbours read eight rows, which they store side by side; the next eight read further along the rows.
        """
        side = min(extent // 4, 8)
        deep = self.tile.depth // 4
        slot = f"(slot{r} - {self.a_blocks}u)" if name == "b" else f"slot{r}"
        along = f"{slot} % {side}u + {slot} / {side * deep}u * {side}u" if extent // 4 > side else f"{slot} % {side}u"
        return along, f"{slot} / {side}u % {deep}u"

    def load(self, indent: str, k: str) -> str:
        """Read the slice that begins at `k` into registers."""
        return self._each(indent, self._load, k)

    def _load(self, r: int, name: str, indent: str, k: str) -> list[str]:
        t = self.tile
        if name == "a" or self.form.turned:
            corner = "top" if name == "a" else "left"
            along, deep = self.blocked(r, t.rows if name == "a" else t.columns, name)
            row, step = f"{corner} + ({along}) * 4u", f"{k} + {deep} * 4u"
            return [f"{indent}r{r}_{j} = {name}4({row} + {j}u, {step});" for j in range(4)]
        slot = f"(slot{r} - {self.a_blocks}u)"
        row, column = f"{k} - sizes.skip + {slot} / {t.columns // 4}u * 4u", f"left + {slot} % {t.columns // 4}u * 4u"
        return [f"{indent}r{r}_{j} = b4({row} + {j}u, {column});" for j in range(4)]

    def keep(self, indent: str, at: str) -> str:
        """Store the registers as slice `at` of workgroup memory."""
        return self._each(indent, self._keep, at)

    def _keep(self, r: int, name: str, indent: str, at: str) -> list[str]:
        t = self.tile
        if name == "a" or self.form.turned:
            along, deep = self.blocked(r, t.rows if name == "a" else t.columns, name)
            values = [f"vec4<f32>({', '.join(f'r{r}_{j}.{c}' for j in range(4))})" for c in "xyzw"]
        else:
            slot = f"(slot{r} - {self.a_blocks}u)"
            along, deep = f"{slot} % {t.columns // 4}u", f"{slot} / {t.columns // 4}u"
            values = [f"r{r}_{j}" for j in range(4)]
        array, part = "rows" if name == "a" else "columns", t.unroll // 4
        lines = [f"{indent}let along = {along};", f"{indent}let deep = {deep};"]
        for j, value in enumerate(values):
            inner = f"deep % {part}u * 4u + {j}u" if part > 1 else f"{j}u"
            if t.unroll == t.depth:
                lines.append(f"{indent}{array}[{at}][0u][deep * 4u + {j}u][along] = {value};")
            else:
                lines.append(f"{indent}{array}[{at}][deep / {part}u][{inner}][along] = {value};")
        return lines

    def _each(self, indent: str, lines_of: object, argument: str) -> str:
        """What the slots of every round do: first those of A's blocks, then of B's."""
        assert callable(lines_of)
        lines: list[str] = []
        for r in self.rounds:
            start, stop = r * self.tile.invocations, (r + 1) * self.tile.invocations
            for name, first, last in (("a", 0, self.a_blocks), ("b", self.a_blocks, self.blocks)):
                if stop <= first or start >= last:
                    continue
                tests = [f"slot{r} >= {first}u"] * (start < first) + [f"slot{r} < {last}u"] * (stop > last)
                if tests:
                    inside = lines_of(r, name, indent + "    ", argument)
                    lines += [f"{indent}if ({' && '.join(tests)}) {{", *inside, f"{indent}}}"]
                else:
                    lines += [f"{indent}{{", *lines_of(r, name, indent + "    ", argument), f"{indent}}}"]
        return "\n".join(lines)

    # ---- the loop over k

    def body(self) -> str:
        t = self.tile
        slots = "\n".join(f"    let slot{r} = {self.slot(r)};" for r in self.rounds)
        loop = f"    for (var k = begin; k < stop; k += {t.depth}u) {{"
        ready = f"        if (k + {t.depth}u < stop) {{"
        inner = "            "
        following = [ready, self.load(inner, f"k + {t.depth}u"), "        }"]
        barrier = "        workgroupBarrier();"
        if t.slices == 2:
            lines = [self.load("    ", "begin"), self.keep("    ", "0u"), "    workgroupBarrier();", "    var at = 0u;"]
            lines += [loop, *following, self.multiply("        ", "at")]
            lines += [ready, self.keep(inner, "1u - at"), "        }", barrier, "        at = 1u - at;", "    }"]
        elif t.ahead:
            lines = [self.load("    ", "begin"), loop, self.keep("        ", "0u"), barrier]
            lines += [*following, self.multiply("        ", "0u"), barrier, "    }"]
        else:
            lines = [loop, self.load("        ", "k"), self.keep("        ", "0u"), barrier]
            lines += [self.multiply("        ", "0u"), barrier, "    }"]
        return "\n".join([slots, self.registers(), *lines])

    def multiply(self, indent: str, at: str) -> str:
        t = self.tile
        turns = t.depth // t.unroll
        lines, step = [], indent
        if turns > 1:
            lines.append(f"{indent}for (var turn = 0u; turn < {turns}u; turn += 1u) {{")
            step += "    "
        turn = "turn" if turns > 1 else "0u"
        for u in range(t.unroll):
            lines.append(f"{step}{{")
            for name, array, halves, mine, apart in (
                ("a", "rows", t.height // 4, "mine.y", t.rows // t.height),
                ("b", "columns", t.width // 4, "mine.x", t.columns // t.width),
            ):
                for h in range(halves):
                    where = f"{mine} + {h * apart}u" if h else mine
                    lines.append(f"{step}    let {name}{h} = {array}[{at}][{turn}][{u}u][{where}];")
            for i in range(t.height):
                for h in range(t.width // 4):
                    value = f"vec4<f32>(a{i // 4}.{'xyzw'[i % 4]})"
                    lines.append(f"{step}    c{i}_{h} = fma({value}, b{h}, c{i}_{h});")
            lines.append(f"{step}}}")
        return "\n".join([*lines, *([f"{indent}}}"] if turns > 1 else [])])

    def results(self) -> str:
        t = self.tile
        lines = []
        for i in range(t.height):
            row = f"top + {i // 4 * (t.rows // (t.height // 4)) + i % 4}u + mine.y * 4u"
            for h in range(t.width // 4):
                column = f"left + {h * (t.columns // (t.width // 4))}u + mine.x * 4u"
                lines.append(f"    put({row}, {column}, c{i}_{h});")
        return "\n".join(lines) + "\n"


@cache
def tiled(tile: Tile, form: Form) -> str:
    """The text of a tile's product."""
    return Printer(tile, form).text()


@cache
def naive(form: Form) -> str:
    """One sum an invocation, 16x16 of them a workgroup, operands read where they lie: for what is small."""
    plain = Form("ones", form.turned, form.batched, form.store)
    printer = Printer(NAIVE, plain)
    lines = [
        form.store.sizes(SIZES),
        "@group(0) @binding(1) var<storage, read> a: array<f32>;",
        "@group(0) @binding(2) var<storage, read> b: array<f32>;",
        "@group(0) @binding(3) var<storage, read_write> out: array<f32>;",
        form.store.declarations(4),
        "var<private> base_a: u32;\nvar<private> base_b: u32;\nvar<private> base_c: u32;",
        "var<private> first_row: u32;\nvar<private> end: u32;\n",
        form.store.function(1, adds=True),
        "@compute @workgroup_size(256)",
        "fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,",
        "        @builtin(local_invocation_index) me: u32) {",
        printer.place(),
        "    let row = top + me / 16u;\n    let column = left + me % 16u;",
        "    if (row < sizes.m && column < sizes.n) {",
        "        var sum = 0.0;",
        "        let here = base_a + row * sizes.k;",
    ]
    if form.turned:
        lines.append("        let there = base_b + column * sizes.k;")
        step = "sum = fma(a[here + k + {j}u], b[there + k + {j}u], sum);"
    else:
        lines.append("        let there = base_b + column;")
        step = "sum = fma(a[here + k + {j}u], b[there + (k - sizes.skip + {j}u) * sizes.n], sum);"
    lines += [
        "        var k = begin;",
        "        for (; k + 3u < end; k += 4u) {",
        *("            " + step.format(j=j) for j in range(4)),
        "        }",
        "        for (; k < end; k += 1u) {",
        "            " + step.format(j=0),
        "        }",
        "        store(base_c + row * sizes.pitch + column, first_row + row, column, sum);",
        "    }",
        form.store.end + "}",
    ]
    return "\n".join(line for line in lines if line) + "\n"


NAIVE = Tile(16, 16, 4, 1, 1, group=1)
"""Its tile: the grid that `naive` is made for."""
