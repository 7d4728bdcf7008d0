"""The overloads of an op: which types of operands give which types of results, from its signature alone.

A `Vector` has rank 1 and a `Matrix` rank 2, so the signature `x[...,n] w[n] -> y[...,n]` says that a Matrix gives a
Matrix, and `-> r[...]` that it gives a Vector.  Results of NumPy's arrays are NumPy's, those of a device's its own.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from trueno.dispatch.parameters import BLOCKS, BYTES, CACHE
from trueno.ops.op import Op
from trueno.ops.signature import ArraySpec

HOLDERS = {1: "Vector", 2: "Matrix"}
WIDER = {
    "Vector": ("Rank1", "Rank2", "Holder", "Operand"),
    "Matrix": ("Rank2", "Holder", "Operand"),
    "Rank1": ("Rank2", "Operand"),
    "Rank2": ("Operand",),
    "Holder": ("Operand",),
    "Host": ("Operand",),
}
"""By type of `trueno._types`: those that include it."""
OTHERS = {"index": "Indices", "blocks": BLOCKS, "cache": CACHE, "bytes": BYTES}


@dataclass(frozen=True)
class Variant:
    """One overload: the types of operands, those of results, and the parameters whose type is another than usual."""

    operands: dict[str, str]
    results: tuple[str, ...]
    special: dict[str, str] = field(default_factory=dict)
    """By parameter: annotation and default, as a stub writes them after its name."""

    def covers(self, other: "Variant") -> bool:
        """Whether a call that fits the other one fits this one."""
        return self.special == other.special and all(
            a == b or a in WIDER.get(b, ())
            for a, b in zip(self.operands.values(), other.operands.values(), strict=True)
        )


def variants(op: Op) -> list[Variant]:
    """The overloads of the function of an op, the first that fits decides."""
    floats = [spec.name for spec in op.signature.inputs if not spec.type]
    usual = {spec.name: OTHERS.get(spec.type, "Operand") for spec in op.signature.inputs}

    def taking(kind: str, **some: str) -> dict[str, str]:
        return {name: some.get(name, kind) if name in floats else usual[name] for name in usual}

    if op.reduces and not op.structured:
        listed = _reductions(op, taking)
    else:
        listed = _on_numpy(op, floats, taking)
        listed += [Variant(taking(rest, **some), _held(op, rank)) for rank, rest, some in _holding(op)]
        listed += _on_arrays(op, floats, taking)
        if len(floats) > 1:
            anything = ("Any",) * len(op.signature.outputs)
            listed += [Variant(taking("Operand", **{name: "Holder"}), anything) for name in floats]
    listed = [replace(v, special={"out": "None = None"} | v.special) for v in listed]
    return distinct([*listed, _into(op, usual)])


def distinct(listed: list[Variant]) -> list[Variant]:
    """Without those that an earlier one covers."""
    kept: list[Variant] = []
    for variant in listed:
        if not any(earlier.covers(variant) for earlier in kept):
            kept.append(variant)
    return kept


def of_holder(op: Op, rank: int, at: int = 0) -> list[Variant]:
    """The overloads of an op as a method of the holder of this rank, which is operand number `at`; [] if it cannot be.

    The operand itself is left out.
    """
    spec = op.signature.inputs[at]
    if spec.type or (rank < len(spec.dims) if spec.leading else rank != len(spec.dims)):
        return []
    holder = HOLDERS[rank]
    fitting = [v for v in variants(op) if v.operands[spec.name] in (holder, *WIDER[holder])]
    rest = [replace(v, operands={n: t for n, t in v.operands.items() if n != spec.name}) for v in fitting]
    return distinct(rest)


def _into(op: Op, usual: dict[str, str]) -> Variant:
    """The overload with `out`, which is also what it returns."""
    count = len(op.signature.outputs)
    if op.updates:
        return Variant(usual, ("Any",), {"out": "Any"})
    if count == 1:
        return Variant(usual, ("_Out",), {"out": "_Out"})
    return Variant(usual, ("_Out",) * count, {"out": "Sequence[_Out]"})


def _holding(op: Op) -> list[tuple[int | None, str, dict[str, str]]]:
    """For each way to pass a Vector or a Matrix: how many axes `...` stands for, the other operands, and it."""
    inputs = [spec for spec in op.signature.inputs if not spec.type]
    leading = [spec for spec in inputs if spec.leading]
    if not leading:
        known = not any(spec.leading for spec in op.signature.outputs)
        held = [s for s in inputs if len(s.dims) in HOLDERS]
        return [(0 if known else None, "Operand", {s.name: HOLDERS[len(s.dims)]}) for s in held]
    depth = len(leading[0].dims)
    if any(len(spec.dims) != depth for spec in leading):
        return []
    ways: list[tuple[int | None, str, dict[str, str]]] = []
    for rank in (2, 1):
        if rank >= depth:
            only = len(leading) == 1
            fixed = {s.name: "Operand" for s in inputs if not s.leading}
            rest = "Operand" if only else f"Rank{rank}"
            ways += [(rank - depth, rest, {**fixed, s.name: HOLDERS[rank]}) for s in leading]
    return ways


def _held(op: Op, lead: int | None) -> tuple[str, ...]:
    """The results where an operand is a holder and `...` stands for so many axes; None: that is not known."""
    return tuple(
        "Any" if lead is None else _ranked(s, len(s.dims) + (lead if s.leading else 0)) for s in op.signature.outputs
    )


def _ranked(spec: ArraySpec, rank: int) -> str:
    if rank == 0:
        return "np.int64" if spec.type else "np.floating[Any]"
    return _plain(spec, HOLDERS.get(rank, "NDArray[Any]"))


def _on_numpy(op: Op, floats: list[str], taking: Callable[..., dict[str, str]]) -> list[Variant]:
    """The overload for NumPy's arrays alone: the first, because mypy takes that for `submit(trueno.relu, x)`."""
    if not floats:
        return []
    results = tuple(_on_host(op, spec, "NDArray[_S]") for spec in op.signature.outputs)
    return [Variant(taking("Host", **{floats[0]: "NDArray[_S]"}), results)]


