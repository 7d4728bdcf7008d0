"""Operands for every op, derived from its row in the table.

A case is one call: operands in some layout, keyword arguments, and what they test.  Row programs
get grids in which every row is of another kind (scaled, subnormal, near overflow, with NaN, with ties …), at
the lengths at which vector code has its boundaries; structured ops get shapes instead.  Long operands repeat a
short one, so that judging them is cheap and a wrong element is still detected.
"""

from collections.abc import Iterator
from math import isinf
from typing import Any

import numpy as np
import numpy.typing as npt

from trueno.ops.op import Op
from trueno.testing.case import Case
from trueno.testing.case import keywords as keywords
from trueno.testing.case import rng_for as rng_for
from trueno.testing.halves import finfo
from trueno.testing.layouts import SQUARE, TALL, THOROUGH, forms, several, user_shapes
from trueno.testing.shapes import structured_cases

Array = npt.NDArray[Any]
SIZES = (1, 2, 3, 4, 5, 6, 7, 8, 9, 63, 64, 65, 1023, 4097)
LONG = 300_001


def natural(op: Op, rng: np.random.Generator, shape: int | tuple[int, ...]) -> Array:
    """Typical values of the op: N(0, 1), or inside its domain."""
    if op.domain is None:
        return rng.standard_normal(shape)
    low, high = op.domain
    if isinf(high):
        return low + np.exp(1.5 * rng.standard_normal(shape))
    return rng.uniform(low, high, shape)


def kinds(op: Op, dtype: npt.DTypeLike, rng: np.random.Generator, n: int) -> dict[str, Array]:
    """One row of each kind of value."""
    info = finfo(dtype)
    span = float(np.log(info.max)) * 0.95

    def normal() -> Array:
        return rng.standard_normal(n)

    def sprinkle(share: float, *values: float) -> Array:
        return np.where(rng.random(n) < share, rng.choice(values, n), normal())

    return {
        "natural": natural(op, rng, n),
        "natural again": natural(op, rng, n),
        "normal": normal(),
        "ten": 10 * normal(),
        "small": 1e-6 * normal(),
        "large": 1e6 * normal(),
        "wide": rng.choice([-1.0, 1.0], n) * np.exp(rng.uniform(-span, span, n)),
        "near one": 1 + 1e-3 * normal(),
        "huge": float(info.max) / 3.4 * normal(),
        "subnormal": 500 * float(info.smallest_subnormal) * normal(),
        "ties": np.rint(2 * normal()),
        "halves": np.rint(4 * normal()) + 0.5,
        "constant": np.full(n, 1.1),
        "zeros": rng.choice([-0.0, 0.0], n),
        "nan": sprinkle(0.1, np.nan),
        "inf": sprinkle(0.1, np.inf),
        "minus inf": sprinkle(0.3, -np.inf),
        "infs": sprinkle(0.2, np.inf, -np.inf),
        "all minus inf": np.full(n, -np.inf),
        "all nan": np.full(n, np.nan),
        "edges": np.resize(EDGES, n) if n > len(EDGES) else rng.choice(EDGES, n),
        "limits": rng.choice([float(info.max), -float(info.max), float(info.smallest_normal)], n),
    }


EDGES = np.concatenate(
    [
        [0.0, -0.0, 1.0, -1.0, 0.5, 1.5, 2.5, -0.5, -2.5, 3.0, -3.0, 6.0, 20.0, 30.0, 40.0, 41.0],
        [1e9, 1e10, -1e10, 1e20, 1e30, -1e30, 1e5, 1e-20, 0.44, 0.6931, 2.7182818, 9.01, -9.01],
        [88.7, 88.8, 89.5, -87.4, -103.9, -104.5, 709.7, 709.8, -708.4, -745.2],  # where eˣ over- or underflows
        [127.99, 128.0, -149.5, 1024.0, 2.0**23, 2.0**23 + 1, 2.0**31, -(2.0**31), 2.0**52, 2.0**63],
        [np.pi, np.pi / 2, 100 * np.pi, 1 - 2.0**-24, 1 + 2.0**-23, np.inf, -np.inf, np.nan],
    ]
)
"""Values at which functions turn, overflow, change rounding or have a zero."""


def _typed(x: Array, dtype: np.dtype[Any]) -> Array:
    with np.errstate(all="ignore"):
        return np.ascontiguousarray(np.asarray(x).astype(dtype))


def grid(op: Op, dtype: np.dtype[Any], rng: np.random.Generator, n: int) -> tuple[Array, ...]:
    """Operands [rows, n] of every kind; those of a second operand are shifted, so that kinds meet."""
    operands = []
    for i, letter in enumerate(op.layout):
        with np.errstate(over="ignore"):  # a few of the huge ones are infinite
            rows = np.array(list(kinds(op, dtype, rng, n).values()))
        if letter == "w":
            operands.append(_typed(natural(op, rng, n), dtype))
        else:
            shifted = np.roll(rows, int(rng.integers(len(rows))) if i else 0, axis=0)
            operands.append(_typed(shifted if letter == "e" else shifted[:, 0], dtype))
    return tuple(operands)


def _operands(op: Op, dtype: np.dtype[Any], rng: np.random.Generator, *lead: int, n: int | None) -> list[Array]:
    """Natural operands with leading shape `lead` and, for row ops, rows of n (elementwise: one more axis)."""
    tail = () if n is None else (n,)
    shapes = {"e": (*lead, *tail), "w": tail, "r": lead}
    return [_typed(natural(op, rng, shapes[letter]), dtype) for letter in op.layout]


