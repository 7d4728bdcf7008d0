"""The builder's reference page in Markdown: its topics, docstrings and tables, as `docs/reference.py` writes it."""

import inspect
import re
from collections.abc import Callable, Iterable, Sequence
from importlib import import_module
from typing import Any

from trueno_cuda.ptx.asynchronous import Mbarrier
from trueno_cuda.ptx.builder import Builder
from trueno_cuda.ptx.control import Loop
from trueno_cuda.ptx.instructions import (
    ATOMICS,
    CLOCKS,
    COMPARISONS,
    FENCES,
    INSTRUCTIONS,
    OPTIONS,
    SPECIAL_REGISTERS,
    STATEMENTS,
)
from trueno_cuda.ptx.kernel import Kernel, Source, kernel
from trueno_cuda.ptx.pointers import CACHE, ORDERS, SCOPES, Array, Pointer
from trueno_cuda.ptx.reference_topics import TOPICS
from trueno_cuda.ptx.targets import TARGETS
from trueno_cuda.ptx.tensor_cores import MMA, WGMMA_K
from trueno_cuda.ptx.types import PACKS, TYPES, Type
from trueno_cuda.ptx.values import Value, Var

OWNERS: dict[str, type] = {
    "k": Builder, "pointer": Pointer, "array": Array, "value": Value, "var": Var, "barrier": Mbarrier, "loop": Loop,
}  # fmt: skip
HEAD = """# PTX builder

`from trueno_cuda.ptx import f32, kernel, ptr, u32`; start with [Write a kernel](../how-to/write-a-kernel.md).
A kernel is a Python function that runs once, when it is built; operations on `k` run later, on the GPU. A misuse is a
`BuildError`. If a line is the cause, the traceback ends in it, in the kernel or in a function it calls; errors that
only the source or the end of the kernel shows, such as a branch that is never entered, are named with their line. The
error for an unknown name says which name is meant.

A launch by `trueno_cuda.prepared` or `run` needs a signature of pointers, then integers, then floats.
"""


def page() -> str:
    """The whole page."""
    parts = [HEAD, _member("@kernel", kernel), _member("source.build", Source.build)]
    parts.append(f"What `build` gives, a `Kernel`:\n\n{_text(Kernel)}\n")
    rows = [(f"`{t}`", str(t.bits), _kind(t), f"`{t.widened}`" if t.widened.register else "–") for t in TYPES.values()]
    parts.append("## Types\n\n" + _table(("type", "bits", "what it is", "in a register"), rows))
    launches = import_module("trueno_cuda.device.launching")  # which needs the core, and the builder does not
    parts.append('## Running\n\nOn a GPU with `backend="cuda"`, without one on `cuda_emulated`.\n')
    parts += [_member(f"trueno_cuda.{name}", getattr(launches, name)) for name in ("prepared", "run")]
    shown: set[str] = set()
    for topic in TOPICS:
        parts.append(f"## {topic.title}\n\n{topic.about}\n")
        for name in topic.members:
            if name in shown:
                parts.append(f"`{name}`: above.\n")
                continue
            shown.add(name)
            owner, _, member = name.partition(".")
            parts.append(f"### {name}\n\n{_member(name, inspect.getattr_static(OWNERS[owner], member))}")
        if topic.title in TABLES:
            parts += TABLES[topic.title]()
    parts.append(
        f"## Instructions\n\n`k.NAME(...)` for each below; a Var has `update` for them. Options: {_options()}. Without "
        "them results are IEEE's: rounded to nearest, subnormals kept, never contracted. A type stands for the "
        "first operand; `packs` are those of 32 bits.\n"
    )
    parts.append(_table(("name", "operands", "types", "options"), _instructions()))
    targets = [(f"`{t.name}`", ".".join(map(str, t.version)), f"{t.shared:,}") for t in TARGETS.values()]
    parts.append("## Architectures\n\n" + _table(("`arch=`", "lowest `.version`", "bytes of shared memory"), targets))
    return "\n".join(parts)


def _member(name: str, found: Any) -> str:
    """The call in a line, and what the docstring says."""
    return f"    {name if isinstance(found, property) else name + _arguments(found)}\n\n{_text(found)}\n"


