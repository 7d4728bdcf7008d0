"""The analysis of texts as one HTML file that needs no network: a part for each kernel, with its findings in place.

A part has the report's figures, the control flow as SVG, for each access whose lanes are known where they go, and the
text with the live registers of each line.
"""

from collections.abc import Iterable, Iterator
from importlib.resources import files
from typing import Any

from trueno.backend import counted

from trueno_cuda.ptx.analyze.drawing import control_flow, lanes, markup
from trueno_cuda.ptx.analyze.entry import Entry
from trueno_cuda.ptx.analyze.finding import SEVERITIES
from trueno_cuda.ptx.analyze.render import figures, last_line, seen
from trueno_cuda.ptx.analyze.report import Analysis, summary

PICTURES = 60
"""Accesses of a kernel whose lanes are drawn."""


def html(analyses: list[Analysis]) -> str:
    """The page."""
    records = [one.record for one in analyses]
    total = summary(records)
    parts = [(one, entry) for one in analyses for entry in one.entries]
    page = files(__package__).joinpath("page.html").read_text("utf-8")
    boxes = [
        f'<label><input type="checkbox" data-severity="{name}" checked> {total[name]} {name}</label>'
        for name in reversed(SEVERITIES)
        if total[name]
    ]
    values = {
        "STYLE": style(),
        "TITLE": markup(", ".join(record["path"] for record in records)),
        "SUMMARY": markup(last_line(total)),
        "LINKS": "".join(_link(f"k{k}", one, entry, len(analyses)) for k, (one, entry) in enumerate(parts)),
        "NOTES": "".join(map(_notes, records)),
        "SEVERITIES": "".join(boxes),
        "KERNELS": "".join(
            "".join(section(f"k{k}", one, entry, where=_where(one, len(analyses))))
            for k, (one, entry) in enumerate(parts)
        ),
    }
    for name, value in values.items():
        page = page.replace(f"<!--{name}-->", value)  # of which no value has one: `<` is escaped
    return page


def _link(anchor: str, analysis: Analysis, entry: Entry, files: int) -> str:
    """The way to a kernel, with its file if there are several, and what was found in it."""
    count = _count(*_found(analysis, entry))
    return f'<a href="#{anchor}">{markup(entry.name + _where(analysis, files))}{count and f": {count}"}</a>'


def _where(analysis: Analysis, files: int) -> str:
    """The file of a kernel if there are several."""
    return f" in {analysis.record['path'].replace(chr(92), '/').rpartition('/')[2]}" if files > 1 else ""


def _found(analysis: Analysis, entry: Entry) -> tuple[dict[str, Any] | None, list[dict[str, Any]]]:
    """An entry's record, None of a device function, and the findings of either."""
    record = next((one for one in analysis.record["entries"] if one["name"] == entry.name), None)
    found = record["findings"] if record else analysis.record["findings"]
    return record, [f for f in found if f.get("entry") == entry.name]


def style() -> str:
    """The style sheet of pages about kernels."""
    return files(__package__).joinpath("page.css").read_text("utf-8")


def _notes(record: dict[str, Any]) -> str:
    """Findings of a file as a whole, and what was not read in it."""
    listed = [_finding(f) for f in record["findings"] if not f.get("entry")]
    for what in ("unread", "unknown", "notes"):
        word = {"unread": "not read", "unknown": "PTX has no such instruction", "notes": "note"}[what]
        listed += [f"<p>Line {note['line']}: {word}: {markup(note['message'])}</p>" for note in record[what]]
    return "".join(listed)


def _count(record: dict[str, Any] | None, findings: list[dict[str, Any]]) -> str:
    """How much was found in a kernel; "" if nothing."""
    run = len((record or {}).get("run", {}).get("findings", ()))
    counts = [counted(len(findings), "finding")] if findings else []
    return ", ".join([*counts, f"{run} in the run"] if run else counts)


