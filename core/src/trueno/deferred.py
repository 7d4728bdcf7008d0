"""Calls that are checked now and run later, in parts: what libraries of lazy arrays need of the core.

`check` answers for a call what the call itself would: its dtype, its results' shapes and dtypes, or its error, from
shapes and dtypes alone.  `scopes` and `inside` take the request for backends and the guard of a caller to where the
parts run.  `run_rows` runs a row program that is not in the table, which a part of an op is, on the best backend.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from trueno.discovery.protocol import Call, Refused
from trueno.dispatch import state
from trueno.dispatch.asking import BackendScope
from trueno.dispatch.axes import BESIDE, result_shapes, row_axis
from trueno.dispatch.coerce import coerce, coerce_params, shown, unpack
from trueno.dispatch.fallback import passes
from trueno.errors import ParameterError
from trueno.explaining import priced
from trueno.floatenv import ieee
from trueno.guards.guard import JidokaGuard
from trueno.guards.rules import Rules
from trueno.ops.op import Op
from trueno.scope import opened
from trueno.select import policy
from trueno.select.decision import Decision, Request

Array = npt.NDArray[Any]
Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class StandIn:
    """An operand of which only shape and dtype are known."""

    shape: Shape
    dtype: np.dtype[Any]

    @property
    def array(self) -> Array:
        """An array of that shape that takes no memory."""
        return np.broadcast_to(np.zeros((), self.dtype), self.shape)


@dataclass(frozen=True, slots=True)
class Checked:
    """A valid call.

    operands: the arrays of the host, converted as the call would, and None for each `StandIn`.  dtype: of the numbers.
    params, static: the parameters by name.  axes: the row axes, counted from the end; () for a structured op.  whole:
    the shape to which a row program's operands broadcast.  shapes, dtypes: of the results.
    """

    op: Op
    operands: tuple[Array | None, ...]
    dtype: np.dtype[Any]
    params: dict[str, float]
    static: dict[str, Any]
    axes: tuple[int, ...]
    keepdims: bool
    whole: Shape
    shapes: tuple[Shape, ...]
    dtypes: tuple[np.dtype[Any], ...]

    @property
    def axis(self) -> Any:
        """The axes as the public function takes them."""
        return self.axes[0] if len(self.axes) == 1 else self.axes


def check(op: Op, operands: Sequence[Any], scalars: dict[str, Any]) -> Checked:
    """What a call gives, without running it; it raises the call's own errors, but for those about values.

    operands: a `StandIn`, or anything that the op takes on the host.
    """
    arrays = tuple(x.array if isinstance(x, StandIn) else x for x in operands)
    arrays, scalars = unpack(op, arrays, scalars)
    with ieee():
        converted, dtype, _ = coerce(op, arrays)
    values, static = coerce_params(op, scalars)
    shapes = tuple(a.shape for a in converted)
    whole: Shape = ()
    axes: tuple[int, ...] = ()
    keepdims = bool(scalars.get("keepdims", False))
    if op.structured:
        results = op.result_shapes(shapes, static)
    elif op.over is None:
        results = result_shapes(op, shapes, static)
        whole = results[0]
    else:
        axes, whole, results = _rows(op, shapes, static, scalars)
    return Checked(
        op=op,
        operands=tuple(None if isinstance(x, StandIn) else a for x, a in zip(operands, converted, strict=True)),
        dtype=dtype,
        params=dict(zip(op.symbolic, values, strict=True)),
        static=static,
        axes=axes,
        keepdims=keepdims,
        whole=whole,
        shapes=results,
        dtypes=tuple(spec.holds(dtype) for spec in op.signature.outputs),
    )


def _rows(op: Op, shapes: tuple[Shape, ...], static: dict[str, Any], scalars: dict[str, Any]
          ) -> tuple[tuple[int, ...], Shape, tuple[Shape, ...]]:  # fmt: skip
    """The row axes, the broadcast shape and the results' shapes of a row program."""
    axis, keepdims = scalars.get("axis", -1), scalars.get("keepdims", False)
    along = [s for spec, s in zip(op.signature.inputs, shapes, strict=True) if spec.leading and op.over in spec.dims]
    if isinstance(axis, tuple):
        whole = np.broadcast_shapes(*along)
        axes = tuple(row_axis(op, (whole,) * len(shapes), a, keepdims) for a in axis)
        if not op.reduces or None in axes or len(set(axes)) != len(axes) or any(s.index for s in op.signature.outputs):
            raise ParameterError(f"{op.name}: axis is {shown(axis)}; it must be one integer, or each of several once")
        places = {int(a) for a in axes if a is not None}
        rank = len(whole)
        final = tuple(1 if i - rank in places else n for i, n in enumerate(whole) if keepdims or i - rank not in places)
        return tuple(sorted(places)), whole, (final,)
    results = result_shapes(op, shapes, static, axis, keepdims)
    whole = np.broadcast_shapes(*along)
    one = row_axis(op, shapes, axis, keepdims)
    return (tuple(range(-len(whole), 0)) if one is None else (one,)), whole, results


