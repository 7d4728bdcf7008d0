"""The Python files of some paths, parsed; what cannot be read is a note."""

import ast
import os
import stat
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from trueno.errors import ParameterError

SKIPPED = frozenset({"__pycache__", "node_modules", "site-packages", "build", "dist"})
"""Folders of which the files are not the code base's own; hidden ones are skipped, too."""
LARGEST = 8 << 20
"""Bytes of a file; a larger one is generated data."""


class Note(NamedTuple):
    """A file that is left out, and why."""

    path: str
    reason: str


class SourceFile(NamedTuple):
    """path: as given, with /.  module: its dotted name.  package: whether it is an `__init__.py`."""

    path: str
    module: str
    package: bool
    tree: ast.Module


def read(paths: Sequence[Path]) -> tuple[list[SourceFile], list[Note]]:
    """All files below some paths; ParameterError for a path that does not exist, or if there is no Python file."""
    files: dict[Path, SourceFile] = {}
    notes: list[Note] = []
    for path in paths:
        if not os.path.lexists(path):
            raise ParameterError(f"ptx-flow: there is no file or folder {str(path)!r}; name one that exists")
        for file, root in _found(path, notes):
            place = file.absolute()
            if place not in files and (source := _parsed(file, root, notes)) is not None:
                files[place] = source
    if not files:
        left = f"; {notes[0].path}: {notes[0].reason}" if notes else ""
        names = ", ".join(repr(str(path)) for path in paths)
        raise ParameterError(f"ptx-flow: {names} has no Python file that can be read{left}")
    return list(files.values()), notes


def _found(path: Path, notes: list[Note]) -> Iterator[tuple[Path, Path]]:
    """Files, each with the folder that its name is relative to, in a fixed order."""
    try:
        folder = path.is_dir()
    except OSError as error:
        notes.append(Note(path.as_posix(), _reason(error)))
        return
    if not folder:
        yield path, path.parent
        return

    def left_out(error: OSError) -> None:
        notes.append(Note(str(error.filename), _reason(error)))

    for name, folders, files in os.walk(path, onerror=left_out):
        here = Path(name)
        links = [f for f in folders if (here / f).is_symlink()]
        notes += [Note((here / f).as_posix(), "a link to a folder is not followed") for f in sorted(links)]
        folders[:] = sorted(f for f in folders if f not in SKIPPED and not f.startswith(".") and f not in links)
        yield from ((here / f, path) for f in sorted(files) if f.endswith(".py"))


def _parsed(file: Path, root: Path, notes: list[Note]) -> SourceFile | None:
    reason = ""
    try:
        status = file.stat()
        if not stat.S_ISREG(status.st_mode):
            reason = "it is not a file"
        elif status.st_size > LARGEST:
            reason = f"it has more than {LARGEST >> 20} MiB"
        else:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                tree = ast.parse(file.read_bytes(), str(file))
            module, package = _module(file, root)
            return SourceFile(file.as_posix(), module, package, tree)
    except SyntaxError as error:
        reason = f"it does not parse: {error.msg}" + (f", line {error.lineno}" if error.lineno else "")
    except (ValueError, RecursionError, MemoryError) as error:
        reason = f"it does not parse: {error or type(error).__name__}"
    except OSError as error:
        reason = _reason(error)
    notes.append(Note(file.as_posix(), reason))
    return None


def _reason(error: OSError) -> str:
    return f"it cannot be read: {error.strerror or error}"


def _module(file: Path, root: Path) -> tuple[str, bool]:
    """The dotted name by which a file is imported: its packages are the folders above it with an `__init__.py`.

    A file in no package is named by its place below the path that was given.
    """
    package = file.name == "__init__.py"
    parts = [] if package else [file.stem]
    folder = file.absolute().parent
    while (folder / "__init__.py").is_file() and folder.name.isidentifier():
        parts.insert(0, folder.name)
        folder = folder.parent
    if len(parts) == (0 if package else 1):
        below = file.parent.relative_to(root).parts
        parts = [*below, *parts]
    return ".".join(parts) or file.absolute().parent.name or "__init__", package
