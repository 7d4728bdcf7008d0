"""The requirements on every backend, one function each: per op and dtype, through the public API.

They raise AssertionError with the case, the seed and what was wrong.  `tests/conformance` and
`trueno.testing.conformance` run them over the table; a third party runs them over its own plugin.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

import trueno
from trueno.discovery import registry
from trueno.dispatch.half import is_half
from trueno.ops import TABLE
from trueno.ops.op import Op
from trueno.testing.asynchronous import check_aio
from trueno.testing.calls import Declined, Report, invoke, takes, told
from trueno.testing.case import Case, keywords, rng_for
from trueno.testing.cases import cases, grid, layouts
from trueno.testing.expected import stated, verdict
from trueno.testing.guards import check_guard
from trueno.testing.subject import Subject, rejected, subject

Array = npt.NDArray[Any]
SENTINEL = 0x5A


def _bytes(operands: tuple[Any, ...]) -> list[bytes]:
    return [x.tobytes() for x in operands if isinstance(x, np.ndarray)]


def check_values(
    op: Op,
    backend: str,
    dtype: npt.DTypeLike,
    seed: int = 0,
    *,
    long: bool = True,
    every_layout: bool = True,
    chosen: Callable[[Case], bool] | None = None,
) -> Report:
    """Every case inside its bound, of the right type, shape and dtype, operands unchanged."""
    T, accuracy = np.dtype(dtype), registry.load(backend).accuracy
    report = Report(op.name, backend, T.name)
    judged = 0.0
    for case in cases(op, T, seed, long=long, every_layout=every_layout):
        if chosen is not None and not chosen(case):
            continue
        report.cases += 1
        with told(case, backend, seed, report):
            before = _bytes(case.operands)
            results = invoke(op, case.operands, case.kwargs, backend)
            assert _bytes(case.operands) == before, "an operand was changed"
            _kinds(op, T, case, results)
            v = verdict(op, case.operands, case.kwargs, T, results, accuracy, case.repeat)
            assert v.ok, stated(v, op, accuracy)
            report.size += v.size
            judged += v.size * (1 - v.free)
            report.worst = max(report.worst, v.worst)
    report.free = 1 - judged / max(report.size, 1)
    assert judged > 0, f"{backend} claims {op.name} in {T}, and no case of it could be judged"
    return report


def _kinds(op: Op, T: np.dtype[Any], case: Case, results: tuple[Any, ...]) -> None:
    """Types, dtypes and shapes of results: arrays; NumPy scalars where one row is reduced; int64 positions."""
    shapes = [shape for shape, _ in empty_results(op, case, T)]
    for spec, got, shape in zip(op.signature.outputs, results, shapes, strict=True):
        wanted = spec.holds(T)
        if shape == () and not op.structured and op.over is not None:
            assert isinstance(got, np.generic), (
                f"{spec.name} is {type(got).__name__}; one row reduces to a NumPy scalar"
            )
        assert isinstance(got, (np.ndarray, np.generic)), f"{spec.name} is {type(got).__name__}; an array was expected"
        assert got.dtype == wanted and got.dtype.isnative, f"{spec.name} is {got.dtype}; {wanted} was expected"
        assert got.shape == shape, f"{spec.name} has shape {got.shape}; {shape} was expected"


# ---- out= ---------------------------------------------------------------------------------------------


def _some(op: Op, dtype: npt.DTypeLike, seed: int, backend: str) -> list[Case]:
    """A few cases that the backend takes, whose results have elements, small enough to be repeated in every variant."""
    if op.structured:
        return [c for c in cases(op, dtype, seed) if c.label == "normal" and takes(op, c, backend)][-5:]
    T, rng, kwargs = np.dtype(dtype), rng_for(op, dtype, seed), keywords(op)[0]
    grids = [Case(op, T, f"kinds, {n} long", grid(op, T, rng, n), kwargs) for n in (1, 7, 65, 1023)]
    row = tuple(x if k == "w" else x[0] for x, k in zip(grid(op, T, rng, 1000), op.layout, strict=True))
    return [*grids, Case(op, T, "one row of 1000", row, kwargs)]


def empty_results(op: Op, case: Case, T: np.dtype[Any]) -> list[tuple[tuple[int, ...], np.dtype[Any]]]:
    """Shape and dtype of each result of a case."""
    static = {k: v for k, v in case.kwargs.items() if k in {p.name for p in op.static}}
    shapes = op.result_shapes(tuple(np.shape(x) for x in case.operands), static)
    return [(s, o.holds(T)) for s, o in zip(shapes, op.signature.outputs, strict=True)]


def sentinels(shape: tuple[int, ...], dtype: np.dtype[Any], step: int) -> tuple[Array, Array]:
    """An array inside a larger one full of sentinels: the whole buffer, and the view to write to."""
    pad, size = 96, int(np.prod(shape, dtype=int))
    raw = np.full((2 * pad + size * step) * dtype.itemsize, SENTINEL, np.uint8).view(dtype)
    inside = raw[pad : pad + size * step]
    return raw, (inside[::step] if step > 1 else inside).reshape(shape)


def check_out(op: Op, backend: str, dtype: npt.DTypeLike, seed: int = 0) -> None:
    """`out=` is returned, holds the result, and nothing beside it is written; strided ones, too."""
    T, accuracy = np.dtype(dtype), registry.load(backend).accuracy
    for case in _some(op, T, seed, backend):
        for step in (1, 2):
            with told(case, backend, seed):
                buffers = [sentinels(s, d, step) for s, d in empty_results(op, case, T)]
                if step > 1:
                    buffers = [m if m[1].base is not None else sentinels(m[1].shape, m[1].dtype, 1) for m in buffers]
                outs = tuple(view for _, view in buffers)
                results = invoke(op, case.operands, case.kwargs, backend, outs if len(outs) > 1 else outs[0])
                assert all(r is o for r, o in zip(results, outs, strict=True)), (
                    "out= was given, but something else returned"
                )
                v = verdict(op, case.operands, case.kwargs, T, results, accuracy)
                assert v.ok, f"into out= (step {step}): {stated(v, op, accuracy)}"
                for raw, view in buffers:
                    untouched(raw, view)


def untouched(raw: Array, view: Array) -> None:
    """Assert that nothing in `raw` but `view` was written."""
    if view.size and not np.shares_memory(raw, view):
        return
    mask = np.ones(raw.shape, bool)
    if view.size:
        start = (view.__array_interface__["data"][0] - raw.__array_interface__["data"][0]) // raw.itemsize
        step = view.strides[-1] // raw.itemsize if view.ndim else 1
        mask[start : start + view.size * step : step] = False
    bytes_ = raw.view(np.uint8).reshape(raw.size, raw.itemsize)[mask]
    assert (bytes_ == SENTINEL).all(), "memory beside out= was written"


def check_in_place(op: Op, backend: str, dtype: npt.DTypeLike, seed: int = 0) -> None:
    """`out` may be an operand of the result's shape, or overlap one: the result is the same."""
    T, accuracy = np.dtype(dtype), registry.load(backend).accuracy
    if len(op.signature.outputs) > 1:
        return
    for case in _some(op, T, seed, backend):
        shape, result_type = empty_results(op, case, T)[0]
        for i, x in enumerate(case.operands):
            if x.shape != shape or x.dtype != result_type:
                continue
            with told(case, backend, seed):
                operands = [np.copy(y) for y in case.operands]
                (result,) = invoke(op, tuple(operands), case.kwargs, backend, operands[i])
                v = verdict(op, case.operands, case.kwargs, T, (result,), accuracy)
                assert v.ok, f"out={op.operands[i]}: {stated(v, op, accuracy)}"
                for j, (y, was) in enumerate(zip(operands, case.operands, strict=True)):
                    assert i == j or y.tobytes() == was.tobytes(), (
                        f"out={op.operands[i]}, and {op.operands[j]} was changed"
                    )
            for shift in (1, -1, 16):
                with told(case, backend, seed):
                    _overlapping(op, case, backend, T, i, shift)


