"""The type stubs, from the table of ops and the classes' source: `python -m trueno._stubs` rewrites them.

The ops are created at first use, so type checkers and editors cannot see them in the source.  The stubs list each op
with its overloads and the first line of its documentation.  They are committed, and a test fails when one is out of
date.  `variants` derives the overloads, `signatures` writes them, `classes` reads the source of classes, `refined` has
what neither says, and `kinds` the types that all share.
"""

import ast
import json
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import trueno
import trueno.aio as _aio
from trueno._stubs import classes, kinds, refined, signatures
from trueno.ops import ALIASES, TABLE

ROOT = Path(__file__).parent.parent
GENERATED = '"""Generated from the op table by `python -m trueno._stubs`; edit the table instead."""\n\n'
OVERLAPS = '# mypy: disable-error-code="overload-overlap,misc,override"\n\n'
"""A Vector is also an array that NumPy takes: its overload comes first, and overlaps on purpose."""
SHARED = (
    "Arrays Backend Dtype Foreign FormatName Holder Host Indices Kind Line Nested NoSuchBackend Number OnHost Operand "
    "Ours Plain Plane Rank1 Rank2 _Foreign _Out _S _Slip"
)
KINDS = (
    "from collections.abc import Callable, Iterable, Iterator, Sequence\n"
    "from types import EllipsisType\n"
    "from typing import Any, ClassVar, Literal, Self, TypeVar, overload\n"
    "import os\nimport numpy as np\nfrom numpy.typing import NDArray\n"
    f"from trueno._types import {', '.join(SHARED.split())}\n"
    "from trueno.arrays import Matrix, Vector\nfrom trueno.batch import Batch\nfrom trueno.batch.handle import Handle\n"
    "from trueno.caches import Pages\nfrom trueno.context import DeviceContext\n"
    "from trueno.dispatch.asking import BackendScope\nfrom trueno.events.tracing import Trace\n"
    "from trueno.ops.op import Op\nfrom trueno.quant.matrix import QuantizedMatrix\n"
    "from trueno.select.decision import Decision\n"
)
"""What a stub may need; each imports what it uses."""
NOTHING = ast.Module([], [])


def package() -> str:
    """The stub of `trueno`."""
    names = f"__all__ = {json.dumps(trueno.__all__, indent=4)}\n\n__version__: str\n\n"
    listed = {name: text for name, text in refined.FUNCTIONS.items() if name in vars(trueno)["_HOMES"]}
    body = names + _functions(listed) + "forgive = reset_quarantine\n\n" + signatures.functions()
    return _stub(body, NOTHING, _exported(listed))


def aio() -> str:
    """The stub of `trueno.aio`."""
    listed = {name: refined.FUNCTIONS[name] for name in ("to", "numpy", "device")}
    body = f"__all__ = {json.dumps(_aio.__all__)}\n\n" + _functions(listed, "async def")
    return _stub(body + signatures.coroutines(), NOTHING)


def quant() -> str:
    """The stub of `trueno.quant`, whose tables name the formats."""
    listed = {name: refined.FUNCTIONS[name] for name in ("quantize", "requantize")}
    tables = "WEIGHTS: tuple[FormatName, ...]\nACTIVATIONS: tuple[FormatName, ...]\nFORMATS: dict[FormatName, Format]\n"
    body = f"__all__ = {json.dumps(trueno.quant.__all__)}\n\n{tables}INTERLEAVED: dict[FormatName, Format]\n\n"
    body += _functions(listed)
    body += "def format_of(name: str, op: str = ..., *, weights: bool = ..., cache: bool = ...) -> Format: ...\n"
    own = "from trueno.formats import Format as Format\n"
    own += "from trueno.quant.matrix import QuantizedMatrix as QuantizedMatrix\n"
    return _stub(body, NOTHING, own)


def arrays() -> str:
    """The stub of `trueno.arrays`."""
    operators, tree = (classes.parsed(ROOT / f"{name}.py") for name in ("operators", "arrays"))
    tree = classes.joined(operators, "Operators", tree, "_Holder")
    parts = [classes.heading(tree, "_Holder"), classes.members(tree, "_Holder", refined.HOLDER, private=True), "\n"]
    binary = classes.assigned(tree, "_Holder")
    for method, call in binary.items():
        if isinstance(call, ast.Call) and ast.unparse(call.func) == "_compared" and method != "__eq__":
            other = "object" if method == "__ne__" else "Operand"
            parts.insert(-1, f"    def {method}(self, other: {other}) -> NDArray[np.bool]: ...\n")
    for rank, name, own in ((1, "Vector", refined.VECTOR), (2, "Matrix", refined.MATRIX)):
        parts += [classes.heading(tree, name), *own.values(), classes.members(tree, name, own, private=True)]
        for method, call in binary.items():
            if isinstance(call, ast.Call) and ast.unparse(call.func) == "_binary":
                op = TABLE[ast.literal_eval(call.args[0])]
                parts.append(signatures.operator(method, op, rank, swapped=bool(call.keywords)))
        parts += [signatures.methods(rank), "\n"]
    return _stub("".join(parts), tree)


