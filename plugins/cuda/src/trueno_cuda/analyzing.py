"""`trueno ptx FILE…`: the analyzer's command line."""

import codecs
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from trueno.backend import escape
from trueno.errors import ParameterError, suggestion
from typer.core import TyperGroup

from trueno_cuda.ptx.analyze import page
from trueno_cuda.ptx.analyze.baseline import Known, remove
from trueno_cuda.ptx.analyze.baseline import known as baseline_of
from trueno_cuda.ptx.analyze.execute import array as array_of
from trueno_cuda.ptx.analyze.execute import clean, missing
from trueno_cuda.ptx.analyze.execute import run as execute
from trueno_cuda.ptx.analyze.launch import OURS, Launch, assumed, size
from trueno_cuda.ptx.analyze.machine import MACHINES, machine
from trueno_cuda.ptx.analyze.render import last_line, lines, sarif
from trueno_cuda.ptx.analyze.report import Analysis, analysis, summary
from trueno_cuda.ptx.analyze.rules import RULES
from trueno_cuda.ptx.syntax.errors import PtxError

STDIN = "-"
BLOCK, GRID = (1024, 1024, 64), (2**31 - 1, 65535, 65535)
"""The most along each axis."""


class Files(TyperGroup):
    """A group of commands that takes a file, where a command's name is expected, as one to analyze."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and args[0] not in self.commands and (args[0] == STDIN or _path(args[0])):
            args = ["analyze", *args]
        return super().resolve_command(ctx, args)

    def parse_args(self, ctx: Any, args: list[str]) -> Any:
        if (args and args[0].startswith("--") and args[0] not in ("--help", "--")) or args[:1] == [STDIN]:
            args = ["analyze", *args]
        return super().parse_args(ctx, args)


def _path(word: str) -> bool:
    return any(mark in word for mark in "./\\") or Path(word).exists()


Many = list[str] | None


def analyze(
    files: Annotated[list[str], typer.Argument(metavar="FILE...", help="PTX of any producer; - reads stdin.")],
    block: Annotated[str, typer.Option(help="The block's size, as 256 or 16,16.", show_default=False)] = "",
    grid: Annotated[str, typer.Option(help="The grid's size.", show_default=False)] = "",
    param: Annotated[
        Many,
        typer.Option(
            metavar="NAME=VALUE", help="A parameter's value, by name or place; may be repeated.", show_default=False
        ),
    ] = None,
    assume: Annotated[
        Many, typer.Option(metavar="FACT", help="As 'n % 256 == 0'; may be repeated.", show_default=False)
    ] = None,
    arch: Annotated[
        str, typer.Option(help="Of occupancy and roofline; by default the text's target.", show_default=False)
    ] = "",
    rule: Annotated[Many, typer.Option(metavar="RULE", help="Only this rule; may be repeated.")] = None,
    ignore: Annotated[Many, typer.Option(metavar="RULE", help="Not this rule; may be repeated.")] = None,
    bugs: Annotated[bool, typer.Option("--bugs", help="Only rules about bugs, none about waste.")] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with 1 for every finding; all rules.")] = False,
    real: Annotated[
        bool, typer.Option("--ptxas/--no-ptxas", help="Ask ptxas, or nvJitLink, for registers and spills.")
    ] = True,
    verbose: Annotated[bool, typer.Option("--verbose", help="Also say why each finding matters.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    as_sarif: Annotated[bool, typer.Option("--sarif", help="Print SARIF 2.1.0.")] = False,
    baseline: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Leave out the findings of an earlier --json report.")
    ] = None,
    run: Annotated[
        bool, typer.Option("--run", help="Also run on the emulator: needs --block, and a value for each parameter.")
    ] = False,
    array: Annotated[
        Many,
        typer.Option(
            metavar="NAME=TYPE[COUNT]", help="With --run: a pointer's array, as x=f32[1024].", show_default=False
        ),
    ] = None,
    shared: Annotated[int, typer.Option(min=0, help="With --run: bytes of dynamic shared memory.")] = 0,
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="Write one HTML file, which needs no network.")
    ] = None,
) -> None:
    """Find bugs and waste in PTX without running it; `trueno ptx FILE` is the same.

    Exits with 0 if there is nothing of severity high or critical, with 1 if there is, with 2 if a file, or a statement
    in it, cannot be read.
    """
    if json and as_sarif:
        raise ParameterError("ptx: --json and --sarif both print to the output; choose one")
    chosen = _rules(rule, ignore, bugs, strict)
    values = _values(param, array)
    if (array or shared) and not run:
        raise ParameterError("ptx: --array and --shared go with --run")
    launch = _launch(block, grid, {n: v for n, v in values.items() if isinstance(v, int)}, assume)
    known = _known(baseline) if baseline is not None else None
    if arch and machine(arch) is None:
        raise ParameterError(f"ptx: --arch {arch!r} is not known; known: {', '.join(MACHINES)}")
    analyses: list[Analysis] = []
    errors: list[str] = []
    for name in files:
        try:
            analyses.append(_analysis(name, launch, chosen, arch, real))
        except ParameterError as error:
            errors.append(str(error))
    if not analyses:
        raise ParameterError(errors[0])
    reports = [one.record for one in analyses]
    if known is not None:
        for one in reports:
            one["known"] = remove(one, known)
    _named([*values, *launch.multiples], reports)
    runs = _run(analyses, values, shared) if run else []
    total = summary(reports)
    if html is not None:
        _write(html, page.html(analyses))
    if json:
        _say(escape.dumps({"files": reports, "summary": total}, indent=2))
    elif as_sarif:
        _say(escape.dumps(sarif(reports), indent=2))
    elif html is not None:
        _say(f"{html}: {last_line(total)}")
    else:
        for one in reports:
            _say("\n".join(lines(one, verbose)) + "\n")
        _say(last_line(total))
    if errors:
        raise ParameterError("; ".join([errors[0], *(error.removeprefix("ptx: ") for error in errors[1:])]))
    if total["unread"] or any("failed" in one for one in runs):
        raise typer.Exit(2)
    if not all(map(clean, runs)):
        raise typer.Exit(1)
    if total["critical"] or total["high"] or (strict and (total["findings"] or total["unknown"])):
        raise typer.Exit(1)


def _say(text: str) -> None:
    """Print lines at once; of text from outside only what is visible."""
    print(escape.escaped(text, keep=escape.LINES), flush=True)


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, "utf-8")
    except OSError as error:
        raise ParameterError(f"ptx: {path} cannot be written: {error.strerror or error}") from None


def _analysis(name: str, launch: Launch, rules: list[str], arch: str, real: bool) -> Analysis:
    try:
        raw = sys.stdin.buffer.read() if name == STDIN else Path(name).read_bytes()
    except OSError as error:
        raise ParameterError(f"ptx: {name} cannot be read: {error.strerror or error}") from None
    try:
        return analysis("<stdin>" if name == STDIN else name, _decoded(raw), launch, rules, arch, real)
    except PtxError as error:
        raise ParameterError(f"ptx: {name}: {error}") from None


def _decoded(raw: bytes) -> str:
    """A file's text.  PTX is ASCII; what a shell or an editor of Windows put around it is taken away."""
    utf16 = raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    return raw.decode("utf-16" if utf16 else "utf-8-sig", "replace")