def _on_arrays(op: Op, floats: list[str], taking: Callable[..., dict[str, str]]) -> list[Variant]:
    """The overloads for arrays of NumPy's or of another library, which give the like, and for numbers and lists.

    No two of them fit an array of NumPy and say different things: mypy would conclude nothing from both.
    """
    outputs = op.signature.outputs
    elementwise = all(s.leading and not s.dims for s in op.signature.inputs)
    before: dict[str, str] = {}
    listed = []
    for name in floats if elementwise else floats[:1]:
        for kind, result in (("NDArray[_S]", "NDArray[_S]"), ("_Foreign", "_Foreign")):
            rest = taking("Operand", **before, **{name: kind})
            listed.append(Variant(rest, tuple(_on_host(op, s, result) for s in outputs)))
        before[name] = "Plain"
    listed.append(Variant(taking("Operand", **before), tuple(_on_host(op, s, "NDArray[Any]") for s in outputs)))
    return listed


def _on_host(op: Op, spec: ArraySpec, floats: str) -> str:
    """A result; one row may reduce to a scalar and several rows to an array: only Any covers both."""
    row = spec.leading and not spec.dims and any(s.leading and s.dims for s in op.signature.inputs)
    own = spec.type and floats == "_Foreign"
    return "Any" if row or own else _plain(spec, floats)


def _plain(spec: ArraySpec, floats: str) -> str:
    return {"": floats, "index": "NDArray[np.int64]"}.get(spec.type, "NDArray[np.uint8]")


def _reductions(op: Op, taking: Callable[..., dict[str, str]]) -> list[Variant]:
    """Reductions along an axis, along all (a scalar), and with `keepdims`."""
    spec = op.signature.outputs[0]
    scalar = (_ranked(spec, 0),)
    kept, dropped = "Literal[True]", "Literal[False] = False"
    listed = [Variant(taking("Host"), ("Any",))]  # first, as in `_on_numpy`
    for rank, rest, some in _holding(op):
        operands, whole = taking(rest, **some), (_ranked(spec, rank + 1 if rank is not None else 0),)
        listed.append(Variant(operands, whole, {"axis": "int | None = -1", "keepdims": kept}))
        if rank:
            listed.append(Variant(operands, _held(op, rank), {"axis": "int = -1", "keepdims": dropped}))
            listed.append(Variant(operands, scalar, {"axis": "None", "keepdims": dropped}))
        else:
            listed.append(Variant(operands, scalar, {"axis": "int | None = -1", "keepdims": dropped}))
    return [*listed, Variant(taking("Operand"), ("Any",))]