# ---- what surrounds a call -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Scopes:
    """The request for backends and the guard's rules of a caller, as data that another process can read."""

    request: Request | None = None
    rules: Rules | None = None


def scopes() -> Scopes:
    """What `use`, `prefer` and guards around the caller say."""
    request = rules = None
    for scope in opened():
        request = request if scope.request is None else scope.request
        rules = rules if scope.rules is None else scope.rules
    return Scopes(request, rules)


@contextmanager
def inside(held: Scopes) -> Iterator[None]:
    """Run everything inside as if it stood in these scopes; UnknownBackend for a backend that is not here."""
    with ExitStack() as stack:
        if held.request is not None:
            request = held.request
            names = request.names or request.preferred
            stack.enter_context(BackendScope(request.origin.removeprefix("trueno."), names, request))
        if held.rules is not None:
            stack.enter_context(JidokaGuard(held.rules))
        yield


# ---- parts of ops ---------------------------------------------------------------------------------------------------


def rules() -> Rules:
    """The rules of the guard in force here: the scope's, or TRUENO_GUARD's."""
    return state.current.get().guarding() or ()


def decide(op: Op, kinds: str, elements: int, dtype: np.dtype[Any]) -> Decision:
    """Which backend `run_rows` would choose for chunks of that many elements; nothing runs."""
    call = Call(op, dtype, kinds, 2, (elements.bit_length(),), ())
    decision = policy.decide(call, state.current.get().request)
    return replace(decision, candidates=tuple(priced(c, call) for c in decision.candidates))


def run_rows(op: Op, kinds: str, operands: Sequence[Array], params: Sequence[float], dtype: np.dtype[Any]
             ) -> list[Array]:  # fmt: skip
    """The results of a row program that need not be in the table, on the backend that the selector chooses.

    kinds: of the operands.  They are [outer, n, inner], and a row is the n elements at one place of `outer` and
    `inner`: `e` [outer, n, inner], `w` [n], `r` [outer, inner]; so are the results.  Of no elements there is nothing to
    compute, and results are empty, or arbitrary.  op: of the family "batch", named after what it computes, since plans
    are kept by name.  No guard looks at the results: a part of an op may hold what the whole does not.
    """
    outer, n, inner = next(x.shape for x, kind in zip(operands, kinds, strict=True) if kind == "e")
    along = ["e" if op.over in spec.dims else "r" for spec in op.signature.outputs]
    dtypes = [spec.holds(dtype) for spec in op.signature.outputs]
    call = Call(op, dtype, kinds, 2, ((outer * n * inner).bit_length(),), ())
    if not outer * n * inner:
        empty = {"e": (outer, n, inner), "r": (outer, inner)}
        return [np.zeros(empty[kind], d) for kind, d in zip(along, dtypes, strict=True)]
    with ieee(), state.current.get().unguarded() as now:
        if inner >= BESIDE and (beside := _beside(now, call, operands, params, along, dtypes)) is not None:
            return beside
        flat = {"e": (outer * inner, n), "w": (n,), "r": (outer * inner,)}
        rows = [
            np.ascontiguousarray(x.transpose(0, 2, 1) if kind == "e" else x).reshape(flat[kind])
            for x, kind in zip(operands, kinds, strict=True)
        ]
        outs = [np.empty(flat[kind], d) for kind, d in zip(along, dtypes, strict=True)]
        now.run(call, (*rows, *params, *outs))
    back = {"e": (outer, inner, n), "r": (outer, inner)}
    shaped = [out.reshape(back[kind]) for out, kind in zip(outs, along, strict=True)]
    return [y.transpose(0, 2, 1) if kind == "e" else y for y, kind in zip(shaped, along, strict=True)]


def _beside(now: state.State, call: Call, operands: Sequence[Array], params: Sequence[float], along: list[str],
            dtypes: list[np.dtype[Any]]) -> list[Array] | None:  # fmt: skip
    """The results of rows that lie beside one another, without a copy of them; None if no kernel does that."""
    plan = now.across(call)
    if plan is None:
        return None
    ready = [np.ascontiguousarray(x) for x in operands]
    shape = ready[call.layout.index("e")].shape
    outs = [np.empty(shape if kind == "e" else (shape[0], shape[2]), d) for kind, d in zip(along, dtypes, strict=True)]
    try:
        return None if plan.kernel(*ready, *params, *outs) else outs
    except Refused:
        return None
    except BaseException as error:
        if passes(error):
            raise
        now.failed(call, plan.backend.name, error)
        return None
