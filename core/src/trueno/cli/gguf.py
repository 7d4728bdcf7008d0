"""`trueno gguf`: what a GGUF file holds, quantizing one, and how far two of them are apart."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter
from typing import Annotated, Any

import typer

from trueno.cli.report import progress, screen, table, write_json
from trueno.errors import ParameterError
from trueno.escape import escaped
from trueno.gguf import conversion, file
from trueno.gguf.error import Compared, Sums, compare, pairs
from trueno.gguf.recipe import RECIPES, recipe
from trueno.text import duration, number

LONG = 60
"""The most characters of a value that are shown; --json has all of it."""
TOLD = 8
"""The most items of a list that are shown."""

app = typer.Typer(help="Inspect GGUF files, quantize and compare them.", no_args_is_help=True, rich_markup_mode=None)
Found = Annotated[Path, typer.Argument(help="A GGUF file.", show_default=False)]


@app.command("info")
def info(
    path: Found,
    tensors: Annotated[bool, typer.Option("--tensors/--no-tensors", help="List every tensor.")] = True,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show the keys and the tensors of a GGUF file."""
    with file.open(path) as model:
        size = path.stat().st_size
        kinds: Counter[str] = Counter()
        elements: Counter[str] = Counter()
        for t in model.tensors.values():
            kinds[t.type] += t.nbytes
            elements[t.type] += _elements(t)
        if json:
            write_json(
                {
                    "path": str(path),
                    "bytes": size,
                    "metadata": {key: _plain(value) for key, value in model.metadata.items()},
                    "tensors": [
                        {"name": t.name, "type": t.type, "shape": list(t.shape), "bytes": t.nbytes}
                        for t in model.tensors.values()
                    ],
                }
            )
            return
        out = screen()
        keys = table("key", "value")
        for key in model.metadata:
            keys.add_row(key, _short(model.metadata[key]))
        out.print(keys)
        if tensors:
            rows = table("tensor", "type", "shape", "bytes", right=("bytes",))
            for t in model.tensors.values():
                rows.add_row(t.name, t.type, "x".join(map(str, t.shape)), number(t.nbytes))
            out.print(rows)
        total, bits = sum(elements.values()), 8 * sum(kinds.values())
        parts = ", ".join(f"{kind} {number(n)}" for kind, n in kinds.most_common())
        mean = f", {bits / total:.2f} bits an element" if total else ""
        out.print(
            f"{number(size)} bytes: {len(model.tensors)} tensors of {number(total)} elements{mean} (bytes: {parts})",
            soft_wrap=True,
        )


