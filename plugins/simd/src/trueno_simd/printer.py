"""The Numba printer: a lowered row program becomes a Python module of nested functions.

    pass_k    one block of at most 64 × lanes elements: the only loop over elements, and what LLVM vectorizes
    sweep_k   pass_k over one slice, joining the blocks' folds (float64, so that order hardly matters)
    row       all sweeps of one row, with the row's own values between them
    rows      row over a range of rows
    chunk_*   a slice of a long row, or a range of rows, as a piece for the thread pool
    kernel    what Python calls: checks what the plan's key does not say, and picks serial or parallel

A block's chain of additions is at most 64 a lane, however long the row: that is the accuracy that the
backend declares.  Chunks do not depend on the number of threads, so results do not either.
"""

from dataclasses import dataclass

from trueno.ops.lower import Pass, Plan
from trueno_simd.expressions import EXPRESSIONS, fold_text

RUNTIME = """\
from numpy import inf, {dtype} as T

from numba import boolean, float64, int64, types

from trueno_simd.bits import absolute, ceil, copysign, floor, fma, rint, select, sqrt, trunc
from trueno_simd.folds import both, either, invert, join, joined, least, maximum, minimum, radd, rmul
from trueno_simd.jit import entry, outer
from trueno_simd.memory import apart, apart_or_same, load, pointer, stack, store
from trueno_simd.{dtype} import (
    atan, cos, erf, exp, exp2, expm1, log, log1p, log1p_unit, log2, log10, pow, rsqrt, sin, tanh,
)
from trueno_simd.schedule import CHUNKS, LONG, PARALLEL, finiteness, spans
from trueno_simd.threads import acquire_gil, address_of, pack, parallel_for, release_gil, unpack

INF = T(inf)
BLOCK = {block}
FAR = 1 << 30
"""


@dataclass(frozen=True, slots=True)
class Shape:
    """How the kernel is called and scheduled.

    rank: 1 for one row, 2 for rows.  flat: every operand is `e` or `u` and nothing folds, so rank 2 is one row
    too.  parallel: whether the thread pool may be used.  statuses: row outputs that are health flags.
    """

    rank: int
    parallel: bool
    statuses: tuple[int, ...]
    title: str


