"""The report as lines for a terminal, and as SARIF for code review."""

from collections.abc import Iterator
from typing import Any

from trueno.backend import columns, counted

from trueno_cuda.ptx.analyze.finding import Rule
from trueno_cuda.ptx.analyze.rules import RULES

LOW_OCCUPANCY, LOW_EFFICIENCY = 0.5, 0.8
MOST = 20
"""Statements that are listed; JSON has all."""
LEVELS = {"critical": "error", "high": "error", "medium": "warning", "low": "note"}


def lines(file: dict[str, Any], verbose: bool = False) -> Iterator[str]:
    """One file's report."""
    yield f"{file['path']}: PTX {file['version']} for {file['target']}"
    for entry in file["entries"]:
        yield f"\n{entry['name']}, line {entry['line']}, {entry['instructions']} instructions"
        yield from columns([(f"  {name}", value) for name, value in figures(entry)])
        yield from _findings(file["path"], entry["findings"], verbose)
        yield from _seen(file["path"], entry.get("run", {}))
    if file["findings"]:
        yield ""
        yield from _findings(file["path"], file["findings"], verbose)
    if file["unread"]:
        count = len(file["unread"])
        yield f"\n{counted(count, 'statement')} {'was' if count == 1 else 'were'} not read, so bugs may be missed:"
        yield from _places(file["unread"])
    if file["unknown"]:
        yield f"\n{counted(len(file['unknown']), 'instruction')} that PTX does not have:"
        yield from _places(file["unknown"])
    if file["notes"]:
        yield ""
        yield from (f"note: line {note['line']}: {note['message']}" for note in file["notes"])


def _places(notes: list[dict[str, Any]]) -> Iterator[str]:
    for note in notes[:MOST]:
        yield f"  line {note['line']}: {note['message']}"
    if len(notes) > MOST:
        yield f"  and {len(notes) - MOST} more"


def figures(entry: dict[str, Any]) -> Iterator[tuple[str, str]]:
    registers = entry["registers"]
    live = ", ".join(f"{n} {kind}" for kind, n in registers["live"].items() if n)
    yield (
        "live",
        f"{registers['live_words']} words of 32 bits at line {registers['live_line']} (virtual); at most {live}",
    )
    if registers["real"] is not None:
        spilled = registers["spill_stores"] + registers["spill_loads"]
        yield (
            "registers",
            f"{registers['real']} (from {registers['real_by']}), "
            + (f"{spilled} bytes SPILLED" if spilled else "no spills"),
        )
    elif "reason" in registers:
        yield "registers", registers["reason"]
    occupancy = entry["occupancy"]
    if occupancy:
        shape = "x".join(str(n) for n in occupancy["block"])
        text = f"{occupancy['fraction']:.0%} of {occupancy['arch']} with blocks of {shape}"
        text += " (assumed)" if occupancy["assumed"] else ""
        text += f", {occupancy['registers_are']} registers; limit: {occupancy['limit']}"
        yield "occupancy", text + ("  LOW" if occupancy["fraction"] < LOW_OCCUPANCY else "")
    for k, group in enumerate(entry["memory"]):
        text = f"{group['count']} × {group['space']} {group['kind']} of {group['bytes']} bytes"
        if "efficiency" in group:
            low = "  LOW" if group["efficiency"] < LOW_EFFICIENCY and group["sectors"] > 1 else ""
            text += f": {counted(group['sectors'], 'sector')} per warp, {group['efficiency']:.0%} used{low}"
        elif "passes" in group:
            text += f": {group['passes']} passes per warp" if group["passes"] > 1 else ": no bank conflicts"
            text += " (block assumed)" if entry["assumed"] else ""
        if group["known"] < group["count"]:
            text += f" ({group['count'] - group['known']} not known)"
        yield "" if k else "memory", text
    roofline = entry["roofline"]
    if roofline:
        text = f"{roofline['flops']:g} flops and {roofline['bytes']:g} bytes of a thread in the {roofline['scope']}"
        if roofline["class"]:
            text += f": {roofline['class']} ({roofline['intensity']:.2g} flops per byte; {roofline['card']} turns at "
            text += f"{roofline['ridge']:.3g})"
        yield "roofline", text
    for k, note in enumerate(entry["notes"]):
        yield "" if k else "note", note
    if "run" in entry:
        yield "run", _ran(entry["run"])


