"""The requirements on a kernel, called as the core calls it: through the protocol, with nothing in between.

One function each, per op and dtype, like those of `trueno.testing.checks`; AssertionError names the call.
A kernel refuses by returning -1 or by raising `Refused`, having written nothing.  A kernel may do more than it must:
where the contract allows a refusal, a correct result is as good.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt

from trueno.discovery.protocol import Kernel
from trueno.dispatch.fallback import passes
from trueno.errors import TruenoError
from trueno.ops.op import Op
from trueno.testing.calls import explained, strict_warnings
from trueno.testing.case import Case, rng_for
from trueno.testing.cases import grid
from trueno.testing.checks import sentinels
from trueno.testing.direct import Direct, Outs, attempt, directs
from trueno.testing.expected import stated, verdict
from trueno.testing.subject import Subject, subject

Array = npt.NDArray[Any]


def _judge(by: Subject, direct: Direct, results: list[Array], what: str = "") -> None:
    case = direct.case
    v = verdict(case.op, case.operands, case.kwargs, case.dtype, results, by.backend.accuracy)
    assert v.ok, f"{what}{': ' if what else ''}{stated(v, case.op, by.backend.accuracy)}"


def _all(
    op: Op, backend: str, dtype: npt.DTypeLike, seed: int, every: bool, look: Callable[[Subject, Direct, Kernel], None]
) -> int:
    by, count = subject(backend), 0
    for direct in directs(op, dtype, by, seed, every_layout=every):
        with _placed(f"{backend}: {direct}, seed {seed}"), strict_warnings():
            look(by, direct, by.backend.kernel(direct.call))
        count += 1
    return count


@contextmanager
def _placed(where: str) -> Iterator[None]:
    """Errors inside are reported with the call in which they occurred."""
    try:
        yield
    except BaseException as error:
        if isinstance(error, AssertionError):
            raise AssertionError(f"{where}: {error}") from None
        if passes(error):
            raise
        remedy = "; to refuse, return -1, or raise Refused" if isinstance(error, TypeError) else ""
        raise AssertionError(f"{where}: the kernel {explained(error)}{remedy}") from error


def check_call(op: Op, backend: str, dtype: npt.DTypeLike, seed: int = 0, every_layout: bool = True) -> int:
    """It returns 0 or None, its results are correct and nothing else is written; read-only operands are accepted."""

    def look(by: Subject, direct: Direct, kernel: Kernel) -> None:
        before = [x.tobytes() for x in direct.operands]
        for change in (np.asarray, _read_only) if not by.foreign else (np.asarray,):  # arrays on a device are all alike
            outs = Outs(by, direct)
            arrays = [by.give(change(x)) for x in direct.operands]
            status = attempt(kernel, *arrays, *direct.scalars, *outs.given)
            how = "" if change is not _read_only else " with read-only operands"
            assert status == 0, (
                f"given {direct.told()}, all as they must be{how}, it returned {status}; compute, and return 0"
            )
            after = [np.asarray(by.take(x)).tobytes() for x in arrays]
            assert before == after, "an operand was changed"
            _judge(by, direct, outs.results(), how)
            outs.check_margins()

    return _all(op, backend, dtype, seed, every_layout, look)


def check_lengths(op: Op, backend: str, dtype: npt.DTypeLike, seed: int = 0, every_layout: bool = True) -> int:
    """Each operand and result in turn longer, shorter, of 1, with an axis more or less: refused, nothing written."""

    def look(by: Subject, direct: Direct, kernel: Kernel) -> None:
        for j in range(len(op.operands) + len(op.signature.outputs)):
            for wrong, shapes in _other_shapes(direct, j):
                operands = list(direct.operands)
                outs = Outs(by, direct)
                if j < len(operands):
                    operands[j] = wrong
                else:
                    k = j - len(operands)
                    outs.made[k] = sentinels(wrong.shape, wrong.dtype, 1)
                    outs.given[k] = by.give(outs.made[k][1])
                status = attempt(kernel, *map(by.give, operands), *direct.scalars, *outs.given)
                asked = f"given {direct.told(shapes)} it must return -1"
                assert status == -1, f"{asked}; it returned {status}"
                outs.check_nothing_written(asked)

    return _all(op, backend, dtype, seed, every_layout, look)


def _other_shapes(direct: Direct, j: int) -> Iterator[tuple[Array, list[tuple[int, ...]]]]:
    """Operand or result `j` in shapes that do not agree with the others, and then the shapes of all.

    One longer, one shorter, one element that broadcasting would repeat, an axis less, an axis more.
    """
    shapes = [*(x.shape for x in direct.operands), *(shape for shape, _ in direct.wanted)]
    count = len(direct.operands)
    x = direct.operands[j] if j < count else np.zeros(*direct.wanted[j - count])
    changed = [
        np.take(x, np.arange(size + by) % size, axis)
        for axis, size in enumerate(x.shape)
        for by in (1, -1, 1 - size)
        if size + by > 0
    ]
    # Shapes of structured ops are checked before; those of row programs may be raw, one row beside rows.
    less = [np.copy(x[0]).reshape(x.shape[1:])] if x.ndim and not direct.case.op.structured else []
    for wrong in (*changed, *less, x[None]):
        now = [*shapes[:j], wrong.shape, *shapes[j + 1 :]]
        if not _agree(direct, now):
            yield wrong, now


def _agree(direct: Direct, shapes: list[tuple[int, ...]]) -> bool:
    """Whether operands and results of these shapes belong to one call: one row reduced may have any length."""
    op, count = direct.case.op, len(direct.operands)
    if op.structured:
        try:
            return list(op.result_shapes(tuple(shapes[:count]), dict(direct.call.static))) == shapes[count:]
        except TruenoError:
            return False
    along = ["e" if op.over is None or op.over in o.dims else "r" for o in op.signature.outputs]
    rank, extents = direct.call.rank, {"rows": set[int](), "n": set[int]()}
    axes = {"e": ("rows", "n")[2 - rank :], "w": ("n",), "r": ("rows",)[2 - rank :], "u": ()}
    for kind, shape in zip([*direct.call.layout, *along], shapes, strict=True):
        if len(shape) != len(axes[kind]):
            return False
        for axis, size in zip(axes[kind], shape, strict=True):
            extents[axis].add(size)
    return all(len(sizes) <= 1 for sizes in extents.values())


def check_memory(op: Op, backend: str, dtype: npt.DTypeLike, seed: int = 0, every_layout: bool = True) -> int:
    """Results that overlap operands or each other, strided or read-only arrays: refused or correct, never wrong."""

    def look(by: Subject, direct: Direct, kernel: Kernel) -> None:
        for j in range(len(direct.operands)):
            for k in range(len(direct.wanted)):
                _same(by, direct, kernel, j, k)
                if not by.foreign:
                    _partial(by, direct, kernel, j, k)
        if not by.foreign:
            _strided(by, direct, kernel)
            _read_only_out(by, direct, kernel)
            _twins(by, direct, kernel)

    return _all(op, backend, dtype, seed, every_layout, look)


def _same(by: Subject, direct: Direct, kernel: Kernel, j: int, k: int) -> None:
    x, what = direct.operands[j], f"result {k} is operand {j}"
    if (x.shape, x.dtype) != direct.wanted[k]:
        return
    outs = Outs(by, direct)
    operands = [by.give(np.copy(y)) for y in direct.operands]
    outs.given[k] = operands[j]
    if attempt(kernel, *operands, *direct.scalars, *outs.given) == 0:
        _judge(by, direct, outs.results(), what)
    else:
        assert np.asarray(by.take(operands[j])).tobytes() == x.tobytes(), f"{what}: refused after it had written"
    for i, (y, was) in enumerate(zip(operands, direct.operands, strict=True)):
        assert i == j or np.asarray(by.take(y)).tobytes() == was.tobytes(), f"{what}, and operand {i} was changed"


def _partial(by: Subject, direct: Direct, kernel: Kernel, j: int, k: int) -> None:
    x, (shape, dtype) = direct.operands[j], direct.wanted[k]
    size = int(np.prod(shape, dtype=int))
    if x.dtype != dtype or x.size < 2:
        return
    for start in sorted({1, x.size // 2, x.size - 1}):
        buffer = np.zeros(x.size + size, dtype)
        source, target = buffer[: x.size].reshape(x.shape), buffer[start : start + size].reshape(shape)
        source[...] = x
        before = buffer.tobytes()
        outs = Outs(by, direct)
        outs.given[k] = target
        operands = [source if i == j else y for i, y in enumerate(direct.operands)]
        what = f"result {k} begins at element {start} of operand {j}"
        if attempt(kernel, *operands, *direct.scalars, *outs.given) == 0:
            _judge(by, direct, outs.results(), what)
        else:
            assert buffer.tobytes() == before, f"{what}: refused after it had written"


def _twins(by: Subject, direct: Direct, kernel: Kernel) -> None:
    """Two results in the same memory have no correct values."""
    for k in range(1, len(direct.wanted)):
        if direct.wanted[k] == direct.wanted[0]:
            outs = Outs(by, direct)
            outs.given[k] = outs.given[0]
            status = attempt(kernel, *direct.operands, *direct.scalars, *outs.given)
            assert status == -1, f"given one array as results 0 and {k} it must return -1; it returned {status}"
            outs.check_nothing_written()


def _strided(by: Subject, direct: Direct, kernel: Kernel) -> None:
    outs = Outs(by, direct, step=2)
    if attempt(kernel, *direct.operands, *direct.scalars, *outs.given) == 0:
        _judge(by, direct, outs.results(), "into strided results")
        outs.check_margins()
    else:
        outs.check_nothing_written()
    for j, x in enumerate(direct.operands):
        if not x.ndim:
            continue
        wide = np.repeat(x, 2, axis=-1)[..., ::2]
        outs = Outs(by, direct)
        operands = [wide if i == j else y for i, y in enumerate(direct.operands)]
        if attempt(kernel, *operands, *direct.scalars, *outs.given) == 0:
            _judge(by, direct, outs.results(), f"with operand {j} strided")
        else:
            outs.check_nothing_written()


def _read_only_out(by: Subject, direct: Direct, kernel: Kernel) -> None:
    """Each result in turn is read-only; the others, which could be written, must not be."""
    for k in range(len(direct.wanted)):
        outs = Outs(by, direct)
        outs.given[k].flags.writeable = False
        try:
            status = attempt(kernel, *direct.operands, *direct.scalars, *outs.given)
        except ValueError:  # NumPy's own error, which the core also treats as a refusal
            status = -1
        asked = f"given result {k} read-only it must return -1"
        assert status == -1, f"{asked}; it returned {status}"
        outs.check_nothing_written(asked)


def check_guarded(op: Op, backend: str, dtype: npt.DTypeLike, seed: int = 0, every_layout: bool = True) -> int:
    """A guarded kernel's status bits are those of its results; without such a kernel `supports` says `unguarded`."""
    by, count = subject(backend), 0
    for direct in directs(op, dtype, by, seed, every_layout=every_layout, plain=not every_layout):
        call = by.call(direct.case, direct.call.layout, guarded=True)
        where = f"{backend}: {direct}, guarded, seed {seed}"
        reject = by.backend.supports(call)
        if reject is not None:
            assert reject.code == "unguarded", (
                f"{where}: supports says {reject.code!r}, but takes the call unguarded; say 'unguarded'"
            )
            continue
        with _placed(where):
            _look_at_bits(by, direct, by.backend.kernel(call))
        count += 1
    return count