class Printer:
    """Prints one plan; the methods follow the picture above, inside out."""

    def __init__(self, plan: Plan, dtype: str, block: int, shape: Shape) -> None:
        self.plan = plan
        self.program = plan.program
        self.nodes = plan.program.nodes
        self.dtype = dtype
        self.block = block
        self.shape = shape
        self.operands = [name for name, _ in self.program.operands]
        self.kinds = dict(self.program.operands)
        self.used = {str(n.value) for n in self.nodes if n.kind == "leaf"}
        self.outs = [k for k in range(len(self.program.outputs)) if k not in shape.statuses]
        self.slots = {name: i for i, name in enumerate(self.operands)}
        self.slots |= {f"out{k}": len(self.operands) + i for i, k in enumerate(self.outs)}
        self.element = {k: self.nodes[o].space == "e" for k, o in enumerate(self.program.outputs)}
        self.flat = not self.program.folds and all(kind in "eu" for kind in self.kinds.values())
        self.guarded = bool(shape.statuses)

    # ---- names ------------------------------------------------------------------------------------

    def name(self, i: int) -> str:
        """How node `i` is called where it is visible."""
        node = self.nodes[i]
        if node.kind == "const":
            return f"c{i}"
        if node.kind == "param":
            return f"p_{node.value}"
        if node.kind == "count":
            return "count"
        return f"{'v' if node.space == 'e' else 'r'}{i}"

    def expression(self, i: int) -> str:
        node = self.nodes[i]
        return EXPRESSIONS[node.kind].format(*(self.name(a) for a in node.args))

    def row_inputs(self, body: list[int]) -> list[str]:
        """Row and uniform values that the nodes of `body` need from outside; constants are global."""
        needed = [a for i in body for a in self.nodes[i].args]
        outside = [a for a in needed if self.nodes[a].space != "e" and self.nodes[a].kind != "const"]
        return list(dict.fromkeys(self.name(a) for a in outside))

    @property
    def arrays(self) -> list[str]:
        """Every array that kernels pass along: operands that are read, then results."""
        return [n for n in self.operands if n in self.used] + [f"out{k}" for k in self.outs]

    @property
    def params(self) -> list[str]:
        return [f"p_{n}" for n in self.program.params]

    def arrays_of(self, sweep: Pass) -> list[str]:
        names = [s if isinstance(s, str) else f"out{s}" for _, s in sweep.loads]
        names += [f"out{k}" for k, _ in sweep.stores]
        return list(dict.fromkeys(names))

    # ---- passes -----------------------------------------------------------------------------------

    def text(self) -> str:
        """The whole module."""
        head = f'"""{self.shape.title}\n\n{self.program.text}\n"""\n\n' + RUNTIME.format(dtype=self.dtype, block=self.block)
        consts = [
            f"c{i} = T({n.value!r})".replace("T(inf)", "INF").replace("T(-inf)", "-INF").replace("T(nan)", "INF - INF")
            for i, n in enumerate(self.nodes)
            if n.kind == "const"
        ]
        parts = [head + "\n".join(consts)]
        for k, sweep in enumerate(self.plan.passes):
            parts += [self.pass_(k, sweep), self.sweep(k, sweep)]
        parts += [self.find(f) for f in self.program.folds if self.nodes[f].kind in ("argmax", "argmin")]
        parts += [self.row(), self.rows()]
        if self.shape.parallel:
            parts += [*(self.chunk(k, s) for k, s in enumerate(self.plan.passes)), self.long_row()]
            if self.shape.rank == 2 and not self.flat:
                parts.append(self.chunk_rows())
        parts.append(self.kernel())
        return "\n\n\n".join(parts) + "\n"

    def element_body(self, body: list[int], loads: list[tuple[int, str | int]]) -> list[str]:
        lines = []
        for i, source in loads:
            array = source if isinstance(source, str) else f"out{source}"
            at = "i" if isinstance(source, str) and self.kinds[source] == "w" else "base + i"
            lines.append(f"v{i} = load({array}, {at}, {self.slots[array]})")
        return lines + [f"v{i} = {self.expression(i)}" for i in body]

    def pass_(self, k: int, sweep: Pass) -> str:
        arrays, rows = self.arrays_of(sweep), self.inputs_of(sweep)
        lines = ["@outer", f"def pass_{k}({', '.join(['base', 'lo', 'hi', *arrays, *rows])}):"]
        for f in sweep.folds:
            lines.append(f"    s{f} = {self.fold(f).start}")
        lines.append("    for i in range(lo, hi):")
        lines += ["        " + line for line in self.element_body(list(sweep.body), list(sweep.loads))]
        for f in sweep.folds:
            v = self.nodes[f].args[0]
            value = self.name(v)
            if self.nodes[f].kind in ("any", "all") and self.nodes[v].type == "T":
                value = f"{value} != T(0)"
            lines.append(f"        s{f} = {self.fold(f).step.format(s=f's{f}', v=value)}")
        for out, v in sweep.stores:
            lines.append(f"        store(out{out}, base + i, {self.name(v)}, {self.slots[f'out{out}']})")
        if sweep.folds:
            lines.append(f"    return {', '.join(f's{f}' for f in sweep.folds)}")
        return "\n".join(lines)

    def fold(self, f: int):  # type: ignore[no-untyped-def]
        return fold_text(self.nodes[f].kind, self.dtype)

    def inputs_of(self, sweep: Pass) -> list[str]:
        return self.row_inputs(list(sweep.body))

    def states(self, f: int, prefix: str = "a") -> list[str]:
        return [f"{prefix}{f}{'' if j == 0 else '_'}" for j in range(len(self.fold(f).state))]

    def sweep(self, k: int, sweep: Pass) -> str:
        arrays, rows = self.arrays_of(sweep), self.inputs_of(sweep)
        given = ", ".join([*arrays, *rows])
        lines = ["@outer", f"def sweep_{k}({', '.join(['base', 'start', 'stop', *arrays, *rows])}):"]
        if not sweep.folds:
            return "\n".join([*lines, f"    pass_{k}(base, start, stop, {given})"])
        for f in sweep.folds:
            for name, initial in zip(self.states(f), self.fold(f).state, strict=True):
                lines.append(f"    {name} = {initial}")
        lines.append("    for lo in range(start, stop, BLOCK):")
        results = ", ".join(f"q{f}" for f in sweep.folds)
        lines.append(f"        {results} = pass_{k}(base, lo, min(lo + BLOCK, stop), {given})")
        for f in sweep.folds:
            a, *b = self.states(f)
            joined = self.fold(f).join.format(q=f"q{f}", a=a, b=b[0] if b else "")
            lines += ["        " + line for line in joined.split("\n")]
        lines.append(f"    return {', '.join(n for f in sweep.folds for n in self.states(f))}")
        return "\n".join(lines)

    def find(self, f: int) -> str:
        """Position of the winner inside the block that holds it."""
        value = self.nodes[f].args[0]
        need = self.program.live([value])
        body = [i for i in sorted(need) if self.nodes[i].space == "e" and self.nodes[i].kind != "leaf"]
        loads = [(i, str(self.nodes[i].value)) for i in sorted(need) if self.nodes[i].kind == "leaf" and self.nodes[i].space == "e"]
        arrays = [s for _, s in loads]
        lines = ["@outer", f"def find_{f}({', '.join(['base', 'at', 'stop', 'best', *arrays, *self.row_inputs(body)])}):"]
        lines += ["    k = FAR", "    for j in range(min(BLOCK, stop - at)):", "        i = at + j"]
        lines += ["        " + line for line in self.element_body(body, loads)]  # type: ignore[arg-type]
        v = self.name(value)
        lines.append(f"        k = least(k, select(either({v} == best, {v} != {v}), j, FAR))")
        lines.append("    return at + (0 if k == FAR else k)")
        return "\n".join(lines)

    # ---- rows -------------------------------------------------------------------------------------

    def row_values(self, sweep_call) -> list[str]:  # type: ignore[no-untyped-def]
        """The row's own values in order: leaves, then per pass its row ops and its sweep, then the tail."""
        lines = ["base = r * n"]
        if any(n.kind == "count" for n in self.nodes):
            lines.append("count = T(n)")
        for i, node in enumerate(self.nodes):
            if node.kind == "leaf" and node.space != "e":
                at = "r" if self.kinds[str(node.value)] == "r" else "0"
                lines.append(f"r{i} = load({node.value}, {at}, {self.slots[str(node.value)]})")
        for k, sweep in enumerate(self.plan.passes):
            lines += [f"r{i} = {self.expression(i)}" for i in sweep.before]
            lines += sweep_call(k, sweep)
            for f in sweep.folds:
                a, *b = self.states(f)
                if self.nodes[f].kind in ("argmax", "argmin"):
                    value = self.nodes[f].args[0]
                    need = self.program.live([value])
                    body = [i for i in sorted(need) if self.nodes[i].space == "e" and self.nodes[i].kind != "leaf"]
                    arrays = [str(self.nodes[i].value) for i in sorted(need) if self.nodes[i].kind == "leaf" and self.nodes[i].space == "e"]
                    given = ", ".join(["base", b[0], "n", a, *arrays, *self.row_inputs(body)])
                    lines.append(f"r{f} = find_{f}({given})")
                else:
                    lines.append(f"r{f} = {self.fold(f).result.format(a=a, b=b[0] if b else '')}")
        lines += [f"r{i} = {self.expression(i)}" for i in self.plan.tail]
        for k in self.outs:
            if not self.element[k]:
                lines.append(f"store(out{k}, r, {self.name(self.program.outputs[k])}, {self.slots[f'out{k}']})")
        flags = [self.name(self.program.outputs[k]) for k in self.shape.statuses]
        lines.append("return " + (f"int64({' or '.join(flags)})" if flags else "0"))
        return lines

    def row(self) -> str:
        def serial(k: int, sweep: Pass) -> list[str]:
            given = ", ".join(["base", "0", "n", *self.arrays_of(sweep), *self.inputs_of(sweep)])
            states = ", ".join(n for f in sweep.folds for n in self.states(f))
            return [f"{states} = sweep_{k}({given})" if states else f"sweep_{k}({given})"]

        head = f"def row({', '.join(['r', 'n', *self.arrays, *self.params])}):"
        return "\n".join(["@outer", head, *("    " + line for line in self.row_values(serial))])

    def rows(self) -> str:
        given = ", ".join(["r", "n", *self.arrays, *self.params])
        head = f"def rows({', '.join(['start', 'stop', 'n', *self.arrays, *self.params])}):"
        return f"@outer\n{head}\n    bad = 0\n    for r in range(start, stop):\n        bad |= row({given})\n    return bad"

    # ---- pieces for the thread pool -----------------------------------------------------------------

    def kind_of(self, name: str) -> str:
        """Numba type of a value that travels to a piece."""
        if name in self.slots:
            index = name.startswith("out") and self.nodes[self.program.outputs[int(name[3:])]].type == "index"
            return f"types.CPointer({'int64' if index else self.numba_type('T')})"
        if name.startswith("r"):
            return self.numba_type(self.nodes[int(name[1:])].type)
        return self.numba_type("T")

    def numba_type(self, kind: str) -> str:
        return {"T": f"types.{self.dtype}", "bool": "boolean", "index": "int64"}.get(kind, kind)

    def piece(self, name: str, integers: list[str], values: list[str], body: list[str], parts: dict[str, str]) -> str:
        """A function of (args, i) that unpacks what the caller packed; `parts` hold its folds, by chunk."""
        kinds = ["int64"] * len(integers) + [self.kind_of(v) for v in values]
        kinds += [f"types.CPointer({kind})" for kind in parts.values()]
        lines = [f"load_{name} = unpack(types.Tuple(({', '.join(kinds)},)))", "", "", "@outer", f"def {name}(args, i):"]
        lines.append(f"    {', '.join([*integers, *values, *parts])} = load_{name}(args)")
        return "\n".join([*lines, *("    " + line for line in body)])

    def chunk(self, k: int, sweep: Pass) -> str:
        values = [*self.arrays_of(sweep), *self.inputs_of(sweep)]
        states = [n for f in sweep.folds for n in self.states(f)]
        kinds = [self.numba_type(t) for f in sweep.folds for t in self.fold(f).types]
        parts = {f"part_{k}_{j}": kind for j, kind in enumerate(kinds)}
        call = f"sweep_{k}({', '.join(['base', 'lo', 'min(lo + step, n)', *values])})"
        body = ["lo = i * step", f"{', '.join(states)} = {call}" if states else call]
        body += [f"{part}[i] = {state}" for part, state in zip(parts, states, strict=True)]
        rooms = [f"room_{k}_{j} = stack({kind}, CHUNKS)" for j, kind in enumerate(kinds)]
        return "\n".join([*rooms, self.piece(f"chunk_{k}", ["base", "n", "step"], values, [*body, "return 0"], parts)])

    def long_row(self) -> str:
        def split(k: int, sweep: Pass) -> list[str]:
            values = [*self.arrays_of(sweep), *self.inputs_of(sweep)]
            states = [n for f in sweep.folds for n in self.states(f)]
            parts = [f"part_{k}_{j}" for j in range(len(states))]
            lines = [f"{part} = room_{k}_{j}()" for j, part in enumerate(parts)]
            packed = ", ".join(["base", "n", "step", *values, *parts])
            lines.append(f"parallel_for(address_of(chunk_{k}), pack(({packed},)), chunks)")
            if not states:
                return lines
            flags = {a for f in sweep.folds for a in self.states(f) if self.nodes[f].type == "bool"}
            for state, part in zip(states, parts, strict=True):
                lines.append(f"{state} = {part}[0]" + (" != 0" if state in flags else ""))
            lines.append("for c in range(1, chunks):")
            j = 0
            for f in sweep.folds:
                a, *b = self.states(f)
                later = [f"{parts[j + m]}[c]" for m in range(1 + len(b))]
                j += 1 + len(b)
                text = self.fold(f).merge.format(a=a, b=b[0] if b else "", qa=later[0], qb=later[1] if b else "")
                lines += ["    " + line for line in text.split("\n")]
            return lines

        head = f"def long_row({', '.join(['r', 'n', *self.arrays, *self.params])}):"
        body = ["chunks, step = spans(n, BLOCK)", *self.row_values(split)]
        return "\n".join(["@outer", head, *("    " + line for line in body)])

    def chunk_rows(self) -> str:
        values = [*self.arrays, *self.params]
        given = ", ".join(["lo", "min(lo + step, rows_)", "n", *values])
        body = ["lo = i * step", f"return rows({given})"]
        return self.piece("chunk_rows", ["n", "rows_", "step"], values, body, {})

    # ---- the entry ----------------------------------------------------------------------------------

    def dims(self, kind: str) -> int:
        return {"e": self.shape.rank, "w": 1, "r": self.shape.rank - 1, "u": 0}[kind]

    def kernel(self) -> str:
        T = f"types.{self.dtype}"
        kinds = [f'types.Array({T}, {self.dims(self.kinds[n])}, "C", readonly=True)' for n in self.operands]
        kinds += ["float64"] * len(self.params)
        for k in self.outs:
            t = "int64" if self.nodes[self.program.outputs[k]].type == "index" else T
            kinds.append(f'types.Array({t}, {self.shape.rank if self.element[k] else self.shape.rank - 1}, "C")')
        outs = [f"out{k}" for k in self.outs]
        lines = [f"@entry(int64({', '.join(kinds)}))", f"def kernel({', '.join([*self.operands, *self.params, *outs])}):"]
        lines += ["    " + line for line in [*self.checks(), *self.prepare(), *self.run()]]
        return "\n".join(lines)

    def whole(self) -> tuple[str, str]:
        """Source of the row length and of the number of rows."""
        e = next((n for n in self.operands if self.kinds[n] == "e"), None)
        if e is None and any(self.element.values()):
            e = f"out{next(k for k in self.outs if self.element[k])}"
        assert e is not None, "a row program varies along its rows"
        return (f"{e}.shape[0]", "1") if self.shape.rank == 1 else (f"{e}.shape[1]", f"{e}.shape[0]")

    def checks(self) -> list[str]:
        n, count = self.whole()
        lines = [f"n, rows_ = {n}, {count}"]
        wrong = []
        for name in self.operands:
            wrong += self.misfit(name, self.kinds[name])
        for k in self.outs:
            wrong += self.misfit(f"out{k}", "e" if self.element[k] else "r")
        hazards = self.plan.hazards
        for k in self.outs:
            index = self.nodes[self.program.outputs[k]].type == "index"
            for name in self.operands:
                same = self.element[k] and self.kinds[name] == "e" and (k, name) not in hazards and not index
                wrong.append(f"not {'apart_or_same' if same else 'apart'}(out{k}, {name})")
            wrong += [f"not apart(out{k}, out{j})" for j in self.outs if j < k]
        return lines + ([f"if {' or '.join(wrong)}:", "    return -1"] if wrong else [])

    def misfit(self, name: str, kind: str) -> list[str]:
        if kind == "e":
            return [f"{name}.shape[{self.shape.rank - 1}] != n"] + ([f"{name}.shape[0] != rows_"] if self.shape.rank == 2 else [])
        if kind == "w":
            return [f"{name}.shape[0] != n"]
        return [f"{name}.shape[0] != rows_"] if kind == "r" and self.shape.rank == 2 else []

    def prepare(self) -> list[str]:
        lines = [f"{p} = T({p})" for p in self.params]
        if self.guarded:
            lines += [f"whole{k} = out{k}" for k in self.outs]
        lines += [f"q_{name} = pointer({name})" for name in self.arrays]
        if self.flat and self.shape.rank == 2:
            lines.append("n, rows_ = n * rows_, 1")
        return lines

    def run(self) -> list[str]:
        given = ", ".join(["n", *(f"q_{n}" for n in self.arrays), *self.params])
        serial = f"bad = rows(0, rows_, {given})"
        lines = [serial]
        if self.shape.parallel:
            lines = ["if n * rows_ < PARALLEL:", f"    {serial}", "else:", "    gil = release_gil()"]
            if self.shape.rank == 1 or self.flat:
                lines.append(f"    bad = long_row(0, {given})")
            else:
                packed = ", ".join(["n", "rows_", "step", *(f"q_{n}" for n in self.arrays), *self.params])
                lines += [
                    "    bad = 0",
                    "    if n >= LONG or rows_ == 1:",
                    "        for r in range(rows_):",
                    f"            bad |= long_row(r, {given})",
                    "    else:",
                    "        chunks, _ = spans(n * rows_, BLOCK)",
                    "        step = (rows_ + chunks - 1) // chunks",
                    "        chunks = (rows_ + step - 1) // step",
                    f"        bad = parallel_for(address_of(chunk_rows), pack(({packed},)), chunks)",
                ]
            lines.append("    acquire_gil(gil)")
        if not self.guarded:
            return [*lines, "return 0"]
        floats = [k for k in self.outs if self.nodes[self.program.outputs[k]].type == "T"]
        status = " | ".join(f"finiteness(q_out{k}, whole{k}.size)" for k in floats) or "0"
        return [*lines, "if bad == 0:", "    return 0", f"return {status}"]

