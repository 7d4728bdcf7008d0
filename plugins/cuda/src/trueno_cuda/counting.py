"""How many kernels there are: distinct texts, each counted once however many constants it is built with.

Every entry of the catalogue is printed once, with the defaults of its constants, for its usual architecture; an entry
may consist of several kernels.  Two texts that are equal but for names, comments, numbers and the head are one.
"""

import ast
import re
from collections import Counter
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from trueno_cuda.catalogue import registry
from trueno_cuda.catalogue.entry import CatalogueEntry
from trueno_cuda.ptx import Kernel

COMMENT = re.compile(r"//[^\n]*")
HEAD = re.compile(r"^\.(?:version|target|address_size)[^\n]*$", re.MULTILINE)
NUMBER = re.compile(r"(?<![\w%$.])-?(?:0[fFdDxX][0-9a-fA-F]+|\d+(?:\.\d+)?)\b")
FLOOR = re.compile(r"\bFloor(?: of [^:]*)?: (.+?)(?:\.(?=\s|\Z)|\n\n|\Z)", re.DOTALL)
NO_FLOOR = "none stated"


@dataclass(frozen=True)
class Text:
    """One distinct text.  help: what its entry does.  floor: the least time, as a docstring states it."""

    kernel: str
    entry: str
    family: str
    help: str
    floor: str


@cache
def printed() -> tuple[tuple[CatalogueEntry, Kernel], ...]:
    """Every kernel of every entry, with the defaults of its constants, for the entry's usual architecture."""
    entries = registry.catalogue().values()
    return tuple((entry, kernel) for entry in entries for kernel in registry.build(entry, registry.usual(entry)))


@cache
def distinct() -> tuple[tuple[Text, ...], dict[str, Any]]:
    """The distinct texts by family, and the numbers that say how they were counted."""
    seen: dict[str, Text] = {}
    for entry, kernel in printed():
        seen.setdefault(bare(kernel), Text(base(kernel), entry.name, entry.family, entry.help, floor(kernel)))
    families = Counter(text.family for text in seen.values())
    with_floor = sum(text.floor != NO_FLOOR for text in seen.values())
    texts = {kernel.text for _, kernel in printed()}
    summary = {"entries": len(registry.catalogue()), "printed": len(printed()), "texts": len(texts)}
    return tuple(seen.values()), summary | {"distinct": len(seen), "floors": with_floor, "families": dict(families)}


def sentence(summary: dict[str, Any]) -> str:
    """How many kernels there are, in words."""
    return (
        f"{summary['distinct']} distinct kernels: {summary['entries']} entries print {summary['printed']} kernels with "
        f"their default constants, {summary['texts']} texts, and {summary['distinct']} of these differ in more than "
        f"names, comments and numbers; {summary['floors']} state a floor"
    )


def bare(kernel: Kernel) -> str:
    """The text without what may differ between two builds of one kernel: names, comments, head and numbers."""
    text = HEAD.sub("", COMMENT.sub("", kernel.text)).replace(kernel.name, "KERNEL")
    return NUMBER.sub("0", text)


def base(kernel: Kernel) -> str:
    """The kernel's name without its constants."""
    return kernel.text.partition("\n")[0].removeprefix("// ").partition(":")[0]


def floor(kernel: Kernel) -> str:
    """What the docstring of the function that wrote it says about the least time, or else that of its module.

    `NO_FLOOR` where neither says anything.
    """
    if kernel.emitter is None:
        return NO_FLOOR
    function = kernel.emitter.co_qualname.partition(".")[0]  # of a nested one the outermost, which has the docstring
    floors = _floors(kernel.emitter.co_filename)
    return floors.get(function) or floors.get("") or NO_FLOOR


@cache
def _floors(path: str) -> dict[str, str]:
    """The floors that a file states, by function; the module's own has the name ""."""
    try:
        module = ast.parse(Path(path).read_text("utf-8"))
    except OSError:  # a file that is gone
        return {}
    floors = {}
    functions = [node for node in module.body if isinstance(node, ast.FunctionDef)]
    for name, node in [("", module), *((node.name, node) for node in functions)]:
        match = FLOOR.search(ast.get_docstring(node) or "")
        if match:
            floors[name] = " ".join(match[1].split())
    return floors
