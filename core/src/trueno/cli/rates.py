"""Measured calls as rows: seconds with their spread, bytes and flops per second, and a comparison with earlier ones.

A row's spread are the quartiles of its rounds.  Two measurements differ beyond noise if their quartiles do not overlap:
half of the rounds of each lie between them.
"""

import json
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import quantiles
from typing import Any

import numpy as np

from trueno.errors import FileError, ShapeError
from trueno.ops.op import Op

Row = dict[str, Any]
KEY = ("op", "dtype", "size", "backend")
FIELDS = (
    "op", "dtype", "size", "shapes", "set", "backend", "seconds", "low", "high", "best", "rounds", "bytes", "flops",
    "gb_per_s", "gflop_per_s", "times_numpy",
)  # fmt: skip
"""The fields of a row.  seconds: the median of the rounds; low, high: their quartiles; best: the shortest; bytes: of
the operands and results, each counted once; times_numpy: NumPy's median over this one."""
COMPARED = ("before", "ratio", "ratio_low", "ratio_high", "verdict")
"""Further fields of a comparison.  before: the earlier median; ratio: this median over it, with the least and the most
that the quartiles give; verdict: faster, slower, same (the quartiles overlap), or unsure (fewer than `FEW` rounds)."""
FEW = 5
"""Rounds whose quartiles say something."""
LARGEST = 64 << 20
"""The most bytes of a file with earlier rows."""


def spread(times: Sequence[float]) -> dict[str, float | int]:
    """The median of the times of a call, their quartiles, the shortest, and how many there are."""
    low, middle, high = quantiles(times, n=4, method="inclusive") if len(times) > 1 else [times[0]] * 3
    return {"seconds": middle, "low": low, "high": high, "best": min(times), "rounds": len(times)}


def flops(op: Op, shapes: Sequence[tuple[int, ...]], static: dict[str, Any]) -> float | None:
    """Floating-point operations of one call on operands of these shapes; None if the op does not say."""
    known = {p.name: static.get(p.name, p.default) for p in op.static}
    if not op.structured:
        element, row = op.program(**known).flops
        rows = math.prod(shapes[0][:-1]) if op.over is not None else 0
        return element * math.prod(shapes[0]) + row * rows
    try:
        blocks = op.blocks(known)
        meant = tuple(s.meant(op.name, shape, blocks) for s, shape in zip(op.signature.inputs, shapes, strict=True))
        sizes, leading = op.signature.bind(op.name, meant)
        return op.flops({**known, **sizes}, math.prod(leading))
    except (ShapeError, KeyError, NameError, TypeError):  # symbols that the signature alone does not determine
        return None


def moved(op: Op, operands: Iterable[Any], results: Iterable[Any]) -> int:
    """Bytes that one call reads and writes at least; of a table, as many as are looked up."""
    written = sum(np.asarray(r).nbytes for r in results)
    looked_up = any(spec.index for spec in op.signature.inputs)
    read = 0
    for spec, x in zip(op.signature.inputs, operands, strict=True):
        size = np.asarray(x).nbytes
        read += min(size, written) if looked_up and not spec.index else size
    return read + written


def rated(row: Row, numpy_seconds: float | None) -> Row:
    """The row with its rates, in the order of `FIELDS`."""
    rates = {
        "gb_per_s": row["bytes"] / row["seconds"] / 1e9,
        "gflop_per_s": row["flops"] / row["seconds"] / 1e9 if row["flops"] else None,
        "times_numpy": numpy_seconds / row["seconds"] if numpy_seconds else None,
    }
    whole = row | rates
    return {name: whole[name] for name in FIELDS}


def earlier(path: Path) -> list[Row]:
    """The rows of a file that `trueno bench -o json` or `-o jsonl` wrote; FileError if it is not one."""
    try:
        if path.stat().st_size > LARGEST:
            raise FileError(
                f"--compare {path}: it has more than {LARGEST} bytes; give a file of `trueno bench -o json`"
            )
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise FileError(f"--compare {path}: {getattr(error, 'strerror', None) or 'it is not text'}") from None
    try:
        data = json.loads(text) if text.lstrip().startswith("{\n") else [json.loads(x) for x in text.splitlines() if x]
        rows = data["rows"] if isinstance(data, dict) else data
        for row in rows:
            for name in ("seconds", "low", "high", "rounds"):
                if not 0 < float(row[name]) < math.inf:
                    raise ValueError(name)
            hash(_key(row))
        return list(rows)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise FileError(
            f"--compare {path}: it has no rows of a benchmark; give a file of `trueno bench -o json`"
        ) from None


def compare(rows: Sequence[Row], before: Iterable[Row]) -> list[Row]:
    """The rows with the fields of `COMPARED`, which are None where the earlier ones have no such call."""
    known = {_key(row): row for row in before}
    result = []
    for row in rows:
        old = known.get(_key(row))
        if old is None:
            result.append({**row, **dict.fromkeys(COMPARED)})
            continue
        low, high = row["low"] / old["high"], row["high"] / old["low"]
        few = min(row["rounds"], old["rounds"]) < FEW
        verdict = (
            "unsure"
            if few
            else "faster"
            if row["high"] < old["low"]
            else "slower"
            if row["low"] > old["high"]
            else "same"
        )
        values = (old["seconds"], row["seconds"] / old["seconds"], low, high, verdict)
        result.append({**row, **dict(zip(COMPARED, values, strict=True))})
    return result


def _key(row: Row) -> tuple[Any, ...]:
    return (*(row[name] for name in KEY), tuple(sorted((str(k), str(v)) for k, v in row["set"].items())))
