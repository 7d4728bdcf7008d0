"""`trueno ptx`: this plugin's kernels, printed and run without a GPU and without CuPy, and the analyzer."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from itertools import zip_longest
from math import isfinite
from shutil import get_terminal_size
from textwrap import wrap
from typing import Annotated, Any

import typer
from trueno.backend import columns, counted, escape
from trueno.errors import ParameterError, TruenoError

from trueno_cuda import counting, pairing
from trueno_cuda.analyzing import Files, analyze
from trueno_cuda.catalogue import registry
from trueno_cuda.catalogue.entry import CatalogueEntry, Constant, Result
from trueno_cuda.catalogue.registry import Run
from trueno_cuda.checking import static
from trueno_cuda.device.launching import opened
from trueno_cuda.flow import command as flow
from trueno_cuda.mapping import command as mapping
from trueno_cuda.ptx import TARGETS, Kernel
from trueno_cuda.ptx.emulate import Report

app = typer.Typer(
    help="Analyze PTX of any producer (trueno ptx FILE), print the CUDA backend's kernels, run them on an emulator.",
    no_args_is_help=True,
    rich_markup_mode=None,
    cls=Files,
)
app.command("analyze")(analyze)
Named = Annotated[str, typer.Argument(metavar="KERNEL", help="A name of `trueno ptx list`.", show_default=False)]
Arch = Annotated[
    str,
    typer.Option(help="The architecture, as sm_80; by default sm_90, if the kernel is for it.", show_default=False),
]
Given = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="A constant of the build, as dtype=float64; may be repeated. `trueno ptx list` has names and values.",
        show_default=False,
    ),
]
SCHEDULES = """Of a row program, `schedule` says how threads share the rows: `auto`, or

flat256x4: 256 threads, 4 times 16 bytes each, where nothing folds;

held32x8: 32 threads a row, 8 times 16 bytes each in registers;

swept1024x4: 1024 threads a row, which they read again in every pass;

long256x4c32: as swept, rows in chunks, 32 a multiprocessor;

held32x8y, flat256x4y: the batched form, with rows along the grid's y."""
PIPE = 120
"""Columns of a table whose output is not a terminal."""
LEAST = 24
"""Columns of a cell that is broken into lines."""


def add(to: typer.Typer) -> None:
    """The function of the entry point in the group `trueno.commands`."""
    to.add_typer(app, name="ptx")
    flow.add(to)
    mapping.add(to)


def _say(text: str) -> None:
    """Print lines at once; of text from outside, in PTX for example, only what is visible."""
    print(escape.escaped(text, keep=escape.LINES), flush=True)


