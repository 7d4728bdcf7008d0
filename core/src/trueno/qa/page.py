"""The reference page of the gates in Markdown, from their docstrings."""

from collections.abc import Callable, Mapping
from textwrap import dedent

from trueno.qa.registry import Gates, collected

HEAD = """# Gates

What each gate of `trueno qa` runs, and when it fails. [Run the gates](../how-to/qa.md) shows how to read the report.
"""


def page(plugins: Mapping[str, Callable[[Gates], None]]) -> str:
    """The whole page.  plugins: for each distribution the function of its entry point in the group `trueno.gates`."""
    filled = []
    for name, add in plugins.items():
        gates = Gates()
        add(gates)
        filled.append((name, gates))
    owners = {gate: name for name, gates in filled for gate in gates.checks}
    parts = [HEAD]
    for one in collected(filled):
        first, _, rest = one.doc.partition("\n")
        text = "\n".join(line.rstrip() for line in f"{first}\n{dedent(rest)}".splitlines()).strip()
        parts.append(f"## {one.id}\n\n**{one.title}** (`{owners.get(one.id, 'trueno')}`)\n\n{text}\n")
    return "\n".join(parts)