@app.command("quantize")
def quantize(
    source: Annotated[Path, typer.Argument(metavar="IN", help="The GGUF file to read.", show_default=False)],
    target: Annotated[Path, typer.Argument(metavar="OUT", help="The GGUF file to write.", show_default=False)],
    type: Annotated[str, typer.Option(help=f"The mixture: {', '.join(RECIPES)}.")] = "q4_k_m",  # noqa: A002
    imatrix: Annotated[Path | None, typer.Option(help="An importance matrix of llama.cpp (GGUF).")] = None,
    allow_requantize: Annotated[bool, typer.Option(help="Also quantize tensors that are quantized already.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be done, and write nothing.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace OUT if it exists.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="List every tensor.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Quantize a model with one of llama.cpp's mixtures, to the same bytes that llama-quantize writes.

    OUT is written atomically.
    """
    start = perf_counter()
    recipe(type)  # a misspelt mixture is an error before anything about files is
    conversion.apart(source, target)
    if target.is_file() and not force and not dry_run:
        raise ParameterError(f"gguf: {target} exists already; replace it with --force, or write another file")
    weights = conversion.importance(imatrix) if imatrix else None
    with file.open(source) as model:
        rows = {name: _elements(t) // max(t.shape[-1], 1) for name, t in model.tensors.items()}
        steps = conversion.plan(model, type, weighted=weights is not None, requantize=allow_requantize)
    if not dry_run:
        with progress() as bar:
            task = bar.add_task("quantizing", total=sum(rows.values()))
            done: Counter[str] = Counter()

            def each(step: conversion.Step, upto: int) -> None:
                done[step.name] = upto
                bar.update(task, completed=sum(done.values()), description=step.name[-24:])

            conversion.convert(source, target, type, imatrix=weights, requantize=allow_requantize, each=each)
    before, after = sum(s.before for s in steps), sum(s.after for s in steps)
    if json:
        report: dict[str, Any] = {
            "source": str(source),
            "target": str(target),
            "type": type.lower(),
            "written": not dry_run,
        }
        write_json(report | {"seconds": perf_counter() - start, "tensors": [_step(s) for s in steps]})
        return
    out = screen()
    if verbose:
        rows_ = table("tensor", "columns", "from", "to", right=("columns",))
        for s in steps:
            instead = f" instead of {s.ruled_out}, whose blocks its columns do not fill" if s.ruled_out else ""
            rows_.add_row(s.name, number(s.columns), s.was, _now(s.was, s.type) + instead)
    else:
        rows_ = table("tensors", "from", "to", right=("tensors",))
        for (was, now), count in Counter((s.was, s.type) for s in steps).most_common():
            rows_.add_row(number(count), was, _now(was, now))
    out.print(rows_)
    for line in _remarks(steps, type.lower(), verbose):
        out.print(line, soft_wrap=True)
    verb = "would become" if dry_run else "became"
    out.print(
        f"{number(before)} bytes of tensors {verb} {number(after)} ({after / before if before else 1:.0%}); "
        f"{duration(perf_counter() - start)}" + ("" if dry_run else f": {target}"),
        soft_wrap=True,
    )


@app.command("error")
def error(
    original: Annotated[Path, typer.Argument(metavar="A", help="The original GGUF file.", show_default=False)],
    changed: Annotated[Path, typer.Argument(metavar="B", help="The quantized one.", show_default=False)],
    worst: Annotated[bool, typer.Option("--worst", help="Begin with the largest NMSE.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show how far each tensor of B is from that of A: the error of a quantization.

    RMSE is the root of the mean squared error, NMSE the squared error as a share of A's squares, max the largest
    error, cosine that of the angle between both.
    """
    whole = Sums()
    rows: list[Compared] = []
    with file.open(original) as a, file.open(changed) as b, progress() as bar:
        both = pairs(a, b)
        task = bar.add_task("comparing", total=sum(_elements(x) for x, _ in both))
        for x, y in both:
            bar.update(task, description=x.name[-24:])
            rows.append(compare(x, y, lambda count: bar.advance(task, count)))
            whole.join(rows[-1].sums)
    if worst:
        rows.sort(key=lambda row: -row.sums.nmse if row.sums.nmse == row.sums.nmse else float("-inf"))
    if json:
        listed = [
            {"name": r.name, "shape": list(r.shape), "from": r.before, "to": r.after, "bytes_before": r.bytes_before,
             "bytes_after": r.bytes_after, **_measures(r.sums)}
            for r in rows
        ]  # fmt: skip
        write_json({"a": str(original), "b": str(changed), "tensors": listed, "all": _measures(whole)})
        return
    out = screen()
    numbers = ("RMSE", "NMSE", "max", "cosine")
    shown = table("tensor", "types", *numbers, right=numbers)
    for r in rows:
        types = r.before if r.before == r.after else f"{r.before} → {r.after}"
        shown.add_row(r.name, types, *_digits(r.sums))
    out.print(shown)
    before, after = sum(r.bytes_before for r in rows), sum(r.bytes_after for r in rows)
    rmse, nmse, most, cosine = _digits(whole)
    out.print(
        f"{len(rows)} tensors of {number(whole.count)} elements, {number(before)} and {number(after)} bytes: "
        f"RMSE {rmse}, NMSE {nmse}, max {most}, cosine {cosine}",
        soft_wrap=True,
    )


def _measures(sums: Sums) -> dict[str, float]:
    return {"rmse": sums.rmse, "nmse": sums.nmse, "max": sums.max, "cosine": sums.cosine}


def _digits(sums: Sums) -> tuple[str, str, str, str]:
    return f"{sums.rmse:.3g}", f"{sums.nmse:.3g}", f"{sums.max:.3g}", f"{sums.cosine:.6f}"


def _now(was: str, now: str) -> str:
    return now if now != was else "as it is"


def _remarks(steps: list[conversion.Step], kind: str, listed: bool) -> Iterator[str]:
    """Facts that may surprise the reader: nothing to do, and formats that the mixture does not name."""
    if all(s.type == s.was for s in steps):
        yield f"Nothing to quantize: every tensor is in {kind}'s format already, and stays unchanged."
    unfit = Counter((s.ruled_out, s.type) for s in steps if s.ruled_out and s.type != s.was)
    if unfit:
        parts = ", ".join(f"{number(n)} in {now} instead of {was}" for (was, now), n in unfit.most_common())
        total, which = unfit.total(), "" if listed else "; --verbose says which"
        verb = "tensor has" if total == 1 else "tensors have"
        yield f"{number(total)} {verb} rows that are not a whole number of blocks: {parts}{which}."


def _step(s: conversion.Step) -> dict[str, Any]:
    return {"name": s.name, "from": s.was, "to": s.type, "bytes_before": s.before, "bytes_after": s.after,
            "columns": s.columns, "instead_of": s.ruled_out or None}  # fmt: skip


def _elements(t: file.Tensor) -> int:
    count = 1
    for n in t.shape:
        count *= n
    return count


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, (list, tuple)) else value


def _short(value: Any) -> str:
    """A value in one line."""
    if isinstance(value, (list, tuple)):
        some = ", ".join(_cut(repr(v)) for v in value[:TOLD])
        return f"[{some}{', …' if len(value) > TOLD else ''}] ({number(len(value))} items)"
    return _cut(escaped(str(value)))


def _cut(text: str) -> str:
    return text if len(text) <= LONG else f"{text[:LONG]}… ({number(len(text))} characters)"
