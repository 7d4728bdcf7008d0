"""`trueno lz4`: compress a file, decompress one, and show what a file of frames holds."""

import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from typing import Annotated, Any, BinaryIO

import numpy as np
import typer

from trueno.cli.report import errors, progress, screen, table, write_json
from trueno.errors import FileError, ParameterError
from trueno.lz4.header import Array, Frame, frames
from trueno.lz4.reading import contents
from trueno.lz4.writing import parts
from trueno.replacing import permit, replacing
from trueno.text import duration, number

app = typer.Typer(help="Compress files to LZ4 frames, and back.", no_args_is_help=True, rich_markup_mode=None)
Source = Annotated[str, typer.Argument(metavar="IN", help="The file to read; - is stdin.", show_default=False)]
Target = Annotated[str, typer.Argument(metavar="OUT", help="The file to write; - is stdout.", show_default=False)]
Force = Annotated[bool, typer.Option("--force", help="Replace OUT if it exists.")]
Backend = Annotated[str | None, typer.Option(help="The backend that computes.", show_default="the best one")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")]


@app.command("compress")
def compress(
    source: Source,
    target: Target,
    page: Annotated[int, typer.Option(help="Bytes of a page, 1 to 65536; each page can be read alone.")] = 4096,
    checksum: Annotated[bool, typer.Option("--checksum", help="Add checksums of pages and content.")] = False,
    level: Annotated[int, typer.Option(help="1 is fast, 2 smaller.")] = 1,
    backend: Backend = None,
    force: Force = False,
    quiet: Quiet = False,
) -> None:
    """Compress IN to one LZ4 frame, which any program reads that reads LZ4.  OUT is written atomically."""
    start, data = perf_counter(), _read(source)
    read = [0]
    pieces = parts(data, page, checksum, level, backend, read)
    after = _write(source, target, force, pieces, read, len(data))
    _report(quiet, f"{_bytes(len(data))} became {_share(after, len(data))}", target, start)


@app.command("decompress")
def decompress(
    source: Source,
    target: Target,
    limit: Annotated[int | None, typer.Option(help="The most bytes to write.", show_default=False)] = None,
    backend: Backend = None,
    force: Force = False,
    quiet: Quiet = False,
) -> None:
    """Decompress the LZ4 frames of IN, and compare their checksums.  OUT is written atomically."""
    start, data = perf_counter(), _read(source)
    read = [0]
    after = _write(source, target, force, contents(data, limit, backend, read), read, len(data))
    _report(quiet, f"{_bytes(len(data))} became {number(after)}", target, start)


@app.command("info")
def info(source: Source, json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False) -> None:
    """Show the frames of IN, without decompressing them; checksums of headers and pages are compared."""
    data = _read(source)
    facts = [_facts(frame) for frame in frames(data.data)]
    if json:
        write_json({"path": source, "bytes": len(data), "frames": facts})
        return
    out = screen()
    rows = table(
        "frame", "bytes", "pages", "raw", "content", "page up to", "blocks", "checksums of", right=("bytes", "pages")
    )
    for i, fact in enumerate(facts):
        content = "not stated" if fact["content"] is None else number(fact["content"])
        blocks = "linked" if fact["linked"] else "independent"
        summed = [what for what, name in (("pages", "page_checksums"), ("content", "checksum")) if fact[name]]
        counts = [number(fact[name]) for name in ("bytes", "pages", "raw")]
        rows.add_row(number(i), *counts, content, number(fact["most"]), blocks, " and ".join(summed) or "none")
    out.print(rows)
    count = len(facts)
    out.print(f"{_bytes(len(data))}: {number(count)} frame{'' if count == 1 else 's'}", soft_wrap=True)


def _facts(frame: Frame) -> dict[str, Any]:
    return {
        "bytes": frame.end - frame.start,
        "pages": len(frame.sizes),
        "raw": int(np.count_nonzero(frame.sizes < 0)),
        "content": frame.content,
        "most": frame.most,
        "linked": frame.linked,
        "checksum": frame.summed is not None,
        "page_checksums": frame.checked,
    }


def _read(source: str) -> Array:
    """The bytes of a file, mapped, or of stdin."""
    try:
        if source == "-":
            if sys.stdin is None:
                raise FileError("lz4: stdin is closed; give the name of a file, or use a pipe")
            return np.frombuffer(sys.stdin.buffer.read(), np.uint8)
        path = Path(source)
        if not path.is_file() or not path.stat().st_size:
            return np.frombuffer(path.read_bytes(), np.uint8)
        return np.asarray(np.memmap(path, np.uint8, "r"))
    except OSError as error:
        raise FileError(f"lz4: {source} cannot be read: {error.strerror or error}") from None


def _write(source: str, target: str, force: bool, pieces: Iterable[bytes], read: list[int], total: int) -> int:
    """Write pieces to a file, which is replaced when all of it is there, or to stdout; the bytes that were written.

    read: how many bytes of `total` have been read so far, which the bar shows.
    """
    if target == "-":
        if sys.__stdout__ is None:  # sys.stdout takes reports to nowhere then
            raise FileError("lz4: stdout is closed; give the name of a file, or use a pipe")
        if sys.stdout.isatty():
            raise ParameterError("lz4: stdout is a terminal, which does not show bytes; write a file, or use a pipe")
        return sum(sys.stdout.buffer.write(piece) for piece in pieces)
    path = Path(target)
    if source != "-" and path.exists() and Path(source).exists() and path.samefile(source):
        raise ParameterError(f"lz4: {target} is the input file; write another")
    if path.is_file() and not force:
        raise ParameterError(f"lz4: {target} exists already; replace it with --force, or write another file")
    if path.is_dir():
        raise ParameterError(f"lz4: {target} is a folder; give the name of a file")
    done = 0
    try:
        with _opened(path) as file, progress() as bar:
            task = bar.add_task("lz4", total=total or None)
            for piece in pieces:
                done += file.write(piece)
                bar.update(task, completed=read[0])
    except OSError as error:
        raise FileError(f"lz4: {target} cannot be written: {error.strerror or error}") from None
    return done


@contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    """A file beside `path` that replaces it at the end; a device or a pipe itself."""
    if path.exists() and not path.is_file():
        with open(path, "wb") as file:
            yield file
        return
    target = Path(os.path.realpath(path))  # a link stays one
    with replacing(target) as beside:
        with open(beside, "wb") as file:
            yield file
        permit(beside, target)


def _bytes(count: int) -> str:
    return f"{number(count)} byte{'' if count == 1 else 's'}"


def _share(after: int, before: int) -> str:
    return f"{number(after)} ({after / before:.1%})" if before else number(after)


def _report(quiet: bool, what: str, target: str, start: float) -> None:
    """What happened, on stderr if stdout has the bytes."""
    if not quiet:
        out = errors() if target == "-" else screen()
        out.print(
            f"{what}; {duration(perf_counter() - start)}" + ("" if target == "-" else f": {target}"), soft_wrap=True
        )