def _overlapping(op: Op, case: Case, backend: str, T: np.dtype[Any], i: int, shift: int) -> None:
    x = case.operands[i]
    buffer = np.zeros(x.size + abs(shift), x.dtype)
    source = buffer[max(-shift, 0) : max(-shift, 0) + x.size].reshape(x.shape)
    target = buffer[max(shift, 0) : max(shift, 0) + x.size].reshape(x.shape)
    source[...] = x
    operands = tuple(source if j == i else np.copy(y) for j, y in enumerate(case.operands))
    (result,) = invoke(op, operands, case.kwargs, backend, target)
    accuracy = registry.load(backend).accuracy
    v = verdict(op, case.operands, case.kwargs, T, (result,), accuracy)
    assert v.ok, f"out overlaps {op.operands[i]} by all but {shift}: {stated(v, op, accuracy)}"


def check_bad_out(op: Op, backend: str, dtype: npt.DTypeLike, seed: int = 0) -> None:
    """An `out=` that is read-only, of another shape or dtype, or not an array is an error, and is unchanged."""
    T = np.dtype(dtype)
    case = _some(op, T, seed, backend)[-1]
    wanted = empty_results(op, case, T)

    def refused(what: str, change: Callable[[Array], Any]) -> None:
        outs = tuple(change(np.zeros(s, d)) for s, d in wanted)
        with told(case, backend, seed):
            try:
                invoke(op, case.operands, case.kwargs, backend, outs if len(outs) > 1 else outs[0])
            except trueno.TruenoError:
                pass
            else:
                raise AssertionError(f"out= {what} was accepted")
            assert not any(o.any() for o in outs if isinstance(o, np.ndarray)), f"out= {what} was written"

    def read_only(x: Array) -> Array:
        x.flags.writeable = False
        return x

    refused("read-only", read_only)
    refused("of another shape", lambda x: np.zeros((*x.shape, 2), x.dtype))
    refused("that is a list", lambda x: x.tolist() if x.ndim else [0.0])
    refused("of another dtype", lambda x: x.astype(np.int16))


