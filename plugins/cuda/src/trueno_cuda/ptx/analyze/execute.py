"""An analyzed entry on the emulator, with shadow memory: what actually happens, for arrays of given sizes."""

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
from trueno.errors import TruenoError

from trueno_cuda.ptx.analyze.entry import Entry
from trueno_cuda.ptx.analyze.launch import called
from trueno_cuda.ptx.emulate import StepLimit, load
from trueno_cuda.ptx.syntax.types import Array

ARRAY = re.compile(r"([usf])(8|16|32|64)\[(\d{1,10})\]")
LARGEST = 1 << 30
"""Bytes of an array."""
STEPS = 200_000
"""Instructions of groups of warps before a kernel counts as one that does not end."""
SEED = 0


def array(text: str) -> Array:
    """An array of `f32[1024]`: floats are normally distributed, integers are below 100 and below their number."""
    match = ARRAY.fullmatch(text)
    if match is None or match[1] + match[2] == "f8":
        raise ValueError(f"{text!r} must be a type and a number of elements, as f32[1024]; types are u, s, f with bits")
    count, dtype = int(match[3]), np.dtype(f"{match[1].replace('s', 'i')}{int(match[2]) // 8}")
    if count * dtype.itemsize > LARGEST:
        raise ValueError(f"{text!r} has {count * dtype.itemsize} bytes; {LARGEST} is the most")
    rng = np.random.default_rng(SEED)
    if match[1] == "f":
        return rng.standard_normal(count).astype(dtype)
    return rng.integers(0, max(min(count, 100), 1), count).astype(dtype)


def missing(entry: Entry, values: Mapping[str, Any]) -> list[str]:
    """The parameters without a value."""
    given = _by_name(entry, values)
    return [p.name for p in entry.function.params if p.name not in given]


def _by_name(entry: Entry, values: Mapping[str, Any]) -> dict[str, Any]:
    """The values by the names of the parameters, whatever they were called."""
    names = called(entry.function)
    given = [word for word in values if word in names]
    given.sort(key=lambda word: names[word] == word)  # of a name and a place the name wins
    return {names[word]: values[word] for word in given}


def run(entry: Entry, values: Mapping[str, Any], shared: int) -> dict[str, Any]:
    """Launch an entry whose block is known.  values: arrays and numbers by parameter, or by its place.

    The result has `failed`, a sentence, where the launch is not possible.
    """
    block, grid = entry.launch.block, entry.launch.grid or (1, 1, 1)
    assert block is not None
    given = _by_name(entry, values)
    args = [given[p.name] for p in entry.function.params]
    args = [value.copy() if isinstance(value, np.ndarray) else value for value in args]
    record: dict[str, Any] = {"grid": list(grid), "block": list(block), "completed": False, "findings": []}
    try:
        module = load(entry.program.lines.text)
        report = module.launch(entry.name, grid, block, args, shared, global_races=True, traffic=False, max_steps=STEPS)
    except StepLimit as error:
        return record | {"instructions": 0, "ended": str(error)}
    except TruenoError as error:
        return record | {"instructions": 0, "failed": str(error)}
    record["completed"] = report.completed
    record["instructions"] = sum(report.instructions.values())
    files = entry.program.files
    written = ((ins.line, ins.written) for ins in reversed(entry.code) if ins.written is not None)
    sources = {line: f"{files.get(place[0], 'source')}:{place[1]}" for line, place in written}
    record["findings"] = [
        {"kind": f.kind, "severity": f.severity, "line": f.line, "text": f.text, "message": f.message,
         "block": list(f.block), "thread": list(f.thread), "count": f.count}
        | ({"source": sources[f.line]} if f.line in sources else {})
        for f in report.findings
    ]  # fmt: skip
    return record


def clean(record: dict[str, Any]) -> bool:
    """Whether a run found nothing that is an error."""
    return record["completed"] and not any(f["severity"] == "error" for f in record["findings"])
