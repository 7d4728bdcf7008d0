"""What a built site would load from other sites when it is opened; a link that a reader clicks is not a load."""

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

LOADING = {
    "audio": ("src",),
    "embed": ("src",),
    "iframe": ("src", "srcdoc"),
    "image": ("href", "xlink:href"),
    "img": ("src", "srcset"),
    "input": ("src",),
    "link": ("href",),
    "object": ("data",),
    "script": ("src",),
    "source": ("src", "srcset"),
    "track": ("src",),
    "use": ("href", "xlink:href"),
    "video": ("src", "poster"),
}
"""By element, the attributes that name what a browser loads."""
REMOTE = re.compile(r"^\s*(?:https?:)?//|,\s*(?:https?:)?//", re.I)
STYLED = re.compile(r"""url\(\s*["']?\s*((?:https?:)?//[^)"']*)|@import\s+["']((?:https?:)?//[^"']*)""", re.I)


class _Page(HTMLParser):
    """Collects the loads of one page."""

    def __init__(self) -> None:
        super().__init__()
        self.loads: list[str] = []
        self._in_style = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        canonical = tag == "link" and values.get("rel") in ("canonical", "author", "license", "next", "prev")
        if not canonical:
            named = [values.get(name, "") for name in LOADING.get(tag, ())]
            self.loads += [f"<{tag}> {value}" for value in named if REMOTE.search(value)]
        self.loads += [f"<{tag} style> {url}" for url in styled(values.get("style", ""))]
        if "mermaid" in values.get("class", "").split():
            self.loads.append(f"<{tag} class=mermaid>: the theme would take mermaid from another site")
        self._in_style = tag == "style"

    def handle_data(self, data: str) -> None:
        if self._in_style:
            self.loads += [f"<style> {url}" for url in styled(data)]


def styled(text: str) -> list[str]:
    """The remote addresses that a style sheet loads."""
    return [one or other for one, other in STYLED.findall(text)]


def of_page(html: str) -> list[str]:
    """The remote loads of a page, each with its element."""
    page = _Page()
    page.feed(html)
    page.close()
    return page.loads


def loads(site: Path) -> list[str]:
    """`path: load` for each remote load of the pages, pictures and style sheets of a folder."""
    return sorted(f"{path.relative_to(site)}: {load}" for path, load in _all(site))


def _all(site: Path) -> Iterator[tuple[Path, str]]:
    for path in site.rglob("*"):
        if path.suffix in (".html", ".svg"):
            yield from ((path, load) for load in of_page(path.read_text("utf-8")))
        elif path.suffix == ".css":
            yield from ((path, load) for load in styled(path.read_text("utf-8")))
