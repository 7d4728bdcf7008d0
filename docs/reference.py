"""`python docs/reference.py README.md` writes what the docs derive from the sources; `docs/writing` says how.

The pages of `reference/` are files, so that a clone and a forge have them too, and `README.md` as an argument gets the
short table of ops between its markers.
"""

import sys
from functools import partial
from pathlib import Path

DOCS = Path(__file__).parent
sys.path.insert(0, str(DOCS.parent))  # a script is found without the folder above its own

from docs.writing import contract, kernels, ops, ptx, tables  # noqa: E402

PAGES = {
    **ops.pages(),
    "reference/settings.md": tables.settings_page,
    "reference/reasons.md": tables.reasons_page,
    "reference/events.md": tables.events_page,
    "reference/manifest.md": tables.manifest_page,
    "reference/backend.md": contract.backend_page,
    "reference/cuda-kernels.md": kernels.kernels_page,
    "reference/ptx-builder.md": ptx.builder_page,
    "reference/gates.md": tables.gates_page,
    "reference/findings.md": ptx.findings_page,
    "reference/ptx-rules.md": ptx.analyzer_rules_page,
    "reference/ptx-report.md": ptx.analyzer_report_page,
    **{f"reference/ptx-{name}.md": partial(ptx.analyzer_rule_page, name) for name in ptx.rules()},
}
TABLES = {"ops": ops.summary, "members": contract.members_table}
"""The tables that stand in hand-written pages, by the name in their markers: `<!-- ops -->` … `<!-- /ops -->`."""
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


if __name__ == "__main__":
    (DOCS / "reference/ops").mkdir(parents=True, exist_ok=True)
    for page_name in stale():
        if page_name in PAGES:
            (DOCS / page_name).write_text(PAGES[page_name](), "utf-8")
    for path in [*map(Path, sys.argv[1:]), *(DOCS / page_name for page_name in FILLED)]:
        path.write_text(fill(path.read_text("utf-8")), "utf-8")
    packaged = DOCS.parent / "core" / "README.md"  # which indexes show: a project's metadata reads its own folder alone
    packaged.write_text((DOCS.parent / "README.md").read_text("utf-8"), "utf-8")
