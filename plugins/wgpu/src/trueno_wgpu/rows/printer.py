"""The WGSL printer: what every shader of a row program has, and the one for programs without folds.

    flat      nothing folds: one invocation for ITEMS elements

(`trueno_wgpu.rows.multi_pass` prints the others.)  A shader has uniforms, buffers, the safe functions that it uses, and
`main`, in which a value of the program is a `let`: v of an element, r of a row.  Names are numbers of nodes, and the
program stands above as a comment.
"""

from dataclasses import dataclass
from math import inf, isinf, isnan
from struct import pack, unpack

from trueno.backend import Lowering, Pass

from trueno_wgpu.device.shader import Shader
from trueno_wgpu.rows.expressions import ARITHMETIC, EXPRESSIONS, SUMS
from trueno_wgpu.rows.prelude import prelude

THREADS = 256
ITEMS = 4
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

    def __init__(self, plan: Lowering, title: str, *, guarded: bool = False, alias: tuple[int, ...] = ()) -> None:
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
        parts = ["\n".join(head), prelude(text), "\n".join(constants), "\n".join([*entry, *indent(body), "}"])]
        source = "\n\n".join(filter(None, parts)) + "\n"
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

        What stays in sight is a product that is added, for contraction is not an error.
        """
        node = self.nodes[i]
        apart = node.kind in ("mul", "fma")
        if node.kind in ("add", "sub"):
            of, to = ({*self.nodes[x].args, x} if self.nodes[x].kind in ARITHMETIC else {x} for x in node.args)
            apart = bool(of & to)
        arguments: Lines = []
        for a in node.args:
            hidden = self.nodes[a].kind in (ARITHMETIC if apart else SUMS) and node.kind in ARITHMETIC
            arguments.append(f"hide({self.name(a)})" if hidden else self.name(a))
        x, y = (*node.args, -1, -1)[:2]
        alike = x == y or all(self.nodes[a].kind == "leaf" for a in node.args)  # two operands may be one array
        if node.kind == "sub" and alike:
            arguments = [self.name(x), f"hide({self.name(y)})"]
        return EXPRESSIONS[node.kind].format(*arguments)

    def element(self, pass_: Pass, at: str) -> Lines:
        """One element at `at` of the arrays and `col` of its row: its loads, then its ops."""
        return [f"let v{i} = {load};" for i, load in self.loads(pass_, at)] + self.ops(pass_)

    def loads(self, pass_: Pass, at: str) -> list[tuple[int, str]]:
        """What an element loads, by node."""
        found = []
        for i, source in pass_.loads:
            slot = self.slots[source] if isinstance(source, str) else self.first_out + source
            shared = isinstance(source, str) and self.kinds[source] == "w"
            found.append((i, f"{self.bind(slot)}[{self.shared if shared else at}]"))
        return found

    def ops(self, pass_: Pass) -> Lines:
        return [f"let v{i} = {self.expression(i)};" for i in pass_.body if self.nodes[i].kind != "position"]

    shared = "col"
    """Index of a shared row's element."""

    def stores(self, pass_: Pass, at: str) -> Lines:
        lines = []
        for k, i in pass_.stores:
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
        pass_ = self.plan.passes[0]
        by_row = self.by_row
        place = ["let place = u.start + i;", "let row = place / u.n;", "let col = place - row * u.n;"] if by_row else []
        inside = [*place, *self.row_leaves("row"), *self.row_ops(pass_.before)]
        inside += [*self.element(pass_, "i"), *self.stores(pass_, "i")]
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
