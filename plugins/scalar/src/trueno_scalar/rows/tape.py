"""A program becomes a tape: a straight sequence of ufunc calls over tiles, in registers that are reused.

A register is a scratch array of one tile.  Values get registers by liveness, in place where an argument dies,
and the tile of an output serves as a register until its own value is stored there, so that the last op of a
stored value writes straight into the result.  Where a result *is* an operand (`alias`) its tile is written only
after the last read of any operand.

Values of row and uniform space are NumPy scalars if there is one row, and columns [rows, 1] otherwise.
"""

from collections.abc import Iterable
from typing import NamedTuple

from trueno.backend import FOLDS, LEAVES, Program

from trueno_scalar.rows.functions import SCRATCH, UFUNC

OPERATORS = {
    "add": "+", "sub": "-", "mul": "*", "div": "/", "and": "&", "or": "|",
    "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!=",
}  # fmt: skip
"""Between NumPy scalars Python's operators cost a tenth of a ufunc call."""

REDUCE = {
    "sum": "add_reduce", "fsum": "add_reduce", "max": "max_reduce", "min": "min_reduce",
    "any": "any_reduce", "all": "all_reduce", "prod": "mul_reduce",
}  # fmt: skip
CLASSES = {
    ("e", "T"): "s",
    ("e", "bool"): "b",
    ("e", "index"): "i",
    ("r", "T"): "r",
    ("r", "bool"): "q",
    ("r", "index"): "k",
}
"""Register classes: tiles of floats, truths, positions, and columns of each."""


class Shape(NamedTuple):
    """The form in which a body sees its values.  columns: row values are columns (else scalars).  axis: that of rows.

    ready: registers exist before the body (a loop made them); else their first op allocates them.
    alias: a result may be an operand.  early: result tiles may serve as registers.
    """

    columns: bool
    axis: int
    ready: bool
    alias: bool
    early: bool


