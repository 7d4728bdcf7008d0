"""The command line of the core alone, without typer and rich: the version, the help, and a plain `trueno doctor`.

Here one learns what is missing, so nothing may be missing for it.
"""

import argparse
import os
import shutil
import sys
from collections.abc import Sequence
from contextlib import suppress

from trueno.cli.examination import HEALTH, examine, printing_aside
from trueno.cli.findings import lines, setting_lines
from trueno.cli.streams import UNWRITABLE, failed, open_streams
from trueno.discovery import registry
from trueno.escape import dumps, escaped
from trueno.remedies import install
from trueno.text import plain
from trueno.version import __version__

NEEDS = "typer and rich, the command line's own packages"


def run(arguments: Sequence[str]) -> int:
    """Run a command; return its exit code."""
    open_streams()
    try:
        code = _run(list(arguments))
        sys.stdout.flush()
    except OSError as error:
        if error.errno not in UNWRITABLE:
            raise
        code, sentence = failed(error)
        with suppress(OSError):
            if sentence:
                print(f"trueno: {sentence}", file=sys.stderr)
    return code


def _run(arguments: list[str]) -> int:
    if arguments and arguments[0] != "doctor" and not arguments[0].startswith("-"):
        name = f"trueno {escaped(arguments[0])}"
        print(f"trueno: `{name}` needs {NEEDS}. Install: {install('cli')}", file=sys.stderr)
        return 2
    parser, doctor = _parsers()
    try:
        chosen = parser.parse_args(arguments)
    except SystemExit as end:  # argparse has printed what is wrong
        return end.code if isinstance(end.code, int) else 2
    if chosen.version:
        print(f"trueno {__version__}")
    elif chosen.command == "doctor" and not chosen.help:
        return _doctor(chosen)
    else:
        print((doctor if chosen.command == "doctor" else parser).format_help(), end="")
    return 0


def _parsers() -> tuple[argparse.ArgumentParser, argparse.ArgumentParser]:
    """The whole command line's parser and the doctor's; argparse's own --help hides a stdout that cannot be written."""
    more = f"All other commands, such as ops, explain, bench and gguf, need {NEEDS}. Install: {install('cli')}"
    parser = argparse.ArgumentParser(
        prog="trueno",
        description="Vector and matrix operations on the best hardware of the machine.",
        epilog=more,
        add_help=False,
    )
    parser.add_argument("--version", action="store_true", help="show the version and exit")
    doctor = parser.add_subparsers(dest="command", metavar="doctor").add_parser(
        "doctor", help="examine this installation", add_help=False
    )
    for each in (parser, doctor):
        each.add_argument("--help", "-h", action="store_true", help="show this message and exit")
    doctor.add_argument("--refresh", action="store_true", help="probe everything again, ignoring cached verdicts")
    doctor.add_argument("--verbose", action="store_true", help="print everything: full reasons, all settings, files")
    doctor.add_argument("--json", action="store_true", help="print JSON")
    doctor.add_argument("--settings", action="store_true", help="print only the settings, and what each of them does")
    return parser, doctor


def _doctor(chosen: argparse.Namespace) -> int:
    if chosen.refresh:
        registry.forget(refresh=True)
    with printing_aside():
        report = examine()
    if chosen.json:
        print(dumps(plain(report), indent=2))
    else:
        known = sys.stdout.isatty() or os.environ.get("COLUMNS")
        width = shutil.get_terminal_size().columns if known else None
        for line in setting_lines(report, width) if chosen.settings else lines(report, width, chosen.verbose):
            print(escaped("".join(text for text, _ in line)).rstrip())
    return HEALTH.index(report["health"])
