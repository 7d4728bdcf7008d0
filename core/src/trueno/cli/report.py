"""The look of reports: consoles, tables, numbers for people, JSON for machines.

A terminal gets colours and its own width.  A pipe gets neither: no markup, and lines wide enough that
none is broken for a reader such as grep.  Progress and errors go to stderr, so that stdout has only the report.
"""

import math
import os
import sys
from collections.abc import Iterable
from typing import Annotated, Any

import typer
from rich import box
from rich.console import Console, ConsoleOptions, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from trueno.errors import ParameterError, suggestion
from trueno.escape import dumps, escaped
from trueno.ops import ALIASES, TABLE
from trueno.ops.op import Op
from trueno.waiting import silence

PIPE_WIDTH = 200
SET = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="A parameter; may be repeated.", show_default=False),
]
"""An option: values for the op's parameters, which `find_parameters` reads."""


class Screen(Console):
    """Prints only visible characters, besides its own styles: a text is one line, without controls."""

    def render_str(self, text: str, **options: Any) -> Text:
        return super().render_str(escaped(text), **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):  # of what is not text, such as a `Text` with styles
            yield segment if segment.control else segment._replace(text=escaped(segment.text, keep="\n"))

    def lines(self, text: str) -> None:
        """Print a text of several lines unchanged; text from outside may be inside its lines, but not add lines."""
        self.print(*text.split("\n"), sep="\n", soft_wrap=True)

    def on_broken_pipe(self) -> None:
        raise  # the error that rich has caught; rich would end with 1, which has another meaning here


def _console(stderr: bool) -> Screen:
    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() or os.environ.get("COLUMNS") else PIPE_WIDTH
    return Screen(stderr=stderr, width=width, highlight=False, markup=False, emoji=False)


def given_width(console: Console) -> int | None:
    """The width that reports have to fit into; None in a pipe, where no line is wrapped."""
    return console.width if console.is_terminal or os.environ.get("COLUMNS") else None


def screen() -> Screen:
    """The console of the report.  `[n]` in a signature is text here, not markup."""
    return _console(stderr=False)


def errors() -> Screen:
    """The console of everything else."""
    return _console(stderr=True)


def complain(sentence: str) -> None:
    """Print an error on stderr; further lines, of a report or of a quoted text, are indented."""
    errors().print(*f"trueno: {sentence}".split("\n"), sep="\n  ", soft_wrap=True)


def table(*columns: str, right: tuple[str, ...] = ()) -> Table:
    """An empty table; columns named in `right` hold numbers."""
    result = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1))
    for name in columns:
        number = name in right
        result.add_column(name, justify="right" if number else "left", no_wrap=number, overflow="fold")
    return result


def progress() -> Progress:
    """A bar that vanishes when it is done, and that does not appear unless stderr is a terminal."""
    console = errors()
    if console.is_terminal:
        silence()
    return Progress(
        TextColumn("{task.description:<24}", markup=False),
        BarColumn(bar_width=28),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )


def write_json(report: Any, indent: int | None = 2) -> None:
    """The report as JSON, alone on stdout; values that JSON lacks (NaN, Inf) become null.

    indent: None for one line.
    """
    print(dumps(_plain(report), indent=indent))


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, (bool, int, str)) else str(value)


def times(ratio: float | None) -> str:
    """`2.4×`, and `0.04×` for what is very slow."""
    if ratio is None:
        return "–"
    return f"{ratio:.{2 if ratio < 0.095 else 1 if ratio < 10 else 0}f}×"


def geometric_mean(values: list[float]) -> float | None:
    """The geometric mean; None for no values."""
    return math.exp(math.fsum(map(math.log, values)) / len(values)) if values else None


def words(text: str | None) -> list[str]:
    """The names in `a,b,c`."""
    return [word.strip() for word in (text or "").split(",") if word.strip()]


def find_op(name: str) -> Op:
    """The op with this name or alias; ParameterError with the nearest name."""
    key = name.strip().lower()
    key = ALIASES.get(key, key)
    if key not in TABLE:
        raise ParameterError(
            f'no op is called "{name}"{suggestion(name, [*TABLE, *ALIASES]) or ";"} `trueno ops` lists them'
        )
    return TABLE[key]


def find_ops(text: str | None) -> list[Op]:
    """The ops of `a,b,c`, each once; every op for nothing."""
    if not text:
        return list(TABLE.values())
    names = list(dict.fromkeys(find_op(name).name for name in words(text)))
    if not names:
        raise ParameterError(f"--ops is {text!r}; give names separated by commas: add,softmax")
    return [TABLE[name] for name in names]


def find_dtypes(text: str, known: tuple[str, ...] = ("float32", "float64")) -> list[str]:
    """The float types of `float32,float64`."""
    dtypes = list(dict.fromkeys(words(text.lower())))
    requirement = f"it must be {', '.join(known[:-1])} or {known[-1]}"
    for name in dtypes:
        if name not in known:
            near = "" if name in ("float16", "bfloat16") else suggestion(name, known)  # these are no slips
            raise ParameterError(f"--dtype has {name!r}; {requirement}{near}")
    if not dtypes:
        raise ParameterError(f"--dtype is {text!r}; {requirement}")
    return dtypes


def find_sizes(text: str) -> list[int]:
    """The sizes of `1000,100_000`: integers, 1 or more."""
    sizes = []
    for word in words(text):
        plain = word.replace("_", "")
        if not plain.isdecimal() or len(plain) > 10 or not 1 <= int(plain) <= 1_000_000_000:
            raise ParameterError(f"--sizes has {word!r}; each must be an integer from 1 to 1_000_000_000")
        sizes.append(int(plain))
    if not sizes:
        raise ParameterError(f"--sizes is {text!r}; give integers separated by commas: 1000,100000")
    return sizes


def find_parameters(op: Op, given: list[str] | None, also: tuple[str, ...] = ()) -> dict[str, Any]:
    """The values of `--set NAME=VALUE`: parameters of the op, or of `also`; ParameterError for other names.

    The caller checks whether the op accepts the values.
    """
    kinds = {p.name: p.type for p in op.params}
    known = [*kinds, *also]
    values: dict[str, Any] = {}
    for text in given or ():
        name, equals, value = (part.strip() for part in text.partition("="))
        if not equals:
            raise ParameterError(f"{op.name}: --set {text!r} must be NAME=VALUE")
        if name not in known:
            there = f"its parameters are {', '.join(known)}" if known else "it has no parameters"
            raise ParameterError(f"{op.name}: --set has {name!r}{suggestion(name, known) or f'; {there}'}")
        if name in values:
            raise ParameterError(f"{op.name}: --set gives {name} twice; give it once")
        values[name] = value if kinds.get(name) is str else _value(value)
    return values


def _value(text: str) -> Any:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return {"true": True, "false": False}.get(text.lower(), text)
