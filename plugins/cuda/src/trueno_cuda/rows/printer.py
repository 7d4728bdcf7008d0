# mypy: disable-error-code="valid-type"
"""The common parts of row-program kernels: parameters, the program's values, and the guard.

A kernel is a Python function that walks the program's plan and calls the builder; `flat`, `register_resident` and
`multi_pass` are those functions.  A value of the program lives in one of three tables: `uniform`, the same everywhere;
`row`, one a row; and one table an element, which the caller keeps.  Names of parameters are numbers, so that a
program's text does not depend on what its operands are called; the program itself stands in the text as a comment.
"""

import inspect
import re
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from itertools import accumulate, chain
from math import inf
from struct import pack, unpack
from typing import Any

from trueno.backend import Lowering

from trueno_cuda.ptx import Builder, Kernel, Pointer, Source, Type, Value, Var, f64, ptr, s64, u32, u64
from trueno_cuda.ptx.builder import ParamType
from trueno_cuda.rows.expressions import EXPRESSIONS
from trueno_cuda.rows.folds import FOLDS, Fold, State, masked

Reduce = Callable[[State, Callable[[State, State], State]], State]
Lane = dict[int, Value]
"""The values of one element, by number of the node."""
VECTOR = 16
"""Bytes of the widest access that all architectures have."""