def cases(
    op: Op, dtype: npt.DTypeLike, seed: int = 0, *, long: bool = True, every_layout: bool = True
) -> Iterator[Case]:
    """Every case of an op in one dtype, cheapest first.

    every_layout: otherwise only the ops of `THOROUGH` are tried in all layouts, each of which is a separate kernel
    for a backend that compiles.
    """
    T, rng = np.dtype(dtype), rng_for(op, dtype, seed)
    if op.structured:
        yield from structured_cases(op, T, rng)
        return
    arguments = keywords(op)
    for n in SIZES:
        yield Case(op, T, f"one row of {n}", tuple(_operands(op, T, rng, n=n)), arguments[0])
    for k, kwargs in enumerate(arguments):
        for n in SIZES if k == 0 else (1, 7, 65, 1023):
            yield Case(op, T, f"kinds, {n} long", grid(op, T, rng, n), kwargs)
    yield from layouts(op, T, rng)
    yield from broadcasts(op, T, rng, every_layout or op.name in THOROUGH)
    if long:
        yield from _long(op, T, rng)


def _long(op: Op, T: np.dtype[Any], rng: np.random.Generator) -> Iterator[Case]:
    kwargs = keywords(op)[0]
    if op.over is None:
        period = 4099
        base = _operands(op, T, rng, n=period)
        times = LONG // period + 1
        yield Case(op, T, "long", tuple(np.tile(x, times) for x in base), kwargs, times)
    else:
        yield Case(
            op, T, "one long row", tuple(_operands(op, T, rng, n=LONG if np.float32 == T else LONG // 2 + 1)), kwargs
        )
    for rows, n, times in ((37, 257, 40), (512, 3, 64)):
        base = _operands(op, T, rng, rows, n=n)
        tiled = [
            x if letter == "w" else np.tile(x, (times, *(1,) * (x.ndim - 1)))
            for x, letter in zip(base, op.layout, strict=True)
        ]
        yield Case(op, T, f"{rows * times} rows of {n}", tuple(tiled), kwargs, times)


def layouts(op: Op, T: np.dtype[Any], rng: np.random.Generator) -> Iterator[Case]:
    """The same op on arrays as users have them: broadcast, strided, transposed, unaligned, read-only, …"""
    kwargs = keywords(op)[0]

    def case(label: str, operands: Any) -> Case:
        return Case(op, T, label, tuple(operands), kwargs)

    def each(change: Any, *lead: int, n: int | None = 33) -> list[Any]:
        return [change(x) for x in _operands(op, T, rng, *lead, n=n)]

    yield case("3-D", each(lambda x: x, 2, 3))
    yield case("4-D with axes of 1", each(lambda x: x, 2, 1, 3, n=1))
    yield case("every other element", each(lambda x: np.repeat(x, 2, axis=-1)[..., ::2] if x.ndim else x, 5))
    yield case("backwards", each(lambda x: x[::-1], 7))
    yield case("one row backwards", each(lambda x: x[::-1], 1))  # contiguous for NumPy, with a negative stride
    yield case("both axes backwards", each(lambda x: x[..., ::-1] if x.ndim else x, 7))
    yield case("every other row", each(lambda x: np.repeat(x, 2, axis=0)[::2], 7))
    yield case("Fortran order", each(np.asfortranarray, 7))
    yield case("unaligned", each(_unaligned, 5))
    yield case("read-only", each(_read_only, 5))
    yield case("byte-swapped", each(lambda x: x.astype(x.dtype.newbyteorder()), 5))
    yield case("no rows", each(lambda x: x, 0))
    if np.float32 == T:
        yield case("lists", each(lambda x: x.tolist(), 2, n=5))
    if op.over is None:
        yield case("empty", each(lambda x: x, n=0))
        yield case("0-d", each(lambda x: x, n=None))
        yield case("0-d rows", each(lambda x: x, 4, n=0))
    elif not op.empty_is_error:
        yield case("empty row", each(lambda x: x, n=0))
        yield case("empty rows", each(lambda x: x, 4, n=0))


def broadcasts(op: Op, T: np.dtype[Any], rng: np.random.Generator, every: bool) -> Iterator[Case]:
    """Operands of different shapes, in each layout that they may lead to: rows of another length, and square."""
    kwargs, places = keywords(op)[0], several(op)
    if not places:
        return
    for layout in forms(op, every):
        for label, (rows, n) in ((f"layout {layout}", TALL), (f"layout {layout}, square", SQUARE)):
            shapes = user_shapes(op, layout, rows, n)
            yield Case(op, T, label, tuple(_typed(natural(op, rng, s), T) for s in shapes), kwargs)
    operands: list[Any] = _operands(op, T, rng, 7, n=33)
    first, last = places[0], places[-1]
    if op.over is None:
        operands[last] = 0.7
        yield Case(op, T, "a Python number", tuple(operands), kwargs)
        unlike: tuple[tuple[int, ...], ...] = ((2, 1, 7, 33), (3, 1, 33))
    else:
        unlike = ((2, 1, 33), (3, 33))
    operands = _operands(op, T, rng, 7, n=33)
    operands[first], operands[last] = (_typed(natural(op, rng, shape), T) for shape in unlike)
    yield Case(op, T, "unmergeable" if op.over is None else "outer product of rows", tuple(operands), kwargs)


def _unaligned(x: Array) -> Array:
    raw = np.empty(x.nbytes + 1, np.uint8)
    moved = raw[1:].view(np.uint8)[: x.nbytes]
    moved[:] = np.frombuffer(x.tobytes(), np.uint8)
    return np.ndarray(x.shape, x.dtype, raw.data, offset=1)


def _read_only(x: Array) -> Array:
    x.flags.writeable = False
    return x