def check_bad_operands(op: Op, backend: str, dtype: npt.DTypeLike, seed: int = 0) -> None:
    """Operands of another dtype than the first, integers and objects are errors, never converted silently."""
    T = np.dtype(dtype)
    other = np.dtype(np.float64 if np.float32 == T else np.float32)
    case = _some(op, T, seed, backend)[-1]
    floats = [i for i, s in enumerate(op.signature.inputs) if not s.type]
    for i in floats:
        for wrong in (other, np.dtype(np.int32), np.dtype(object)):
            if wrong == other and len(floats) == 1:
                continue
            with np.errstate(all="ignore"):
                x = np.nan_to_num(case.operands[i].astype(np.float64), posinf=1, neginf=-1).clip(-9, 9).astype(wrong)
            operands = tuple(x if j == i else y for j, y in enumerate(case.operands))
            with told(case, backend, seed):
                try:
                    invoke(op, operands, case.kwargs, backend)
                except trueno.DtypeError:
                    continue
                raise AssertionError(f"{op.operands[i]} in {wrong} was accepted")


# ---- axis ---------------------------------------------------------------------------------------------


def check_axis(op: Op, backend: str, dtype: npt.DTypeLike, seed: int = 0) -> None:
    """`axis=` and `keepdims=` give the results of the last axis of a transposed operand."""
    if op.structured or op.over is None:
        return
    T, accuracy = np.dtype(dtype), registry.load(backend).accuracy
    for case in layouts(op, T, rng_for(op, T, seed)):
        if case.label != "3-D":
            continue
        moved = tuple(np.moveaxis(x, -1, 0) if k == "e" else x for x, k in zip(case.operands, op.layout, strict=True))
        with told(case, backend, seed):
            results = invoke(op, moved, case.kwargs | {"axis": 0}, backend)
            back = tuple(r if op.reduces else np.moveaxis(r, 0, -1) for r in results)
            v = verdict(op, case.operands, case.kwargs, T, back, accuracy)
            assert v.ok, f"axis=0: {stated(v, op, accuracy)}"
            if op.reduces:
                kept = invoke(op, case.operands, case.kwargs | {"keepdims": True}, backend)
                assert all(k.shape == (2, 3, 1) for k in kept), f"keepdims gave shape {kept[0].shape}"
                v = verdict(op, case.operands, case.kwargs, T, tuple(k[..., 0] for k in kept), accuracy)
                assert v.ok, f"keepdims: {stated(v, op, accuracy)}"
            # Contiguous operands whose rows lie across memory, enough of them beside one another for `columns`.
            many = tuple(
                np.concatenate([np.roll(x, s, axis=-1) for s in range(8)], axis=1) if k == "e" else x
                for x, k in zip(case.operands, op.layout, strict=True)
            )
            moved = tuple(
                np.ascontiguousarray(np.moveaxis(x, -1, 1)) if k == "e" else x
                for x, k in zip(many, op.layout, strict=True)
            )
            results = invoke(op, moved, case.kwargs | {"axis": 1}, backend)
            back = tuple(r if op.reduces else np.moveaxis(r, 1, -1) for r in results)
            v = verdict(op, many, case.kwargs, T, back, accuracy)
            assert v.ok, f"axis=1: {stated(v, op, accuracy)}"


