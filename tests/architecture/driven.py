"""A pytest plugin for a tree with new ops: it keeps the tests that the table of ops drives, and of their cases the new.

A test is driven by the table if its id names an op, or if it reads the whole table: itself, by way of a function or a
constant of its module, or in its decorators.  `TABLE["add"]` is a lookup and none of these.
"""

import ast
import os
import re
import shutil
from functools import cache
from pathlib import Path
from typing import Any

import pytest

NEW = frozenset(os.environ.get("NEW_OPS", "").split())
WHOLE = frozenset({"TABLE", "ALIASES", "FAMILIES", "_stubs", "reference.py"})
"""What stands for the whole table, or for something that is made from it."""
ENTRIES = "catalogue"
"""So do the kernels of the CUDA catalogue, but tests go through those for other reasons as well."""
KIT = re.compile(r"-(scalar|reference)-float(32|64)]|test_values.hardclip-simd-float32]")
"""What the kit tries here: on simd each layout, test and dtype is a kernel to compile, so one case stands for all."""


DEAR = (
    "test_every_op_gives_what_the_call_gives",
    "test_several_workers_report_what_one_does",
    "test_every_row_op_gives_the_same_bits_in_every_mode",
)
"""They go through all ops for many seconds; the kit's cases of the new ones ask the same."""


def pytest_configure() -> None:
    """An op can be added without ptxas: it is not to be found here."""
    which: Any = shutil.which
    shutil.which = lambda name, *args, **kwargs: None if name == "ptxas" else which(name, *args, **kwargs)


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Modules that never read the table as a whole are not imported."""
    if collection_path.suffix == ".py" and collection_path.name.startswith("test_"):
        kit = "trueno.testing.suites" in collection_path.read_text("utf-8")
        return None if kit or readers(collection_path, WHOLE | {ENTRIES}) else True
    return None


@cache
def readers(module: Path, whole: frozenset[str]) -> frozenset[str]:
    """Names of a module's top level that read the whole table, directly or through one another."""
    uses: dict[str, set[str]] = {}
    for node in ast.parse(module.read_text("utf-8")).body:
        keyed = {id(n.value) for n in ast.walk(node) if isinstance(n, ast.Subscript)}
        names = {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and not (n.id in whole and id(n) in keyed)}
        names |= {n.value for n in ast.walk(node) if isinstance(n, ast.Constant) and isinstance(n.value, str)} & whole
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            uses[node.name] = names
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            stored = {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
            uses |= dict.fromkeys(stored, names - stored)
    found: set[str] = set()
    while more := {name for name, used in uses.items() if used & (whole | found)} - found:
        found |= more
    return frozenset(found)


def driven(item: pytest.Function) -> bool:
    """Whether the table drives a test, and no op that was there before."""
    if item.originalname in DEAR:
        return False
    from trueno.ops import TABLE

    words = set(re.findall(r"\w+", item.name.partition("[")[2]))
    if words & NEW:
        kit = item.path.parts[-2:] == ("conformance", "test_ops.py")
        return not kit or KIT.search(item.name) is not None
    whole = WHOLE if words else WHOLE | {ENTRIES}
    return not words & set(TABLE) and item.originalname in readers(item.path, whole)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    kept = [i for i in items if isinstance(i, pytest.Function) and driven(i) and not i.get_closest_marker("slow")]
    config.hook.pytest_deselected(items=[i for i in items if i not in set(kept)])
    items[:] = kept
