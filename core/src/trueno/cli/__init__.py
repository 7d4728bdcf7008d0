"""The command line `trueno`: one module per command, and this entry point, which needs neither typer nor rich.

typer and rich come with the extra `cli` and are imported in this package only, and only by `main`, so that
the child processes of `trueno warmup` start without them.
"""

import sys

SENTENCE = "trueno: the command line needs typer and rich. Install: pip install 'trueno[cli]'"


def main() -> None:
    """Run the command line: the console script `trueno`."""
    try:
        import rich  # noqa: F401 - both are asked for first, so that the sentence comes whichever is missing
        import typer  # noqa: F401
    except ImportError:
        print(SENTENCE, file=sys.stderr)
        sys.exit(2)
    from trueno.cli.app import app  # start-up

    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # µ, × and Σ must not end the program in an ASCII terminal
    app(prog_name="trueno")
