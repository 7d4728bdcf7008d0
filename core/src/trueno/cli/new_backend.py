"""`trueno new-backend`: write a distribution with a few working ops, to start a backend from."""

import keyword
import re
from collections.abc import Iterator
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Annotated

import typer

from trueno.cli.report import screen
from trueno.discovery import registry
from trueno.errors import ParameterError

LONGEST = 64
"""The most letters of a name: it becomes part of file names, which file systems limit."""
TEMPLATES = files("trueno.cli") / "scaffold"
"""The distribution's files, each with SUFFIX behind its name; the folder PACKAGE stands for that of the package."""
SUFFIX, PACKAGE = ".template", "PACKAGE"


def command(
    name: Annotated[
        str, typer.Argument(help="Name of the backend: lower-case letters, digits, _.", show_default=False)
    ],
    folder: Annotated[str, typer.Option("--dir", metavar="PATH", help="Where to create its folder.")] = ".",
) -> None:
    """Write trueno-NAME: a small distribution, which passes `trueno conformance NAME` once it is installed."""
    project = create(name, Path(folder))
    console = screen()
    console.print(f"made {project}", soft_wrap=True)
    for path in sorted(p for p in project.rglob("*") if p.is_file()):
        console.print(f"  {path.relative_to(project)}", soft_wrap=True)
    console.print()
    console.print("next:")
    console.print(f"  pip install -e '{project}[test]'", soft_wrap=True)
    console.print(f"  trueno conformance {name}", soft_wrap=True)


def create(name: str, folder: Path) -> Path:
    """Write the distribution into `folder`/trueno-NAME and return that path.

    ParameterError for a name that is invalid or taken, and for a folder that exists.
    """
    if not re.fullmatch("[a-z][a-z0-9_]*", name) or keyword.iskeyword(name):
        raise ParameterError(
            f"{name!r} cannot name a backend; it must be lower-case letters, digits and _, the first a letter, "
            "and no word of Python's own"
        )
    if len(name) > LONGEST:
        raise ParameterError(f"the name has {len(name)} letters; it must have {LONGEST} at most")
    if name in registry.entries():
        raise ParameterError(f"a backend called {name} is installed already; choose another name")
    package, target = f"trueno_{name}", folder / f"trueno-{name.replace('_', '-')}"
    if target.exists():
        raise ParameterError(f"{target} exists already; remove it, or choose another --dir")
    words = {
        "name": name,
        "package": package,
        "distribution": target.name,
        "title": "".join(part.capitalize() for part in name.split("_")),
    }
    try:
        for path, template in templates():
            file = target / path.replace(PACKAGE, package)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(_fill(template, words), "utf-8")
    except OSError as error:
        raise ParameterError(f"{target} cannot be written: {error.strerror}; choose another --dir") from None
    return target


def templates(folder: Traversable = TEMPLATES, above: str = "") -> Iterator[tuple[str, str]]:
    """Path in the distribution, and contents, of each file: `«name»`, `«package»` … are to be filled in."""
    for item in folder.iterdir():
        if item.is_dir():
            yield from templates(item, f"{above}{item.name}/")
        elif item.name.endswith(SUFFIX):
            yield above + item.name.removesuffix(SUFFIX), item.read_text("utf-8")


def _fill(text: str, words: dict[str, str]) -> str:
    """Replace `«name»` and other marks, which neither Python nor TOML uses."""
    for key, value in words.items():
        text = text.replace(f"«{key}»", value)
    return text
