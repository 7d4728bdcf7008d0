"""What the docs derive: a hook of mkdocs, and `python docs/reference.py README.md`.

The site gets a list of the decisions.  The pages of `reference/` are files, so that a clone and a forge have them too:
`python docs/reference.py` writes them, and `README.md` as an argument gets the short table between its markers.
"""

import ast
import inspect
import re
import sys
from functools import partial
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parent


def families() -> list[tuple[str, list[Any]]]:
    """The table's ops by family, both in the order of declaration."""
    from trueno.ops import TABLE

    return [(family, list(ops)) for family, ops in groupby(TABLE.values(), key=lambda op: op.family)]


def call_text(op: Any) -> str:
    """How the op is called: `rms_norm(x, w, *, eps=1e-06, out=None)`."""
    from trueno.dispatch.parameters import parameters

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


def backend_page() -> str:
    """The contract of a plugin: the protocol with every word, and the names beside it."""
    from trueno import backend

    parts = [f"# Backend contract\n\n{inspect.getdoc(backend)}\n"]
    for name in (
        "Backend",
        "OptionalMethods",
        "DeviceBackend",
        "Kernel",
        "BindableKernel",
        "CompiledKernel",
        "Recording",
    ):
        parts.append(f"\n## {name}\n\n{inspect.getdoc(getattr(backend, name))}\n")
        parts += [f"\n**`{call}`**\n\n{doc}\n" for call, doc in members(name)]
    parts.append("\n## Records\n")
    for name in ("Call", "Probe", "Device", "Reject", "Rates", "Accuracy", "Refused"):
        record = getattr(backend, name)
        fields = inspect.signature(record) if hasattr(record, "__dataclass_fields__") else "(message)"
        fields = re.sub(r" = <factory>", "", re.sub(r"<factory>", "…", str(fields).removesuffix(" -> None")))
        parts.append(f"\n### {name}\n\n    {name}{_plain(fields)}\n\n{inspect.getdoc(record)}\n")
    for title, homes in backend.GROUPS.items():
        rows = [(f"`{name}`", _meaning(home, name)) for name, home in homes.items()]
        parts.append(f"\n## {title}\n\n{_table(('name', 'what it is'), rows)}")
        classes = [name for name in homes if hasattr(getattr(backend, name), "__dataclass_fields__")]
        parts += [f"\n`{name}` has {_attributes(getattr(backend, name))}.\n" for name in classes]
        if "KernelTable" in homes:
            import trueno.backend.kernels as table

            fields = str(inspect.signature(backend.KernelTable)).removesuffix(" -> None")
            parts.append(
                f"\n{inspect.getdoc(table)}\n\n**`KernelTable{_plain(fields)}`**\n\n{inspect.getdoc(backend.KernelTable)}\n"
            )
            parts += [f"\n**`KERNELS.{call}`**\n\n{doc}\n" for call, doc in members("KernelTable")]
    return "".join(parts)


def members(name: str) -> list[tuple[str, str]]:
    """What a class of the protocol declares itself, as it is called or read, and what its docstring says."""
    from trueno import backend

    found = []
    for node in ast.parse(inspect.getsource(getattr(backend, name))).body[0].body:  # type: ignore[attr-defined]
        if isinstance(node, ast.FunctionDef) and (node.name == "__call__" or not node.name.startswith("_")):
            rest = [f"*{node.args.vararg.arg}"] if node.args.vararg else []
            arguments = ", ".join([a.arg for a in node.args.args[1:]] + rest + [a.arg for a in node.args.kwonlyargs])
            call = arguments if node.name != "__call__" else "*operands, *scalars, *results"
            title = "kernel" if node.name == "__call__" else node.name
            found.append((f"{title}({call})", str(ast.get_docstring(node))))
    return sorted([*_documented(name), *found], key=lambda member: "(" in member[0])


def members_table() -> str:
    """The members of a backend in a sentence each, for the guide; the page has every word."""
    groups = {
        "Backend": "always",
        "DeviceBackend": "with arrays of its own",
        "OptionalMethods": "optional",
        "BindableKernel": "optional, of a kernel",
        "CompiledKernel": "optional, of a kernel",
    }
    rows = [(f"`{call}`", _sentence(doc), when) for name, when in groups.items() for call, doc in members(name)]
    return _table(("member", "what it does", "needed"), rows).rstrip()


def _documented(name: str) -> list[tuple[str, str]]:
    """The attributes of a class of the protocol with the texts below them."""
    from trueno import backend

    return _texts(ast.parse(inspect.getsource(getattr(backend, name))).body[0].body)  # type: ignore[attr-defined]


def _texts(body: list[ast.stmt]) -> list[tuple[str, str]]:
    """Names that are assigned or annotated, with the text that follows each."""
    found = []
    for node, after in pairwise(body):
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
            found += [(t.id, inspect.cleandoc(str(after.value.value))) for t in targets if isinstance(t, ast.Name)]
    return found


def _meaning(home: str, name: str) -> str:
    """The first sentence about a name of the contract: its docstring, or the text below a constant."""
    from importlib import import_module

    module = import_module(home)
    value = inspect.unwrap(getattr(module, name, module))
    if inspect.isclass(value) or inspect.isfunction(value) or inspect.ismodule(value):
        return _sentence(str(inspect.getdoc(value)))
    while name not in (texts := dict(_texts(ast.parse(inspect.getsource(module)).body))):
        source = next(n for n in ast.walk(ast.parse(inspect.getsource(module))) if _brings(n, name))
        module = import_module(str(source.module))  # type: ignore[attr-defined]
    return _sentence(texts[name])


