"""Speeds measured on this machine, kept in the user's cache: their format, their file, and when they are valid.

One file of JSON lines per machine, setting and version of the shared software: a header that names them, then a line
for each backend, class of op, dtype and band of sizes.  A line holds its backend's version, and is valid for no other.
A file that is damaged, of another machine or missing costs only the speeds in it.
`trueno calibrate` fills it; TRUENO_CALIBRATION=off ignores it.
"""

import dataclasses
import json
import math
import os
import re
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np

from trueno import cachedir
from trueno.discovery import registry
from trueno.discovery.protocol import Call, Rates
from trueno.errors import TruenoWarning, warn
from trueno.machine import cpu
from trueno.select import cost
from trueno.settings import settings
from trueno.version import __version__

VERSION = 1
"""The version of the file's format, and of the meaning of classes and bands."""

DTYPES = ("float32", "float64")
NAME = r"[a-z]\w*"

Key = tuple[str, str, str, str]


@dataclass(frozen=True, slots=True)
class Row:
    """The measured speed of a backend for one class of op, dtype and band of sizes.

    samples: how many calls were timed.  spread: how much repeated minima differed, as a share.
    measured: when, ISO 8601.  version: of the backend's distribution; empty: the one that is installed.
    """

    backend: str
    kind: str
    dtype: str
    band: str
    rates: Rates
    samples: int
    spread: float
    measured: str
    version: str = dataclasses.field(default="", compare=False)

    @property
    def key(self) -> Key:
        return self.backend, self.kind, self.dtype, self.band

    def line(self) -> str:
        """The row as a line of JSON."""
        r = self.rates
        link_bytes = r.link_bytes if math.isfinite(r.link_bytes) else None
        return json.dumps(
            {"backend": self.backend, "version": self.version, "class": self.kind, "dtype": self.dtype,
             "band": self.band, "launch_s": r.launch_s, "flops": r.flops, "bytes": r.bytes, "link_s": r.link_s,
             "link_bytes": link_bytes, "samples": self.samples, "spread": self.spread, "measured": self.measured},
            ensure_ascii=False,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Loaded:
    """The current rows by key, and the settings in force at load; others: backends with rows of other versions."""

    rows: Mapping[Key, Row]
    under: tuple[Any, ...]
    others: tuple[str, ...] = ()


_loaded: Loaded | None = None
_warned: set[str] = set()


def rates(backend: str, call: Call) -> Rates | None:
    """The speed measured here for a backend and a call like this one; None if there is none, or it is to be ignored.

    For a band that was not measured the next smaller one of its class is used, never a larger one: start-up costs of
    threads and memory say nothing about few elements.
    """
    rows = load()
    if not rows:
        return None
    kind, dtype, band = cost.op_class(call.op), call.dtype.name, cost.band(call)
    row = rows.get((backend, kind, dtype, band))
    if row is None:
        names = list(cost.BANDS)
        smaller = reversed(names[: names.index(band)])
        row = next((row for name in smaller if (row := rows.get((backend, kind, dtype, name)))), None)
    return row.rates if row else None


def load() -> Mapping[Key, Row]:
    """Every current row; none if TRUENO_CALIBRATION is off."""
    return loaded().rows if settings.get("TRUENO_CALIBRATION") else {}


def loaded() -> Loaded:
    """What was read: once, and again when a setting that it depends on changes."""
    global _loaded
    under = _under()
    if _loaded is None or _loaded.under != under:
        path = file()
        _loaded = sift(parse(cachedir.read(path), str(path)) if path else {}, under)
    return _loaded


def hold(rows: Iterable[Row]) -> None:
    """Use these rows, in this process only, instead of all others; `forget` ends it."""
    global _loaded
    _loaded = sift({row.key: row for row in rows}, _under())


def forget() -> None:
    """Drop the loaded rows; the next use reads the file again."""
    global _loaded
    _loaded = None


def file() -> Path | None:
    """The file for the rows of this machine and these settings; None without a cache."""
    folder = cachedir.folder("calibration")
    return folder / f"{fingerprint()}.jsonl" if folder else None


def fingerprint() -> str:
    """Eight hex digits of everything the timings depend on; the file's header has all of it."""
    return f"{crc32(json.dumps(facts(), sort_keys=True).encode()):08x}"


def facts() -> dict[str, Any]:
    """Everything that the speeds of all backends depend on: machine, settings, versions; a row adds its backend's."""
    versions = {"trueno": __version__, "numpy": np.__version__, "python": ".".join(map(str, sys.version_info[:3]))}
    return {
        "trueno calibration": VERSION,
        "cpu": cpu(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        "max_isa": settings.get("TRUENO_MAX_ISA"),
        "threads": settings.get("TRUENO_THREADS"),
        "versions": versions,
    }


def version(backend: str) -> str:
    """The version of a backend's distribution; empty for one that is not installed, or has none."""
    entry = registry.entries().get(backend)
    return entry.manifest.version if entry and entry.manifest else ""


def _under() -> tuple[Any, ...]:
    names = ("TRUENO_CACHE_DIR", "TRUENO_MAX_ISA", "TRUENO_THREADS", "TRUENO_AUTOLOAD", "TRUENO_BLOCK")
    return tuple(settings.get(name) for name in names)


def sift(rows: Mapping[Key, Row], under: tuple[Any, ...] = ()) -> Loaded:
    """The rows measured with the backends' installed versions, and the backends with rows of other versions."""
    current = {key: row for key, row in rows.items() if row.version in ("", version(row.backend))}
    installed = registry.entries()
    others = {row.backend for key, row in rows.items() if key not in current and row.backend in installed}
    return Loaded(current, under, tuple(sorted(others)))


def header(text: str) -> dict[str, Any] | None:
    """The first line of a file: the facts that its rows depend on; None if it has none."""
    try:
        data = json.loads(text.partition("\n")[0])
    except (ValueError, RecursionError):
        return None
    return data if isinstance(data, dict) else None


def parse(text: str | None, path: str) -> dict[Key, Row]:
    """The rows of a file; none if it cannot be read, or its header is not of this machine and these versions."""
    if text is None:
        return {}
    if header(text) != facts():
        _warn(f"{path} is ignored: its first line is not this machine's; `trueno calibrate` writes it again", path)
        return {}
    rows: dict[Key, Row] = {}
    for number, line in enumerate(text.splitlines()[1:], 2):
        if not line.strip():
            continue
        try:
            row = _row(json.loads(line))
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
            problem = f"no {error}" if isinstance(error, KeyError) else str(error)
            _warn(f"{path}, line {number}, is dropped ({problem}); `trueno calibrate` measures it again", path)
            continue
        rows[row.key] = row
    return rows


def _row(data: Any) -> Row:
    """A row of parsed JSON; ValueError, KeyError or TypeError for anything else."""
    if not isinstance(data, dict):
        raise ValueError("it is not an object")
    for name in ("backend", "version", "class", "dtype", "band", "measured"):
        if not isinstance(data[name], str):
            raise ValueError(f"{name} is {data[name]!r}; it must be text")
    if data["dtype"] not in DTYPES:
        raise ValueError(f"dtype is {data['dtype']!r}; it must be one of {' '.join(DTYPES)}")
    for field, pattern in (("backend", NAME), ("class", f"{NAME}( {NAME})?")):
        if not re.fullmatch(pattern, data[field], re.ASCII):
            raise ValueError(f"{field} is {data[field]!r}; it must be a name")
    if not (data["measured"].isascii() and data["measured"].isprintable()):
        raise ValueError(f"measured is {data['measured']!r}; it must be a time")
    if data["band"] not in cost.BANDS:
        raise ValueError(f"band is {data['band']!r}; it must be one of {' '.join(cost.BANDS)}")
    far = data["link_bytes"]
    rates = Rates(data["launch_s"], data["flops"], data["bytes"], data["link_s"], math.inf if far is None else far)
    if problem := cost.refuse(rates):
        raise ValueError(problem.removeprefix("rates()."))
    samples, spread = data["samples"], data["spread"]
    if isinstance(samples, bool) or not isinstance(samples, int) or not isinstance(spread, (int, float)):
        raise ValueError(f"samples is {samples!r} and spread {spread!r}; they must be numbers")
    for rate in (rates.launch_s, rates.flops, rates.bytes, rates.link_s, rates.link_bytes):
        float(rate)  # OverflowError for an integer beyond every float
    words = (data["backend"], data["class"], data["dtype"], data["band"])
    return Row(*words, rates, samples, spread, data["measured"], data["version"])


def _warn(sentence: str, path: str) -> None:
    """Warn once per file and process; not where warnings are errors, because the good rows are used all the same."""
    if path not in _warned:
        _warned.add(path)
        with suppress(TruenoWarning):
            warn(sentence)
