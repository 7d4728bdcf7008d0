"""One op made of several: its body calls the bodies of its parts, so tracing it gives the fused row program.

Every backend that prints row programs runs it as it runs any op.  Float parameters of the parts, and numbers where
they replace arrays, become parameters of the whole; static ones are bound.  A recipe is plain data, and two equal
recipes are one op, so that a kernel is compiled once however many batches record the same ops.
"""

from collections.abc import Callable
from functools import lru_cache
from hashlib import blake2b
from inspect import Parameter as Signed
from typing import Any, NamedTuple

from trueno.dispatch.state import CHAINS
from trueno.ops import TABLE
from trueno.ops.op import Op, Parameter
from trueno.ops.signature import ArraySpec, Signature
from trueno.programs.lower import lower
from trueno.programs.program import ELEMENTS
from trueno.text import HASH

Source = tuple[str, int, int]
"""`("x", slot, 0)` an operand of the whole, `("s", slot, 0)` a parameter, `("v", part, result)` a result of a part."""
DEAR = 4.0
"""Flops from which an element kind counts as an elementary function: exp and more expensive ones."""
SHOWN = 4
"""The most names of parts in the name of the whole; file names have a limit."""


class Part(NamedTuple):
    """One op of the recipe: where its operands and float parameters come from, and its static parameters."""

    op: str
    operands: tuple[Source, ...]
    params: tuple[Source, ...]
    static: tuple[tuple[str, Any], ...]


class Recipe(NamedTuple):
    """kinds: of the operands.  params: how many.  outputs: (part, result, space).  rows: whether rows matter.

    An output of part −1 is operand `result` passed through unchanged, because another group reads it.
    """

    kinds: str
    params: int
    parts: tuple[Part, ...]
    outputs: tuple[tuple[int, int, str], ...]
    rows: bool


def title(names: list[str]) -> str:
    """`relu_scale_add`; for many parts the first few names and the number of others."""
    return "_".join(names if len(names) <= SHOWN + 1 else [*names[:SHOWN], str(len(names) - SHOWN), "more"])


@lru_cache(maxsize=CHAINS)
def merged(recipe: Recipe) -> Op:
    """The op of a recipe; one that was not recorded for a long time is rebuilt, under the same name."""
    names = [part.op for part in recipe.parts]
    digest = blake2b(repr(recipe).encode(), digest_size=HASH // 2).hexdigest()
    body = _body(recipe)
    body.__doc__ = f"{' → '.join(names)}, in one kernel."
    along = ("n",) if recipe.rows else ()
    dims = {"e": (along, True), "w": (along, not recipe.rows), "r": ((), True), "u": ((), True)}
    inputs = [ArraySpec(f"arg{i}", *dims[k]) for i, k in enumerate(recipe.kinds)]
    outputs = []
    for k, (part, result, space) in enumerate(recipe.outputs):
        index = part >= 0 and TABLE[names[part]].signature.outputs[result].index
        outputs.append(ArraySpec(f"result{k}", along if space == "e" else (), True, "index" if index else ""))
    return Op(
        name=f"{title(names)}_{digest}",
        family="batch",
        signature=Signature(tuple(inputs), tuple(outputs)),
        body=body,
        params=tuple(Parameter(f"number{j}", float, Signed.empty, True) for j in range(recipe.params)),
        structured=False,
        over="n" if recipe.rows else None,
        rules=(),
        flops_text=None,
        aliases=(),
        chain=None,
        domain=None,
    )


def _body(recipe: Recipe) -> Callable[..., Any]:
    def body(**given: Any) -> Any:
        part_results: list[tuple[Any, ...]] = []

        def take(source: Source) -> Any:
            where, i, result = source
            return part_results[i][result] if where == "v" else given[("arg" if where == "x" else "number") + str(i)]

        for part in recipe.parts:
            op = TABLE[part.op]
            values = {name: take(s) for name, s in zip(op.operands, part.operands, strict=True)}
            values |= {name: take(s) for name, s in zip(op.symbolic, part.params, strict=True)}
            result = op.body(**values, **dict(part.static))
            part_results.append(result if isinstance(result, tuple) else (result,))
        results = tuple(part_results[p][r] if p >= 0 else given[f"arg{r}"] for p, r, _ in recipe.outputs)
        return results[0] if len(results) == 1 else results

    return body


def sound(recipe: Recipe) -> bool:
    """Whether tracing gave every output the space that the recipe states."""
    program = merged(recipe).program(recipe.kinds)
    spaces = [program.nodes[o].space for o in program.outputs]
    return all(s == wanted for s, (_, _, wanted) in zip(spaces, recipe.outputs, strict=True))


@lru_cache(maxsize=512)
def elementary(op: Op, static: tuple[tuple[str, Any], ...]) -> float:
    """Flops an element that an op spends in elementary functions, which cost DEAR or more."""
    nodes = op.program(**dict(static)).nodes
    costs = [ELEMENTS[n.kind].flops for n in nodes if n.space == "e" and n.kind in ELEMENTS]
    return sum(c for c in costs if c >= DEAR)


def again(op: Op, kinds: str, static: dict[str, Any]) -> float:
    """Flops an element that the op's passes over a row compute a second time or more."""
    program = op.program(kinds, **static)
    plan = lower(program, "cache")
    swept = [i for sweep in plan.passes for i in sweep.body]
    cost = [ELEMENTS[program.nodes[i].kind].flops if program.nodes[i].kind in ELEMENTS else 0.0 for i in swept]
    once = dict(zip(swept, cost, strict=True))
    return sum(cost) - sum(once.values())
