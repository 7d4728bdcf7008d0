"""Writing measured speeds: merged with the stored ones, or imported from another run's file."""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from trueno import cachedir
from trueno.errors import ParameterError
from trueno.select import calibration, cost
from trueno.select.calibration import Key, Row
from trueno.settings import settings

KEEP = 0.10
"""A new measure within this share of the stored one changes nothing: choices must not flip from run to run."""


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
    here, there = calibration.facts(), calibration.header(text) or {}
    if there != here:
        differs = [f"{k} is {there.get(k)!r}, here {here[k]!r}" for k in here if there.get(k) != here[k]]
        raise ParameterError(f"{path} was not measured on this machine with these versions: {'; '.join(differs)}")
    rows = {key: _stamped(row) for key, row in calibration.sift(calibration.parse(text, str(path))).rows.items()}
    _merge(rows, lambda old, new: old if old.measured >= new.measured else new)
    return len(rows)


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
    loaded = calibration.loaded()
    rows, others = loaded.rows.values(), loaded.others
    older = f"; those of another version of {', '.join(others)} are not valid" if others else ""
    if not rows and others:
        return f"none that is valid{older}; `trueno calibrate` measures them again"
    if not rows:
        return "none: speeds are those that the backends declare; `trueno calibrate` measures them here"
    names = sorted({row.backend for row in rows})
    days = sorted({row.measured[:10] for row in rows})
    when = days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
    path = calibration.file()
    return f"{len(rows)} speeds of {', '.join(names)}, measured {when}" + (f", in {path}" if path else "") + older


def _edges(band: str) -> tuple[float, float]:
    lasts = list(cost.BANDS.values())
    at = list(cost.BANDS).index(band)
    first = lasts[at - 1] + 1 if at else 1
    return 2.0 ** (first - 1), 2.0 ** min(lasts[at], first + 4)


def _merge(new: Mapping[Key, Row], choose: Callable[[Row, Row], Row]) -> bool:
    """Read again under the lock, merge, write; this process uses the merged rows in any case."""
    path = calibration.file()
    if path is None:
        calibration.hold(_joined(calibration.load(), new, choose).values())
        return False
    with cachedir.lock(path.with_suffix(".lock"), 5.0):  # not held: a read-only folder, where writing reports it
        rows = _joined(calibration.parse(cachedir.read(path), str(path)), new, choose)
        lines = [json.dumps(calibration.facts(), ensure_ascii=False), *(rows[key].line() for key in sorted(rows))]
        kept = cachedir.write(path, "\n".join(lines) + "\n")
    calibration.hold(rows.values())
    return kept


def _joined(kept: Mapping[Key, Row], new: Mapping[Key, Row], choose: Callable[[Row, Row], Row]) -> dict[Key, Row]:
    """The union of both; of rows with one key and version the one that `choose` takes, of two versions the new one."""
    rows = dict(kept)
    for key, row in new.items():
        old = kept.get(key)
        rows[key] = choose(old, row) if old and old.version == row.version else row
    return rows


def _stamped(row: Row) -> Row:
    return replace(row, version=row.version or calibration.version(row.backend))
