"""The report of `trueno ptx parity`: batched kernels beside their forms for one vector."""

from collections.abc import Iterator
from time import perf_counter
from typing import Any

import numpy as np

from trueno_cuda.catalogue import parity
from trueno_cuda.device.launching import opened

HEADING = ("kernel", "strategy", "shared bytes", "numbers", "batched / single", "verdict")


def examined(backend: str | None, seed: int = 0) -> dict[str, Any]:
    """Every pair, compared as texts and, on a backend, by running both.

    summary: how many pairs, whether all are good, and the seconds that reading the texts took.
    """
    device = opened(backend, "trueno ptx parity --backend cuda_emulated") if backend else None
    pairs = parity.pairs(device.arch) if device is not None else parity.pairs()
    start = perf_counter()
    records = [parity.record(pair) for pair in pairs]
    seconds = perf_counter() - start
    for pair, record in zip(pairs, records, strict=True):
        record |= {"numbers": None, "differing": None}
        if device is not None:
            result = parity.compared(pair, device, np.random.default_rng(seed))
            record |= {"numbers": result.numbers, "differing": result.differing}
    good = sum(_good(record) for record in records)
    summary = {"pairs": len(records), "matching": good, "good": good == len(records) > 0, "text_seconds": seconds}
    return {"backend": backend, "seed": seed, "pairs": records, "summary": summary}


def table(result: dict[str, Any]) -> list[tuple[str, ...]]:
    """A row for each pair, below a heading."""
    rows = [HEADING]
    for one in result["pairs"]:
        said = list(one["violations"])
        if one["differing"]:
            said.append(f"{one['differing']:,} results differ")
        numbers = "not run" if one["numbers"] is None else f"{one['numbers']:,}"
        shared = " / ".join(map(str, one["shared_bytes"]))
        names = f"{one['batched']} / {one['single']}"
        rows.append((one["kernel"], one["strategy"], shared, numbers, names, "; ".join(said) or "same"))
    return rows


def closing(result: dict[str, Any]) -> Iterator[str]:
    """The last lines."""
    s = result["summary"]
    how = f"texts, and results to the bit on {result['backend']}" if result["backend"] else "texts alone; nothing ran"
    took = f"{s['text_seconds'] * 1e3:.1f} ms"
    yield f"{s['matching']} of {s['pairs']} pairs agree ({how}); reading the texts took {took}"


def _good(record: dict[str, Any]) -> bool:
    return not record["violations"] and not record["differing"]