def _ran(run: dict[str, Any]) -> str:
    """How a run on the emulator went."""
    if "failed" in run:
        return f"not possible: {run['failed']}"
    sizes = " and ".join(f"{name} {'x'.join(map(str, run[name]))}" for name in ("grid", "block"))
    if not run["completed"]:
        return f"{sizes}: it does not complete{': ' + run['ended'] if 'ended' in run else ''}"
    found = counted(len(run["findings"]), "finding") if run["findings"] else "no findings"
    return f"{sizes}: {run['instructions']} instructions of threads, {found}"


def _seen(path: str, run: dict[str, Any]) -> Iterator[str]:
    """What the emulator found."""
    for finding in run.get("findings", ()):
        source = f" ({finding['source']})" if "source" in finding else ""
        place = f"{path}:{finding['line']}{source}: {finding['severity']} in the run"
        yield f"{place}: {seen(finding)} [{finding['kind']}]"
        yield f"    {finding['text']}"


def seen(finding: dict[str, Any]) -> str:
    """What the emulator found, by whom, and how often."""
    who = f"thread {tuple(finding['thread'])} of block {tuple(finding['block'])}"
    often = f", seen {finding['count']} times" if finding["count"] > 1 else ""
    return f"{finding['message']} ({who}{often})"


def _findings(path: str, findings: list[dict[str, Any]], verbose: bool) -> Iterator[str]:
    for finding in findings:
        source = f" ({finding['source']})" if "source" in finding else ""
        place = f"{path}:{finding['line']}:{finding['column']}{source}"
        yield f"{place}: {finding['severity']}: {finding['message']} [{finding['rule']}]"
        if finding.get("text"):
            yield f"    {finding['text']}"
        if verbose:
            yield f"    {RULES[finding['rule']].why}"
        yield f"    fix: {finding['fix']}"


def last_line(summary: dict[str, Any]) -> str:
    """`2 entries in 1 file: 1 critical, 2 medium`."""
    found = [f"{summary[s]} {s}" for s in LEVELS if summary[s]]
    if summary["run"]:
        found.append(f"{summary['run']} in the run")
    found = found or ["no findings"]
    if summary["unread"]:
        found.append(f"{counted(summary['unread'], 'statement')} not read")
    if summary["unknown"]:
        found.append(f"{counted(summary['unknown'], 'unknown instruction')}")
    if summary["excused"]:
        found.append(f"{summary['excused']} excused")
    if summary["known"]:
        found.append(f"{summary['known']} known")
    entries, files = summary["entries"], summary["files"]
    return f"{entries} {'entry' if entries == 1 else 'entries'} in {counted(files, 'file')}: {', '.join(found)}"


def sarif(files: list[dict[str, Any]]) -> dict[str, Any]:
    """SARIF 2.1.0, which code review tools read."""
    results = []
    for file in files:
        for part in (*file["entries"], file):
            for finding in part["findings"]:
                place = {"startLine": finding["line"], "startColumn": finding["column"]}
                related = _source(finding)
                results.append({
                    "ruleId": finding["rule"],
                    "level": LEVELS[finding["severity"]],
                    "message": {"text": f"{finding.get('entry', 'text')}: {finding['message']}. {finding['fix']}"},
                    "locations": [
                        {"physicalLocation": {"artifactLocation": {"uri": file["path"]}, "region": place}}
                    ],
                    **({"relatedLocations": [related]} if related else {}),
                })  # fmt: skip
    return {
        "version": "2.1.0",
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "runs": [{"tool": {"driver": {"name": "trueno ptx", "rules": [_described(r) for r in RULES.values()]}},
                  "results": results}],
    }  # fmt: skip


def _source(finding: dict[str, Any]) -> dict[str, Any]:
    """The place of the source that a finding's text names, if it does."""
    path, colon, line = finding.get("source", "").rpartition(":")
    if not colon:
        return {}
    return {
        "message": {"text": "The source of the instruction."},
        "physicalLocation": {"artifactLocation": {"uri": path}, "region": {"startLine": max(int(line), 1)}},
    }


def _described(rule: Rule) -> dict[str, Any]:
    return {"id": rule.id, "shortDescription": {"text": rule.sentence}, "help": {"text": rule.fix}}
