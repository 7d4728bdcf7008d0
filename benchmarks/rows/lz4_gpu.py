"""LZ4 on GPUs: a gigabyte of the mixed pages of `lz4`, from the device's memory into it; the call and its wait counted.

The rate is that of uncompressed bytes, the best of some calls.  Samples of the blocks are decoded by the package `lz4`
where it is installed, and compared; the pages that ours decode are compared whole.
"""

from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from time import perf_counter
from typing import Any

import numpy as np
import trueno
from trueno.discovery import registry

from benchmarks.compare import Record
from benchmarks.rows import Cell, Plan, lz4
from benchmarks.timing import OURS

GROUP, BACKENDS = "lz4_gpu", ("cuda", "wgpu")
PAGES = (4096, 65536)
SIZE, SMALL = 1 << 30, 1 << 24
OWN, SAMPLES, CALLS = 1 << 24, 256, 7
"""Bytes of a kind that are made, and repeated from then on; pages that the package decodes; calls of which the best
counts."""
DECOMPRESS = "lz4_decompress"
Measured = tuple[int, float, str]
"""Uncompressed bytes, the seconds of a call, and what is wrong with its result."""


def shape(page: int, backend: str) -> str:
    return f"{page} bytes a page, {backend}"


def cells(plan: Plan) -> Iterator[Cell]:
    size = SMALL if plan.quick else SIZE
    for backend in BACKENDS:
        for page in PAGES:
            for level, name in lz4.NAMES.items():
                yield _cell(name, page, backend, partial(_compress, backend, size, page, level))
            yield _cell(DECOMPRESS, page, backend, partial(_decompress, backend, size, page))


def _cell(name: str, page: int, backend: str, measure: Callable[[], Measured]) -> Cell:
    where = shape(page, backend)

    def measured() -> list[Record]:
        found = trueno.backends()[backend]
        if not found.available or all(d.software for d in found.devices):
            return [Record(GROUP, name, where, family="compression")]
        nbytes, seconds, problem = measure()
        return [Record(GROUP, name, where, "bytes", nbytes / seconds, family="compression", problem=problem,
                       seconds={OURS: seconds})]  # fmt: skip

    return Cell(GROUP, name, where, measured)


def _mixed(size: int, page: int) -> Any:
    return lz4.pages(size // len(lz4.KINDS) // page, page, OWN)


@lru_cache(1)  # cells of the same pages follow each other, and the next ones need the memory
def _there(backend: str, size: int, page: int) -> Any:
    return trueno.to(_mixed(size, page), backend)


def _seconds(backend: str, call: Callable[[], Any]) -> float:
    loaded: Any = registry.load(backend)
    call()
    loaded.synchronize()
    seconds = []
    for _ in range(CALLS):
        start = perf_counter()
        call()
        loaded.synchronize()
        seconds.append(perf_counter() - start)
    return min(seconds)


def _compress(backend: str, size: int, page: int, level: int) -> Measured:
    x, there = _mixed(size, page), _there(backend, size, page)
    blocks, sizes = trueno.lz4_compress(there, level=level)
    seconds = _seconds(backend, lambda: trueno.lz4_compress(there, level=level, out=(blocks, sizes)))
    return x.nbytes, seconds, _wrong(x, trueno.numpy(blocks), trueno.numpy(sizes))


def _wrong(x: Any, blocks: Any, sizes: Any) -> str:
    """What samples of the blocks are not, by the package."""
    package = lz4.packaged()
    if package is None:
        return ""
    for i in np.random.default_rng().choice(len(x), min(SAMPLES, len(x)), replace=False).tolist():
        block, raw = blocks[i, : abs(int(sizes[i]))].tobytes(), x[i].tobytes()
        if (package.decompress(block, uncompressed_size=len(raw)) if sizes[i] > 0 else block) != raw:
            return f"the package decodes page {i} to other bytes"
    return ""


def _decompress(backend: str, size: int, page: int) -> Measured:
    x, there = _mixed(size, page), _there(backend, size, page)
    blocks, sizes = trueno.lz4_compress(there)
    packed, offsets = trueno.lz4_pack(blocks, sizes)
    del blocks
    y, lengths = trueno.lz4_decompress(packed, offsets, sizes, page=page)
    call = partial(trueno.lz4_decompress, packed, offsets, sizes, page=page, out=(y, lengths))
    seconds = _seconds(backend, call)
    same = bool((trueno.numpy(lengths) == page).all()) and np.array_equal(trueno.numpy(y), x)
    return x.nbytes, seconds, "" if same else "other bytes"
