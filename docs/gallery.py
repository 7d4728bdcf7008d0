"""The gallery: a hook of mkdocs that runs every script of `examples/gallery` and shows its text, pictures and source.

A script is a program as people write it, with `plt.show()` at its end.  Here it runs in a child process, which
keeps the figures as files instead: `python docs/gallery.py NAME FOLDER`.
"""

import ast
import os
import runpy
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
SCRIPTS = ROOT / "examples" / "gallery"
LIMIT = 300
"""Seconds for a script; on a machine without a kernel cache most of its time compiles kernels."""
DOTS = 110
"""Dots per inch of a picture: it is sharp on a page, and small."""


def names() -> list[str]:
    """The scripts, in order of their names."""
    return sorted(path.stem for path in SCRIPTS.glob("*.py") if path.stem != "__init__")


def run(name: str, folder: Path) -> None:
    """Run a script in this process and save its figures as `folder`/NAME-1.png and so on."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    plt.show = lambda *_, **__: None  # figures stay open, and are saved below
    sys.path.insert(0, str(ROOT))
    sys.argv = [name]
    runpy.run_path(str(SCRIPTS / f"{name}.py"), run_name="__main__")
    for number in plt.get_fignums():
        plt.figure(number).savefig(folder / f"{name}-{number}.png", dpi=DOTS)


@cache
def results(name: str, source: str) -> tuple[str, list[tuple[str, bytes]]]:
    """What a script prints, and its pictures by name; `source` is its text, so that a changed one runs again."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [sys.executable, __file__, name, folder], cwd=ROOT, capture_output=True, text=True, timeout=LIMIT,
            env=os.environ | {"PYTHONWARNINGS": "error", "PYTHONIOENCODING": "utf-8"},
        )  # fmt: skip
        if done.returncode:
            raise RuntimeError(f"examples/gallery/{name}.py ended with {done.returncode}:\n{done.stderr[-3000:]}")
        pictures = sorted(Path(folder).glob("*.png"))
        if not pictures:
            raise RuntimeError(f"examples/gallery/{name}.py draws nothing")
        return done.stdout.strip(), [(path.name, path.read_bytes()) for path in pictures]


def title(source: str) -> str:
    """The first sentence of a script's docstring, without its period."""
    return (ast.get_docstring(ast.parse(source)) or "").splitlines()[0].rstrip(".")


def page(name: str, source: str, printed: str, pictures: list[str]) -> str:
    """A script's page as Markdown."""
    lines = (ast.get_docstring(ast.parse(source)) or "").splitlines()
    code = source.split('"""', 2)[2].strip()
    parts = [f"# {title(source)}", "\n".join(lines[1:]).strip()]
    parts += [f"![{title(source)}]({picture})" for picture in pictures]
    if printed:
        parts.append(f"It prints:\n\n```text\n{printed}\n```")
    parts.append(f"The program is `examples/gallery/{name}.py`:\n\n```python\n{code}\n```")
    return "\n\n".join(parts) + "\n"


def overview(sources: dict[str, str], first: dict[str, str]) -> str:
    """The gallery's first page: each script by its picture."""
    head = (
        "# Gallery\n\nSix programs with pictures. They run when these pages are built; from a clone, run one with "
        "`python -m examples.gallery.NAME`.\n"
    )
    return head + "".join(
        f"\n## [{title(source)}]({name}.md)\n\n[![{title(source)}]({first[name]})]({name}.md)\n"
        for name, source in sources.items()
    )


def on_config(config: Any) -> Any:
    sources = {name: (SCRIPTS / f"{name}.py").read_text("utf-8") for name in names()}
    pages = [{name.replace("_", " ").capitalize(): f"gallery/{name}.md"} for name in sources]
    config["nav"].insert(1, {"Gallery": [{"Overview": "gallery/index.md"}, *pages]})
    return config


def on_files(files: Any, config: Any) -> Any:
    from mkdocs.structure.files import File

    sources = {name: (SCRIPTS / f"{name}.py").read_text("utf-8") for name in names()}
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        found = dict(zip(sources, pool.map(results, sources, sources.values()), strict=True))
    first = {}
    for name, (printed, pictures) in found.items():
        first[name] = pictures[0][0]
        text = page(name, sources[name], printed, [file for file, _ in pictures])
        files.append(File.generated(config, f"gallery/{name}.md", content=text))
        for file, content in pictures:
            files.append(File.generated(config, f"gallery/{file}", content=content))
    files.append(File.generated(config, "gallery/index.md", content=overview(sources, first)))
    return files


if __name__ == "__main__":
    run(sys.argv[1], Path(sys.argv[2]))
