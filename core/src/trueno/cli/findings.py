"""The report of `trueno doctor` as lines for people: one screen of 80 columns and 40 lines, or all of it.

A line is a list of parts, each a text and its style in rich's words.  The core alone prints the texts.
"""

import textwrap
import time
from collections.abc import Iterable
from typing import Any

from trueno.escape import escaped

Line = list[tuple[str, str]]

STYLES = {
    "available": "green", "failed": "red", "no device": "yellow", "not built yet": "dim", "switched off": "yellow"
}  # fmt: skip
WORDS = (
    ("installed", "its package is installed"),
    ("available", "it can run here (–: it is switched off, or no release of it can)"),
    ("active", "it has run something in this process"),
)
WHOLE: dict[str, Any] = {"break_long_words": False, "break_on_hyphens": False}
LONGEST_VALUE = 20  # for which other rows of the settings leave room
ABSENT = "not installed"
HEALTH_STYLES = {"ok": "bold green", "degraded": "bold yellow", "broken": "bold red"}


def lines(report: dict[str, Any], width: int | None, verbose: bool = False) -> list[Line]:
    """The report's lines, none wider than `width` unless one word is; None: no line is wrapped, for a pipe.

    verbose: also every setting, where each backend comes from, and reasons at full length.
    """
    report = _spelled(report)
    plural = "s" if report["cpus"] > 1 else ""
    result = _wrapped(f"trueno {report['trueno']}, from {report['origin']}", width, "bold")
    result += _wrapped(
        f"{report['python']}, NumPy {report['numpy']}, {report['platform']}, {report['cpus']} CPU{plural}", width
    )
    result.append([])
    if report["backends"]:
        result += [*backends(report["backends"], report["not_installed"], width, verbose), []]
        result += _sources(report["backends"], width, verbose)
    if report["best"]:
        best = report["best"]
        isa = f" ({best['isa']})" if best["isa"] else ""
        result += _wrapped(f"Chosen automatically: {best['name']}{isa}", width)
    result += _settings(report["settings"], width, verbose)
    if report["cache"]:
        cache = report["cache"]
        used = f"{cache['files']} files, {cache['bytes'] / 1e6:.1f} MB"
        used = used if cache["used"] else f"not used: {cache['reason']}"
        result += _wrapped(f"Cache: {cache['path']} ({used})", width)
    if report["calibration"]:
        result += _wrapped(f"Calibration: {report['calibration']}", width)
    for section in report["sections"]:
        result += [[], [(section["plugin"], "bold")]]
        for line in section["lines"]:
            result += _wrapped(line, width)
    return [*result, *_remarks(report, width), [], [(report["health"], HEALTH_STYLES[report["health"]])]]


def backends(
    found: list[dict[str, Any]], absent: Iterable[dict[str, str]], width: int | None, verbose: bool = False
) -> list[Line]:
    """Every backend with the three answers, and those of ours that are `absent`: a table of two lines at most for each.

    A reason that does not fit into the row stands in a line below it, which ends at a whole word; `verbose`: in as many
    lines as it has.
    """
    found, absent = _spelled(found), _spelled(list(absent))
    active = any(b["active"] for b in found)
    roomy = width is None or verbose
    titles = ["backend", "version", "installed", "available", *["active"] * active, *["probed"] * roomy]
    rows: list[tuple[list[str], str, str, str]] = []
    for b in found:
        says = {"available": "yes", "failed": "no", "no device": "no"}.get(b["status"], "–")
        device = ", ".join(f"{d['name']} {d['isa']}".strip() for d in b["devices"])
        cells = [b["name"], b["version"] or "–", "yes", says, *["yes" if b["active"] else "–"] * active]
        about, code = (device, "") if b["available"] else (b["reason"], b["code"])
        rows.append(([*cells, *[_probed(b)] * roomy], STYLES[b["status"]], about, code))
    for a in absent:
        cells = [a["name"], "–", "no", "–", *["–"] * active, *["–"] * roomy]
        rows.append((cells, "", f"{ABSENT} — {a['install']}", ""))
    widths = [max(len(title), *(len(cells[i]) for cells, *_ in rows)) for i, title in enumerate(titles)]
    left = 1 << 30 if width is None else width - sum(widths) - 2 * len(widths)
    head = "  ".join(f"{title:<{w}}" for title, w in zip([*titles, "device or reason"], [*widths, 0], strict=True))
    rule = len(head) if width is None else width
    result: list[Line] = [[(head, "bold")], [("─" * rule, "dim")]]
    status, cut = titles.index("available"), False
    for cells, style, about, code in rows:
        line = [
            (f"{cell:<{w}}  ", style if i == status else "")
            for i, (cell, w) in enumerate(zip(cells, widths, strict=True))
        ]
        whole = f"{about} ({code})" if code else about
        if width is None or len(whole) <= left:
            result.append([*line, (whole, "")])
            continue
        here, _, there = about.partition(" — ") if about.startswith(ABSENT) else (code, "", about)
        below = textwrap.wrap(there, width, initial_indent="    ", subsequent_indent="    ", **WHOLE)
        if not verbose and here != ABSENT and len(below) > 1:  # a command is never cut
            below = ["    " + textwrap.shorten(there, width - 4, placeholder=" …")]
            cut = True
        result += [[*line, (here, "")], *([(text, "dim")] for text in below)]
    if cut:
        result.append([("whole sentences: trueno doctor --verbose", "dim")])
    return result


