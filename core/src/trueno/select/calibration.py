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
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np

from trueno import cachedir
from trueno.discovery import registry
from trueno.discovery.protocol import Call, Rates
from trueno.errors import ParameterError, TruenoWarning, warn
from trueno.select import cost
from trueno.settings import settings
from trueno.version import __version__

VERSION = 1
"""The version of the file's format, and of the meaning of classes and bands."""
KEEP = 0.10
"""A new measure within this share of the stored one changes nothing: choices must not flip from run to run."""

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
    """The current rows by key, the settings in force at load, and backends that only have rows from other versions."""

    rows: Mapping[Key, Row]
    under: tuple[Any, ...]
    others: tuple[str, ...] = ()


_loaded: Loaded | None = None
_said: set[str] = set()


def rates(backend: str, call: Call) -> Rates | None:
    """The speed measured here for a backend and a call like this one; None if there is none, or it is to be ignored.

    For a band that was not measured the next smaller one of its class is used, never a larger one: start-up costs of
    threads and memory say nothing about few elements.
    """
    rows = load()
    if not rows:
        return None
    kind, dtype, band = cost.op_class(call.op), call.dtype.name, cost.band(call)
    found = rows.get((backend, kind, dtype, band))
    if found is None:
        names = list(cost.BANDS)
        smaller = reversed(names[: names.index(band)])
        found = next((row for name in smaller if (row := rows.get((backend, kind, dtype, name)))), None)
    return found.rates if found else None


def load() -> Mapping[Key, Row]:
    """Every current row; none if TRUENO_CALIBRATION is off.

    Read once, and again when a setting that it depends on changes.
    """
    global _loaded
    if not settings.get("TRUENO_CALIBRATION"):
        return {}
    under = _under()
    if _loaded is None or _loaded.under != under:
        path = file()
        text = cachedir.read(path) if path else None
        _loaded = _sifted(_parse(text, str(path)) if text is not None else {}, under)
    return _loaded.rows


def save(rows: Iterable[Row]) -> bool:
    """Merge newly measured rows into the stored ones; False if they cannot be kept beyond this process.

    Rows that another process stored meanwhile stay.  A row that differs from the stored one by less than a tenth does
    not replace it.
    """
    return _merge({row.key: _stamped(row) for row in rows}, settled)


def merge(path: str | Path) -> int:
    """Import the rows of a file that another run on this machine wrote, the newest first; returns their number.

    ParameterError if there is no such file, or it was measured on another machine or with other versions.
    """
    text = cachedir.read(Path(path))
    if text is None:
        raise ParameterError(f"{path} cannot be read; give a file that `trueno calibrate` wrote")
    header = _header(text)
    if header != facts():
        here, other = facts(), header or {}
        differs = [f"{k} is {other.get(k)!r}, here {here[k]!r}" for k in here if other.get(k) != here[k]]
        raise ParameterError(f"{path} was not measured on this machine with these versions: {'; '.join(differs)}")
    found = {key: _stamped(row) for key, row in _sifted(_parse(text, str(path)), ()).rows.items()}
    _merge(found, lambda old, new: old if old.measured >= new.measured else new)
    return len(found)


def hold(rows: Iterable[Row]) -> None:
    """Use these rows, in this process only, instead of all others; `forget` ends it."""
    global _loaded
    _loaded = Loaded({row.key: row for row in rows}, _under())


def forget() -> None:
    """Drop the loaded rows; the next use reads the file again."""
    global _loaded
    _loaded = None


def settled(old: Row, new: Row) -> Row:
    """The stored row, unless the new one predicts times that differ by more than a tenth somewhere in its band."""
    first, last = _edges(new.band)

    def time(row: Row, n: float) -> float:
        return row.rates.launch_s + n * max(1 / row.rates.flops, 4 / row.rates.bytes)

    links = (old.rates.link_s, old.rates.link_bytes), (new.rates.link_s, new.rates.link_bytes)
    same = all(abs(time(new, n) / time(old, n) - 1) <= KEEP for n in (first, last))
    alike = all(a == b or abs(a / b - 1) <= KEEP for a, b in zip(*links, strict=True) if b)
    return old if same and alike and (links[0][0] > 0) == (links[1][0] > 0) else new


