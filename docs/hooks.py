"""A hook of mkdocs: the version, the parts of the contents whose lists are folders, and a look at what was built."""

import re
import sys
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # mkdocs loads a hook by its path alone

from docs.writing import external, ptx  # noqa: E402

PARAGRAPH = re.compile(r"<p>.*?</p>", re.S)
PARAMETER = re.compile(r"(^<p>|(?<=[.;)])\s+)([a-z_]\w*(?:, [a-z_]\w*)*):\s+(?=\S)")
"""A sentence of a docstring that begins with the names of parameters."""


def on_config(config: Any) -> Any:
    """Put the version into the title; list the analyzer's rules, and every decision of docs/adr by its title."""
    project = tomllib.loads((ROOT / "core/pyproject.toml").read_text("utf-8"))["project"]
    config["site_name"] += f" {project['version']}"
    section(config["nav"], "PTX").append({"Rules": [{name: f"reference/ptx-{name}.md"} for name in ptx.rules()]})
    families = sorted(p for p in (ROOT / "docs/reference/ops").glob("*.md") if p.stem != "index")
    section(config["nav"], "Ops").extend({p.stem.capitalize(): f"reference/ops/{p.name}"} for p in families)
    decisions = sorted((ROOT / "docs/adr").glob("*.md"))[1:]  # the first is the template
    titles = [path.read_text("utf-8").partition("\n")[0].removeprefix("# ") for path in decisions]
    config["nav"].append({"Decisions": [{t: f"adr/{p.name}"} for t, p in zip(titles, decisions, strict=True)]})
    return config


def on_post_build(config: Any) -> None:
    """Refuse a site that would load something from another one when it is opened."""
    from mkdocs.exceptions import PluginError

    if loads := external.loads(Path(config["site_dir"])):
        raise PluginError("the site loads from other sites:\n" + "\n".join(loads))


def on_page_content(html: str, page: Any, **_: Any) -> str:
    """Begin a line for each parameter in the docstrings of the reference."""
    if not page.file.src_uri.startswith(("reference/api/", "reference/ops/")):
        return html
    return PARAGRAPH.sub(lambda paragraph: PARAMETER.sub(_begun, paragraph[0]), html)


def _begun(match: re.Match[str]) -> str:
    return f"{'<p>' if match[1] == '<p>' else '<br>'}<strong>{match[2]}:</strong> "


def section(nav: list[Any], title: str) -> list[Any]:
    """The list under a title of the contents, however deep; KeyError if there is none."""
    for entry in nav:
        for name, below in entry.items() if isinstance(entry, dict) else ():
            if isinstance(below, list):
                if name == title:
                    return below
                try:
                    return section(below, title)
                except KeyError:
                    continue
    raise KeyError(title)