def section(anchor: str, analysis: Analysis, entry: Entry, most: int = PICTURES, where: str = "") -> Iterator[str]:
    """The part of a page about one kernel; its ids begin with `anchor`.

    most: accesses whose lanes are drawn.  where: words behind its name.
    """
    record, findings = _found(analysis, entry)
    kind = "" if record else " (device function)"
    yield f'<section class="kernel"><h2 id="{anchor}">{markup(entry.name + where)}{kind}</h2>'
    if record:
        yield "<dl>"
        yield from (f"<dt>{markup(name)}</dt><dd>{markup(value)}</dd>" for name, value in figures(record))
        yield "</dl>"
    yield f"<p>{_count(record, findings) or 'No findings'}.</p>"
    legend = "a dashed arrow is a branch that is taken, a violet one leads back"
    yield f"<details open><summary>Control flow: {legend}</summary>"
    yield f'<div class="scroll">{control_flow(entry, _worst(entry, findings), anchor)}</div></details>'
    pictures = dict(_pictures(entry, anchor, most))
    if pictures:
        yield f"<details><summary>Lanes of a warp, accesses: {len(pictures)}</summary>"
        yield from pictures.values()
        yield "</details>"
    yield '<table class="listing"><tbody>'
    run = (record or {}).get("run", {}).get("findings", [])
    yield from _listing(anchor, analysis, entry, [*findings, *map(_in_the_run, run)], set(pictures))
    yield "</tbody></table></section>"


def _worst(entry: Entry, findings: Iterable[dict[str, Any]]) -> dict[int, str]:
    """The gravest severity in each block."""
    by_line: dict[int, str] = {}
    for finding in findings:
        before = by_line.get(finding["line"], finding["severity"])
        by_line[finding["line"]] = max(before, finding["severity"], key=SEVERITIES.index)
    worst: dict[int, str] = {}
    for n, block in enumerate(entry.graph.blocks):
        here = [by_line[ins.line] for ins in entry.code[block.start : block.end] if ins.line in by_line]
        if here:
            worst[n] = max(here, key=SEVERITIES.index)
    return worst


def _pictures(entry: Entry, anchor: str, most: int) -> Iterator[tuple[int, str]]:
    """Of each line with an access whose lanes are known, the picture."""
    drawn: set[int] = set()
    for access in entry.accesses:
        line = access.ins.line
        picture = lanes(entry, access) if line not in drawn and len(drawn) < most else ""
        if picture:
            drawn.add(line)
            words = f"line {line}: {access.space} {access.kind} of {access.bytes} bytes"
            yield (
                line,
                (
                    f'<details id="{anchor}-A{line}"><summary>{words}: <code>{markup(access.ins.text)}</code></summary>'
                    f'<div class="scroll">{picture}</div></details>'
                ),
            )


def _listing(
    anchor: str, analysis: Analysis, entry: Entry, findings: list[dict[str, Any]], drawn: set[int]
) -> Iterator[str]:
    """The lines of a function: number, live words, place in the source, text, and the findings below it."""
    words: dict[int, int] = {}
    sources: dict[int, str] = {}
    for at, ins in enumerate(entry.code):
        words[ins.line] = max(words.get(ins.line, 0), entry.flow.words[at])
        if ins.written is not None:
            file = analysis.program.files.get(ins.written[0], "source")
            sources.setdefault(ins.line, f"{file.replace(chr(92), '/').rpartition('/')[2]}:{ins.written[1]}")
    most = max(words.values(), default=1) or 1
    by_line: dict[int, list[dict[str, Any]]] = {}
    for finding in findings:
        by_line.setdefault(finding["line"], []).append(finding)
    last = max((ins.line for ins in entry.code), default=entry.function.line)
    for line in range(entry.function.line, last + 2):
        text = analysis.lines[line - 1] if line <= len(analysis.lines) else ""
        live = words.get(line)
        bar = f'<span style="width:{100 * live // most}px" title="{live} words of 32 bits live"></span>' if live else ""
        link = f' <a href="#{anchor}-A{line}">lanes</a>' if line in drawn else ""
        below = "".join(map(_finding, by_line.get(line, ())))
        yield (
            f'<tr id="{anchor}-L{line}"><td class="n">{line}</td><td class="live">{bar}</td>'
            f'<td class="at">{markup(sources.get(line, ""))}</td>'
            f'<td class="code">{markup(text)}{link}{below}</td></tr>'
        )


def _in_the_run(finding: dict[str, Any]) -> dict[str, Any]:
    """What the emulator saw, in the form of what a rule finds."""
    severity = f"{finding['severity']} in the run"
    return {"severity": severity, "message": seen(finding), "rule": finding["kind"], "line": finding["line"]}


def _finding(finding: dict[str, Any]) -> str:
    severity = finding["severity"]
    kind, name = severity, f' data-severity="{severity}"'
    if severity not in SEVERITIES:  # what a run saw has no box that hides it
        kind, name = ("critical" if severity.startswith("error") else "medium"), ""
    fix = f'<div class="fix">{markup(finding["fix"])}</div>' if "fix" in finding else ""
    return (
        f'<div class="finding {kind}"{name}><b>{severity}</b> {markup(finding["message"])} '
        f"[{finding['rule']}]{fix}</div>"
    )
