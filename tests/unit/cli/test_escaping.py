"""No word of anybody else's reaches a terminal that does more than show: whatever the command, in text and in JSON.

What a terminal may obey is planted wherever something from outside comes in, all commands run, and their output is read
character by character, by the categories of Unicode and not by what trueno thinks of them.
"""

import ast
import io
import json
import sys
import unicodedata
from pathlib import Path

import numpy as np
import pytest
import trueno
from unit.gguf.files import ARCH

pytest.importorskip("typer", reason="the command line is not installed: pip install 'trueno[cli]'")

from fake_plugin import run, write
from rich.text import Text
from trueno.cli import report
from trueno.discovery.entry import Entry
from trueno.errors import ParameterError, TruenoWarning, warn
from trueno.escape import dumps, escaped
from trueno.events.stream import Event

ROOT = Path(__file__).parents[3]
OBEYED = "\x1b[31m \x1b]0;t\x07 \x9b2j \x7f \b \u200b \u202e \u2066 \U000e0041"
"""Escape sequences, controls of both sets, a bell, what reorders and what hides; in lower case, as names are."""
BREAKS = "\r \x0b \x85 \u2028 \u2029 \nforged: line"
"""What begins a line that seems to be the program's own."""
MARKUP = "[bold]b[/bold] [link=http://x]l[/link] :boom:"
LONE = "\udc9b"
"""Half of a character: an argument of bytes that are not text."""
EVIL = f"evil{OBEYED} {MARKUP} {BREAKS}"
LINE = f"evil{OBEYED} [bold]b"
"""What fits into a line of entry_points.txt."""
TENSOR = "t\x1b[31m \x9b2j \x7f \u202e \nforged [bold]b"
"""What fits into the name of a tensor."""
SPELLED = ("\\x1b[31m", "\\x9b2j", "\\x7f", "\\x08", "\\u200b", "\\u202e", "\\u2066", "\\U000e0041")

HOOKS = f"""
from trueno.hooks import hookimpl
EVIL = {EVIL!r}

@hookimpl
def trueno_doctor_section(): return ["section: " + EVIL]

@hookimpl
def trueno_on_event(event): raise ValueError("hook: " + EVIL)

@hookimpl
def trueno_commands(app): app.command("cmd" + EVIL)(lambda: None)
"""
BODY = f"""
def probe(self, level): return Probe(True, devices=(Device({EVIL!r}, {EVIL!r}),))
def supports(self, call): return None if call.op.name == "add" else Reject("unsupported_op", {EVIL!r})
"""
COMMANDS = """
import io, json, sys
from contextlib import redirect_stderr, redirect_stdout

from trueno.cli.app import app

told = []
for arguments in json.loads(sys.stdin.read()):
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        try:
            app(arguments, prog_name="trueno")
            code = 0
        except SystemExit as end:
            code = end.code
    told.append([code, out.getvalue(), err.getvalue()])
print(json.dumps(told))
"""