class Tape:
    """The body of one pass or of a whole program: `lines`, and the registers that they need."""

    def __init__(self, program: Program, shape: Shape, names: dict[int, str], fma: str) -> None:
        self.program = program
        self.shape = shape
        self.names = names  # node → variable that holds it
        self.fma = fma  # fma32 or fma64: the float's width decides
        self.lines: list[str] = []
        self.registers: dict[str, str] = {}  # name → class
        self.calls = 0  # of ufuncs over tiles
        self.fills: dict[str, str] = {}  # name → the uniform value that fills it
        self._free: dict[str, list[str]] = {}
        self._made: set[str] = set()
        self._last: dict[int, int] = {}
        self._home: dict[int, int] = {}  # node → output that it is stored into directly
        self._due: dict[int, int] = {}  # output → step that stores it
        self._lodger: dict[str, int] = {}  # register → node in it
        self._full: set[int] = set()

    # ---- what the schedules call ----------------------------------------------------------------

    def run(
        self, order: Iterable[int], stores: Iterable[tuple[int, int]], early: set[int], partial: bool = False
    ) -> None:
        """Write the ops of `order`, with (output, node) `stores`; `early` outputs may hold other values before.

        partial: this is one tile of a longer row, so folds are combined with those of earlier tiles.
        """
        nodes = self.program.nodes
        order, stores = list(order), list(stores)
        step = {i: at for at, i in enumerate(order)}
        for i in order:
            for a in nodes[i].args:
                self._last[a] = step[i]
        # Values in an operand's or a result's memory are those that had a name before.
        views = {i for i in self.names if not self.scalar(i) and nodes[i].kind != "position"}
        self._final_read = max((at for i, at in step.items() if views & set(nodes[i].args)), default=-1)
        copies = []
        for k, o in stores:
            if o in step and o not in self._home and self._stores_directly(o, step[o]):
                self._home[o] = k
                self._due[k] = step[o]
            else:
                copies.append((k, o))
                self._last[o] = len(order)
        self._early = {k for k in early if k in self._due} if self.shape.early and not self.shape.alias else set()
        copied: dict[int, str] = {}
        if self.shape.alias and len(stores) > 1:
            # One result may be the operand that another result is a plain copy of: hold the operand first.
            for k, o in copies:
                if nodes[o].kind == "leaf":
                    self.lines.append(f"copy{k} = array({self.read(o)})")
                    copied[k] = f"copy{k}"
        for at, i in enumerate(order):
            node = nodes[i]
            self.calls += not self.scalar(i) or node.kind in FOLDS
            if node.kind in FOLDS:
                if not partial:
                    self._fold(i, at)
            elif self.scalar(i):
                self.lines.append(f"v{i} = {self.scalar_text(i)}")
                self.names[i] = f"v{i}"
            else:
                self._element(i, at)
            if partial and node.kind in FOLDS:
                self.lines += self.join(i)
            for a in set(node.args):
                if self._last.get(a) == at:
                    self._release(a)
        for k, o in copies:
            if nodes[o].space == "e" or self.shape.columns:
                self.lines.append(f"copyto(o{k}, {copied.get(k) or self.read(o)})")
            else:
                self.lines.append(f"o{k}[()] = {self.read(o, scalar=True)}")

    def scalar(self, i: int) -> bool:
        """Whether node `i` is a NumPy scalar here."""
        space = self.program.nodes[i].space
        return space == "u" or (space == "r" and not self.shape.columns)

    def read(self, i: int, scalar: bool = False) -> str:
        """The variable that holds node `i`; constants are 0-d arrays for ufuncs, scalars for operators."""
        if self.program.nodes[i].kind == "const":
            return f"k{i}" if scalar else f"c{i}"
        return self.names[i]

    def scalar_text(self, i: int) -> str:
        """The expression of a scalar node."""
        node = self.program.nodes[i]
        args = [self.read(a, scalar=True) for a in node.args]
        kind = node.kind
        if kind in OPERATORS:
            return f"{args[0]} {OPERATORS[kind]} {args[1]}"
        if kind == "where":
            return f"{args[1]} if {args[0]} else {args[2]}"
        if kind == "cast":
            return f"T({args[0]})"
        if kind == "copysign":
            return f"np_copysign({args[0]}, {args[1]})"
        if kind == "rsqrt":
            return f"one / sqrt({args[0]})"
        if kind in UFUNC:
            return f"{UFUNC[kind]}({', '.join(args)})"
        name = self.fma if kind == "fma" else kind
        nothing = ["None"] * (1 + len(SCRATCH[name][0]))
        return f"{name}({', '.join([*(f'{a}.reshape(1)' for a in args), *nothing])})[0]"

    def join(self, i: int) -> list[str]:
        """Lines that combine the fold of one tile of a long row with earlier tiles: sums in float64."""
        node = self.program.nodes[i]
        x = self.read(node.args[0])
        match node.kind:
            case "sum":
                return [f"v{i} += float(add_reduce({x}))"]
            case "fsum":
                return [f"v{i} += add_reduce({x}, 0, W)"]
            case "prod":
                return [f"v{i} *= float(product({x}))"]
            case "max" | "min":
                return [f"v{i} = {node.kind}imum(v{i}, {REDUCE[node.kind]}({x}))"]
            case "any":
                return [f"v{i} = v{i} or any_reduce({x})"]
            case "all":
                return [f"v{i} = v{i} and all_reduce({x})"]
        better = ">" if node.kind == "argmax" else "<"
        return [
            f"at = {x}.{node.kind}()",
            f"new = {x}[at]",
            f"if not lo or new {better} v{i}b or (new != new and v{i}b == v{i}b):  # NaN wins, the first stays",
            f"    v{i}, v{i}b = lo + at, new",
        ]

    # ---- registers ------------------------------------------------------------------------------

    def _stores_directly(self, o: int, at: int) -> bool:
        if self.scalar(o) or self.program.nodes[o].type != "T":
            return False
        return not self.shape.alias or at >= self._final_read

    def _class(self, i: int) -> str:
        node = self.program.nodes[i]
        return CLASSES[node.space, node.type]

    def _place(self, i: int, at: int) -> str:
        """A register for node `i`, made at step `at`: its own result, a dying argument, a result not yet due, any."""
        if i in self._home:
            name = f"o{self._home[i]}"
            self._made.add(name)
            return name
        kind = self._class(i)
        last = self._last.get(i, at)
        for a in self.program.nodes[i].args:
            name = self.names.get(a, "")
            dies = self._last.get(a) == at and self._lodger.get(name) == a
            if dies and self._class(a) == kind and (name[0] != "o" or last <= self._due[int(name[1:])]):
                return name
        if kind == "s":
            for k in sorted(self._early):
                if last <= self._due[k] and f"o{k}" not in self._lodger:
                    self._made.add(f"o{k}")
                    return f"o{k}"
        return self._take(kind)

    def _take(self, kind: str) -> str:
        free = self._free.setdefault(kind, [])
        if free:
            return free.pop()
        name = f"{kind}{sum(c == kind for c in self.registers.values())}"
        self.registers[name] = kind
        return name

    def _release(self, a: int) -> None:
        name = self.names.get(a, "")
        if self._lodger.get(name) == a:
            del self._lodger[name]
            if name in self.registers:
                self._free[self.registers[name]].append(name)

    def _settle(self, i: int, name: str) -> None:
        self.names[i] = name
        self._lodger[name] = i

    def _out(self, name: str) -> str:
        """The argument `out`: the register, or None where its first op may allocate it."""
        ready = self.shape.ready or name in self._made or name[0] == "o"
        self._made.add(name)
        return name if ready else "None"

    # ---- ops ------------------------------------------------------------------------------------

    def _whole(self, i: int) -> bool:
        """Whether node `i` certainly has the shape of a full tile, so that an op on it allocates one."""
        node = self.program.nodes[i]
        if node.kind == "leaf":
            return node.space == "e" and (not self.shape.columns or dict(self.program.operands)[str(node.value)] == "e")
        return i in self._full

    def _make(self, name: str, i: int) -> None:
        """Allocate register `name` where no argument of node `i` shows the full shape."""
        node = self.program.nodes[i]
        if self.shape.ready or name in self._made or name[0] == "o":
            return
        whole = node.space == "r" or any(self._whole(a) for a in node.args)
        if node.kind == "cast" or (node.kind == "where" and self.scalar(node.args[0])):
            whole = False
        if not whole:
            dtype = {"T": "D", "bool": "BOOL", "index": "INDEX"}[node.type]
            self.lines.append(f"{name} = empty({'column' if node.space == 'r' else 'shape'}, {dtype})")
            self._made.add(name)

    def _element(self, i: int, at: int) -> None:
        node = self.program.nodes[i]
        args = [self.read(a) for a in node.args]
        if node.kind in ("maximum", "minimum") and self.shape.ready and not self.shape.columns:
            # With a stride of 0 NumPy leaves its vector loop (3 times slower): give it a full tile of the value.
            for j, a in enumerate(node.args):
                if self.program.nodes[a].kind in ("const", "param"):
                    self.fills[f"f{a}"] = args[j]
                    args[j] = f"f{a}"
        name = self._place(i, at)
        self._make(name, i)
        self._settle(i, name)
        self._full.add(i)
        out = self._out(name)
        if node.kind in UFUNC:
            # NumPy 2.4 deprecates a third positional argument of these two.
            word = "out=" if node.kind in ("maximum", "minimum") else ""
            tail = [] if out == "None" else [word + out]
            self.lines.append(f"{name} = {UFUNC[node.kind]}({', '.join([*args, *tail])})")
            return
        call = self.fma if node.kind == "fma" else node.kind
        classes = SCRATCH[call][0]
        if node.space == "r" or not self.shape.ready:
            scratch = ["None"] * len(classes)
        else:
            scratch = [self._take(c) for c in classes]
            for s in scratch:
                self._free[self.registers[s]].append(s)
        self.lines.append(f"{name} = {call}({', '.join([*args, out, *scratch])})")

    def _fold(self, i: int, at: int) -> None:
        node = self.program.nodes[i]
        a = node.args[0]
        x = self.read(a)
        if self.scalar(i):
            text = {
                "fsum": f"T(add_reduce({x}, 0, W))",
                "prod": f"product({x})",
                "argmax": f"{x}.argmax()",
                "argmin": f"{x}.argmin()",
            }.get(node.kind) or f"{REDUCE[node.kind]}({x})"
            self.lines.append(f"v{i} = {text}")
            self.names[i] = f"v{i}"
            return
        name = self._place(i, at)
        if self.program.nodes[a].kind in LEAVES and not self._whole(a):
            x = f"broadcast_to({x}, shape)"  # a shared row: every row folds the same values
        out = self._out(name)
        axis = self.shape.axis
        self._settle(i, name)
        if node.kind in ("argmax", "argmin"):
            self.lines.append(f"{name} = {x}.{node.kind}({axis}, {out}, keepdims=True)")
        elif node.kind == "fsum":
            wide = f"add_reduce({x}, {axis}, W, None, True)"
            self.lines.append(f"{name} = {wide}.astype(D)" if out == "None" else f"copyto({out}, {wide}, 'same_kind')")
        else:
            self.lines.append(f"{name} = {REDUCE[node.kind]}({x}, {axis}, None, {out}, True)")