def _arguments(function: Callable[..., Any]) -> str:
    """`(element, *shape, stages=1)`: without annotations, and masks as they are written."""
    parameters = inspect.signature(function).parameters.values()
    shown = [p.replace(annotation=p.empty) for p in parameters if p.name != "self" and p.kind is not p.POSITIONAL_ONLY]
    return re.sub(r"\b\d{7,}\b", lambda number: f"0x{int(number[0]):X}", str(inspect.Signature(shown)))


def _text(thing: Any) -> str:
    """A docstring as Markdown: errors in a separate paragraph, and `<` and `*` escaped."""
    doc = inspect.getdoc(thing) or ""
    doc = re.sub(r"(`[^`]*`)|([<*])", lambda m: m[1] or f"\\{m[2]}", doc)
    return re.sub(r"\s+BuildError: ", "\n\n**BuildError:** ", doc)


def _kind(kind: Type) -> str:
    """A type, described."""
    if kind.lane is not None:
        return f"{kind.lanes} of `{kind.lane}`"
    words = {"p": "predicate", "u": "unsigned integer", "s": "signed integer", "f": "float", "x": "float for k.mma"}
    return words[kind.kind] + ("" if kind.register else ", in memory only")


def _options() -> str:
    entries = [
        f"`{n}=` {_code(words)}" if len(words) > 1 else f"`{n}=True` (`.{words[0]}`)" for n, words in OPTIONS.items()
    ]
    return "; ".join(entries)


def _instructions() -> list[tuple[str, ...]]:
    packs = {t.name for t in PACKS.values()}
    rows: list[tuple[str, ...]] = []
    for name, forms in INSTRUCTIONS.items():
        counts = dict.fromkeys(str(len(form.operands)) for form in forms)
        kinds = dict.fromkeys(form.operands[0].name for form in forms if form.operands[0] is not None)
        if packs <= set(kinds):
            kinds = dict.fromkeys([*(n for n in kinds if n not in packs), "packs"])
        options = dict.fromkeys(o for form in forms for o in re.findall(r"{(\w+)}", form.opcode))
        rows.append((f"`{name}`", " or ".join(counts), _code(kinds), _code(options)))
    return rows


def _registers() -> list[str]:
    uniformity = {"lane": "–", "warp": "a warp", "block": "a block"}
    rows: list[tuple[str, ...]]
    rows = [(f"`k.{n}`", f"`{text}`", f"`{t}`", uniformity[over]) for n, (text, t, over) in SPECIAL_REGISTERS.items()]
    rows += [(f"`k.{n}()`", f"`{text}`", f"`{t}`", "–") for n, (text, t) in CLOCKS.items()]
    calls = [(f"`k.{n}()`", f"`{text}`") for n, text in STATEMENTS.items()]
    return [_table(("register", "PTX", "type", "the same over"), rows), _table(("statement", "PTX"), calls)]


def _words() -> list[str]:
    return [f"`cache=`: {_code(CACHE)}, joined by blanks. `order=`: {_code(ORDERS)}. `scope=`: {_code(SCOPES)}.\n"]


def _atomics() -> list[str]:
    return [_table(("atomic", "elements"), [(f"`{n}`", _code(t.name for t in kinds)) for n, kinds in ATOMICS.items()])]


def _fences() -> list[str]:
    return [_table(("fence", "PTX"), [(f"`{n}`", f"`{text}`") for n, text in FENCES.items()])]


def _products() -> list[str]:
    rows = []
    for name, (factors, sums, counts) in MMA.items():
        of = _code(t.name for t in factors), _code(t.name for t in sums)
        rows.append((f"`{name.split()[0]}`", *of, ", ".join(map(str, counts))))
    return [_table(("shape", "a and b", "accumulator", "registers of a, b, accumulator"), rows)]


def _wide_products() -> list[str]:
    rows = [(f"`{name}`", f"`m64nNk{depth}`") for name, depth in WGMMA_K.items()]
    return [_table(("`of`", "shape, N a multiple of 8 up to 256"), rows)]


TABLES: dict[str, Callable[[], list[str]]] = {
    "Launch and threads": _registers,
    "Values and vars": lambda: [f"Comparisons of `k.compare`: {_code(COMPARISONS)}.\n"],
    "Memory": _words,
    "Atomics": _atomics,
    "Barriers and fences": _fences,
    "Matrix products of a warp": _products,
    "Matrix products of four warps": _wide_products,
}
"""The tables below a topic, besides its members."""


def _code(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)