def _look_at_bits(by: Subject, direct: Direct, kernel: Kernel) -> None:
    results: list[Array] = []
    for one in [*_rows(direct), direct]:  # itself last: what others leave behind must not count
        outs = Outs(by, one)
        by.backend.synchronize()
        status = attempt(kernel, *map(by.give, one.operands), *one.scalars, *outs.given)
        assert status >= 0, f"given {one.told()}, all as they must be, it returned {status}"
        status |= by.backend.synchronize() or 0
        results = outs.results()
        floats = [r for r in results if r.dtype.kind == "f"]
        bits = any(np.isnan(r).any() for r in floats) | any(np.isinf(r).any() for r in floats) << 1
        assert status == bits, (
            f"[{one.case.label}]: status is {status:#b}, but the results are {bits:#b} (1 a NaN, 2 an Inf)"
        )
    _judge(by, direct, results)


def _rows(direct: Direct) -> Iterator[Direct]:
    """The same call with operands of every kind of value: NaN, infinities, zeros, values near overflow."""
    case, op = direct.case, direct.case.op
    if op.structured:
        for value in (np.nan, np.inf):
            operands = tuple(np.copy(x) for x in case.operands)
            if op.check is None and not op.signature.inputs[0].type:
                operands[0].reshape(-1)[-1] = value
                changed = Case(op, case.dtype, f"with {value}", operands, case.kwargs)
                yield Direct(direct.call, changed, direct.wanted)
    elif direct.call.rank == 1 and direct.call.layout == op.layout:
        rows = grid(op, case.dtype, rng_for(op, case.dtype, 1), case.operands[0].size)
        for r in range(next(len(x) for x, k in zip(rows, op.layout, strict=True) if k != "w")):
            one = tuple(x if k == "w" else np.array(x[r]) for x, k in zip(rows, op.layout, strict=True))
            yield Direct(direct.call, Case(op, case.dtype, f"row {r}", one, case.kwargs), direct.wanted)


def _read_only(x: Array) -> Array:
    y = np.copy(x)
    y.flags.writeable = False
    return y


KERNEL_CHECKS: dict[str, Callable[..., int]] = {
    "call": check_call,
    "lengths": check_lengths,
    "memory": check_memory,
    "guarded": check_guarded,
}
