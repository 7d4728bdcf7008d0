"""Every public class, function and error beside the ops has an entry in the reference."""

import importlib
import re
from pathlib import Path

import pytest
import trueno

PAGES = Path(__file__).parents[2] / "docs/reference/api"
ENTRIES = re.findall(r"^::: ([\w.]+)$", "".join(p.read_text("utf-8") for p in PAGES.glob("*.md")), re.M)
SPELLED = {"JidokaAction": "trueno.guards.rules.Action", "JidokaCondition": "trueno.guards.rules.Condition"}
"""Second names, which the page of the first one has."""


def entry(path):
    """The object of an entry: an attribute of the longest part of its path that is a module."""
    module, *names = path, None
    while True:
        try:
            found = importlib.import_module(module)
        except ModuleNotFoundError:
            module, _, name = module.rpartition(".")
            names = [name, *names]
        else:
            for name in names[:-1]:
                found = getattr(found, name)
            return found


@pytest.mark.parametrize("path", ENTRIES)
def test_an_entry_is_there_and_has_a_docstring(path):
    assert entry(path) is not None
    assert isinstance(entry(path), (dict, tuple, frozenset)) or (entry(path).__doc__ or "").strip()


def test_every_public_name_has_an_entry():
    missing = [
        name
        for name, home in trueno._HOMES.items()
        if SPELLED.get(name) not in ENTRIES
        and all(entry(e) is not getattr(importlib.import_module(home), name) for e in ENTRIES)
    ]
    assert missing == []


def test_so_has_every_name_of_a_module():
    modules = [importlib.import_module(f"trueno.{name}") for name in ("gguf", "lz4", "quant", "batch", "caches")]
    every = {id(entry(e)) for e in ENTRIES}
    assert [f"{m.__name__}.{name}" for m in modules for name in m.__all__ if id(getattr(m, name)) not in every] == []


def test_every_error_is_on_the_page_of_errors():
    text = (PAGES / "errors.md").read_text("utf-8")
    assert set(re.search(r"members: \[(.*)\]", text)[1].split(", ")) == {
        name for name in dir(trueno) if isinstance(one := getattr(trueno, name), type) and issubclass(one, Exception)
    }


def test_listed_members_are_described_from_the_source():
    """mkdocstrings reads a stub where it defines a class again: one line of each docstring, none of overloads."""
    griffe = pytest.importorskip("griffe", reason="mkdocstrings brings it: pip install --group docs")
    root = griffe.load("trueno", search_paths=[Path(trueno.__file__).parents[1]])
    pages = "".join(p.read_text("utf-8") for p in sorted(PAGES.glob("*.md")))
    listed = re.findall(r"^::: trueno\.([\w.]+)\n    options:\n(?:      .*\n)*?      members: \[(.*)\]", pages, re.M)
    assert len(listed) > 3
    for path, names in listed:
        lacking = [name for name in names.split(", ") if not _text(root[path], name)]
        assert lacking == [], path
    whole = trueno.Batch.upload.__doc__.split()
    assert _text(root["batch.record.Batch"], "upload").split() == whole and len(whole) > 40


def _text(owner, name):
    found = owner.all_members.get(name)
    return found.docstring.value if found is not None and found.docstring else ""