def _brings(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.ImportFrom) and any(alias.name == name for alias in node.names)


def _attributes(record: type) -> str:
    """The public attributes of a record, beside those of what it is derived from."""
    base = record.__mro__[1]
    inherited = getattr(base, "__dataclass_fields__", {})
    fields = [name for name in vars(record)["__dataclass_fields__"] if name not in inherited]
    own = dict.fromkeys(
        name for name in [*fields, *vars(record)] if not name.startswith("_") and not hasattr(base, name)
    )
    more = f"what `{base.__name__}` has, and " if base is not object else ""
    return more + ", ".join(f"`{name}`" for name in own)


def _sentence(doc: str) -> str:
    """What a docstring says first, on one line."""
    return re.split(r"(?<=[.:;])\s{2,}|\.$", " ".join(doc.partition("\n\n")[0].split("\n")))[0].rstrip(".:;")


def _plain(signature: str) -> str:
    """A signature without the names of modules in its annotations."""
    return re.sub(r": '(\w+)'", r": \1", re.sub(r"\b(?:[a-z_]+\.)+(?=[A-Za-z])", "", signature))


def builder_page() -> str:
    """All that a kernel may say, as its builder tells it."""
    from trueno_cuda.ptx.reference import page as builder

    return builder()


def findings_page() -> str:
    """What the emulator finds, each with an example."""
    from trueno_cuda.ptx.emulate.findings import page as findings

    return findings()


def ptx_rules_page() -> str:
    """The analyzer's rules in a table."""
    from trueno_cuda.ptx.analyze.reference import rules_page

    return rules_page()


def ptx_report_page() -> str:
    """The schema of the analyzer's JSON."""
    from trueno_cuda.ptx.analyze.reference import report_page

    return report_page()


def ptx_rule_page(name: str) -> str:
    """One rule of the analyzer."""
    from trueno_cuda.ptx.analyze.reference import rule_page

    return rule_page(name)


def ptx_rules() -> list[str]:
    """The rules' names: each has a file, which is not imported for this."""
    folder = DOCS.parent / "plugins/cuda/src/trueno_cuda/ptx/analyze/rules"
    return sorted(p.stem.replace("_", "-") for p in folder.glob("*.py") if "\nRULE = " in p.read_text("utf-8"))


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
    "reference/backend.md": backend_page,
    "reference/ptx-builder.md": builder_page,
    "reference/findings.md": findings_page,
    "reference/ptx-rules.md": ptx_rules_page,
    "reference/ptx-report.md": ptx_report_page,
    **{f"reference/ptx-{name}.md": partial(ptx_rule_page, name) for name in ptx_rules()},
}


def summary() -> str:
    """A row a family, for the README."""
    rows = [f"| {family} | {' '.join(f'`{op.name}`' for op in ops)} |" for family, ops in families()]
    return "\n".join(["| family | ops |", "|---|---|", *rows])


TABLES = {"ops": summary, "members": members_table}
"""The tables that stand in pages written by hand, by the name in their markers: `<!-- ops -->` … `<!-- /ops -->`."""
FILLED = ("how-to/write-a-backend.md",)
"""The pages of the docs with such tables."""


def fill(text: str) -> str:
    """`text` with fresh tables between its markers."""
    for name, table in TABLES.items():
        begin, end = f"<!-- {name} -->", f"<!-- /{name} -->"
        if begin in text:
            head, _, rest = text.partition(begin)
            _, closed, tail = rest.partition(end)
            if not closed:
                raise ValueError(f"no {begin} … {end} to fill")
            text = f"{head}{begin}\n{table()}\n{end}{tail}"
    return text


def on_config(config: Any) -> Any:
    """mkdocs asks for the settings: list the analyzer's rules, and every decision of docs/adr by its title."""
    config["nav"].append({"PTX rules": [{name: f"reference/ptx-{name}.md"} for name in ptx_rules()]})
    decisions = sorted(Path(config["docs_dir"], "adr").glob("*.md"))
    titles = [path.read_text("utf-8").partition("\n")[0].removeprefix("# ") for path in decisions]
    config["nav"].append({"Decisions": [{t: f"adr/{p.name}"} for t, p in zip(titles, decisions, strict=True)]})
    return config


def stale(docs: Path = DOCS) -> list[str]:
    """The pages that are not what the tables say now; `make generate` writes them."""
    found = []
    for name, write in PAGES.items():
        path = docs / name
        if not path.exists() or path.read_text("utf-8") != write():
            found.append(name)
    return found + [name for name in FILLED if (docs / name).exists() and fill(read(docs / name)) != read(docs / name)]


def read(path: Path) -> str:
    return path.read_text("utf-8")


def _code(names: list[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


if __name__ == "__main__":
    (DOCS / "reference").mkdir(exist_ok=True)
    for page_name in stale():
        if page_name in PAGES:
            (DOCS / page_name).write_text(PAGES[page_name](), "utf-8")
    for path in [*map(Path, sys.argv[1:]), *(DOCS / page_name for page_name in FILLED)]:
        path.write_text(fill(path.read_text("utf-8")), "utf-8")
    packaged = DOCS.parent / "core" / "README.md"  # which indexes show: a project's metadata reads its own folder alone
    packaged.write_text((DOCS.parent / "README.md").read_text("utf-8"), "utf-8")
