"""Small parts of Markdown."""

from typing import Any


def table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines) + "\n"


def default(value: Any) -> str:
    if value is None or value in ((), "", [], {}):
        return "–"
    if isinstance(value, bool):
        return "on" if value else "off"
    return f"`{value}`"


def code(names: list[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)
