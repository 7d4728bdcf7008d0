"""LZ4 on 4 KiB pages of mixed data, against the package `lz4` in one thread; nothing is allocated for ours.

A seventh of the pages each: weights in q4_k and in float16, JSON, source text, float32 activations rounded to three
digits, zeros, random bytes; in random order.  Both decode the package's blocks, pages raw where a block is no smaller.
The package is called page by page, as it offers nothing else; that costs it some 0.2 µs per page.

Published by others, on other data, for orientation: nvCOMP's LZ4 on an A100 compresses 91 to 96 GB/s and decompresses
313 to 321 GB/s, on a column that becomes 38 times smaller (NVIDIA, nvcomp/doc/Benchmarks.md).
"""

import json
from collections.abc import Iterator
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import trueno

from benchmarks.compare import Record
from benchmarks.rows import Cell, Plan
from benchmarks.rows.quant import counted
from benchmarks.timing import OURS, Thunk, bind, compare

Array = np.ndarray[Any, Any]
PACKAGE = "lz4"
PAGE = 4096
EACH, FEW = 512, 16  # pages of a kind
KINDS = ("q4_k", "float16", "json", "source", "rounded", "zeros", "random")
THREADS = (1, 2)
COMPRESS = {1: {}, 2: {"mode": "high_compression", "compression": 3}}
"""The package's parameters for a level of ours."""
NAMES = {1: "lz4_compress", 2: "lz4_compress level 2"}
SIZES = "size of their blocks over ours"


def shape(count: int, threads: int) -> str:
    return f"{count * len(KINDS)} pages of {PAGE} bytes, {threads} thread{'s' * (threads > 1)}"


def cells(plan: Plan) -> Iterator[Cell]:
    count = FEW if plan.quick else EACH
    for threads in THREADS:
        yield Cell("lz4", "lz4_decompress", shape(count, threads), partial(_decompress, count, threads, plan))
        for level, name in NAMES.items():
            yield Cell("lz4", name, shape(count, threads), partial(_compress, level, count, threads, plan))
    for name in NAMES.values():
        yield Cell("lz4", name, SIZES, partial(_sizes, name, count))


def _content(kind: str, size: int, rng: np.random.Generator) -> bytes:
    if kind == "q4_k":
        with trueno.use("simd"):  # it takes a search, which GPUs refuse
            return trueno.quantize(rng.standard_normal((size // 144 + 1, 256), np.float32), "q4_k").bytes.tobytes()
    if kind == "float16":
        return (0.02 * rng.standard_normal(size // 2, np.float32)).astype(np.float16).tobytes()
    if kind == "json":
        numbers, cities = rng.integers(0, 1 << 20, size // 64), ("Oslo", "Lisbon", "Kyoto", "La Paz", "Tunis")
        users = [{"id": i, "name": f"user {n % 5003}", "city": cities[n % 5], "score": n / 1024, "active": n % 3 > 0}
                 for i, n in enumerate(numbers.tolist())]  # fmt: skip
        return json.dumps(users).encode()
    if kind == "source":
        text = b"".join(path.read_bytes() for path in sorted(Path(trueno.__file__).parent.rglob("*.py")))
        return text * (size // len(text) + 1)
    if kind == "rounded":
        return np.round(rng.standard_normal(size // 4, np.float32), 3).tobytes()
    return bytes(size) if kind == "zeros" else rng.bytes(size)


@cache
def pages(count: int, page: int = PAGE, made: int = 0) -> Array:
    """`count` pages of each kind; made: bytes of a kind that are made, and repeated from then on, 0 for all of them."""
    rng, size = np.random.default_rng(18), count * page
    own = min(made or size, size)
    parts = [np.resize(np.frombuffer(_content(kind, own, rng), np.uint8)[:own], size) for kind in KINDS]
    return rng.permutation(np.concatenate(parts).reshape(-1, page))


def packaged() -> Any:
    """The package's functions; None where it is not installed."""
    if find_spec("lz4") is None:
        return None
    import lz4.block

    return lz4.block


def _blocks(x: Array, level: int = 1) -> list[bytes]:
    return [packaged().compress(row.tobytes(), store_size=False, **COMPRESS[level]) for row in x]


def _compress(level: int, count: int, threads: int, plan: Plan) -> list[Record]:
    x, package, how = pages(count), packaged(), COMPRESS[level]
    blocks, sizes = np.empty_like(x), np.empty(len(x), np.int64)
    calls: dict[str, Thunk] = {OURS: bind(trueno.lz4_compress, x, level=level, out=(blocks, sizes))}
    if package:
        rows = [row.tobytes() for row in x]
        calls[PACKAGE] = lambda: [package.compress(row, store_size=False, **how) for row in rows]
    with counted(threads):
        calls[OURS]()
        y, lengths = trueno.lz4_decompress(*_packed(blocks, sizes), page=PAGE)
    wrong = "" if (lengths == PAGE).all() and np.array_equal(x, y) else "ours do not decode to their pages"
    return _record(NAMES[level], shape(count, threads), calls, threads, plan, wrong)


def _packed(blocks: Array, sizes: Array) -> tuple[Array, Array, Array]:
    return (*trueno.lz4_pack(blocks, sizes), sizes)


def _decompress(count: int, threads: int, plan: Plan) -> list[Record]:
    x, package = pages(count), packaged()
    y, lengths = np.empty_like(x), np.empty(len(x), np.int64)
    if package:
        theirs = _blocks(x)
        sizes = np.array([len(block) if len(block) < PAGE else -PAGE for block in theirs], np.int64)
        parts = [block if size > 0 else row.tobytes() for block, size, row in zip(theirs, sizes, x, strict=True)]
        blocks = np.frombuffer(b"".join(part.ljust(PAGE, b"\0") for part in parts), np.uint8).reshape(x.shape)
    else:
        blocks, sizes = trueno.lz4_compress(x)
    with counted(threads):
        operands = _packed(blocks, sizes)
    calls: dict[str, Thunk] = {OURS: bind(trueno.lz4_decompress, *operands, page=PAGE, out=(y, lengths))}
    if package:
        calls[PACKAGE] = lambda: [package.decompress(block, uncompressed_size=PAGE) for block in theirs]
    with counted(threads):
        calls[OURS]()
    wrong = "" if (lengths == PAGE).all() and np.array_equal(x, y) else "other bytes"
    return _record("lz4_decompress", shape(count, threads), calls, threads, plan, wrong)


def _sizes(name: str, count: int) -> list[Record]:
    level = next(level for level, title in NAMES.items() if title == name)
    record = Record("lz4", name, SIZES, family="compression", problem="" if packaged() else "needs the package lz4")
    if packaged():
        x = pages(count)
        theirs = sum(min(len(block), PAGE) for block in _blocks(x, level))
        record.value, record.peer = theirs / float(np.abs(trueno.lz4_compress(x, level=level)[1]).sum()), PACKAGE
    return [record]


def _record(
    name: str, where: str, calls: dict[str, Thunk], threads: int, plan: Plan, problem: str
) -> list[Record]:  # fmt: skip
    with counted(threads):
        comparison = compare(calls, plan.budget)
    value = comparison.ratio if comparison.ratios else None
    return [Record("lz4", name, where, "×", value, comparison.peer, comparison.ratios, comparison.seconds,
                   "compression", problem)]  # fmt: skip
