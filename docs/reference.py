"""What the docs derive: a hook of mkdocs, and `python docs/reference.py README.md`.

The site gets a list of the decisions.  The pages of `reference/` are files, so that a clone and a forge have them too:
`python docs/reference.py` writes them, and `README.md` as an argument gets the short table between its markers.
"""

import re
import sys
from itertools import groupby
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parent
BEGIN, END = "<!-- ops -->", "<!-- /ops -->"


def families() -> list[tuple[str, list[Any]]]:
    """The table's ops by family, both in the order of declaration."""
    from trueno.ops import TABLE

    return [(family, list(ops)) for family, ops in groupby(TABLE.values(), key=lambda op: op.family)]


def call_text(op: Any) -> str:
    """How the op is called: `rms_norm(x, w, *, eps=1e-06, out=None)`."""
    from trueno.dispatch.function import parameters

    shown, keyword = [], False
    for p in parameters(op):
        if p.kind is p.KEYWORD_ONLY and not keyword:
            shown.append("*")
            keyword = True
        shown.append(p.name if p.default is p.empty else f"{p.name}={p.default!r}")
    return f"{op.name}({', '.join(shown)})"


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
                f"\n### {op.name}\n\n    trueno.{call_text(op)}\n\n`{op.signature_text}`.{also}\n\n{listed(op.doc)}\n"
            )
    return "".join(parts)


def settings_page() -> str:
    """Every variable, from the table that parses them."""
    from trueno.settings import SETTINGS

    rows = []
    for name, setting in SETTINGS.items():
        also = f"<br>`{setting.bare}`" if setting.bare else ""
        rows.append((f"`{name}`{also}", setting.help, setting.parse.takes, _default(setting.default)))
    return (
        "# Settings\n\nVariables of the environment, read once. A value that cannot be read is an error, an unknown "
        "`TRUENO_…` a warning. `trueno doctor` shows each with its value and where that comes from; "
        '`trueno.settings.override("TRUENO_FALLBACK", "error")` sets one from code, `trueno.settings.reload()` reads '
        "the environment again. A namespaced variable wins over a bare one. Plugins declare their own in their "
        "manifest: same parser, same table of `doctor`.\n\n"
        + _table(("variable", "what it does", "takes", "default"), rows)
    )


def reasons_page() -> str:
    """The vocabulary of the selector, and of the registry."""
    from trueno.select.reasons import REASONS

    return (
        "# Reason codes\n\nEvery candidate of `trueno.explain(…)` and every backend that cannot run carries one of "
        "these words, and no other.\n\n"
        + _table(("code", "meaning"), [(f"`{c}`", text) for c, text in REASONS.items()])
    )


def events_page() -> str:
    """The kinds of event and what each carries."""
    from trueno.events.stream import KINDS

    rows = [
        (f"`{name}`", kind.says, "<br>".join(f"`{k}`: {v}" for k, v in kind.data.items()))
        for name, kind in KINDS.items()
    ]
    return (
        "# Events\n\nOne stream: `trueno.stats()` counts it, `trueno.trace()` records it, `TRUENO_VERBOSE` prints it, "
        "and the hook `trueno_on_event` gets it. Every event has op, backend, detail, start, seconds, bytes, thread; "
        "its `data` depends on the kind.\n\n" + _table(("kind", "says", "data"), rows)
    )


def manifest_page() -> str:
    """The keys of a plugin's backend.toml, from the schema that checks them."""
    from trueno.discovery.manifest import schema

    facts = schema()
    rows = []
    for key, value in facts["properties"].items():
        must = "yes" if key in facts.get("required", ()) else ""
        rows.append((f"`{key}`", value.get("description", ""), must, _default(value.get("default"))))
    return (
        f"# Manifest\n\nThe keys of a plugin's `backend.toml`. {facts['description']} The set is closed: an unknown "
        "key is an error. The JSON schema is shipped as `trueno/discovery/backend.schema.json`.\n\n"
        + _table(("key", "meaning", "required", "default"), rows)
    )


def builder_page() -> str:
    """All that a kernel may say, as its builder tells it."""
    from trueno_cuda.ptx.reference import page as builder

    return builder()


def findings_page() -> str:
    """What the emulator finds, each with an example."""
    from trueno_cuda.ptx.emulate.findings import page as findings

    return findings()


def _table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines) + "\n"


def _default(value: Any) -> str:
    if value is None or value in ((), "", [], {}):
        return "–"
    if isinstance(value, bool):
        return "on" if value else "off"
    return f"`{value}`"


PAGES = {
    "reference/ops.md": page,
    "reference/settings.md": settings_page,
    "reference/reasons.md": reasons_page,
    "reference/events.md": events_page,
    "reference/manifest.md": manifest_page,
    "reference/ptx-builder.md": builder_page,
    "reference/findings.md": findings_page,
}


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


def stale(docs: Path = DOCS) -> list[str]:
    """The pages of `reference/` that are not what the tables say now; `make generate` writes them."""
    found = []
    for name, write in PAGES.items():
        path = docs / name
        if not path.exists() or path.read_text("utf-8") != write():
            found.append(name)
    return found


def _code(names: list[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


if __name__ == "__main__":
    (DOCS / "reference").mkdir(exist_ok=True)
    for page_name in stale():
        (DOCS / page_name).write_text(PAGES[page_name](), "utf-8")
    for name in sys.argv[1:]:
        path = Path(name)
        path.write_text(fill(path.read_text("utf-8")), "utf-8")