def matrix(op: Op, rows: Array, kwargs: dict[str, Any]) -> Any:
    """Rows of blocks as users have them, in the orientation that the op reads."""
    blocks = op.blocks(kwargs)
    assert blocks is not None
    if op.caches:
        return trueno.Pages(rows, blocks.name)
    q = trueno.QuantizedMatrix(rows, (len(rows), blocks.row_elements(rows.shape[1])), blocks.name)
    return q.T if op.columnwise else q


def check_batch(op: Op, backend: str, dtype: npt.DTypeLike, seed: int = 0, *, fused: bool = True) -> None:
    """The op recorded in a batch gives the same result as a call: alone, and (`fused`) between two others."""
    T, accuracy = np.dtype(dtype), registry.load(backend).accuracy
    if is_half(T):
        _refused_by_a_batch(T, backend)
        return
    fused = fused and rejected(TABLE["neg"], backend, dtype) is None
    for case in _some(op, T, seed, backend):
        operands = [np.asarray(x, s.holds(T)) for s, x in zip(op.signature.inputs, case.operands, strict=True)]
        with told(case, backend, seed), trueno.Batch(backend) as b:
            inputs = list(zip(op.signature.inputs, operands, strict=True))
            own = np.copy if op.updates else np.asarray  # the batch writes into what it updates
            sets = [[b.upload(matrix(op, own(x), case.kwargs) if s.blocks else x) for s, x in inputs]
                    for _ in range(2 if op.updates else 1)]  # fmt: skip
            handles = sets[0]
            # Twice the negative is the operand itself, bit for bit, so the result must be, too.
            operand_sets = [handles]
            if fused:
                operand_sets.append(
                    [h if x.type else b.neg(b.neg(h)) for x, h in zip(op.signature.inputs, sets[-1], strict=True)]
                )
            recorded = [getattr(b, op.name)(*g, **case.kwargs) for g in operand_sets]
            results = [list(m) if isinstance(m, tuple) else [m] for m in recorded]
            if fused:
                outputs = zip(op.signature.outputs, results[1], strict=True)
                results.append([h if s.type else b.neg(b.neg(h)) for s, h in outputs])
            b.execute()
            for result in results:
                v = verdict(op, operands, case.kwargs, T, tuple(b.read(h) for h in result), accuracy)
                assert v.ok, f"in a batch: {v}"


def _refused_by_a_batch(T: np.dtype[Any], backend: str) -> None:
    with trueno.Batch(backend) as b:
        try:
            b.upload(np.ones(3, T))
        except trueno.DtypeError:
            return
    raise AssertionError(f"a batch accepted {T}, in which it cannot compute")


