"""The command line `trueno`: one module per command, and this entry point, which needs neither typer nor rich.

typer and rich come with the extra `cli` and are imported in this package only, and only by `main`, so that
the child processes of `trueno warmup` start without them.  Without them `trueno.cli.plain` does what the core can.
"""

import sys


def main() -> None:
    """Run the command line: the console script `trueno`."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # µ, × and Σ must not end the program in an ASCII terminal
    if not _complete():
        from trueno.cli.plain import run  # start-up

        sys.exit(run(sys.argv[1:]))
    from trueno.cli.app import app  # start-up

    app(prog_name="trueno")


def _complete() -> bool:
    try:
        import rich  # noqa: F401 - both are asked for first, so that the answer is the same whichever is missing
        import typer  # noqa: F401
    except ImportError:
        return False
    return True
