"""The report on a file as plain data: what `trueno ptx --json` prints, and what its tables show.

`schema.json` beside this file describes it.
"""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from trueno_cuda.ptx.analyze.access import Access, banks, coalescing
from trueno_cuda.ptx.analyze.assembled import Assembled, assembled
from trueno_cuda.ptx.analyze.check import Excused, check, check_whole
from trueno_cuda.ptx.analyze.entry import Entry, entries
from trueno_cuda.ptx.analyze.finding import Finding
from trueno_cuda.ptx.analyze.launch import Launch
from trueno_cuda.ptx.analyze.machine import machine, occupancy
from trueno_cuda.ptx.analyze.notes import idle, unknown, unread
from trueno_cuda.ptx.emulate.effects import flops
from trueno_cuda.ptx.emulate.errors import UnknownInstruction
from trueno_cuda.ptx.syntax.errors import PtxError
from trueno_cuda.ptx.syntax.parse import parse
from trueno_cuda.ptx.syntax.tree import Program

MANY = 100
"""Entries of a text from which on each is forgotten as soon as its report is there."""


@dataclass(frozen=True)
class Analysis:
    """A text, its entries and device functions, and the report on it."""

    record: dict[str, Any]
    program: Program
    entries: list[Entry]

    @cached_property
    def lines(self) -> list[str]:
        return self.program.lines.text.split("\n")


def report(
    path: str, text: str, launch: Launch, rules: Iterable[str], arch: str = "", real: bool = True
) -> dict[str, Any]:
    """One file's part of the report; as for `analysis`."""
    return analysis(path, text, launch, rules, arch, real).record


def analysis(path: str, text: str, launch: Launch, rules: Iterable[str], arch: str = "", real: bool = True) -> Analysis:
    """What the analyzer knows of one file; PtxError where it is not PTX.

    arch: the architecture of occupancy and roofline, by default the text's target.  real: whether to ask ptxas.
    """
    program = parse(text, tolerant=True)
    if program.version == (0, 0):
        raise PtxError("no .version: is this PTX?")
    names = list(rules)
    target = program.target[0] if program.target else ""
    arch = arch or target
    figures, reason = assembled(text, arch) if real and any(f.entry for f in program.functions.values()) else ({}, "")
    used: Excused = set()
    records, rest = [], check_whole(program, names, used)
    parts = entries(program, launch)
    for entry in parts:
        entry.assembled = figures.get(entry.name)
        findings = check(entry, names, used)
        if entry.function.entry:
            records.append(_entry(entry, findings, arch, reason))
        else:
            rest += findings
        if len(parts) > MANY:
            entry.forget()
    record = {
        "path": path,
        "version": ".".join(map(str, program.version)),
        "target": target,
        "entries": records,
        "findings": [_finding(f) for f in rest],
        "unread": unread(program, parts),
        "unknown": unknown(parts),
        "excused": len(used),
        "known": 0,
        "notes": idle(program, names, used),
    }
    return Analysis(record, program, parts)


def summary(files: list[dict[str, Any]]) -> dict[str, Any]:
    """Counts over all files."""
    findings = [f for file in files for part in (*file["entries"], file) for f in part["findings"]]
    severities = dict.fromkeys(("critical", "high", "medium", "low"), 0)
    for finding in findings:
        severities[finding["severity"]] += 1
    return {
        "files": len(files),
        "entries": sum(len(file["entries"]) for file in files),
        "findings": len(findings),
        **severities,
        "unread": sum(len(file["unread"]) for file in files),
        "unknown": sum(len(file["unknown"]) for file in files),
        "excused": sum(file["excused"] for file in files),
        "known": sum(file["known"] for file in files),
        "run": sum(len(entry["run"]["findings"]) for file in files for entry in file["entries"] if "run" in entry),
    }


def _entry(entry: Entry, findings: list[Finding], arch: str, reason: str) -> dict[str, Any]:
    figures = entry.assembled
    return {
        "name": entry.name,
        "line": entry.function.line,
        "parameters": [param.name for param in entry.function.params],
        "instructions": len(entry.code),
        "assumed": entry.assumed,
        "notes": entry.notes,
        "registers": _registers(entry, figures, reason),
        "occupancy": _occupancy(entry, arch, figures),
        "memory": _memory(entry),
        "roofline": _roofline(entry, arch),
        "findings": [_finding(f) for f in findings],
    }


def _finding(finding: Finding) -> dict[str, Any]:
    return {key: value for key, value in asdict(finding).items() if value != ""}


