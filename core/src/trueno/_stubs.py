"""The type stubs of `trueno`, `trueno.aio` and `trueno.batch`, from the table: `python -m trueno._stubs` rewrites them.

The ops are created at first use, so type checkers and editors cannot see them in `__init__.py`.  The
stubs list each op with its signature and the first line of its documentation.  They are committed, and a test
fails when one is out of date.
"""

import ast
import inspect
import json
from collections import defaultdict
from pathlib import Path

import trueno
from trueno.dispatch.parameters import BLOCKS, CACHE, parameters
from trueno.ops import ALIASES, FAMILIES, TABLE
from trueno.ops.op import Op

OPERANDS = ("ArrayLike", BLOCKS, CACHE)
PATH = Path(__file__).with_name("__init__.pyi")
AIO_PATH = Path(__file__).parent / "aio" / "__init__.pyi"
BATCH = Path(__file__).with_name("batch") / "__init__.pyi"

HEAD = '''\
"""Generated from the op table by `python -m trueno._stubs`; edit the table instead."""

from collections.abc import Callable
from typing import Any, Generic, Literal, ParamSpec, TypeVar

from numpy.typing import ArrayLike, NDArray

'''

AIO_HEAD = '''\
"""Generated from the op table by `python -m trueno._stubs`; edit the table instead."""

from typing import Any, Literal

from numpy.typing import ArrayLike, NDArray

from trueno.caches import Pages
from trueno.context import DeviceContext
from trueno.quant import QuantizedMatrix

__all__ = ["device", "numpy", "to"]

async def to(x: Any, name: str) -> Any:
    """`trueno.to` without blocking the event loop."""

async def numpy(x: Any) -> Any:
    """`trueno.numpy` without blocking the event loop."""

async def device(name: str) -> DeviceContext:
    """`trueno.device` without blocking the event loop while the backend is probed and started."""

'''

FUNCTION = '''\
_P = ParamSpec("_P")
_R = TypeVar("_R", covariant=True)

class _Function(Generic[_P, _R]):
    """The function of an op: call it, or ask it for the bare kernel."""

    op: Op
    def __call__(self, *args: _P.args, **kwargs: _P.kwargs) -> _R: ...
    def plan(self, *operands: ArrayLike, backend: str | None = None, **static: Any) -> Callable[..., Any]:
        """The bare kernel for operands like these: `kernel(*operands, *parameters, out)`, returning 0."""

def _function(body: Callable[_P, _R]) -> _Function[_P, _R]: ...

'''


BATCH_HEAD = '''\
"""Generated from the op table by `python -m trueno._stubs`; edit the table instead."""

from types import TracebackType
from typing import Any, Literal

from numpy.typing import NDArray

from trueno.batch.counts import Counts as Counts
from trueno.batch.handle import Handle as Handle

class Batch:
    """Records ops and runs them as few kernels: `trueno.Batch("simd")`, or without a name to choose automatically."""

    name: str
    def __init__(self, backend: str | None = None) -> None: ...
    def __enter__(self) -> Batch: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
    @property
    def counts(self) -> Counts:
        """What has been uploaded, run and read since the batch was made."""

    def upload(self, x: Any) -> Handle:
        """A handle of an array, a list, a number, or an array of the backend on which this runs."""

    def update(self, h: Handle, x: Any) -> None:
        """Put another array of the same shape and dtype behind an upload."""

    def keep(self, h: Handle) -> Handle:
        """Make `execute()` compute `h` although other ops use it."""

    def execute(self) -> None:
        """Run what was recorded."""

    async def execute_async(self) -> None:
        """`execute` in a worker thread, which does not block the event loop."""

    def read(self, h: Handle, out: NDArray[Any] | None = None) -> Any:
        """The array of a handle, copied from the batch, into `out` if passed."""

    def close(self) -> None:
        """Release all buffers; handles are unusable afterwards."""

'''


def batch_text() -> str:
    """The whole text of the stub of `trueno.batch`: every op is a method of `Batch`."""
    methods = [_method(op) for op in TABLE.values()]
    aliases = [f"    {alias} = {name}\n" for alias, name in sorted(ALIASES.items())]
    return BATCH_HEAD + "".join([*methods, *aliases])


def _method(op: Op) -> str:
    shown = ["self", *_parameters(op, array="Handle | float", leave="out")]
    count = len(op.signature.outputs)
    returns = "Handle" if count == 1 else f"tuple[{', '.join(['Handle'] * count)}]"
    line = f"    def {op.name}({', '.join(shown)}) -> {returns}:"
    if len(line) > 120:
        line = f"    def {op.name}(\n        {', '.join(shown)}\n    ) -> {returns}:"
    return f"{line}\n        {_docstring(op)}\n\n"