def obeyed(text):
    """The characters that do more than show."""
    return {c for c in text if c != "\n" and unicodedata.category(c) in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")}


def _point(folder, package, group, name, value, distribution, version="1.0"):
    info = folder / f"{package}-1.0.dist-info"
    info.mkdir()
    head = f"Metadata-Version: 2.1\nName: {distribution}\nVersion: {version}\n"
    (info / "METADATA").write_text(head, "utf-8", newline="\n")
    (info / "entry_points.txt").write_text(f"[{group}]\n{name} = {value}\n", "utf-8", newline="\n")


@pytest.fixture(scope="module")
def said(tmp_path_factory):
    """What every command says on a machine full of traps: {its words: (exit code, stdout, stderr)}."""
    folder = tmp_path_factory.mktemp("traps")
    write(folder, "works", BODY, tier=90)
    facts = {"type": "str", "default": EVIL, "help": f"help {EVIL}"}
    write(
        folder, "pathless", require={sys.platform: {"any_path": [f"/no/such/{EVIL}"]}}, settings={"TRUENO_TRAP": facts}
    )
    write(folder, "raises", f"def probe(self, level): raise OSError({EVIL!r})")
    write(folder, "keyed", manifest=f'name = "keyed"\n{json.dumps(EVIL)} = 1\n')
    write(folder, "twice", distribution="fake-one")
    for path in folder.rglob("backend.toml"):
        text = path.read_text("utf-8").replace("\\udb40\\udc41", "\\U000e0041").replace("\x7f", "\\u007f")
        path.write_text(text, "utf-8")  # what JSON has written is TOML now
    folded = f"other{LINE}\n forged"  # a header that goes on in the next line
    _point(folder, "fake_other", "trueno.backends", "twice", "fake_one_package:backend.toml", folded)
    _point(
        folder, "fake_named", "trueno.backends", f"na{LINE}", "fake_one_package:backend.toml", f"n{LINE}", f"1{LINE}"
    )
    _point(folder, "fake_hooks", "trueno.hooks", f"hk{LINE}", "fake_site", "fake-hooks")
    _point(folder, "fake_import", "trueno.hooks", f"im{LINE}", "fake_site_that_fails", "fake-import")
    (folder / "fake_site.py").write_text(HOOKS)
    (folder / "fake_site_that_fails.py").write_text(f"raise ImportError({EVIL!r})")
    model, odd = folder / f"model{OBEYED.replace('/', '')}.gguf", folder / "odd.gguf"
    trueno.gguf.write(odd, {TENSOR: np.ones((2, 256), "f4")}, ARCH | {EVIL: EVIL, "list": [EVIL]})
    odd.rename(model)
    (folder / "no.gguf").write_bytes(b"no")
    name = EVIL + LONE
    commands = [
        ["doctor"], ["doctor", "--json"], ["doctor", "--settings"], ["ops"], ["ops", "--json"], ["ops", "exp"],
        ["ops", "exp", "--json"], ["ops", name], ["explain", "add", "9", "9"], ["explain", "exp", "9"],
        ["explain", "exp", "9", "--json"], ["explain", name, "9"], ["explain", "add", name, "9"],
        ["explain", "exp", "9", "--dtype", name], ["explain", "exp", "9", "--set", name],
        ["explain", "exp", "9", "--set", f"{name}=1"], ["explain", "exp", "9", "--backend", name],
        ["explain", "exp", "9", "--backend", "twice"], ["explain", "exp", "9", "--backend", "pathless"],
        ["explain", "exp", "9", "--backend", "raises"], ["bench", "exp", "--sizes", "10", "--time", "0.001"],
        ["bench", "exp", "--sizes", "10", "--time", "0.001", "--json"], ["bench", name],
        ["bench", "add", "--sizes", name], ["bench", "add", "--backend", name],
        ["demo", "--ops", "exp"], ["demo", "--ops", "exp", "--json"],
        ["demo", "--ops", name], ["demo", "--backend", name], ["warmup", "--ops", "add", "--jobs", "1"],
        ["warmup", "--ops", name], ["warmup", "--backend", name], ["warmup", "--jobs", EVIL],
        ["calibrate", "--dry-run", "--json"], ["calibrate", "--backend", name], ["calibrate", "--merge", name],
        ["conformance", name], ["conformance", f"na{LINE}", "--quick", "--ops", "add", "-k", "declared"],
        ["new-backend", name], ["new-backend", "fine", "--dir", name], ["gguf", "info", str(model)],
        ["gguf", "info", str(model), "--json"], ["gguf", "info", name], ["gguf", "info", str(folder / "no.gguf")],
        ["gguf", "quantize", str(model), f"{name}.gguf", "--dry-run", "--verbose"],
        ["gguf", "quantize", str(model), f"{name}.gguf", "--dry-run", "--json"],
        ["gguf", "quantize", str(model), str(folder / "out.gguf"), "--type", name], ["--help"], [name], [f"--{name}"],
        ["doctor", f"--{name}"], ["doctor", name], ["ops", "add", name], ["gguf", name],
    ]  # fmt: skip
    names = ",".join(["works", "pathless", "raises", "keyed", "twice", f"na{LINE}", f"hk{LINE}", f"im{LINE}"])
    code = f"import io, sys; sys.stdin = io.StringIO({json.dumps(commands)!r}){COMMANDS}"
    done = run(
        folder,
        code,
        flags=("-P",),
        TRUENO_AUTOLOAD=names,
        TRUENO_VERBOSE="json",
        COLUMNS="600",
        **{f"TRUENO_NO{LINE}": "1"},
    )
    assert done.returncode == 0, done.stderr
    found = {" ".join(c): tuple(o) for c, o in zip(commands, json.loads(done.stdout), strict=True)}
    return found | {"what their children say": (2, "", done.stderr)}


def test_nothing_obeyed_comes_out_of_any_command(said):
    for words, (_, out, err) in said.items():
        assert not obeyed(out + err), (words, obeyed(out + err))
        forged = [line for line in (out + err).split("\n") if line.startswith("forged")]
        assert not forged, (words, out, err)
        assert "Traceback" not in err, (words, err)


@pytest.mark.parametrize(
    "words, places",
    [
        ("doctor", ["works", "pathless", "section: ", "hook: ", "otherevil", "naevil", "nevil", "1evil", '"im', '"hk']),
        ("--help", ["brings a command 'cmd"]),
        ("doctor --settings", ["TRUENO_TRAP = evil"]),
        ("ops exp", ["works"]),
        ("explain exp 9", ["works", "pathless"]),
        ("bench exp --sizes 10 --time 0.001", ["works was left out: evil"]),
    ],
)
def test_it_is_shown_spelled_where_it_was_planted(said, words, places):
    _, out, err = said[words]
    lines = (out + err).split("\n")
    for place in places:
        assert any(place in line and all(s in line for s in SPELLED) for line in lines), (place, lines)
    assert any(MARKUP in line for line in lines)
    warned = [line for line in lines if line.startswith("warning: ")]
    assert len(set(warned)) == len(warned)


def test_json_holds_what_was_planted(said):
    found = {words: json.loads(out) for words, (_, out, _) in said.items() if "--json" in words and out}
    assert len(found) >= 7
    backends = {b["name"]: b for b in found["doctor --json"]["backends"]}
    assert backends["works"]["devices"] == [{"name": EVIL, "isa": EVIL, "software": False}]
    assert f"na{LINE}" in backends
    assert found["doctor --json"]["sections"][0]["lines"] == [f"section: {EVIL}"]
    (info,) = [r for words, r in found.items() if words.startswith("gguf info")]
    assert info["metadata"][EVIL] == EVIL and info["tensors"][0]["name"] == TENSOR


def test_wrong_words_are_quoted_and_spelled(said):
    for words, (code, _, err) in said.items():
        if LONE in words:
            assert code == 2 or "quantize" in words or "--dir" in words, words
            assert SPELLED[0] in err or "quantize" in words or "--dir" in words, (words, err)


def test_a_terminal_gets_our_colours_and_no_others():
    file = io.StringIO()
    console = report.Screen(
        file=file, force_terminal=True, color_system="standard", width=80, markup=False, highlight=False
    )
    console.print("a\x1b[31mb\nc", style="green")
    console.print(Text("a\x1b[31mb", style="green"))
    table = report.table("\x9bhead")
    table.add_row("a\x1b[31mb\nc")
    console.print(table)
    printed = file.getvalue()
    assert printed.count("a\\x1b[31mb") == 3 and printed.count("b\\nc") == 2 and "\\x9bhead" in printed
    assert "\x1b[32m" in printed and "\x1b[31m" not in printed and "\x9b" not in printed


@pytest.mark.parametrize("character", [*map(chr, range(0x20)), *map(chr, range(0x7F, 0xA0)), "\u061c", "\ufeff", LONE])
def test_every_control_is_spelled(character):
    assert escaped(f"a{character}b") == f"a{repr(character)[1:-1]}b"
    assert not obeyed(escaped(character)) and not obeyed(dumps(character).replace("\n", ""))
    assert json.loads(dumps({character: [character]}, indent=1)) == {character: [character]}


def test_what_is_visible_stays():
    text = "µ × Σ 1\u202f000 a\u00a0b 日本語\u3000 é e\u0301 😀 [7] C:\\x1b"
    assert escaped(text) == text and json.loads(dumps(text)) == text and text.replace("\\", "\\\\") in dumps(text)
    assert escaped("a\n\tb", keep="\n\t") == "a\n\tb"


def test_errors_warnings_and_events_are_spelled():
    assert str(ParameterError(f"a {EVIL}\nb")) == f"a {escaped(EVIL, keep=chr(10))}\nb"
    assert str(TruenoWarning(EVIL)) == escaped(EVIL)
    with pytest.warns(TruenoWarning) as caught:
        warn(EVIL)
    assert str(caught[0].message) == escaped(EVIL)
    assert repr(Entry(LINE, None, "bad_manifest", EVIL)) == escaped(f"<{LINE}: {EVIL}>")
    assert not obeyed(str(Event("probe", EVIL, EVIL, EVIL, 0.0, 1.0, 0, 1)))


DOORS = {
    "report.py": {"Console", "dumps", "print"},
    "plain.py": {"dumps", "print"},  # where rich is missing
    "commands.py": {"print"},  # of a plugin, which knows no module of the command line's
    "child.py": {"dumps"},  # whose lines `crew.py` reads
    "crew.py": {"dumps"},
}
"""The modules that may print by themselves, or write JSON that no terminal sees."""


@pytest.mark.parametrize(
    "path",
    [*sorted(ROOT.glob("core/src/trueno/cli/*.py")), *sorted(ROOT.glob("plugins/*/src/*/commands.py"))],
    ids=lambda path: f"{path.parent.name}/{path.name}",
)
def test_nobody_prints_in_another_way(path):
    """What a module uses of these names is its own function, or trueno.escape's."""
    homes = ("json", "rich", "rich.console", "typer", "click", "sys.stdout", "sys.stderr")
    used = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print":
            used.add("print")
        elif isinstance(node, ast.Attribute) and ast.unparse(node.value) in homes:
            used.add(node.attr)
        elif isinstance(node, ast.ImportFrom) and node.module in homes:
            used |= {alias.name for alias in node.names}
    wrong = used & {"print", "Console", "dump", "dumps", "echo", "secho", "write"} - DOORS.get(path.name, set())
    assert not wrong, f"{wrong}: print with trueno.cli.report, which spells what a terminal would obey"
