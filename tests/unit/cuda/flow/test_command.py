"""`trueno ptx-flow`: what it prints and writes, its exit codes, and what it makes of files that cannot be read."""

import json
import os
import re
import shutil
import subprocess

import pytest

pytest.importorskip("typer", reason="the command line is not installed: pip install 'trueno[cli]'")

from trueno.cli.app import app
from typer.testing import CliRunner

GOOD = """def head():
    return ".version 8.0"
def twice():
    return head() + head()
def thrice():
    return twice() + head
def far():
    return thrice.x
"""
CHAIN = "def head():\n    return '.version 8.0'\ndef one():\n    return head()\ndef two():\n    return one()\n"


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch):
    """As in a pipe."""
    for name in ("COLUMNS", "FORCE_COLOR", "CLICOLOR_FORCE", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)


def ptx_flow(*args, **options):
    return CliRunner().invoke(app, ["ptx-flow", *map(str, args)], **options)


def notes(result) -> dict[str, str]:
    return {note["path"].rpartition("/")[2]: note["reason"] for note in json.loads(result.stdout)["notes"]}


def test_table(tmp_path):
    (tmp_path / "a.py").write_text(CHAIN)
    result = ptx_flow(tmp_path)
    assert result.exit_code == 0, result.output
    assert re.search(r"a\.py:1 head +emit +writes '\.version 8\.0'", result.stdout)
    assert re.search(r"a\.py:3 one +consume +calls head, which emits +head", result.stdout)
    assert all(line == line.rstrip() for line in result.stdout.splitlines())
    assert "two" not in result.stdout and "3 functions in 1 file: 1 emit, 0 load, 0 analyze, 2 consume" in result.stdout
    assert re.search(
        r"a\.py:5 two +consume +calls one, which leads to head, which emits", ptx_flow(tmp_path, "--steps", 2).stdout
    )


def test_a_function_that_is_passed_on_is_a_reason(tmp_path):
    (tmp_path / "a.py").write_text(CHAIN + "def keep():\n    return [head]\n")
    assert re.search(r"a\.py:7 keep +consume +passes on head, which emits", ptx_flow(tmp_path).stdout)


@pytest.mark.parametrize("terminal", [False, True])
def test_paths_are_not_wrapped(tmp_path, terminal):
    """In a pipe nothing is; in a terminal of 100 columns, longer columns are, but not that of the functions."""
    name = "a_rather_long_name_of_a_function_that_writes_ptx"
    (tmp_path / "a.py").write_text(CHAIN.replace("one", name))
    if terminal:
        monkey = {"FORCE_COLOR": "1", "TTY_COMPATIBLE": "1", "COLUMNS": str(len(str(tmp_path)) + len(name) + 60)}
        result = ptx_flow(tmp_path, env=monkey)
    else:
        result = ptx_flow(tmp_path, "--steps", 2)
        assert re.search(
            f"a\\.py:5 two +consume +calls {name}, which leads to head, which emits +{name}", result.stdout
        )
    assert f"{tmp_path}/a.py:3 {name} " in re.sub(r"\x1b\[[\d;]*m", "", result.stdout)


def test_json(tmp_path):
    (tmp_path / "a.py").write_text(CHAIN)
    result = json.loads(ptx_flow(tmp_path, "--json").stdout)
    assert (result["files"], result["functions"]) == (1, 3)
    assert result["modules"] == {"a": {"emit": 1, "load": 0, "analyze": 0, "consume": 2}}
    assert [(n["name"], n["line"], n["roles"], n["distance"]) for n in result["nodes"]] == [
        ("head", 1, ["emit"], 0), ("one", 3, ["consume"], 1), ("two", 5, ["consume"], 2),
    ]  # fmt: skip
    assert result["nodes"][0]["evidence"] == [{"role": "emit", "line": 2, "what": "writes '.version 8.0'"}]
    assert result["calls"][0] == {"caller": "a:one", "callee": "a:head", "line": 4, "kind": "call"}


def test_dot(tmp_path):
    (tmp_path / "a.py").write_text(CHAIN + """def quote():\n    return '.version "8\\\\n'\n""")
    text = ptx_flow(tmp_path, "--dot").stdout
    assert text.startswith("digraph ptx {") and text.rstrip().endswith("}")
    assert '"a:one" -> "a:head";' in text and 'label="a";' in text and r'[label="head\nemit"' in text
    assert text.count("{") == text.count("}")
    if shutil.which("dot"):
        subprocess.run(["dot", "-Tsvg", "-o", os.devnull], input=text, text=True, check=True, timeout=60)


def test_html(tmp_path):
    """One file without addresses; names and texts of the code base are data, never markup."""
    nasty = tmp_path / """<b onclick='x'>&"""
    nasty.mkdir()
    (nasty / "a.py").write_text(CHAIN.replace("8.0", "8 </script><script>alert(1)</script>"))
    page = tmp_path / "page.html"
    result = ptx_flow(tmp_path, "--html", page)
    assert result.exit_code == 0 and result.stdout == f"{page}: 3 functions\n"
    text = page.read_text("utf-8")
    assert not re.search(r"(?:src|href)=\"(?!data:)|https?://|@import|url\(", text)
    assert text.count("<script") == text.count("</script>") == 2 and "<b>" not in text and "<!--" not in text
    assert "default-src 'none'" in text
    data = json.loads(re.search(r'type="application/json" id="data">(.*?)</script>', text, re.S)[1])
    assert data == json.loads(ptx_flow(tmp_path, "--json").stdout)
    assert re.search(r'<g class="module emit" data-module="[^"]*a"', text)


@pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")
def test_the_script_of_the_page_parses(tmp_path):
    (tmp_path / "a.py").write_text(CHAIN)
    ptx_flow(tmp_path, "--html", tmp_path / "page.html")
    script = re.findall(r"<script>(.*?)</script>", (tmp_path / "page.html").read_text(), re.S)[-1]
    (tmp_path / "script.js").write_text(script)
    subprocess.run(["node", "--check", tmp_path / "script.js"], check=True, timeout=60)


# ---- what cannot be read ------------------------------------------------------------------------


def test_files_that_cannot_be_read_are_notes(tmp_path):
    (tmp_path / "good.py").write_text(GOOD)
    (tmp_path / "syntax.py").write_text("def f(:\n")
    (tmp_path / "binary.py").write_bytes(bytes(range(256)))
    (tmp_path / "zero.py").write_bytes(b"x = 1\0")
    (tmp_path / "latin.py").write_bytes("# é\nx = 'é'\n".encode("latin-1"))
    (tmp_path / "deep.py").write_text("x = " + "(" * 5000 + ")" * 5000)
    (tmp_path / "long.py").write_text("x = " + "-" * 100_000 + "1\n")
    (tmp_path / "cookie.py").write_text("# -*- coding: no-such -*-\n")
    (tmp_path / "loop.py").symlink_to("loop.py")
    (tmp_path / "gone.py").symlink_to("nowhere.py")
    (tmp_path / "folder.py").mkdir()
    (tmp_path / "round").symlink_to(tmp_path, target_is_directory=True)
    os.mkfifo(tmp_path / "pipe.py")
    (tmp_path / "warns.py").write_text("x = '\\d'\n1 is 1\n")
    (tmp_path / "empty.py").write_text("")
    (tmp_path / "text.txt").write_text("def f(: not Python")
    result = ptx_flow(tmp_path, "--json")
    assert result.exit_code == 0, result.output
    found = notes(result)
    assert set(found) >= {"syntax.py", "binary.py", "zero.py", "latin.py", "deep.py", "cookie.py", "loop.py", "gone.py",
                          "round", "pipe.py"}  # fmt: skip
    assert not {"good.py", "warns.py", "empty.py", "text.txt", "folder.py"} & set(found)
    assert (
        found["syntax.py"].startswith("it does not parse: ") and found["round"] == "a link to a folder is not followed"
    )
    assert found["pipe.py"] == "it is not a file" and found["gone.py"].startswith("it cannot be read: ")
    shown = ptx_flow(tmp_path).stdout
    assert "head" in shown and "syntax.py: it does not parse" in shown and "Traceback" not in shown


@pytest.mark.parametrize(
    "name, words",
    [
        ("missing", "there is no file or folder"),
        ("empty", "has no Python file that can be read"),
        ("bad.py", "has no Python file that can be read; "),
        ("loop.py", "has no Python file that can be read; "),
        ("note.txt", "it does not parse"),
    ],
)
def test_nothing_to_read_is_a_sentence(tmp_path, name, words):
    (tmp_path / "empty").mkdir()
    (tmp_path / "bad.py").write_text("def")
    (tmp_path / "loop.py").symlink_to("loop.py")
    (tmp_path / "note.txt").write_text("This is no program.")
    result = ptx_flow(tmp_path / name)
    assert result.exit_code == 2 and words in " ".join(result.stderr.split())
    assert result.stdout == "" and "Traceback" not in result.stderr


def test_other_errors(tmp_path):
    (tmp_path / "a.py").write_text(CHAIN)
    both = ptx_flow(tmp_path, "--json", "--dot")
    assert both.exit_code == 2 and "choose one" in both.stderr
    unwritable = ptx_flow(tmp_path, "--html", tmp_path / "none" / "page.html")
    assert unwritable.exit_code == 2 and "cannot be written" in unwritable.stderr


def test_names_of_files_are_escaped(tmp_path):
    (tmp_path / "a\x1b[31m.py").write_text(CHAIN)
    for option in ((), ("--json",), ("--dot",)):
        result = ptx_flow(tmp_path, *option)
        assert result.exit_code == 0 and "\x1b" not in result.stdout


def test_a_file_that_is_named_twice_counts_once(tmp_path):
    (tmp_path / "a.py").write_text(CHAIN)
    assert json.loads(ptx_flow(tmp_path, tmp_path / "a.py", tmp_path, "--json").stdout)["files"] == 1


def test_nothing_is_imported_or_run(tmp_path):
    (tmp_path / "a.py").write_text(f"open({str(tmp_path / 'made')!r}, 'w')\nraise SystemExit(3)\n" + CHAIN)
    assert ptx_flow(tmp_path).exit_code == 0 and not (tmp_path / "made").exists()


def test_a_folder_without_ptx(tmp_path):
    (tmp_path / "a.py").write_text("x = 1\n")
    result = ptx_flow(tmp_path)
    assert result.exit_code == 0 and "0 functions in 1 file: 0 emit, 0 load, 0 analyze, 0 consume" in result.stdout
    assert ptx_flow(tmp_path, "--html", tmp_path / "page.html").exit_code == 0