def text() -> str:
    """The whole text of the package's stub; it depends only on the table."""
    parts = [HEAD, _imports(), "\n", f"__all__ = {_names(trueno.__all__)}\n\n", "__version__: str\n\n", FUNCTION]
    return "".join([*parts, *_ops("@_function\ndef")])


def aio_text() -> str:
    """The whole text of `trueno.aio`'s stub."""
    return "".join([AIO_HEAD, *_ops("async def")])


def _ops(define: str) -> list[str]:
    """Every op, one family after the other, and the aliases."""
    parts = []
    families = list(dict.fromkeys((*FAMILIES, *(op.family for op in TABLE.values()))))
    for family in families:
        parts.append(f"# ---- {family} {'-' * (90 - len(family))}\n\n")
        parts += [_op(op, define) for op in TABLE.values() if op.family == family]
    parts.append("# ---- other names of the same ops\n\n")
    return parts + [f"{alias} = {name}\n" for alias, name in sorted(ALIASES.items())]


def _imports() -> str:
    """Every other public name, imported from its module; `as` marks it as re-exported."""
    late: dict[str, str] = vars(trueno)["_HOMES"]
    homes: defaultdict[str, set[str]] = defaultdict(set)
    for name, module in late.items():
        homes[module].add(name)
    for name in trueno.__all__:
        if name not in late and name not in TABLE and name not in ALIASES:
            homes[getattr(trueno, name).__module__].add(name)
    lines = [f"from {home} import {n} as {n}\n" for home in sorted(homes) for n in sorted(homes[home])]
    lines += [f"from trueno import {module} as {module}\n" for module in sorted(vars(trueno)["_MODULES"])]
    return "".join(sorted([*lines, "from trueno.ops.op import Op\n"], key=lambda line: line.split()[1]))


def _names(names: list[str]) -> str:
    return "[\n" + "".join(f"    {json.dumps(name)},\n" for name in names) + "]"


def _op(op: Op, define: str) -> str:
    shown = _parameters(op)
    decorator, _, word = define.rpartition("\n")
    line = f"{word} {op.name}({', '.join(shown)}) -> {_returns(op)}:"
    if len(line) > 120:
        line = f"{word} {op.name}(\n    {', '.join(shown)}\n) -> {_returns(op)}:"
    return f"{decorator}\n{line}\n    {_docstring(op)}\n\n".lstrip("\n")


def _parameters(op: Op, array: str = "ArrayLike", leave: str = "") -> list[str]:
    """Parameters as a stub writes them; `array`: the type of operands, `leave`: the parameter to leave out."""
    choices = {p.name: p.choices for p in op.params if p.choices}
    shown, keyword = [], False
    for p in parameters(op):
        if p.name == leave:
            continue
        if p.kind is p.KEYWORD_ONLY and not keyword:
            shown.append("*")
            keyword = True
        listed = choices.get(p.name, ())
        literal = listed and (p.default is inspect.Parameter.empty or p.default in listed)
        kind = f"Literal[{', '.join(map(_literal, listed))}]" if literal else p.annotation
        kind = array if kind in OPERANDS and (array != "ArrayLike" or kind == array) else kind
        default = "" if p.default is inspect.Parameter.empty else f" = {_literal(p.default)}"
        shown.append(f"{p.name}: {kind}{default}")
    return shown


def _returns(op: Op) -> str:
    """One row reduces to a NumPy scalar and several rows to an array: only Any covers both."""
    one = "Any" if op.reduces and not op.structured else "NDArray[Any]"
    count = len(op.signature.outputs)
    return one if count == 1 else f"tuple[{', '.join([one] * count)}]"


def _literal(value: object) -> str:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)


def _docstring(op: Op) -> str:
    line = op.doc.partition("\n")[0]
    quoted = f'"""{line}"""'
    try:
        same = ast.literal_eval(quoted) == line
    except SyntaxError:  # a quote or a backslash at its end
        same = False
    return quoted if same else repr(line)


def main() -> None:
    """Rewrite the files that are out of date, and print what happened."""
    for path, wanted in ((PATH, text()), (AIO_PATH, aio_text()), (BATCH, batch_text())):
        stale = not path.exists() or path.read_text("utf-8") != wanted
        if stale:
            path.write_text(wanted, "utf-8")
        print(f"{path}: {'rewritten' if stale else 'was up to date'}, {len(TABLE)} ops")


if __name__ == "__main__":
    main()