@app.command("list")
def list_(
    count: Annotated[bool, typer.Option("--count", help="Count distinct texts, with their floors.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List the kernels, with their architectures and the constants of their builds."""
    if count:
        _count_texts(json)
        return
    entries = registry.catalogue().values()
    if json:
        _say(escape.dumps([_record(e) for e in entries], indent=2))
        return
    rows = [("kernel", "family", "for", "what it does", "constants")]
    rows += [(e.name, e.family, _arches(e), e.help, " ".join(map(_constant, e.constants))) for e in entries]
    for line in _table(rows, get_terminal_size((PIPE, 0)).columns):
        _say(line)


@app.command("emit", epilog=SCHEDULES)
def emit(name: Named, arch: Arch = "", given: Given = None) -> None:
    """Print a kernel's PTX, preceded by a comment with the command that gives the same."""
    entry = registry.find(name)
    arch, constants = arch or registry.usual(entry), _constants(entry, given)
    text = registry.module(registry.build(entry, arch, constants))
    _say(f"// {_command('emit', entry, arch, constants)}\n{text}".removesuffix("\n"))


@app.command("run", epilog=SCHEDULES)
def run(
    name: Named,
    arch: Arch = "",
    given: Given = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the sample's random numbers.")] = 0,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Run a kernel's sample launch on the emulator, compare with NumPy, and show what the launch did.

    Exits with 1 if a result is wrong or the emulator finds an error.
    """
    entry = registry.find(name)
    arch, constants = arch or registry.usual(entry), _constants(entry, given)
    sample_run = registry.run(entry, arch, constants, seed)
    if json:
        _say(escape.dumps(_outcome(entry, sample_run, constants, seed), indent=2))
    else:
        _say(f"{_command('run', entry, arch, constants)} --seed {seed}")
        for report in sample_run.reports:
            _say("\n".join(report.lines()))
        for result in sample_run.results:
            _say(f"  {result.name}: {_verdict(result)}")
    if not sample_run.good:
        raise typer.Exit(1)


@app.command("check")
def check(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[KERNEL]...", help="By default all.", show_default=False)
    ] = None,
    backend: Annotated[str, typer.Option(help="Where: cuda, or cuda_emulated.")] = "cuda",
    seed: Annotated[int, typer.Option(min=0, help="Seed of the samples' random numbers.")] = 0,
    analyze_only: Annotated[
        bool, typer.Option("--static", help="Run nothing: the analyzer's rules over all builds, without a GPU.")
    ] = False,
    arch: Annotated[
        str, typer.Option(help="With --static: for this architecture alone; by default for each.", show_default=False)
    ] = "",
) -> None:
    """Run kernels' samples on the GPU, each variant once, and compare with NumPy; also for compute-sanitizer.

    Exits with 1 if a result is wrong or a kernel fails; with --static, if a rule finds anything that the kernel's text
    does not excuse.
    """
    entries = [registry.find(name) for name in names] if names else list(registry.catalogue().values())
    if arch and not analyze_only:
        raise ParameterError("ptx: check --arch goes with --static; a run takes the architecture of its device")
    if arch and arch not in TARGETS:
        raise ParameterError(f"ptx: --arch {arch!r} is not known; known: {', '.join(TARGETS)}")
    if analyze_only:
        _static(entries, arch)
        return
    device = opened(backend, "trueno ptx check --backend cuda_emulated")
    good, rest, left = 0, [], []
    with device.unpooled():
        for entry in entries:
            if registry.newest(entry, device) is None:
                left.append(entry.name)
                continue
            failures = [failure for v in entry.variants if (failure := _checked(device, entry, v, seed))]
            good += not failures
            rest += [entry.name] * bool(failures)
            _say(f"{entry.name}: {'; '.join(failures) or f'right, {_count(len(entry.variants))}'}")
    _say(f"{good} kernels are right, {len(rest)} are not, {len(left)} are not for {device.arch}")
    for what, which in (("not right", rest), (f"not for {device.arch}", left)):
        if which:
            _say(f"{what}: {', '.join(which)}")
    if left and backend == "cuda_emulated":
        _say(f"TRUENO_CUDA_EMULATED_ARCH={registry.find(left[0]).arches[-1]} lets the emulator play such a GPU")
    if rest or not good:
        raise typer.Exit(1)


def _count_texts(json: bool) -> None:
    """`list --count`: a line for each distinct text, and how they were counted."""
    texts, summary = counting.distinct()
    if json:
        _say(escape.dumps({"kernels": [asdict(t) for t in texts], "summary": summary}, indent=2))
        return
    rows = [("kernel", "family", "what it does", "floor"), *((t.kernel, t.family, t.help, t.floor) for t in texts)]
    for line in _table(rows, get_terminal_size((PIPE, 0)).columns):
        _say(line)
    _say(counting.sentence(summary))


@app.command("parity")
def parity(
    backend: Annotated[str, typer.Option(help="Where both run: cuda, or cuda_emulated.")] = "cuda_emulated",
    seed: Annotated[int, typer.Option(min=0, help="Seed of the operands.")] = 0,
    text_only: Annotated[bool, typer.Option("--static", help="Run nothing: only compare the texts.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Compare each batched kernel with its form for one vector: the texts, and the results of running both.

    Exits with 1 if a text breaks its strategy, or a bit of a result differs.
    """
    result = pairing.examined(None if text_only else backend, seed)
    if json:
        _say(escape.dumps(result, indent=2))
    else:
        for line in _table(pairing.table(result), get_terminal_size((PIPE, 0)).columns):
            _say(line)
        _say("\n".join(pairing.closing(result)))
    if not result["summary"]["good"]:
        raise typer.Exit(1)


def _static(entries: Sequence[CatalogueEntry], arch: str) -> None:
    """`check --static`: a line for each kernel, and each finding below it."""
    bad, rest, builds, bodies, excused = [], [], 0, 0, 0
    for entry in entries:
        arches = [one for one in entry.arches if arch in ("", one)]
        result = static(entry, arches)
        if not result.builds and not result.failures:
            rest.append(entry.name)
            continue
        builds, bodies, excused = builds + result.builds, bodies + result.bodies, excused + result.excused
        bad += [entry.name] * bool(result.failures)
        words = counted(len(result.failures), "finding") if result.failures else "no findings"
        _say(f"{entry.name}: {words}, {counted(result.builds, 'build')} for {', '.join(arches)}")
        for failure in result.failures:
            _say(f"    {failure}")
    good = len(entries) - len(bad) - len(rest)
    _say(
        f"{good} kernels without findings, {len(bad)} with; {builds} builds, {bodies} of them differ; {excused} excused"
    )
    for what, which in (("with findings", bad), (f"not for {arch}", rest)):
        if which:
            _say(f"{what}: {', '.join(which)}")
    if bad or not good:
        raise typer.Exit(1)


def _checked(device: Any, entry: CatalogueEntry, constants: Mapping[str, Any], seed: int) -> str:
    """What is wrong with a variant; empty if nothing is."""
    of = ", ".join(f"{n}={v}" for n, v in constants.items())
    try:
        results = registry.on(device, entry, constants, seed)
    except (TruenoError, ValueError) as error:
        return f"{of or 'as usual'}: {error}"
    return "; ".join(f"{of or 'as usual'}: {r.name} {_verdict(r)}" for r in results if not r.good)


def _count(variants: int) -> str:
    return f"{variants} variant{'s' * (variants != 1)}"


def _constants(entry: CatalogueEntry, given: list[str] | None) -> dict[str, Any]:
    """The values of `--set NAME=VALUE`."""
    values: dict[str, Any] = {}
    for text in given or ():
        name, equals, value = (part.strip() for part in text.partition("="))
        if not equals:
            raise ParameterError(f"{entry.name}: --set {text!r} must be NAME=VALUE")
        if name in values:
            raise ParameterError(f"{entry.name}: --set gives {name} twice; give it once")
        values[name] = registry.read(entry, name, value)
    return values


def _command(verb: str, entry: CatalogueEntry, arch: str, constants: Mapping[str, Any]) -> str:
    """The command with every constant written out: what was chosen, and how to repeat it."""
    settings = " ".join(f"--set {name}={value}" for name, value in registry.chosen(entry, constants).items())
    return f"trueno ptx {verb} {entry.name} --arch {arch} {settings}".rstrip()


def _table(rows: Sequence[tuple[str, ...]], width: int) -> Iterable[str]:
    """Lines with the columns below each other, and a rule below the first; the last two are broken to fit."""
    *widths, penultimate, last = [max(map(len, column)) for column in zip(*rows, strict=True)]
    room = max(width - sum(widths) - 2 * (len(widths) + 1), 2 * LEAST)
    last = min(last, max(room // 2, room - penultimate))
    widths += [min(penultimate, room - last), last]
    broken = [[_broken(cell, width) for cell, width in zip(row, widths, strict=True)] for row in rows]
    lines = columns(line for cells in broken for line in zip_longest(*cells, fillvalue=""))
    heading = max(map(len, broken[0]))
    yield from (*lines[:heading], "─" * max(map(len, lines)), *lines[heading:])


def _broken(cell: str, width: int) -> list[str]:
    """Its lines, between words, and between the choices of what is too long."""
    lines = []
    for line in wrap(cell, width, break_long_words=False, break_on_hyphens=False):
        while len(line) > width and (at := line.rfind("|", 0, width) + 1):
            lines.append(line[:at])
            line = line[at:]
        lines.append(line)
    return lines


def _arches(entry: CatalogueEntry) -> str:
    """`from sm_80`, or their names if some newer ones are left out."""
    targets = list(TARGETS)
    rest = targets[targets.index(entry.arches[0]) :]
    return f"from {rest[0]}" if len(rest) > 1 and list(entry.arches) == rest else ", ".join(entry.arches)


def _constant(constant: Constant) -> str:
    """`R=64`, `itemsize=4|8` with the default first, `C=64|8…512` of many numbers, `N=` where there is no default."""
    first = "" if constant.default is None else str(constant.default)
    others = [str(c) for c in constant.choices if c != constant.default]
    if len(others) > 3 and not isinstance(constant.default, str):
        others = [f"{constant.choices[0]}…{constant.choices[-1]}"]
    return f"{constant.name}={'|'.join([first, *others])}"


def _verdict(result: Result) -> str:
    at = f", worst at {list(result.worst)}" if result.worst and not result.good else ""
    if result.exact:
        what = "to the bit" if result.good else f"{result.wrong:,} differ"
    else:
        what = f"error {result.error:.3g} of the allowed error"
        what += "" if result.good else f", {result.wrong:,} are beyond it"
    return f"{'right' if result.good else 'WRONG'}: {result.elements:,} elements, {what}{at}"


def _record(entry: CatalogueEntry) -> dict[str, Any]:
    return {
        "name": entry.name,
        "family": entry.family,
        "help": entry.help,
        "arches": entry.arches,
        "constants": [
            {"name": c.name, "default": c.default, "choices": c.choices, "help": c.help} for c in entry.constants
        ],
    }


def _outcome(entry: CatalogueEntry, sample_run: Run, constants: Mapping[str, Any], seed: int) -> dict[str, Any]:
    return {
        "good": sample_run.good,
        "seed": seed,
        "constants": registry.chosen(entry, constants),
        "launches": [_launch(k, r) for k, r in zip(sample_run.kernels, sample_run.reports, strict=True)],
        "results": [
            {
                "name": r.name,
                "good": r.good,
                "elements": r.elements,
                "exact": r.exact,
                "error": r.error if isfinite(r.error) else None,
                "wrong": r.wrong,
            }
            for r in sample_run.results
        ],
    }


def _launch(kernel: Kernel, report: Report) -> dict[str, Any]:
    return {
        "kernel": kernel.name,
        "arch": kernel.arch,
        "constants": kernel.constants,
        "grid": report.grid,
        "block": report.block,
        "completed": report.completed,
        "instructions": report.instructions,
        "bytes": report.bytes,
        "flops": report.flops,
        "accesses": [
            {"line": c.line, "text": c.text, "sectors": c.sectors_per_request, "efficiency": c.efficiency}
            for c in report.coalescing.values()
        ],
        "bank_conflicts": [{"line": b.line, "text": b.text, "ways": b.ways} for b in report.bank_conflicts.values()],
        "findings": [str(f) for f in report.findings],
    }
