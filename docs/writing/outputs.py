"""What the snippets of a page print, below each of them: `python -m docs.writing.outputs docs/tutorial.md` writes it.

The Python blocks of a page run in order, in one process.  A block shows what it prints, and then the value of its last
line, if that is an expression, as a notebook does.  The output is a block of its own:

    ```text title="Output"

A test compares it with what the snippet prints.  `title="Output, for example"` marks what differs between machines or
from run to run, such as times: then the test only asks that the snippet prints something.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r'^```python\n(.*?)^```\n(\n```text title="(Output[^"\n]*)"\n(.*?)^```\n)?', re.M | re.S)
SAME, VARIES = "Output", "Output, for example"
"""The titles of an output that is compared, and of one that is not."""
RUNNER = """
import ast, contextlib, io, json, sys

blocks, outputs = json.load(sys.stdin), []
for source in blocks:
    tree = ast.parse(source)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(compile(tree, "program.py", "exec"), globals())
        if last is not None:
            value = eval(compile(ast.Expression(last.value), "program.py", "eval"), globals())
            if value is not None:
                print(repr(value))
    outputs.append(printed.getvalue())
print(json.dumps(outputs))
"""


class Snippet(NamedTuple):
    """A Python block, with the title and the text of the output below it; both are empty if there is none."""

    code: str
    title: str
    output: str


def snippets(text: str) -> list[Snippet]:
    """The Python blocks of a page."""
    return [Snippet(m[1], m[3] or "", m[4] or "") for m in BLOCK.finditer(text)]


def run(blocks: list[str], settings: Mapping[str, str] | None = None) -> list[str]:
    """What each block prints; RuntimeError with the traceback if one fails, or warns."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", RUNNER],
        input=json.dumps(blocks), env=os.environ | (settings or {}), capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    if done.returncode:
        raise RuntimeError(done.stderr)
    return [tidy(output) for output in json.loads(done.stdout.splitlines()[-1])]


def tidy(output: str) -> str:
    """An output without blanks at the ends of its lines, which an editor would remove."""
    return "".join(f"{line.rstrip()}\n" for line in output.rstrip().splitlines())


def differences(text: str, printed: list[str]) -> list[str]:
    """A sentence for each snippet whose output is missing, differs, or is shown although it prints nothing."""
    wrong = []
    for snippet, output in zip(snippets(text), printed, strict=True):
        line = snippet.code.rstrip().splitlines()[-1]
        if bool(output) != bool(snippet.output):
            wrong.append(f"{line!r} prints {output!r}, and the page shows {snippet.output!r}")
        elif snippet.title == SAME and output != snippet.output:
            wrong.append(f"{line!r} prints\n{output}and the page shows\n{snippet.output}")
        elif snippet.title not in ("", SAME, VARIES):
            wrong.append(f"{snippet.title!r} is not a title of an output: {SAME!r}, {VARIES!r}")
    return wrong


def written(text: str, printed: list[str]) -> str:
    """The page with what its snippets print; an output that varies stays as it is."""
    remaining = iter(printed)

    def block(match: re.Match[str]) -> str:
        output = next(remaining)
        if match[3] == VARIES and output:
            return match[0]
        shown = f'\n```text title="{SAME}"\n{output}```\n' if output else ""
        return f"```python\n{match[1]}```\n{shown}"

    return BLOCK.sub(block, text)


if __name__ == "__main__":
    for path in map(Path, sys.argv[1:]):
        page = path.read_text("utf-8")
        path.write_text(written(page, run([one.code for one in snippets(page)])), "utf-8")