def _registers(entry: Entry, figures: Assembled | None, reason: str) -> dict[str, Any]:
    """virtual: that the text uses, by type.  live: the most at once.  real: of ptxas, or why there are none."""
    counts: dict[str, int] = {}
    for register in entry.flow.named:
        counts[register.type.name] = counts.get(register.type.name, 0) + 1
    at, words = entry.flow.peak if entry.code else (0, 0)
    result: dict[str, Any] = {
        "virtual": counts,
        "live": dict(entry.flow.pressure),
        "live_words": words,
        "live_line": entry.code[at].line if entry.code else entry.function.line,
        "real": figures.registers if figures else None,
    }
    if figures:
        result |= {"real_by": figures.by, "spill_stores": figures.spill_stores, "spill_loads": figures.spill_loads}
    elif reason:
        result["reason"] = reason
    return result


def _shared(entry: Entry) -> int:
    named = {a[2] for access in entry.accesses for a, _ in access.form.terms if a[:2] == ("var", "shared")}
    own = {v.name: v.size for v in entry.function.variables if v.space == "shared"}
    own |= {v.name: v.size for v in entry.program.variables if v.space == "shared" and v.name in named}
    return sum(own.values())


def _occupancy(entry: Entry, arch: str, figures: Assembled | None) -> dict[str, Any] | None:
    where = machine(arch)
    if where is None:
        return None
    registers = figures.registers if figures else max(entry.flow.peak[1] if entry.code else 1, 16)
    shared = figures.shared if figures else _shared(entry)
    result = occupancy(where, entry.threads, registers, shared)
    return {
        "arch": where.arch,
        "block": list(entry.shape),
        "assumed": entry.assumed,
        "registers": registers,
        "registers_are": "real" if figures else "virtual",
        "shared": shared,
        "warps": result.warps,
        "blocks": result.blocks,
        "fraction": round(result.fraction, 4),
        "limit": result.limit,
    }


def _memory(entry: Entry) -> list[dict[str, Any]]:
    """Memory operations by space, kind and width; of global memory the sectors, of shared memory the passes, where
    the addresses are known for a warp."""
    groups: dict[tuple[str, str, int], list[Access]] = {}
    for access in entry.accesses:
        groups.setdefault((access.space, access.kind, access.bytes), []).append(access)
    return [
        {"space": space, "kind": kind, "bytes": size, "count": len(group), **_pattern(entry, group)}
        for (space, kind, size), group in sorted(groups.items())
        if space != "param"
    ]


def _pattern(entry: Entry, group: list[Access]) -> dict[str, Any]:
    if group[0].space == "global":
        moved = [m for a in group if (m := coalescing(entry.warp_lanes, a)) is not None]
        if moved:
            worst = min(moved, key=lambda m: (m[1], -m[0]))
            return {"known": len(moved), "sectors": worst[0], "efficiency": round(worst[1], 4)}
    elif group[0].space == "shared":
        ways = [w for a in group if (w := banks(entry.warp_lanes, a)) is not None]
        if ways:
            return {"known": len(ways), "passes": max(ways)}
    return {"known": 0}


def _roofline(entry: Entry, arch: str) -> dict[str, Any] | None:
    """Flops and bytes of global memory of a thread in the innermost loops, or in all where no loop has any; each
    instruction counts once."""
    loops = entry.graph.loops
    work: dict[int, list[float]] = {}
    traffic = {a.at: a for a in entry.accesses if a.space in ("global", "generic") and a.kind != "copy"}
    for at in entry.reachable:
        depth = loops.around(entry.graph.block_of[at])
        count = work.setdefault(depth, [0.0, 0.0])
        with suppress(UnknownInstruction):
            count[0] += sum(flops(entry.code[at]).values())
        if at in traffic:
            count[1] += traffic[at].bytes
    busy = [depth for depth, (f, b) in work.items() if b]
    if not busy:
        return None
    depth = max(busy)
    operations = sum(f for d, (f, _) in work.items() if d >= depth)
    bytes_ = work[depth][1]
    where = machine(arch)
    intensity = operations / bytes_
    return {
        "scope": "innermost loop" if depth else "kernel",
        "flops": operations,
        "bytes": bytes_,
        "intensity": round(intensity, 4),
        "arch": where.arch if where else None,
        "card": where.card if where else None,
        "ridge": round(where.ridge, 2) if where else None,
        "class": None if where is None else "memory-bound" if intensity < where.ridge else "compute-bound",
    }
