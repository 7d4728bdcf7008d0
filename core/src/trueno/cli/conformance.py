"""`trueno conformance`: is this backend correct?  Runs the kit `trueno.testing` in its own pytest."""

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from trueno.cli.report import complain, find_dtypes, find_ops
from trueno.discovery import registry
from trueno.errors import UnknownBackend, suggestion

DTYPES = ("float32", "float64", "float16", "bfloat16")
SENTENCE = "the conformance kit needs pytest. Install: pip install pytest"


def command(
    name: Annotated[str, typer.Argument(help="The backend to test.", show_default=False)],
    json: Annotated[str, typer.Option(metavar="PATH", help="Also write the report as JSON to this file.")] = "",
    ops: Annotated[str, typer.Option(help="Ops, separated by commas; default: all.")] = "",
    dtype: Annotated[
        str, typer.Option(help="Types, separated by commas; default: float32,float64, and a few of 16 bits.")
    ] = "",
    quick: Annotated[bool, typer.Option("--quick", help="Fewer cases: a look, not a proof.")] = False,
    seed: Annotated[int, typer.Option(help="Seed of the operands.")] = 0,
    chosen: Annotated[str, typer.Option("-k", metavar="WORDS", help="Only tests that match, as pytest's -k.")] = "",
) -> None:
    """Test a backend: manifest, probes, kernels, values, threads, rates.

    Minutes for a whole backend.  Exit code 0: it conforms.  1: it does not.  2: it cannot be tested: it is not
    available, or takes none of the ops asked for.
    """
    name = name.lower()
    if name not in registry.entries():
        installed = ", ".join(sorted(registry.entries()))
        raise UnknownBackend(
            f'"{name}" is not installed{suggestion(name, registry.entries()) or ";"} installed: {installed}'
        )
    if find_spec("pytest") is None:
        complain(SENTENCE)
        raise typer.Exit(2)
    if json and (problem := _unwritable(json)):
        complain(problem)
        raise typer.Exit(2)
    done = subprocess.run(arguments(name, json, ops, dtype, quick, seed, chosen))
    if done.returncode:
        raise typer.Exit(1 if done.returncode == 1 else 2)


def _unwritable(path: str) -> str:
    from trueno.testing.ledger import unwritable  # start-up

    return unwritable(Path(path).absolute())


def arguments(name: str, json: str, ops: str, dtype: str, quick: bool, seed: int, chosen: str) -> list[str]:
    """The command line of pytest; its settings are the kit's, not those of the project around."""
    import trueno.testing  # start-up

    settings = Path(trueno.testing.__file__).with_name("conformance.toml")
    argv = [sys.executable, "-m", "pytest", "-q", "-rN", "-c", str(settings), "--rootdir", str(settings.parent)]
    argv += ["-p", "trueno.testing.plugin", "--pyargs", "trueno.testing", "--trueno-backend", name]
    argv += ["--trueno-seed", str(seed)]
    argv += ["--trueno-dtype", ",".join(find_dtypes(dtype, DTYPES))] if dtype else []
    argv += ["--trueno-ops", ",".join(op.name for op in find_ops(ops))] if ops else []
    argv += ["--trueno-json", str(Path(json).absolute())] if json else []
    argv += ["--trueno-quick"] if quick else []
    return [*argv, "-k", chosen] if chosen else argv
