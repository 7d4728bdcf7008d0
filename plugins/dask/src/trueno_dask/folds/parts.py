"""Row programs of parts of an op: what a chunk computes for a stage, and the elements of the results.

They are ops of the family "batch", which every backend that prints row programs compiles as it does those of the table.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from inspect import Parameter as Signed
from typing import Any, NamedTuple

from trueno.ops.op import Op, Parameter
from trueno.ops.signature import ArraySpec, Signature
from trueno.programs import language as lang
from trueno.programs.program import FOLDS
from trueno.programs.trace import Symbol

from trueno_dask.folds.split import Fold, Split, Static, split


class Part(NamedTuple):
    """A program with the names of what it takes.

    leaves: operands of the whole op; known: nodes of the whole whose values per row it takes after those.  params: of
    the whole.  kinds: letters of the operands.
    """

    op: Op
    leaves: tuple[str, ...]
    known: tuple[int, ...]
    params: tuple[str, ...]
    kinds: str


@lru_cache(maxsize=512)
def local(name: str, static: Static, stage: int) -> tuple[Part, tuple[int, ...]]:
    """What a chunk computes for a stage of an op, and how many results belong to each of its folds.

    fsum: the elements themselves, which `chunk` sums.
    """
    whole = _whole(name, static)
    folds = whole.stages[stage]
    counts: list[int] = []

    def body(rebuilt: Callable[[int], Symbol]) -> list[Symbol]:
        results: list[Symbol] = []
        counts.clear()
        for fold in folds:
            values = _of_chunk(fold, [rebuilt(a) for a in fold.args])
            counts.append(len(values))
            results += values
        return results

    kind_of = [kind for fold in folds for kind in _kinds(fold)]
    part = _part(f"{name}_stage_{stage + 1}", whole, [a for fold in folds for a in fold.args], kind_of, body)
    part.op.program(part.kinds)  # fills counts
    return part, tuple(counts)


@lru_cache(maxsize=512)
def final(name: str, static: Static) -> Part:
    """The results with a value per element, from the operands and what is known of their rows."""
    whole = _whole(name, static)
    roots = [whole.program.outputs[k] for k in whole.along]
    return _part(f"{name}_elements", whole, roots, ["e"] * len(roots), lambda rebuilt: [rebuilt(i) for i in roots])


def _whole(name: str, static: Static) -> Split:
    whole = split(name, static)
    assert whole is not None  # or the call was refused
    return whole


def _kinds(fold: Fold) -> list[str]:
    """The kinds of a fold's results for a chunk: per element, per row, or a position per row."""
    if fold.kind == "moment":
        return ["r"] * (3 if fold.args[0] == fold.args[1] else 5)
    return {"fsum": ["e"], "argmax": ["index", "r"], "argmin": ["index", "r"], "shifted": ["r", "r"]}.get(
        fold.kind, ["r"]
    )


def _of_chunk(fold: Fold, args: list[Symbol]) -> list[Symbol]:
    x = args[0]
    if fold.kind == "moment":
        pairs = [_centre(y) for y in (args[:1] if fold.args[0] == fold.args[1] else args)]
        return [*(c for c, _ in pairs), *(lang.sum(d) for _, d in pairs), lang.sum(pairs[0][1] * pairs[-1][1])]
    if fold.kind == "shifted":
        top = lang.max(x)
        return [top, lang.sum(lang.exp(x - top))]
    if fold.kind in ("argmax", "argmin"):
        return [x.fold(fold.kind), x.fold(fold.kind[3:])]
    if fold.kind == "fsum":
        return [x + 0.0]
    value = x.fold(fold.kind)
    return [lang.where(value, 1.0, 0.0)] if FOLDS[fold.kind].result == "bool" else [value]


def _centre(x: Symbol) -> tuple[Symbol, Symbol]:
    """The mean of a chunk, kept between its smallest and largest element, and the differences from it."""
    mean = lang.minimum(lang.maximum(lang.mean(x), lang.min(x)), lang.max(x))
    return mean, x - mean


def _part(name: str, whole: Split, roots: Sequence[int], results: Sequence[str],
          body: Callable[[Callable[[int], Symbol]], list[Symbol]]) -> Part:  # fmt: skip
    """The op that computes `body` of the nodes `roots`, rebuilt from operands, parameters and what is known."""
    program, nodes = whole.program, whole.program.nodes
    names = whole.leaves(roots)
    leaves = tuple(n for n in names if n not in program.params)
    params = tuple(n for n in names if n in program.params)
    known = whole.frontier(roots)
    letters = dict(program.operands)

    def run(**given: Any) -> tuple[Symbol, ...]:
        builder = next(iter(given.values())).builder
        made: dict[int, Symbol] = {}

        def rebuilt(i: int) -> Symbol:
            if i not in made:
                made[i] = rebuild(i)
            return made[i]

        def rebuild(i: int) -> Symbol:
            node = nodes[i]
            if i in known:
                value: Symbol = given[f"known{i}"]
                return value != 0.0 if node.type == "bool" else value  # type: ignore[return-value]
            if node.kind in ("leaf", "param"):
                return given[str(node.value)]
            if node.kind == "const":
                return Symbol(builder, builder.const(node.value))
            return Symbol(builder, builder.element(node.kind, *(rebuilt(a).index for a in node.args)))

        return tuple(body(rebuilt))

    inputs = [ArraySpec(n, () if letters[n] == "r" else ("n",), letters[n] != "w") for n in leaves]
    inputs += [ArraySpec(f"known{i}", (), True) for i in known]
    outputs = [
        ArraySpec(f"result{k}", ("n",) if kind == "e" else (), True, "index" if kind == "index" else "")
        for k, kind in enumerate(results)
    ]
    listed = tuple(Parameter(n, float, Signed.empty, True) for n in params)
    op = _op(f"{name}_{whole.program.key}", Signature(tuple(inputs), tuple(outputs)), run, listed)
    return Part(op, leaves, known, params, "".join(letters[n] for n in leaves) + "r" * len(known))


@lru_cache(1)
def compensated_sum() -> Op:
    """The sum of a row with a compensated or wider accumulator."""
    signature = Signature((ArraySpec("x", ("n",), True),), (ArraySpec("r", (), True),))
    return _op("compensated_sum", signature, lang.fsum, ())


def _op(name: str, signature: Signature, body: Callable[..., Any], params: tuple[Parameter, ...]) -> Op:
    return Op(
        name=name, family="batch", signature=signature, body=body, params=params, structured=False, over="n", rules=(),
        flops_text=None, aliases=(), chain=None, domain=None,
    )  # fmt: skip