def check_resident(op: Op, backend: str, dtype: npt.DTypeLike, seed: int = 0) -> None:
    """On device arrays the op gives correct results, along another axis too, and leaves them on the device."""
    T, by = np.dtype(dtype), subject(backend)
    if not by.foreign or op.quantized:
        return
    for case in _some(op, T, seed, backend)[-3::2]:
        with told(case, backend, seed):
            _resident(op, case, by)
    stays = not is_half(T) or hasattr(by.backend, "cast") or registry.entries()[backend].half(op.name)
    if stays and _gathers(op):  # on the host an index outside is an error
        _outside(op, by, T, seed)
    if op.structured or op.over is None:
        return
    for case in layouts(op, T, rng_for(op, T, seed)):
        if case.label == "3-D":
            with told(case, backend, seed):
                _resident(op, case, by, axis=0)


def _gathers(op: Op) -> bool:
    """Whether indices say which rows of a table are results: the number of its rows is in no result."""
    kept = {symbol for spec in op.signature.outputs for symbol in spec.dims}
    inputs = op.signature.inputs
    tables = [spec for spec in inputs if spec.type != "bytes" and set(spec.dims) - kept]
    return len(inputs) == 2 and any(spec.index for spec in inputs) and bool(tables)


def _outside(op: Op, by: Subject, T: np.dtype[Any], seed: int) -> None:
    """An unchecked index outside of its table gives a row of NaN, and its neighbours stay correct."""
    table = rng_for(op, T, seed).standard_normal((5, 9)).astype(T)
    i = np.array([4, 5, 0, -1, 2**40, 3])
    case = Case(op, T, "indices outside", (table, i))
    with told(case, by.name, seed):
        (got,) = invoke(op, (trueno.to(table, by.name), trueno.to(i, by.name)), {}, by.name)
        rows = trueno.numpy(got).astype(np.float64)
        wrong = [1, 3, 4]
        assert np.isnan(rows[wrong]).all(), f"rows {wrong} are not NaN, though their indices are outside of the table"
        right = [0, 2, 5]
        assert (rows[right] == table[i[right]].astype(np.float64)).all(), "a row beside one whose index is outside"


def _resident(op: Op, case: Case, by: Subject, axis: int | None = None) -> None:
    """One call on copies of the case's operands; axis: rows are moved there first."""
    operands, more = case.operands, {}
    if axis is not None:
        kinds = zip(operands, op.layout, strict=True)
        operands, more = tuple(np.moveaxis(x, -1, axis) if k == "e" else x for x, k in kinds), {"axis": axis}
    there = tuple(trueno.to(x, by.name) for x in operands)
    results = invoke(op, there, case.kwargs | more, by.name)
    assert all(type(r) is type(by.backend.to_device(np.zeros(1, case.dtype))) for r in results), "a result is elsewhere"
    home = tuple(trueno.numpy(r) for r in results)
    _same_kinds(op, case, home, moved=axis if axis is not None and not op.reduces else None)
    if axis is not None and not op.reduces:
        home = tuple(np.moveaxis(r, axis, -1) for r in home)
    v = verdict(op, case.operands, case.kwargs, case.dtype, home, by.backend.accuracy)
    assert v.ok, f"on the device{'' if axis is None else f', axis={axis}'}: {stated(v, op, by.backend.accuracy)}"


def _same_kinds(op: Op, case: Case, results: tuple[Array, ...], moved: int | None) -> None:
    for spec, got, (shape, wanted) in zip(
        op.signature.outputs, results, empty_results(op, case, case.dtype), strict=True
    ):
        shape = shape if moved is None else (shape[-1], *shape[:-1])
        assert (got.shape, got.dtype) == (shape, wanted), (
            f"{spec.name} is {got.dtype} {got.shape}, not {wanted} {shape}"
        )


__all__ = ["CHECKS", "Declined", "Report", "check_values", "empty_results", "invoke", "matrix", "rejected", "sentinels"]

CHECKS: dict[str, Callable[..., Any]] = {
    "values": check_values,
    "out": check_out,
    "in_place": check_in_place,
    "bad_out": check_bad_out,
    "bad_operands": check_bad_operands,
    "axis": check_axis,
    "guard": check_guard,
    "batch": check_batch,
    "aio": check_aio,
    "resident": check_resident,
}