def describe() -> str:
    """One sentence for `trueno doctor`: which speeds are in use."""
    if not settings.get("TRUENO_CALIBRATION"):
        return f"ignored: TRUENO_CALIBRATION is off ({settings.origin('TRUENO_CALIBRATION').origin})"
    rows = load().values()
    others = _loaded.others if _loaded else ()
    older = f"; those of another version of {', '.join(others)} are not valid" if others else ""
    if not rows and others:
        return f"none that is valid{older}; `trueno calibrate` measures them again"
    if not rows:
        return "none: speeds are those that the backends declare; `trueno calibrate` measures them here"
    names = sorted({row.backend for row in rows})
    days = sorted({row.measured[:10] for row in rows})
    when = days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
    path = file()
    return f"{len(rows)} speeds of {', '.join(names)}, measured {when}" + (f", in {path}" if path else "") + older


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


@cache
def cpu() -> str:
    """The processor's name, from the operating system."""
    for line in (cachedir.read(Path("/proc/cpuinfo")) or "").splitlines():
        name, _, value = line.partition(":")
        if name.strip() in ("model name", "Model", "cpu model") and value.strip():
            return value.strip()
    import platform

    return platform.processor() or platform.machine()


def _under() -> tuple[Any, ...]:
    names = ("TRUENO_CACHE_DIR", "TRUENO_MAX_ISA", "TRUENO_THREADS", "TRUENO_AUTOLOAD", "TRUENO_BLOCK")
    return tuple(settings.get(name) for name in names)


def _edges(band: str) -> tuple[float, float]:
    lasts = list(cost.BANDS.values())
    at = list(cost.BANDS).index(band)
    first = lasts[at - 1] + 1 if at else 1
    return 2.0 ** (first - 1), 2.0 ** min(lasts[at], first + 4)


def _merge(new: Mapping[Key, Row], choose: Any) -> bool:
    """Read again under the lock, merge, write; this process uses the merged rows in any case."""
    global _loaded
    path = file()
    if path is None:
        known = dict(load())
        known |= {k: _chosen(known.get(k), row, choose) for k, row in new.items()}
        _loaded = _sifted(known, _under())
        return False
    with cachedir.lock(path.with_suffix(".lock"), 5.0):  # not held: a read-only folder, where writing reports it
        text = cachedir.read(path)
        known = dict(_parse(text, str(path))) if text is not None else {}
        known |= {k: _chosen(known.get(k), row, choose) for k, row in new.items()}
        lines = [json.dumps(facts(), ensure_ascii=False), *(known[k].line() for k in sorted(known))]
        kept = cachedir.write(path, "\n".join(lines) + "\n")
    _loaded = _sifted(known, _under())
    return kept


def _stamped(row: Row) -> Row:
    return replace(row, version=row.version or version(row.backend))


def _chosen(old: Row | None, new: Row, choose: Callable[[Row, Row], Row]) -> Row:
    return choose(old, new) if old and old.version == new.version else new


def _sifted(rows: Mapping[Key, Row], under: tuple[Any, ...]) -> Loaded:
    """The rows measured with the backends' installed versions, and the backends with rows of other versions."""
    good = {key: row for key, row in rows.items() if row.version in ("", version(row.backend))}
    installed = registry.entries()
    others = {row.backend for key, row in rows.items() if key not in good and row.backend in installed}
    return Loaded(good, under, tuple(sorted(others)))


def _header(text: str) -> dict[str, Any] | None:
    try:
        header = json.loads(text.partition("\n")[0])
    except (ValueError, RecursionError):
        return None
    return header if isinstance(header, dict) else None


def _parse(text: str, path: str) -> dict[Key, Row]:
    """The rows of a file; none if its header is not of this machine and these versions."""
    if _header(text) != facts():
        _warn(f"{path} is ignored: its first line is not this machine's; `trueno calibrate` writes it again", path)
        return {}
    rows: dict[Key, Row] = {}
    for number, line in enumerate(text.splitlines()[1:], 2):
        if not line.strip():
            continue
        try:
            row = _row(json.loads(line))
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
            said = f"no {error}" if isinstance(error, KeyError) else str(error)
            _warn(f"{path}, line {number}, is dropped ({said}); `trueno calibrate` measures it again", path)
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
    if path not in _said:
        _said.add(path)
        with suppress(TruenoWarning):
            warn(sentence)
