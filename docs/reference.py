"""What the docs derive: a hook of mkdocs, and `python docs/reference.py README.md`.

The site gets a list of the decisions, and `reference/ops.md`, which never exists as a file.  README.md gets the short
table between its markers.
"""

import re
import sys
from collections.abc import Mapping
from itertools import groupby
from pathlib import Path
from typing import Any

BEGIN, END = "<!-- ops -->", "<!-- /ops -->"


def families() -> list[tuple[str, list[Any]]]:
    """The table's ops by family, both in the order of declaration."""
    from trueno.ops import TABLE

    return [(family, list(ops)) for family, ops in groupby(TABLE.values(), key=lambda op: op.family)]


def call_text(op: Any) -> str:
    """How the op is called: `rms_norm(x, w, *, eps=1e-06, out=None)`."""
    positional = [*op.operands, *(_parameter(p) for p in op.params if not p.keyword)]
    keyword = [_parameter(p) for p in op.params if p.keyword]
    return f"{op.name}({', '.join([*positional, '*', *keyword, 'out=None'])})"


def listed(doc: str) -> str:
    """A docstring as Markdown: its closing lines (`Shapes: …`, `Edges: …`, `Source: …`) become a list."""
    text, field, rest = doc.partition("\nShapes: ")
    if not field:
        return doc
    items = re.sub(r"^([A-Z][a-z]+): ", r"- **\1:** ", f"Shapes: {rest}", flags=re.MULTILINE)
    return f"{text.rstrip()}\n\n{items}"


def page() -> str:
    """The whole reference as Markdown."""
    from trueno.ops import ALIASES

    aliases: dict[str, list[str]] = {}
    for alias, name in ALIASES.items():
        aliases.setdefault(name, []).append(alias)
    parts = [
        "# Ops\n\nA signature names the axes of each operand: `...` is any number of leading axes, `n` the row's.\n"
    ]
    for family, ops in families():
        parts.append(f"\n## {family.capitalize()}\n")
        for op in ops:
            also = f" Also spelled {_code(aliases[op.name])}." if op.name in aliases else ""
            parts.append(
                f"\n### {op.name}\n\n```python\ntrueno.{call_text(op)}\n```\n\n"
                f"`{op.signature_text}`.{also}\n\n{listed(op.doc)}\n"
            )
    return "".join(parts)


def summary() -> str:
    """A row a family, for the README."""
    rows = [f"| {family} | {' '.join(f'`{op.name}`' for op in ops)} |" for family, ops in families()]
    return "\n".join(["| family | ops |", "|---|---|", *rows])


def fill(text: str) -> str:
    """`text` with a fresh table between its markers."""
    head, _, rest = text.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not end:
        raise ValueError(f"no {BEGIN} … {END} to fill")
    return f"{head}{BEGIN}\n{summary()}\n{END}{tail}"


def on_config(config: Any) -> Any:
    """mkdocs asks for the settings: list every decision of docs/adr in the navigation, by its title."""
    decisions = sorted(Path(config["docs_dir"], "adr").glob("*.md"))
    titles = [path.read_text("utf-8").partition("\n")[0].removeprefix("# ") for path in decisions]
    config["nav"].append({"Decisions": [{t: f"adr/{p.name}"} for t, p in zip(titles, decisions, strict=True)]})
    return config


def on_files(files: Any, config: Mapping[str, Any]) -> Any:
    """mkdocs asks for the list of pages: add the generated one."""
    from mkdocs.structure.files import File

    files.append(File.generated(config, "reference/ops.md", content=page()))
    return files


def _parameter(p: Any) -> str:
    return p.name if p.required else f"{p.name}={p.default!r}"


def _code(names: list[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


if __name__ == "__main__":
    for name in sys.argv[1:]:
        path = Path(name)
        path.write_text(fill(path.read_text("utf-8")), "utf-8")