class Printer:
    """Prints kernels of one plan.

    kind: the program's float, f32 or f64.  wide: whether elements are moved in vectors of 16 bytes, for which pointers
    are aligned and rows a multiple; `width` is then their number, else 1.  A `unit` is what a thread loads at once,
    `width` elements; a `group` of units is as many as make 16 bytes.
    """

    def __init__(
        self, plan: Lowering, name: str, kind: Type, *, wide: bool, guarded: bool = False, stored: Type | None = None
    ) -> None:
        self.plan, self.program, self.nodes = plan, plan.program, plan.program.nodes
        self.name, self.kind, self.wide, self.guarded = re.sub(r"\W+", "_", name), kind, wide, guarded
        self.stored = stored or kind
        self.kinds = dict(self.program.operands)
        self.group = VECTOR // kind.bytes
        self.width = self.group if wide else 1
        self.units = self.group // self.width  # of a group
        self.names = {name: f"in{i}" for i, name in enumerate(self.kinds)}

    # ---- a kernel -------------------------------------------------------------------------------------

    def build(
        self, schedule: str, body: Callable[..., None], numbers: Sequence[str], *, threads: int, arch: str,
        scratch: bool = False, blocks_per_sm: int | None = None, cluster: int | None = None,
    ) -> Kernel:  # fmt: skip
        """The kernel that `body` writes; it is given the values of the whole numbers."""
        params: dict[str, ParamType] = {name: ptr(self.stored) for name in self.names.values()}
        for i, o in enumerate(self.program.outputs):
            params[f"out{i}"] = ptr(s64 if self.nodes[o].type == "index" else self.stored)
        params |= {"scratch": ptr(u64)} if scratch else {}
        params |= {"status": ptr(u32)} if self.guarded else {}
        params |= dict.fromkeys(numbers, u32)
        params |= {f"p{i}": self.kind for i in range(len(self.program.params))}

        def function(k: Builder, *given: Value | Pointer) -> None:
            self.begin(k, dict(zip(params, given, strict=True)))
            body(*map(self.number, numbers))
            self.end()

        function.__name__ = "_".join(filter(None, [self.name, schedule, str(self.stored), "guarded" * self.guarded]))
        either = inspect.Parameter.POSITIONAL_OR_KEYWORD
        signature = [inspect.Parameter("k", either)]
        signature += [inspect.Parameter(name, either, annotation=t) for name, t in params.items()]
        function.__signature__ = inspect.Signature(signature)  # type: ignore[attr-defined]
        function.body = body  # type: ignore[attr-defined]  # which writes the kernel
        return Source(function, threads, blocks_per_sm=blocks_per_sm, cluster=cluster, overlap=True).build(arch)

    def begin(self, k: Builder, given: dict[str, Any]) -> None:
        """What is the same for all elements."""
        self.k, self.given = k, given
        self.uniform: dict[int, Value] = {}
        self.row: dict[int, Value] = {}
        self.bad: Var | None = k.var(u32, 0) if self.guarded else None
        for line in self.program.text.split("\n"):
            k.comment(line)
        for i, node in enumerate(self.nodes):
            if node.space == "u":
                self.uniform[i] = self._constant(i)

    def _constant(self, i: int) -> Value:
        node, value = self.nodes[i], str(self.nodes[i].value)
        match node.kind:
            case "const":
                return self.k.const(self.kind, rounded(float(value), self.kind))
            case "param":
                return self.number(f"p{self.program.params.index(value)}")
            case "count":
                return self.number("n").to(self.kind)
            case "leaf":
                return self.load(self.pointer(value), 0)[0]
        return self.expression(i, {})

    def pointer(self, source: str | int) -> Pointer:
        """Of an operand by name, or of a result by number."""
        place: Pointer = self.given[self.names[source] if isinstance(source, str) else f"out{source}"]
        return place

    def number(self, name: str) -> Value:
        """A launch parameter that is not a pointer."""
        value: Value = self.given[name]
        return value

    def load(self, place: Pointer, at: Any, where: Value | None = None, count: int = 1) -> list[Value]:
        """Neighbours in memory, as what is computed with."""
        loaded = place.load(at, vec=count, where=where)
        return loaded if self.stored is self.kind else [v.to(self.kind) for v in loaded]

    def store(self, place: Pointer, at: Any, values: Sequence[Value], where: Value | None = None) -> None:
        """Neighbours, rounded to what memory holds."""
        stored = values if self.stored is self.kind else [v.to(self.stored) for v in values]
        place.store(at, stored, where=where)

    # ---- values ---------------------------------------------------------------------------------------

    def value(self, i: int, lane: Lane) -> Value:
        for table in (lane, self.row, self.uniform):
            if i in table:
                return table[i]
        raise KeyError(f"%{i} = {self.nodes[i]} is used before it is known")

    def expression(self, i: int, lane: Lane) -> Value:
        node = self.nodes[i]
        args = [self.value(a, lane) for a in node.args]
        return EXPRESSIONS[node.kind](self.k, *args, *([self.kind] if node.kind == "cast" else []))

    def compute(self, body: Iterable[int], lane: Lane, column: Value | None = None) -> None:
        """Element ops, in order, into the element's table."""
        for i in body:
            if self.nodes[i].kind == "position":
                assert column is not None
                lane[i] = column
            else:
                lane[i] = self.expression(i, lane)

    @cached_property
    def by_row(self) -> bool:
        """Whether an element's row or column matters, where nothing folds."""
        return any(n.kind == "position" or (n.kind == "leaf" and self.kinds[str(n.value)] in "wr") for n in self.nodes)

    @cached_property
    def counted(self) -> bool:
        """Whether columns of elements matter."""
        return any(n.kind == "position" or n.type == "index" for n in self.nodes)

    def column(self, first: Value, step: int) -> Value:
        """The column `step` beyond `first`; just any where columns do not matter."""
        return first + step if self.counted else first

    def row_leaves(self, row: Value, where: Value | None = None) -> None:
        self.row = {}
        for i, n in enumerate(self.nodes):
            if n.kind == "leaf" and n.space == "r":
                self.row[i] = self.load(self.pointer(str(n.value)), row, where)[0]

    def row_ops(self, ops: Iterable[int]) -> None:
        for i in ops:
            if self.nodes[i].space == "r":
                self.row[i] = self.expression(i, {})

    def row_stores(self, row: Value, first: Value | None) -> None:
        """What there is one of a row, by the thread for which `first` holds."""
        for number in self.plan.row_outputs:
            value = self.value(self.program.outputs[number], {})
            if value.type is u32:
                self.pointer(number).store(row, value.to(s64), where=first)
            else:
                self.store(self.pointer(number), row, [value], first)
                self.watch([value], first)

    # ---- folds ----------------------------------------------------------------------------------------

    def elements(self, f: int, lanes: Sequence[tuple[Lane, Value, Value | None]]) -> list[tuple[Value, Value]]:
        """What fold f takes of elements (values, column, predicate that there is one)."""
        node = self.nodes[f]
        return [(masked(self.k, node.kind, self.value(node.args[0], e), live), col) for e, col, live in lanes]

    def fold(self, f: int, table: dict[str, Fold] = FOLDS) -> Fold:
        return table[self.nodes[f].kind]

    def joined(self, states: dict[int, State], reduce: Reduce, table: dict[str, Fold] = FOLDS) -> dict[int, State]:
        """The states of a team's lanes, joined with `reduce(values, combine)`, all folds at once."""
        if not states:
            return {}
        bounds = [0, *accumulate(map(len, states.values()))]
        parts = list(zip(states, bounds, bounds[1:], strict=False))

        def combine(a: State, b: State) -> State:
            return tuple(v for f, i, j in parts for v in self.fold(f, table).join(self.k, a[i:j], b[i:j]))

        whole = reduce(tuple(chain(*states.values())), combine)
        return {f: whole[i:j] for f, i, j in parts}

    def results(self, states: dict[int, State], table: dict[str, Fold] = FOLDS) -> None:
        """Values of folds whose states are whole: values of the row from now on."""
        for f, state in states.items():
            self.row[f] = self.fold(f, table).result(self.k, state)

    # ---- the guard ------------------------------------------------------------------------------------

    def watch(self, values: Sequence[Value], live: Value | None) -> None:
        """Note NaN and Inf among results.  x · 0 is 0 but for these, so one fma an element finds out whether any is."""
        if self.bad is None:
            return
        k = self.k
        sign = values[0] * 0.0
        for v in values[1:]:
            sign = k.fma(v, 0.0, sign)
        suspicious = sign != 0.0
        with k.when(suspicious if live is None else suspicious & live):
            for v in values:
                self.bad.update("or_", k.select(v != v, k.const(u32, 1), 0))
                self.bad.update("or_", k.select(abs(v) == inf, k.const(u32, 2), 0))

    def end(self) -> None:
        if self.bad is None:
            return
        k = self.k
        bad = k.warp_reduce(self.bad, "or_")
        self.given["status"].reduce("or", 0, bad, where=(k.lane == 0) & (bad != 0))


def rounded(value: float, kind: Type) -> float:
    """As `kind` has it; infinite beyond it."""
    if kind is f64:
        return value
    try:
        return float(unpack("f", pack("f", value))[0])
    except OverflowError:
        return inf if value > 0 else -inf
