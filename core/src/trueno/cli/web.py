"""`trueno web`: export a recorded batch for web pages, and serve a folder to try it."""

import runpy
import signal
import traceback
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Annotated, Any

import typer

import trueno
from trueno.cli.report import screen
from trueno.errors import FileError, ParameterError, TruenoError
from trueno.text import number

app = typer.Typer(help="Export batches for web pages.", no_args_is_help=True, rich_markup_mode=None)
NEEDED = ("batch", "inputs", "outputs")


@app.command("export")
def export(
    script: Annotated[Path, typer.Argument(metavar="SCRIPT.py", show_default=False)],
    folder: Annotated[Path, typer.Option("--out", "-o", help="The folder to write.")] = Path("web"),
    wasm: Annotated[bool, typer.Option("--wasm", help="Also compile for pages without a GPU.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace what an earlier export wrote.")] = False,
) -> None:
    """Run SCRIPT.py, which records `batch` on "wgpu" and names `inputs` and `outputs`, and export that batch.

    inputs and outputs are dictionaries of the batch's handles, by the names that the page uses.
    """
    found = _run(script)
    if missing := [name for name in NEEDED if name not in found]:
        raise ParameterError(f"web export: {script} has no {', no '.join(missing)}; it must define {', '.join(NEEDED)}")
    path = trueno.web.export(
        found["batch"], folder, inputs=found["inputs"], outputs=found["outputs"], wasm=wasm, force=force
    )
    nbytes = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
    screen().print(f"{path}: {number(nbytes)} bytes; try it: trueno web serve {path.parent}")


@app.command("serve")
def serve(
    folder: Annotated[Path, typer.Argument(help="The folder to serve.")] = Path(),
    port: Annotated[int, typer.Option(help="The port; 0 is any that is free.", min=0, max=65535)] = 8000,
) -> None:
    """Serve a folder on http://127.0.0.1 until Ctrl-C: pages that are opened as files cannot fetch their modules."""
    if not folder.is_dir():
        raise FileError(f"web serve: {folder} is not a folder")
    try:
        server = ThreadingHTTPServer(("127.0.0.1", port), partial(SimpleHTTPRequestHandler, directory=str(folder)))
    except OSError as error:
        raise FileError(f"web serve: port {port} cannot be opened ({error.strerror}); choose another: --port") from None
    with server:
        screen().print(f"http://127.0.0.1:{server.server_port}/ serves {folder.resolve()}; Ctrl-C ends it")
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # a shell's job in the background ignores Ctrl-C
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            raise typer.Exit from None


def _run(script: Path) -> dict[str, Any]:
    """The names that a script defines; its own errors with its own traceback, as one of ours."""
    try:
        script.read_bytes()
    except OSError as error:
        raise FileError(f"web export: {script} cannot be read ({error.strerror})") from None
    try:
        return runpy.run_path(str(script), run_name="trueno_web")
    except TruenoError:
        raise
    except Exception as error:
        said = "".join(traceback.format_exception(error, limit=-1)).strip()
        raise ParameterError(f"web export: {script} failed:\n{said}") from error
