"""Cases of the ops on bytes: pages of every kind, blocks of the library and others, and blocks that are damaged."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from trueno.formats.lz4_samples import PAGES, damaged, laid, page, pages, rows, stored, written
from trueno.ops.op import Op
from trueno.testing.case import Case, keywords

Array = npt.NDArray[Any]
SHAPES = ((1, 1), (3, 12), (4, 13), (5, 64), (7, 257), (9, 1000), (6, 4096))
"""Pages, and bytes of each: below and at the least that can have a match, odd ones, and the usual one."""
LARGEST = 65536
LEAST = 13


def compression_cases(op: Op, T: np.dtype[Any], rng: np.random.Generator) -> Iterator[Case]:
    """Every case of an op of this family."""

    def case(label: str, operands: tuple[Array, ...], **kwargs: Any) -> Case:
        return Case(op, T, label, operands, kwargs)

    for given in keywords(op):
        for n, p in SHAPES:
            given = given | ({"page": p} if "page" in given else {})
            yield case("normal", _operands(op, pages(n, p, rng), rng), **given)
    more = {"page": LARGEST} if op.name == "lz4_decompress" else {}
    yield case("the largest page", _operands(op, pages(1, LARGEST, rng), rng), **keywords(op)[0] | more)
    if op.name == "lz4_decompress":
        yield from _blocks(case, rng)
    given = {**keywords(op)[0], **({"page": 300} if op.name == "lz4_decompress" else {})}
    operands = _operands(op, pages(6, 300, rng), rng)
    for label, change in (
        ("read-only", _read_only),
        ("every other element", lambda x: np.repeat(x, 2, axis=-1)[..., ::2]),
        ("Fortran order", np.asfortranarray),
        ("byte-swapped", lambda x: x.astype(x.dtype.newbyteorder())),
    ):
        yield case(label, tuple(change(x.copy()) for x in operands), **given)
    yield case("n is 0", tuple(x[:0] for x in operands), **given)


def _operands(op: Op, x: Array, rng: np.random.Generator) -> tuple[Array, ...]:
    if op.name == "lz4_compress":
        return (x,)
    parts = stored(x)
    if op.name == "lz4_decompress":
        return laid(parts, rng)
    blocks, sizes = rows(parts, x.shape[1])
    if len(sizes) > 2:
        sizes[rng.integers(len(sizes))] = 0
    return blocks, sizes


def _blocks(case: Any, rng: np.random.Generator) -> Iterator[Case]:
    """Blocks with odd matches, damaged ones, random bytes, and slices that are not inside `packed`."""
    for p in (LEAST, 40, 300, 4096):
        yield case("odd matches", laid([(b, len(b)) for b in (written(p, rng) for _ in range(8))], rng), page=p)
        whole = [block for block, size in stored(np.array([page(kind, p, rng) for kind in PAGES])) if size > 0]
        broken = [b for block in (*whole, written(p, rng)) for b in damaged(block, rng) if b]
        broken += [rng.bytes(int(rng.integers(1, 40))) for _ in range(8)]
        yield case("damaged", laid([(b, len(b)) for b in broken], rng), page=p)
        smaller = max(p - int(rng.integers(1, 30)), 1)
        yield case("page too small", laid([(b, len(b)) for b in whole] + [(bytes(p), -p)], rng), page=smaller)
    packed = rng.integers(0, 256, 50, np.uint8)
    far = 1 << 62
    slices = [
        (0, -50),
        (0, -2 * far),
        (0, 51),
        (0, -51),
        (-1, 3),
        (50, 1),
        (50, 0),
        (-7, 0),
        (49, -1),
        (far, far),
        (-far, 4),
        (3, -far),
    ]
    offsets, sizes = (np.array(column) for column in zip(*slices, strict=True))
    yield case("slices outside", (packed, offsets, sizes), page=64)
    yield case("nothing packed", (packed[:0], np.zeros(3, np.int64), np.array([0, 1, -1])), page=16)


def _read_only(x: Array) -> Array:
    x.flags.writeable = False
    return x
