"""`trueno ptx-map`: a model's layers, launches and kernels, and the lines of Python that write them."""

from pathlib import Path
from typing import Annotated

import typer
from trueno.backend import escape
from trueno.errors import ParameterError, suggestion

from trueno_cuda.mapping import ENGINE

PLANS = ("reference", "fused")


def add(to: typer.Typer) -> None:
    """Register the command."""
    to.command("ptx-map")(command)


def command(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A GGUF file.", show_default=False)],
    plan: Annotated[
        str, typer.Option(help="reference: each op alone, 12 steps a layer. fused: what an engine's step launches.")
    ] = PLANS[0],
    prefill: Annotated[bool, typer.Option("--prefill", help="A prompt, not one token.")] = False,
    tokens: Annotated[
        int,
        typer.Option(min=0, help="How many are computed at once, or precede the new one; 0: 512 or the whole context."),
    ] = 0,
    arch: Annotated[str, typer.Option(help="The architecture of the card, as sm_80.")] = "sm_90",
    kernel: Annotated[
        str, typer.Option(metavar="NAME", help="Only this kernel, with all that is known of it.", show_default=False)
    ] = "",
    reverse: Annotated[
        str,
        typer.Option(
            metavar="NAME", help="From a kernel, or a line as rope.py:42, to layers and tensors.", show_default=False
        ),
    ] = "",
    engine_name: Annotated[
        str, typer.Option("--engine", metavar="MODULE", help="With --plan fused: the engine's module.")
    ] = ENGINE,
    real: Annotated[
        bool, typer.Option("--ptxas/--no-ptxas", help="Ask ptxas, or nvJitLink, for registers and spills.")
    ] = True,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="Write one HTML file, which needs no network.")
    ] = None,
) -> None:
    """Show which kernels a model needs: layers, launches, their sizes, and the Python functions that write them.

    It needs no GPU, reads only the shapes of the file's tensors, and runs no kernel. The times are floors, no
    measurements.
    """
    if plan not in PLANS:
        raise ParameterError(
            f"ptx-map: --plan {plan!r} is not known{suggestion(plan, PLANS)}; it is reference or fused"
        )
    if kernel and reverse:
        raise ParameterError("ptx-map: --kernel and --reverse both choose kernels; give one of them")
    from trueno_cuda.mapping import mapped, page, show  # start-up: these load every kernel
    from trueno_cuda.mapping.backend import card_of
    from trueno_cuda.mapping.model import opened
    from trueno_cuda.mapping.plan import chosen

    card_of(arch)
    result = mapped.mapped(opened(model), plan, tokens, prefill, arch, engine_name, real)
    if kernel or reverse:
        result = chosen(result, mapped.named(result, kernel) if kernel else mapped.placed(result, reverse))
    if html is not None:
        _write(html, page.html(result))
    if json:
        print(escape.dumps(result.record, indent=2))
    elif html is not None:
        _say(f"{html}: {show.total(result.record)}")
    else:
        _say("\n".join((show.users if reverse else show.chosen if kernel else show.lines)(result)))


def _say(text: str) -> None:
    """Print lines at once; of text from outside only what is visible."""
    print(escape.escaped(text, keep=escape.LINES), flush=True)


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, "utf-8")
    except OSError as error:
        raise ParameterError(f"ptx-map: {path} cannot be written: {error.strerror or error}") from None
