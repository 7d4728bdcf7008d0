"""Where the Python function that writes a kernel stands."""

import ast
import os
from functools import cache
from pathlib import Path
from typing import NamedTuple

from trueno_cuda.ptx import Kernel


class Origin(NamedTuple):
    """path: of the file, as short as it can be.  line, last: of the function's `def`, and of its end.  function: its
    name, after those of the functions and classes around it.
    """

    path: str
    line: int
    last: int
    function: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}"


def origin(kernel: Kernel) -> Origin | None:
    """The function that wrote a kernel; None if its file is gone, or has changed since it was imported."""
    code = kernel.emitter
    if code is None:
        return None
    for line, first, last, name in _functions(code.co_filename):
        if first == code.co_firstlineno and name == code.co_name:
            return Origin(short(code.co_filename), line, last, code.co_qualname.replace(".<locals>", ""))
    return None


def short(path: str) -> str:
    """A path below the current folder without that folder's."""
    try:
        return Path(path).relative_to(Path.cwd()).as_posix()
    except ValueError:
        return path


@cache
def _functions(path: str) -> tuple[tuple[int, int, int, str], ...]:
    """Of each function in a file: the line of its `def`, its first line with decorators, its last one, its name."""
    try:
        tree = ast.parse(Path(path).read_text("utf-8"))
    except (OSError, SyntaxError, ValueError):
        return ()
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
            found.append((node.lineno, first, node.end_lineno or node.lineno, node.name))
    return tuple(found)


def same_file(path: str, other: str) -> bool:
    """Whether two paths mean one file, or the second is an end of the first: `rope.py` of `kernels/rope.py`."""
    whole, part = (os.path.normpath(p).replace(os.sep, "/") for p in (path, other))
    return whole == part or whole.endswith(f"/{part.lstrip('/')}") or os.path.abspath(whole) == os.path.abspath(part)
