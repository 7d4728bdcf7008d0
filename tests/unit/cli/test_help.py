"""Help with whole sentences at any width, where a text is never markup; completion; errors as plain lines."""

import os
import subprocess
import sys

import pytest

pytest.importorskip("typer", reason="the command line is not installed: pip install 'trueno[cli]'")

import typer
from trueno import hooks
from trueno.cli.app import app
from typer.main import get_command
from typer.testing import CliRunner


def invoke(*arguments, width=80):
    result = CliRunner().invoke(app, list(arguments), prog_name="trueno", env={"COLUMNS": str(width)})
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def commands():
    """Every command and its path, those of plugins too."""

    def below(command, path, context):
        yield path, command
        for name in command.list_commands(context) if hasattr(command, "list_commands") else ():
            yield from below(command.get_command(context, name), (*path, name), context)

    root = get_command(app)
    yield from below(root, (), typer.Context(root))


COMMANDS = dict(commands())


def bare(text):
    """Words without the frame."""
    return " ".join(text.replace("│", " ").split())


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_help_shows_every_sentence_whole(path):
    shown = invoke(*path, "--help")
    assert shown.exit_code == 0 and max(map(len, shown.stdout.splitlines())) <= 80
    command = COMMANDS[path]
    for inner in getattr(command, "commands", {}).values():
        summary = (inner.help or "").split("\n\n")[0]
        assert bare(summary.replace("\\[", "[")) in bare(shown.stdout)


def test_signatures_and_markup_are_text():
    """A plugin's help may hold anything."""

    class Plugin:
        @hooks.hookimpl
        def trueno_commands(self, app):
            @app.command("odd")
            def odd(n: int = typer.Option(1, help="x[...,n] [bold]not bold[/bold] [/] \x1b[31m")):
                """Take x[n] [/red] and give [link=x]y[/link]."""

    plugin = Plugin()
    hooks.register(plugin, "odd-help")
    try:
        from trueno.cli.app import Group

        group = get_command(app)
        assert isinstance(group, Group)
        shown = bare(invoke("odd", "--help").stdout)
        assert "Take x[n] [/red] and give [link=x]y[/link]." in shown
        assert "[bold]not bold[/bold] [/]" in shown and "\x1b" not in shown
    finally:
        hooks.unregister(plugin)


def test_errors_are_plain_lines():
    done = invoke("bench", "--nonsense", "x")
    assert done.exit_code == 2 and "╭" not in done.stderr and "--nonsense" in done.stderr


@pytest.mark.parametrize("words, wanted", [("trueno do", {"doctor"}), ("trueno gguf ", {"info", "quantize"})])
def test_a_shell_completes_commands(words, wanted):
    position = len(words.split(" ")) - 1
    env = {**os.environ, "_TRUENO_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(position)}
    done = subprocess.run([sys.executable, "-m", "trueno"], env=env, capture_output=True, text=True, check=False)
    assert set(done.stdout.split()) >= wanted and not done.stderr
    shown = invoke("--show-completion", "bash") if position == 1 else invoke("--help")
    assert "ompletion" in shown.stdout
