"""The one order of all files: every file is in it, and the picture of it is the order that the import linter checks."""

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = {
    "trueno": ROOT / "core/src/trueno",
    **{path.name: path for path in ROOT.glob("plugins/*/src/trueno_*") if path.is_dir() and path.suffix == ""},
}
CONTRACTS = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]["contracts"]
PICTURES = re.findall(r"^```text\n(.*?)^```", (ROOT / "docs/architecture.md").read_text("utf-8"), re.M | re.S)


def layers(package: str) -> list[set[str]]:
    """The order of a package as the linter has it, from the top: names without the package's own."""
    name = "The order of the core" if package == "trueno" else f"The order of {package}"
    (rows,) = [contract["layers"] for contract in CONTRACTS if contract["name"] == name]
    return [{name.removeprefix(f"{package}.") for name in row.replace("|", " ").split()} for row in rows]


def drawn(package: str) -> list[set[str]]:
    """The order of a package as the page draws it: a line that ends in | goes on in the next."""
    if package == "trueno":
        lines = PICTURES[0].splitlines()
    else:
        lines = re.search(rf"^{package} .*?(?:\n\n|\Z)", PICTURES[1], re.M | re.S)[0].splitlines()
    rows = re.sub(r"\|\n +", "| ", "\n".join(line[22:] if line.strip() else "" for line in lines).replace("\n", "\n "))
    return [set(row.replace("|", " ").split()) for row in rows.splitlines() if row.strip()]


def unnamed(package: str, rows: list[set[str]]) -> list[str]:
    """Files that no row names, neither by themselves nor by their folder."""
    named = set().union(*rows)
    missing = []
    for path in SOURCES[package].rglob("*.py"):
        parts = path.relative_to(SOURCES[package]).with_suffix("").parts
        folders = {".".join(parts[: i + 1]) for i in range(len(parts))}
        split = any(name.startswith(f"{'.'.join(parts[:-1])}.") for name in named)  # the folder's files are named
        if not folders & named and not (parts[-1] == "__init__" and (len(parts) == 1 or split)):
            missing.append(".".join(parts))
    return missing


@pytest.mark.parametrize("package", SOURCES)
def test_every_file_has_its_place(package):
    rows = layers(package)
    assert not unnamed(package, rows), "name these files, or their folder, in pyproject.toml and docs/architecture.md"
    names = [name for row in rows for name in row]
    assert len(names) == len(set(names)), "a name stands twice"
    gone = [n for n in names if not list(SOURCES[package].glob(f"{n.replace('.', '/')}.py")) and
            not (SOURCES[package] / n.replace(".", "/") / "__init__.py").exists()]  # fmt: skip
    assert not gone, f"there are no such files any more: {gone}"


@pytest.mark.parametrize("package", SOURCES)
def test_the_picture_is_the_order(package):
    assert drawn(package) == layers(package)


def test_a_file_without_a_place_is_found():
    rows = [row - {"dispatch.cache"} for row in layers("trueno")]
    assert unnamed("trueno", rows) == ["dispatch.cache"]
    rows = [row - {"ops"} for row in layers("trueno")]
    assert "ops.op" in unnamed("trueno", rows)