def _known(path: Path) -> Known:
    try:
        return baseline_of(path.read_text("utf-8"))
    except OSError as error:
        raise ParameterError(f"ptx: {path} cannot be read: {error.strerror or error}") from None
    except ValueError as error:
        raise ParameterError(f"ptx: --baseline {path}: {error}") from None


def _values(params: Many, arrays: Many) -> dict[str, Any]:
    """Numbers and arrays by the parameter's name or place."""
    values: dict[str, Any] = {}
    for text in params or ():
        name, equals, value = (part.strip() for part in text.partition("="))
        try:
            values[name] = int(value) if value.lstrip("-").isdecimal() else float(value)
        except ValueError:
            equals = ""
        if not equals:
            raise ParameterError(f"ptx: --param {text!r} must be NAME=VALUE with a number")
    for text in arrays or ():
        name, equals, value = (part.strip() for part in text.partition("="))
        try:
            values[name] = array_of(value)
        except ValueError as error:
            raise ParameterError(f"ptx: --array {text!r}: {error}") from None
    return values


def _run(analyses: list[Analysis], values: dict[str, Any], shared: int) -> list[dict[str, Any]]:
    """Run the entries of which every parameter has a value."""
    runs, reasons = [], []
    for one in analyses:
        records = {record["name"]: record for record in one.record["entries"]}
        for entry in one.entries:
            lacking = missing(entry, values)
            if entry.name not in records:
                continue
            if lacking or entry.launch.block is None:
                what = f"{lacking[0]} has neither --param nor --array" if lacking else "--block is missing"
                reasons.append(f"{entry.name}: {what}")
                records[entry.name]["notes"].append(f"not run: {what}")
                continue
            records[entry.name]["run"] = execute(entry, values, shared)
            runs.append(records[entry.name]["run"])
    if not runs:
        raise ParameterError(f"ptx: --run: {reasons[0] if reasons else 'there is no entry'}")
    return runs


def _named(names: list[str], reports: list[dict[str, Any]]) -> None:
    """Refuse facts about parameters, by name or place, that no entry has."""
    entries = [entry for one in reports for entry in one["entries"]]
    known = {name for entry in entries for name in entry["parameters"]}
    known |= {name.removeprefix(OURS) for name in known}
    known |= {str(k) for entry in entries for k in range(len(entry["parameters"]))}
    for name in names:
        if name not in known and entries:
            listed = [f"{entry['name']} has {_span(entry['parameters'])}" for entry in entries[:3]]
            more = [f"and {len(entries) - 3} more entries"] if len(entries) > 3 else []
            said = f"no entry has a parameter {name!r}; {', '.join([*listed, *more])}"
            raise ParameterError(f"ptx: {said}; or name it by its place, from 0")


def _span(names: list[str]) -> str:
    if len(names) > 3:
        return f"{names[0]} … {names[-1]}"
    return ", ".join(names) or "none"


def _rules(only: Many, ignored: Many, bugs: bool, strict: bool) -> list[str]:
    for name in (*(only or ()), *(ignored or ())):
        if name not in RULES:
            raise ParameterError(f"ptx: no rule is called {name!r}{suggestion(name, RULES)}")
    chosen = [name for name in RULES if (name in only if only else strict or not RULES[name].strict)]
    return [name for name in chosen if name not in (ignored or ()) and not (bugs and RULES[name].performance)]


def _launch(block: str, grid: str, values: dict[str, int], facts: Many) -> Launch:
    multiples: dict[str, int] = {}
    try:
        for text in facts or ():
            name, divisor = assumed(text)
            multiples[name] = divisor
        sizes = size(block, "--block", BLOCK) if block else None
        if sizes and sizes[0] * sizes[1] * sizes[2] > 1024:
            raise ValueError(f"--block {block!r} has more than 1024 threads")
        return Launch(sizes, size(grid, "--grid", GRID) if grid else None, values, multiples)
    except ValueError as error:
        raise ParameterError(f"ptx: {error}") from None
