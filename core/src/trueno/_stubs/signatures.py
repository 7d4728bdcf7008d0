"""Ops as the stubs write them: functions, coroutines, and methods of holders, devices and batches."""

import ast
import inspect

from trueno._stubs.kinds import literal
from trueno._stubs.variants import OTHERS, Variant, of_holder, variants
from trueno.dispatch.parameters import parameters
from trueno.ops import ALIASES, FAMILIES, TABLE
from trueno.ops.op import Op

NUMBER = "Number"
"""A float parameter: NumPy's scalars are no floats to a type checker."""
WIDTH = 120

FUNCTION = '''\
class _Op:
    """The function of an op: call it, or ask it for the bare kernel."""

    __name__: str
    op: Op
    def plan(
        self, *operands: Operand | QuantizedMatrix, backend: Backend | None = None, **static: Any
    ) -> Callable[..., Any]:
        """The bare kernel for operands like these: `kernel(*operands, *parameters, out)`, returning 0."""

'''


def functions() -> str:
    """Every op as an object with an overloaded call, one family after the other, and the aliases."""
    parts = [FUNCTION]
    families = list(dict.fromkeys((*FAMILIES, *(op.family for op in TABLE.values()))))
    for family in families:
        parts.append(f"# ---- {family} {'-' * (90 - len(family))}\n\n")
        for op in (op for op in TABLE.values() if op.family == family):
            calls = overloaded("    def __call__", op, [*variants(op), *_many(op)], first="self")
            parts.append(f"class _{op.name}(_Op):\n    {docstring(op)}\n\n{calls}\n{op.name}: _{op.name}\n\n")
    return "".join([*parts, "# ---- other names of the same ops\n\n", *_aliases("")])


def coroutines() -> str:
    """Every op as a coroutine function."""
    parts = [
        overloaded(f"async def {op.name}", op, [*variants(op), *_many(op)], doc=True) + "\n" for op in TABLE.values()
    ]
    return "".join([*parts, "# ---- other names of the same ops\n\n", *_aliases("")])


def methods(rank: int) -> str:
    """The ops as methods of the holder of this rank, and the aliases."""
    parts, names = [], set()
    for op in TABLE.values():
        if listed := of_holder(op, rank):
            parts.append(overloaded(f"    def {op.name}", op, listed, first="self", doc=True))
            names.add(op.name)
    return "".join([*parts, *_aliases("    ", names)])


def operator(name: str, op: Op, rank: int, swapped: bool) -> str:
    """An operator of the holder of this rank: the method with one operand and nothing else."""
    plain = [v for v in of_holder(op, rank, at=int(swapped)) if v.special == {"out": "None = None"}]
    calls = [f"    def {name}(self, other: {_only(v)}) -> {returns(v)}: ...\n" for v in plain]
    return "".join(calls if len(calls) == 1 else [f"    @overload\n{call}" for call in calls])


def on_device() -> str:
    """The ops as methods of a device: operands are its buffers, or numbers."""
    parts = []
    for op in TABLE.values():
        taken = {spec.name: OTHERS.get(spec.type, "Operand") for spec in op.signature.inputs}
        results = ("Any",) * len(op.signature.outputs)
        parts.append(overloaded(f"    def {op.name}", op, [Variant(taken, results)], first="self", doc=True))
    return "".join([*parts, *_aliases("    ")])


def on_handles() -> str:
    """The ops as methods of a batch."""
    parts = []
    for op in TABLE.values():
        taken = dict.fromkeys(op.operands, "Handle | Number")
        variant = Variant(taken, ("Handle",) * len(op.signature.outputs), {"out": ""})
        parts.append(overloaded(f"    def {op.name}", op, [variant], first="self", doc=True))
    return "".join([*parts, *_aliases("    ")])


def overloaded(start: str, op: Op, listed: list[Variant], first: str = "", doc: bool = False) -> str:
    """The definitions of a function, `@overload` before each if there are several; doc: with the docstring."""
    pad = " " * (len(start) - len(start.lstrip()))
    parts = []
    for k, variant in enumerate(listed):
        shown = [*([first] if first else []), *arguments(op, variant)]
        line = f"{start}({', '.join(shown)}) -> {returns(variant)}:"
        if len(line) > WIDTH:
            line = f"{start}(\n{pad}    {', '.join(shown)}\n{pad}) -> {returns(variant)}:"
        body = f"\n{pad}    {docstring(op)}\n" if doc and k == 0 else " ...\n"
        parts.append((f"{pad}@overload\n" if len(listed) > 1 else "") + line + body)
    return "".join(parts)


def arguments(op: Op, variant: Variant) -> list[str]:
    """Parameters as a stub writes them; operands that the variant does not name are left out."""
    choices = {p.name: (*p.choices, *p.also) for p in op.params if p.choices}
    shown: list[str] = []
    for p in parameters(op):
        special = variant.special.get(p.name)
        if special == "" or (p.name in op.operands and p.name not in variant.operands):
            continue
        if p.name in op.operands and variant.operands[p.name].startswith("*"):
            shown.append(f"*arrays: {variant.operands[p.name][1:]}")
            continue
        if p.kind is p.KEYWORD_ONLY and not any(s.startswith("*") for s in shown):
            shown.append("*")
        if special is not None:
            shown.append(f"{p.name}: {special}")
            continue
        listed = choices.get(p.name, ())
        known = listed and (p.default is inspect.Parameter.empty or p.default in listed)
        kind = literal(listed) if known else {"float": NUMBER}.get(p.annotation, p.annotation)
        kind = variant.operands.get(p.name, kind)
        default = "" if p.default is inspect.Parameter.empty else f" = {_written(p.default)}"
        shown.append(f"{p.name}: {kind}{default}")
    return shown


def returns(variant: Variant) -> str:
    """The type of what the function returns."""
    return variant.results[0] if len(variant.results) == 1 else f"tuple[{', '.join(variant.results)}]"


def docstring(op: Op) -> str:
    """The first line of an op's documentation, quoted."""
    line = op.doc.partition("\n")[0]
    quoted = f'"""{line}"""'
    try:
        same = ast.literal_eval(quoted) == line
    except SyntaxError:  # a quote or a backslash at its end
        same = False
    return quoted if same else repr(line)


def _many(op: Op) -> list[Variant]:
    """The overloads for any number of operands, and for a list of them; these come after those for two."""
    if not op.many:
        return []
    kinds = {"Vector": "Vector", "Matrix": "Matrix", "NDArray[Any]": "NDArray[Any]", "Foreign": "Any"}
    first, none = op.operands[0], {"out": "None = None"}
    listed = [Variant({first: f"*{kind}"}, (result,), none) for kind, result in kinds.items()]
    listed += [Variant({first: f"Sequence[{kind}]"}, (result,), none) for kind, result in kinds.items()]
    return [*listed, Variant({first: "Sequence[Operand]"}, ("_Out",), {"out": "_Out"})]


def _only(variant: Variant) -> str:
    return next(iter(variant.operands.values()))


def _aliases(pad: str, names: set[str] | None = None) -> list[str]:
    return [f"{pad}{alias} = {name}\n" for alias, name in sorted(ALIASES.items()) if names is None or name in names]


def _written(value: object) -> str:
    return literal([value])[len("Literal[") : -1]
