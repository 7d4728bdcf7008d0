"""Cases of structured ops: shapes at the boundaries of tiles, values that reach every term, unusual layouts."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from trueno.errors import ShapeError
from trueno.formats.decode import stored
from trueno.formats.interleave import interleaved, plain
from trueno.formats.samples import random_rows
from trueno.formats.table import Format
from trueno.ops.op import Op
from trueno.testing.case import POSITIVE, Case, keywords
from trueno.testing.compression import compression_cases
from trueno.testing.halves import finfo

Array = npt.NDArray[Any]
DIMS = (1, 2, 3, 5, 7, 8, 9, 16, 17, 31, 64, 65, 127)
"""Sizes to draw from: equal to, below and above the widths of vectors and tiles."""
EXPLICIT: dict[str, tuple[tuple[tuple[int, ...], ...], ...]] = {
    "convolve2d": (
        ((1, 1), (1, 1)),
        ((5, 5), (3, 3)),
        ((7, 9), (2, 4)),
        ((33, 65), (3, 3)),
        ((40, 31), (7, 7)),
        ((9, 70), (9, 1)),
        ((130, 67), (5, 2)),
        ((3, 9, 11), (2, 3, 3, 3)),
        ((1, 6, 6), (1, 1, 1, 1)),
        ((4, 35, 37), (5, 4, 3, 5)),
        ((300, 310), (3, 3)),
    ),
    "concatenate": (
        ((1,), (1,)),
        ((5,), (8,)),
        ((2, 3), (4, 3)),
        ((1, 64), (7, 64)),
        ((3, 5, 7), (2, 5, 7)),
        ((130, 33), (1, 33)),
        ((300, 700), (200, 700)),
    ),
    "attention": (
        ((1, 1, 1), (1, 1, 1), (1, 1, 1)),
        ((2, 2, 2), (2, 2, 2), (2, 2, 2)),
        ((5, 4, 8), (7, 2, 8), (7, 2, 8)),
        ((1, 14, 64), (130, 2, 64), (130, 2, 64)),
        ((3, 17, 6, 33), (3, 31, 3, 33), (3, 31, 3, 16)),
        ((2, 9, 2, 16), (9, 1, 16), (2, 9, 1, 5)),
        ((65, 3, 40), (65, 3, 40), (65, 3, 80)),
        ((20, 2, 8), (9, 2, 8), (9, 2, 8)),
        ((50, 7, 31), (300, 1, 31), (300, 1, 17)),
    ),
}
EXPLICIT["attention_sinks"] = tuple((q, k, v, (q[-2],)) for q, k, v in EXPLICIT["attention"])
MASKS = (
    (1, 1, 1),
    (2, 2, 2),
    (1, 5, 7),
    (14, 1, 130),
    (3, 6, 17, 31),
    (1, 1, 9, 9),
    (3, 65, 65),
    (1, 1, 9),
    (7, 50, 300),
)
EXPLICIT["attention_masked"] = tuple(
    (*operands, mask) for operands, mask in zip(EXPLICIT["attention"], MASKS, strict=True)
)
EXPLICIT["attention_ragged"] = tuple(
    ((t, hq, d), (s, hk, d), (s, hk, e), (n,), (n,))
    for t, s, hq, hk, d, e, n in (
        (1, 1, 1, 1, 1, 1, 2),
        (5, 7, 4, 2, 8, 8, 1),
        (40, 60, 6, 3, 33, 16, 4),
        (9, 300, 14, 2, 64, 64, 10),
        (200, 170, 3, 1, 40, 80, 6),
        (130, 130, 2, 2, 16, 5, 2),
    )
)
DECODED = (  # b, t, hq, hk, d, e, pages, page, blocks
    (1, 1, 1, 1, 1, 1, 1, 1, 1),
    (2, 1, 4, 2, 32, 32, 5, 8, 3),
    (3, 1, 14, 2, 64, 64, 3, 130, 1),
    (1, 1, 8, 1, 128, 96, 40, 16, 40),
    (2, 3, 6, 3, 33, 16, 9, 7, 5),
    (1, 7, 6, 2, 64, 32, 4, 200, 3),
)
EXPLICIT["attention_decode"] = tuple(
    ((b, t, hq, d), (pages, page, hk, d), (pages, page, hk, e), (b, blocks), (b,))
    for b, t, hq, hk, d, e, pages, page, blocks in DECODED
)
EXPLICIT["attention_decode_sinks"] = tuple((*x, (x[0][2],)) for x in EXPLICIT["attention_decode"])
EXPLICIT["kv_cache_scatter"] = tuple(
    ((pages, page, h, d), (n, h, d), (n,))
    for pages, page, h, d, n in (
        (1, 1, 1, 1, 1),
        (3, 4, 2, 32, 5),
        (2, 64, 2, 64, 20),
        (9, 16, 3, 96, 40),
        (4, 5, 7, 33, 3),
    )
)
"""Of caches, the extents in elements."""
HIDDEN = 0.2
"""The share of keys that a mask hides."""
POSITIONS = 5000
"""Positions of tokens lie below this; other whole numbers name rows of the first operand."""
BIG: dict[str, dict[str, int]] = {"transpose": {"m": 1100, "n": 517}, "outer": {"m": 700, "n": 611}}


def _shapes(op: Op, rng: np.random.Generator, given: dict[str, Any]) -> Iterator[tuple[tuple[int, ...], ...]]:
    if op.name in EXPLICIT:
        for shapes in EXPLICIT[op.name]:
            held = _bytes(op, shapes, given)
            if held:
                yield held
        return
    if op.quantized:
        yield from _in_blocks(op, rng, given)
        return
    symbols = sorted({d for s in op.signature.inputs for d in s.dims})
    draws = [dict.fromkeys(symbols, size) for size in (1, 2, 8, 64)]
    draws += [dict(zip(symbols, rng.choice(DIMS, len(symbols)), strict=True)) for _ in range(10)]
    largest = 200 if len(symbols) > 1 else 40
    draws.append(dict(zip(symbols, rng.integers(largest // 2, largest, len(symbols)), strict=True)))
    if op.name in BIG:
        draws.append(BIG[op.name])
    for k, sizes in enumerate(draws):
        lead = ((), (3,), (2, 3))[k % 3] if any(s.leading for s in op.signature.inputs) else ()
        shapes = tuple((*(lead if s.leading else ()), *(int(sizes[d]) for d in s.dims)) for s in op.signature.inputs)
        if fits(op, shapes, given):
            yield shapes


def _bytes(op: Op, shapes: tuple[tuple[int, ...], ...], given: dict[str, Any]) -> tuple[tuple[int, ...], ...]:
    """Shapes of the arrays that hold operands of these extents; empty if a row has a part of a block."""
    blocks = op.blocks(given)
    try:
        return tuple(spec.held(op.name, s, blocks) for spec, s in zip(op.signature.inputs, shapes, strict=True))
    except ShapeError:
        return ()


def fits(op: Op, shapes: tuple[tuple[int, ...], ...], given: dict[str, Any]) -> bool:
    """Whether the op takes operands of these shapes: its conditions on extents may not hold."""
    try:
        op.result_shapes(shapes, {p.name: given.get(p.name, p.default) for p in op.static})
    except ShapeError:
        return False
    return True


def _in_blocks(op: Op, rng: np.random.Generator, given: dict[str, Any]) -> Iterator[tuple[tuple[int, ...], ...]]:
    """A few blocks per row, at the boundaries of what kernels process at once; rows as for any other op."""
    blocks = op.blocks(given)
    assert blocks is not None
    specs = (*op.signature.inputs, *op.signature.outputs)
    whole = {s.dims[-1] for s in specs if s.blocks}
    symbols = sorted({d for s in op.signature.inputs for d in s.dims})
    for size in (1, 2, 3, 5, 17):
        sizes = {d: blocks.elements * (size % 4 + 1) if d in whole else int(rng.choice(DIMS)) for d in symbols}
        lead = (2, size)[: size % 3]
        held = zip(op.signature.inputs, op.held(sizes, given), strict=True)
        yield tuple((*lead, *shape) if spec.leading else shape for spec, shape in held)
    yield tuple(op.held({d: 1024 if d in whole else 33 for d in symbols}, given))


def _fill(
    op: Op, T: np.dtype[Any], rng: np.random.Generator, shapes: tuple[tuple[int, ...], ...], given: dict[str, Any]
) -> list[Array]:
    operands: list[Array] = []
    blocks = op.blocks(given)
    for spec, shape in zip(op.signature.inputs, shapes, strict=True):
        if op.caches and spec.index:
            operands.append(places(spec.name, operands, shape, rng))
            if spec.name == "lengths":
                for row, length in zip(operands[3], operands[4], strict=True):
                    row[-(-int(length) // max(operands[1].shape[1], 1)) :] = -1  # no page, and never read
        elif spec.name in OFFSETS:
            operands.append(offsets(spec.name, operands, shape, rng))
        elif spec.index:
            rows = POSITIONS if op.signature.inputs[0].leading else len(operands[0])
            operands.append(rng.integers(0, rows, shape if rows else (0,)))
        elif spec.blocks and blocks is not None:
            operands.append(random_rows(blocks, shape, rng))
        elif spec.name == "mask":
            operands.append(np.where(rng.random(shape) < HIDDEN, -np.inf, rng.standard_normal(shape)).astype(T))
        elif spec.name in POSITIVE:
            operands.append(rng.exponential(size=shape).astype(T))
        else:
            operands.append(rng.standard_normal(shape).astype(T))
    if op.name == "symmetric_eigen":
        operands = [np.ascontiguousarray((a + a.T) / 2) for a in operands]
    return operands


def places(name: str, before: list[Array], shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    """Pages, lengths or slots of a cache, for operands `before`."""
    cache = before[1] if name in ("table", "lengths") else before[0]
    pages, page = cache.shape[:2]
    if name == "slots":
        return rng.integers(-1, pages * page, shape)
    if name == "table":
        return rng.integers(0, pages, shape) if pages else np.full(shape, -1)
    return rng.integers(0, before[-1].shape[1] * page + 1, shape) if pages else np.zeros(shape, np.int64)


OFFSETS = ("offsets_q", "offsets_k")


def offsets(name: str, before: list[Array], shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    """Where sequences begin, in q or in k, for operands `before`."""
    return np.sort(rng.integers(0, len(before[OFFSETS.index(name)]) + 1, shape))


def structured_cases(op: Op, T: np.dtype[Any], rng: np.random.Generator) -> Iterator[Case]:
    """Every case of a structured op."""
    if op.family == "compression":
        yield from compression_cases(op, T, rng)
        return
    everything: list[tuple[tuple[int, ...], ...]] = []
    for arguments in keywords(op):
        if op.quantized or not everything:
            everything = list(_shapes(op, rng, arguments))
        for shapes in everything:
            yield Case(op, T, "normal", tuple(_fill(op, T, rng, shapes, arguments)), arguments)
    arguments = keywords(op)[0]
    if op.quantized:
        everything = list(_shapes(op, rng, arguments))
    shapes = everything[min(4, len(everything) - 1)]
    symmetric = op.name == "symmetric_eigen"

    def case(label: str, change: Any) -> Case:
        operands = _fill(op, T, rng, shapes, arguments)
        return Case(op, T, label, tuple(change(x) if x.dtype == T else x for x in operands), arguments)

    yield case("Fortran order", np.asfortranarray)
    yield case("byte-swapped", lambda x: x.astype(x.dtype.newbyteorder()))
    yield case("read-only", _read_only)
    info = finfo(T)
    scale = min(1e6, float(info.max) ** 0.25)  # products of two such numbers stay finite
    yield case("large", lambda x: x * T.type(scale))
    yield case("small", lambda x: x * T.type(1 / scale))
    if not symmetric:
        yield case("every other element", lambda x: np.repeat(x, 2, axis=-1)[..., ::2])
        yield case("backwards", lambda x: x[..., ::-1])
        yield case("first axis backwards", lambda x: x[::-1])
        if not any(s.blocks for s in op.signature.outputs):  # such numbers, or weights, cannot be quantized
            yield case("huge", lambda x: x * T.type(float(info.max) / 8))
            yield case("subnormal", lambda x: x * T.type(500 * float(info.smallest_subnormal)))
        yield from _special(op, T, rng, shapes, arguments)
    if op.name not in EXPLICIT:
        yield from _empty(op, T, rng, arguments)


def _special(
    op: Op, T: np.dtype[Any], rng: np.random.Generator, shapes: tuple[tuple[int, ...], ...], given: dict[str, Any]
) -> Iterator[Case]:
    """NaN and Inf in the first operand: they reach exactly the results that depend on them."""
    for label, value in (("NaN", np.nan), ("Inf", np.inf), ("-Inf", -np.inf)):
        operands = _fill(op, T, rng, shapes, given)
        for spec, x in zip(op.signature.inputs, operands, strict=True):
            if spec.blocks:
                _scale(op.blocks(given), x, value, rng)
        if not op.signature.inputs[0].blocks:
            flat = operands[0].reshape(-1)
            flat[rng.integers(0, flat.size, 1 + flat.size // 50)] = value
        if not any(s.blocks for s in op.signature.outputs):  # NaN and Inf cannot be quantized
            yield Case(op, T, label, tuple(operands), given)


def _scale(blocks: Format | None, rows: Array, value: float, rng: np.random.Generator) -> None:
    """Give some blocks a scale that is not a number."""
    assert blocks is not None
    if blocks.e8m0:
        return
    spec = blocks.fields[blocks.d]
    each = (plain(rows, blocks) if blocks.plain else rows).reshape(-1, blocks.nbytes)
    some = rng.integers(0, len(each), 1 + len(each) // 20)
    number = (
        stored(blocks, np.array([value], np.float32)) if blocks.cells else np.array([value], spec.dtype).view(np.uint8)
    )
    each[some, spec.offset : spec.offset + spec.nbytes] = number
    if blocks.plain:
        rows[...] = interleaved(each.reshape(rows.shape), blocks)


def _empty(op: Op, T: np.dtype[Any], rng: np.random.Generator, given: dict[str, Any]) -> Iterator[Case]:
    symbols = sorted({d for s in op.signature.inputs for d in s.dims})
    for gone in symbols:
        sizes = {s: 0 if s == gone else 3 for s in symbols}
        shapes = tuple(op.held(sizes, given))
        if fits(op, shapes, given):
            yield Case(op, T, f"{gone} is 0", tuple(_fill(op, T, rng, shapes, given)), given)


def _read_only(x: Array) -> Array:
    x.flags.writeable = False
    return x
