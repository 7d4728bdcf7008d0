"""`@op` declares an op: the decorated function becomes its row in the table.

The function's name is the op's name, its docstring the documentation, its annotated parameters the attributes, and its
body the meaning: for a *row program* arithmetic with the functions of `trueno.programs.language`, for a
*structured* op NumPy code.  API, stubs, docs, conformance cases and benchmark rows derive from the row.
"""

import ast
import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

from trueno.errors import ShapeError
from trueno.floatenv import ieee
from trueno.formats.table import Format, format_of
from trueno.ops.signature import Signature
from trueno.programs.program import FOLDS, Program
from trueno.programs.trace import trace

TABLE: dict[str, "Op"] = {}
"""Every op by name, in order of declaration."""
ALIASES: dict[str, str] = {}
"""NumPy's and PyTorch's names, mapped to ours."""

AXES = 64
"""The most axes of a NumPy array."""

Empty = Literal["error"] | float


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of an op: `float` ones are symbolic in the program, others are static and in the key.

    also: values that are accepted besides `choices`, but that loops over the choices leave out.
    """

    name: str
    type: type
    default: Any  # inspect.Parameter.empty when it is required
    keyword: bool
    choices: tuple[Any, ...] = ()
    also: tuple[Any, ...] = ()

    def takes(self, value: Any) -> bool:
        """Whether it is one of the choices, if there are any; an object of another type might just compare equal."""
        return not self.choices or (value.__class__ is self.type and (value in self.choices or value in self.also))

    @property
    def symbolic(self) -> bool:
        return self.type is float

    @property
    def required(self) -> bool:
        return self.default is inspect.Parameter.empty

    @property
    def typical(self) -> Any:
        """A value to try the op with: the default, if it is one of the choices."""
        return self.choices[0] if self.choices and self.default not in self.choices else self.default


@dataclass(frozen=True)
class Op:
    """One row of the table."""

    name: str
    family: str
    signature: Signature
    body: Callable[..., Any]
    params: tuple[Parameter, ...]
    structured: bool
    over: str | None
    rules: tuple[str, ...]
    flops_text: str | None
    aliases: tuple[str, ...]
    chain: str | None
    domain: tuple[float, float] | None
    shapes: Callable[..., tuple[tuple[int, ...], ...]] | None = None
    check: Callable[..., None] | None = None
    magnitude: Callable[..., Any] | None = None
    empty: float | None = None
    columnwise: bool = False
    extents: tuple[str, ...] = ()
    updates: bool = False
    many: bool = False
    _programs: dict[Any, Program] = field(default_factory=dict, compare=False, repr=False)

    @property
    def table_op(self) -> "Op":
        """The op whose kernel this needs: itself, and for a `FusedOp` its head."""
        return self

    @property
    def doc(self) -> str:
        return inspect.cleandoc(self.body.__doc__ or "")

    @property
    def signature_text(self) -> str:
        return self.signature.text

    @property
    def operands(self) -> tuple[str, ...]:
        return tuple(spec.name for spec in self.signature.inputs)

    @property
    def symbolic(self) -> tuple[str, ...]:
        """Names of the float parameters, in calling order."""
        return tuple(p.name for p in self.params if p.symbolic)

    @property
    def static(self) -> tuple[Parameter, ...]:
        """The parameters that change code."""
        return tuple(p for p in self.params if not p.symbolic)

    @property
    def reduces(self) -> bool:
        """Whether every result is one value per row."""
        return self.over is not None and all(self.over not in o.dims for o in self.signature.outputs)

    @property
    def layout(self) -> str:
        """Kind letters of the operands as declared: `e` [..., n], `w` [n], `r` [...]."""
        if self.over is None:
            return "e" * len(self.signature.inputs)
        return "".join(("e" if s.leading else "w") if self.over in s.dims else "r" for s in self.signature.inputs)

    def program(self, layout: str | None = None, **static: Any) -> Program:
        """The row program for operand kinds `layout` (as declared unless given)."""
        if self.structured:
            raise TypeError(f"{self.name} is a structured op: it has a reference, but no row program")
        layout = layout or self.layout
        key = (layout, *sorted(static.items()))
        if key not in self._programs:
            values = {p.name: p.default for p in self.static} | static
            operands = list(zip(self.operands, layout, strict=True))
            with ieee():  # constants fold
                self._programs[key] = trace(self.body, operands, self.symbolic, values)
        return self._programs[key]

    def result_shapes(self, shapes: tuple[tuple[int, ...], ...], static: dict[str, Any]) -> tuple[tuple[int, ...], ...]:
        """Shapes of the results for operands of these shapes; ShapeError when they do not fit."""
        if self.shapes is not None:
            return self.shapes(*shapes, **static)
        blocks = self.blocks(static)
        inputs, outputs = self.signature.inputs, self.signature.outputs
        meant = tuple(spec.meant(self.name, s, blocks) for spec, s in zip(inputs, shapes, strict=True))
        sizes, leading = self.signature.bind(self.name, meant)
        if problem := self.misfit(sizes, static):
            raise ShapeError(f"{self.name}: {problem}")
        output_shapes = self.signature.result_shapes({**static, **sizes}, leading)
        for spec, shape in zip(outputs, output_shapes, strict=True):
            if len(shape) > AXES:
                problem = f"{spec} would have {len(shape)} dimensions, and arrays have {AXES} at most"
                raise ShapeError(f"{self.name}: {problem}; reshape an operand to fewer")
        return tuple(spec.held(self.name, s, blocks) for spec, s in zip(outputs, output_shapes, strict=True))

    def misfit(self, sizes: dict[str, int], static: dict[str, Any]) -> str:
        """What these sizes of symbols and static parameters violate, in words; empty if nothing."""
        values = {**sizes, **static}
        for rule in self.extents:
            if not eval(rule, {"__builtins__": {}}, {**values, "max": max}):
                named = ", ".join(f"{k} is {v}" for k, v in values.items() if k in re.findall(r"\w+", rule))
                return f"{named}, but {rule} must hold"
        return ""

    @cached_property
    def checked(self) -> tuple[str, ...]:
        """The static parameters that `check` takes beside the operands, by name."""
        taken = () if self.check is None else inspect.signature(self.check).parameters
        return tuple(p.name for p in self.static if p.name in taken)

    @cached_property
    def quantized(self) -> bool:
        """Whether an operand or a result is in blocks; the parameter `format` says which kind."""
        return any(spec.blocks for spec in (*self.signature.inputs, *self.signature.outputs))

    @cached_property
    def single(self) -> bool:
        """Whether every call is in float32: something is in blocks, or no operand holds floats."""
        return self.quantized or all(spec.type for spec in self.signature.inputs)

    @cached_property
    def caches(self) -> bool:
        """Whether its bytes are caches of keys and values, which may be arrays of floats."""
        return any(spec.cache for spec in self.signature.inputs)

    def blocks(self, static: dict[str, Any]) -> Format | None:
        """The format of the op's blocks; None for an op without blocks."""
        return format_of(static["format"], self.name, cache=self.caches) if self.quantized else None

    def held(self, sizes: dict[str, int], static: dict[str, Any]) -> list[tuple[int, ...]]:
        """Shapes of operands (without leading axes) for about these sizes of symbols.

        Rows of blocks are rounded up to whole blocks, and the other extents shrink accordingly.
        """
        blocks = self.blocks(static)
        if blocks is not None:
            e = blocks.elements
            ends = {s.dims[-1] for s in (*self.signature.inputs, *self.signature.outputs) if s.blocks}
            whole = {d: -(-n // e) * e for d, n in sizes.items() if d in ends}
            more = max((n / sizes[d] for d, n in whole.items() if n), default=1.0)
            sizes = {d: whole.get(d, max(round(n / more), 1) if n else 0) for d, n in sizes.items()}
        return [s.held(self.name, tuple(sizes[d] for d in s.dims), blocks) for s in self.signature.inputs]

    @cached_property
    def empty_is_error(self) -> bool:
        """Whether an empty row has no value: a fold without identity, or a mean, in a row result.

        A result along the row is then empty itself and needs none.
        """
        if self.structured or self.over is None:
            return False
        program = self.program()
        needed = program.live([o for o in program.outputs if program.nodes[o].space != "e"])
        kinds = [program.nodes[i].kind for i in needed]
        return self.empty is None and ("count" in kinds or any(k in FOLDS and FOLDS[k].empty is None for k in kinds))

    def flops(self, sizes: dict[str, int], rows: int = 1) -> float:
        """Floating-point operations of one call; static parameters are the defaults unless they are among `sizes`."""
        if self.flops_text is not None:
            defaults = {p.name: p.default for p in self.static}
            return float(_evaluate(self.flops_text, {**defaults, **sizes, "rows": rows}))
        element, row = self.program().flops
        return rows * (element * sizes.get(self.over or "n", 1) + row)

    def chain_length(self, sizes: dict[str, int], rows: int = 1) -> float:
        """Products summed into one result of a structured op; 1 if it sums none."""
        return float(_evaluate(self.chain, {**sizes, "rows": rows})) if self.chain else 1.0


@dataclass(frozen=True, kw_only=True)
class FusedOp(Op):
    """A structured op and the ops that follow it in a batch, as one op that is not in the table.

    head: the structured op.  epilogue: a row program whose first operand is the head's result.  kinds: the kinds of the
    epilogue's operands.  The op's operands are the head's, then the epilogue's but the first, shaped by their kinds:
    `e` as the result, `w` as its last axis, `r` without that axis, `u` [].  So are its parameters.
    """

    head: Op
    epilogue: Op
    kinds: str

    @property
    def table_op(self) -> Op:
        return self.head


def op(
    signature: str,
    *,
    over: str | None = None,
    structured: bool = False,
    rules: str | tuple[str, ...] = (),
    flops: str | None = None,
    aliases: str | tuple[str, ...] = (),
    choices: dict[str, tuple[Any, ...]] | None = None,
    also: dict[str, tuple[Any, ...]] | None = None,
    empty: float | None = None,
    chain: str | None = None,
    domain: tuple[float, float] | None = None,
    shapes: Callable[..., tuple[tuple[int, ...], ...]] | None = None,
    check: Callable[..., None] | None = None,
    magnitude: Callable[..., Any] | None = None,
    columnwise: bool = False,
    extents: tuple[str, ...] = (),
    updates: bool = False,
    many: bool = False,
    table: bool = True,
) -> Callable[[Callable[..., Any]], Op]:
    """Declare an op.

    signature: `x[...,n] w[n] -> y[...,n]`.  over: the symbol of the row axis, for folds and row ops.
    structured: the body is NumPy code and plugins have hand-written kernels; then `flops` is an expression in
    the signature's symbols and `chain` one for the number of products summed into a result (its tolerance).
    rules: conditions on parameters, `eps >= 0`.  choices: the values of a static parameter; also: further values,
    variants that lists leave out and that loops over the table do not try.
    empty: the value of an empty row, where the program's folds alone would make it an error.
    domain: where the op's natural inputs lie, for samples and benchmarks (default all reals).
    shapes: for results that a signature cannot describe: (operand shapes, **static) → result shapes.
    check: raises for operand values without a result, such as an index outside its table; called before every kernel,
    with the operands and those static parameters that it has.
    magnitude: (operands, **parameters) → Σ|a · b| of every result, where the body on absolute values does not give it.
    extents: conditions on the signature's symbols and static parameters, `hq % hk == 0`; a kernel refuses what fails.
    updates: the result is the first operand with some of it replaced; `out` may be that operand itself.
    many: the public function takes more than two operands, or a list of them, and joins them in pairs.
    columnwise: blocks run along the columns of the matrix that users hold, as those of q.T do.
    table: False for an op of one backend alone, which no function has; `Batch.call` records it.
    """

    def declare(body: Callable[..., Any]) -> Op:
        parsed = Signature.parse(signature)
        names = [s.name for s in parsed.inputs]
        params = []
        for name, p in inspect.signature(body).parameters.items():
            if name in names:
                continue
            if p.annotation not in (float, int, bool, str):
                raise TypeError(f"{body.__name__}: parameter {name} needs an annotation: float, int, bool or str")
            keyword = p.kind is inspect.Parameter.KEYWORD_ONLY
            values = [(by_name or {}).get(name, ()) for by_name in (choices, also)]
            params.append(Parameter(name, p.annotation, p.default, keyword, *values))
        row = Op(
            name=body.__name__,
            family=body.__module__.rpartition(".")[2],
            signature=parsed,
            body=body,
            params=tuple(params),
            structured=structured,
            over=over,
            rules=(rules,) if isinstance(rules, str) else tuple(rules),
            flops_text=flops,
            aliases=(aliases,) if isinstance(aliases, str) else tuple(aliases),
            chain=chain,
            domain=domain,
            shapes=shapes,
            check=check,
            magnitude=magnitude,
            empty=empty,
            columnwise=columnwise,
            extents=extents,
            updates=updates,
            many=many,
        )
        for taken in (row.name, *row.aliases) if table else ():
            before = TABLE.get(ALIASES.get(taken, taken))
            # A module whose import was interrupted, by Ctrl-C, is imported again from its beginning.
            if before is not None and _place(before.body) != _place(body):
                raise ValueError(f"{taken} is declared twice")
        if table:
            TABLE[row.name] = row
            ALIASES.update(dict.fromkeys(row.aliases, row.name))
        return row

    return declare


def _place(body: Callable[..., Any]) -> tuple[str, str, int]:
    """Where an op is declared."""
    return body.__module__, body.__name__, body.__code__.co_firstlineno


def _evaluate(text: str, values: dict[str, int]) -> float:
    """Value of a cost expression: numbers, symbols, + - * / and parentheses."""

    def value(node: ast.AST) -> float:
        match node:
            case ast.Expression(body=inner):
                return value(inner)
            case ast.Constant(value=int() | float() as number):
                return number
            case ast.Name(id=name):
                return values[name]
            case ast.BinOp(left=a, op=ast.Add(), right=b):
                return value(a) + value(b)
            case ast.BinOp(left=a, op=ast.Sub(), right=b):
                return value(a) - value(b)
            case ast.BinOp(left=a, op=ast.Mult(), right=b):
                return value(a) * value(b)
            case ast.BinOp(left=a, op=ast.Div(), right=b):
                return value(a) / value(b)
        raise ValueError(f"cost expression {text!r}: {ast.dump(node)} is not allowed")

    return value(ast.parse(text, mode="eval"))