def matrix() -> str:
    """The stub of `trueno.quant.matrix`."""
    tree = classes.parsed(ROOT / "quant" / "matrix.py")
    body = classes.heading(tree, "QuantizedMatrix")
    body += classes.members(tree, "QuantizedMatrix", refined.QUANTIZED, private=True)
    return _stub(body, tree)


def context() -> str:
    """The stub of `trueno.context`."""
    tree = classes.parsed(ROOT / "context.py")
    body = classes.heading(tree, "DeviceContext") + classes.members(tree, "DeviceContext", refined.CONTEXT)
    body += "\n" + signatures.on_device() + "\n"
    body += "".join(
        classes.function(n) + "\n\n" for n in tree.body if isinstance(n, ast.FunctionDef) and n.name[0] != "_"
    )
    return _stub(body, tree)


def cache() -> str:
    """The stub of `trueno.caches.cache`."""
    tree = classes.parsed(ROOT / "caches" / "cache.py")
    body = classes.heading(tree, "KVCache") + classes.members(tree, "KVCache", refined.CACHE, private=True)
    return _stub("Array = np.ndarray[Any, Any]\n\n" + body, tree)


def batch() -> str:
    """The stub of `trueno.batch`."""
    recording, reading = (classes.parsed(ROOT / "batch" / f"{name}.py") for name in ("record", "reading"))
    body = classes.heading(recording, "Batch", ())
    body += "    name: str\n" + classes.members(recording, "Batch", refined.BATCH)
    body += classes.members(reading, "Reading", refined.BATCH) + "\n" + signatures.on_handles()
    own = "from trueno.batch.counts import Counts as Counts\nfrom trueno.batch.handle import Handle as Handle\n"
    return _stub(body, ast.Module([*recording.body, *reading.body], []), own)


STUBS: dict[Path, Callable[[], str]] = {
    ROOT / "_types.pyi": kinds.text,
    ROOT / "__init__.pyi": package,
    ROOT / "arrays.pyi": arrays,
    ROOT / "context.pyi": context,
    ROOT / "aio" / "__init__.pyi": aio,
    ROOT / "batch" / "__init__.pyi": batch,
    ROOT / "caches" / "cache.pyi": cache,
    ROOT / "quant" / "__init__.pyi": quant,
    ROOT / "quant" / "matrix.pyi": matrix,
}
"""Every stub, and the function that writes its text."""


def _functions(listed: dict[str, str], define: str = "def") -> str:
    """Functions beside the ops, with the first lines of their docstrings."""
    parts = []
    for name, text in listed.items():
        doc = (getattr(trueno, name).__doc__ or "").partition("\n")[0]
        parts.append(text.format(name=name, doc=doc, define=define))
    return "".join(parts)


def _stub(body: str, tree: ast.Module, own: str = "") -> str:
    """The whole text: imports of the module's source, of what stubs share, and its own; then the body."""
    return GENERATED + OVERLAPS + classes.imports([tree, ast.parse(KINDS), ast.parse(own)], body) + "\n" + body


def _exported(defined: dict[str, str]) -> str:
    """Every other public name of `trueno`, imported from its module; `as` marks it as re-exported."""
    late: dict[str, str] = vars(trueno)["_HOMES"]
    homes: defaultdict[str, set[str]] = defaultdict(set)
    for name, module in late.items():
        if name not in defined and name != "forgive":
            homes[module].add(name)
    for name in trueno.__all__:
        if name not in late and name not in TABLE and name not in ALIASES:
            homes[getattr(trueno, name).__module__].add(name)
    lines = [f"from {home} import {n} as {n}\n" for home in sorted(homes) for n in sorted(homes[home])]
    return "".join(
        lines + [f"from trueno import {module} as {module}\n" for module in sorted(vars(trueno)["_MODULES"])]
    )


def main() -> None:
    """Rewrite the files that are out of date, and print what happened."""
    for path, text in STUBS.items():
        wanted = text()
        stale = not path.exists() or path.read_text("utf-8") != wanted
        if stale:
            path.write_text(wanted, "utf-8")
        print(f"{path}: {'rewritten' if stale else 'was up to date'}, {len(TABLE)} ops")