def _spelled(data: Any) -> Any:
    """The data with each text on one line and safe for a terminal: before it is wrapped, which counts its letters."""
    if isinstance(data, str):
        return escaped(data)
    if isinstance(data, dict):
        return {key: _spelled(inner) for key, inner in data.items()}
    return type(data)(map(_spelled, data)) if isinstance(data, (list, tuple)) else data


def _wrapped(text: str, width: int | None, style: str = "") -> list[Line]:
    """A sentence in lines of whole words, the later ones indented."""
    if width is None or len(text) <= width:
        return [[(text, style)]]
    return [[(line, style)] for line in textwrap.wrap(text, width, subsequent_indent="    ", **WHOLE)]


def _sources(found: list[dict[str, Any]], width: int | None, verbose: bool) -> list[Line]:
    """Where each backend comes from; unless `verbose`, only those that failed."""
    result: list[Line] = []
    if verbose:
        active = any(b["active"] for b in found)
        words = (f"{word}: {meaning}" for word, meaning in WORDS if active or word != "active")
        result += _wrapped("; ".join(words), width, "dim")
    for b in found:
        if verbose or b["status"] == "failed":
            source = " ".join(w for w in (b["distribution"], b["version"]) if w)
            where = b["path"] or ("part of trueno" if b["name"] == "reference" else "no file of a manifest")
            result += _wrapped(f"{b['name']}: {source or 'registered'}, {where}", width)
    return [*result, []] if result else []


def _settings(settings: list[dict[str, Any]], width: int | None, verbose: bool) -> list[Line]:
    """A table of the settings; unless `verbose`, of those alone that are not at their defaults."""
    if not settings:
        return []
    shown = settings if verbose else [s for s in settings if s["origin"] != "default"]
    result: list[Line] = []
    if shown:
        cells = [("setting", "value", "from"), *((s["name"], value(s["value"]), s["origin"]) for s in shown)]
        first, second = (max(len(row[i]) for row in cells) for i in (0, 1))
        second = second if width is None else min(second, LONGEST_VALUE)
        result.append([])
        for i, (name, what, origin) in enumerate(cells):
            style = "bold" if not i or origin != "default" else ""
            result += _wrapped(f"{name:<{first}}  {what:<{second}}  {origin}", width, style)
    rest = len(settings) - len(shown)
    if rest:
        which = f"the other {rest} are" if shown else f"all {rest} are"
        result += _wrapped(f"Settings: {which} at their defaults; what each does: trueno doctor --settings", width)
    else:
        result += [[("what each does: trueno doctor --settings", "dim")], []]
    return result


def _remarks(report: dict[str, Any], width: int | None) -> list[Line]:
    notes = [f"{b['name']}: {note}" for b in report["backends"] for note in b["notes"]]
    raised = [f"{b['name']}: {b['raised']}" for b in report["backends"] if b["raised"]]
    result: list[Line] = []
    for word, sentences, colour in (
        ("note", notes, "yellow"),
        ("raised", raised, "yellow"),
        ("warning", report["warnings"], "yellow"),
        ("advice", report["advice"], "yellow"),
        ("broken", report["broken"], "red"),
    ):
        for sentence in sentences:
            result += _wrapped(f"{word}: {sentence}", width, colour)
    return result


def setting_lines(report: dict[str, Any], width: int | None) -> list[Line]:
    """A line per setting, and below it what it does: a sentence is too long for a table column."""
    report = _spelled(report)
    result: list[Line] = []
    for s in report["settings"]:
        result.append(
            [(f"{s['name']} = {value(s['value'])}   ({s['origin']})", "" if s["origin"] == "default" else "bold")]
        )
        indent = "    "
        result += [[(f"{indent}{line[0][0]}", "dim")] for line in _wrapped(s["help"], width and width - len(indent))]
    return [*result, *([(f"broken: {line}", "red")] for line in report["broken"])]


def value(given: Any) -> str:
    """A setting's value for people."""
    if isinstance(given, bool):
        return "on" if given else "off"
    if given is None or given == ():
        return "–"
    if isinstance(given, tuple):
        return ",".join(":".join(v) if isinstance(v, tuple) else str(v) for v in given)
    return f"{given:g}" if isinstance(given, float) else str(given)


def ago(seconds: float) -> str:
    """The age of something, in one word and a unit."""
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{int(seconds // length)} {unit} ago"
    return "just now"


def _probed(backend: dict[str, Any]) -> str:
    if backend["probed"] == "cached" and backend["checked"]:
        return ago(time.time() - backend["checked"])
    return backend["probed"] or "–"
