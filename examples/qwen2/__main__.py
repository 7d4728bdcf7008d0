"""The command line: `python -m examples.qwen2 generate MODEL --prompt TEXT`; --help lists the other commands."""

import argparse
import json
import os
import sys
from contextlib import nullcontext, suppress
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import trueno
from trueno.backend import replacing

from examples.qwen2.bench import bench
from examples.qwen2.checkpoint import ARCHITECTURES, Checkpoint, EngineError
from examples.qwen2.model import Model
from examples.qwen2.parallel import Parallel
from examples.qwen2.synthesize import SHAPES, synthesize
from examples.qwen2.text import Sampling, chat, completions, continuations, perplexity
from examples.qwen2.tokenizer import Text


def numbers(default: Any, least: int = 0, most: float = 1e18) -> dict[str, Any]:
    """Keywords of an option that takes a number or, where the default is not one, several with commas between."""
    kind, several = float if isinstance(default, float) else int, not isinstance(default, (int, float))

    def read(text: str) -> Any:
        with suppress(ValueError):
            values = [kind(part) for part in (text.split(",") if several else [text])]
            if all(least <= value <= most for value in values):  # NaN is not
                return values if several else values[0]
        wanted = "whole numbers like 1,2,3," if several else "a whole number" if kind is int else "a number"
        raise argparse.ArgumentTypeError(f"{text!r} does not fit; give {wanted} from {least} to {most:g}")

    return {"type": read, "default": default, "help": kind.__name__, "metavar": "1,2,3" if several else None}


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser("python -m examples.qwen2", description="Run language models in GGUF files.")
    commands = top.add_subparsers(dest="command", required=True)

    def command(name: str, about: str, **options: Any) -> None:
        p = commands.add_parser(name, help=about, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
        p.add_argument("out" if name == "synthesize" else "model", help="a GGUF file")
        if name != "synthesize":
            p.add_argument("--backend", help="compute there, not where Trueno predicts the least time")
            p.add_argument("--activations", choices=("q8", "f32"), default="q8", help="of quantized products")
            p.add_argument("--cache", choices=("float32", "float16"), help="of keys, values; else float16 on devices")
            p.add_argument("--gpus", **numbers(1, 1) | {"help": "share the weights among so many GPUs of the backend"})
            p.add_argument("--guard", action="store_true", help="stop at the first NaN or Inf; name layer and op")
        for option, keywords in options.items():
            p.add_argument(f"-{option}" if len(option) == 1 else f"--{option.replace('_', '-')}", **keywords)

    flag, needed, tokens, draw = {"action": "store_true"}, {"required": True}, numbers(None), {"n": numbers(128)}
    draw |= {"seed": numbers(0), "top_k": numbers(40), "top_p": numbers(0.95, most=1), "min_p": numbers(0.05, most=1)}
    command("generate", "continue a prompt", prompt={"default": ""}, tokens=tokens, temperature=numbers(0.0), **draw,
            count=numbers(1, 1), ids=flag | {"help": "print new tokens' numbers"}, ignore_end=flag)  # fmt: skip
    command("complete", "continue every line of a file, some at a time", prompts=needed, rows=numbers(8, 1),
            temperature=numbers(0.0), **draw)  # fmt: skip
    command("chat", "talk to the model", temperature=numbers(0.7), **draw)
    command("logits", "write the logits after each token", tokens=tokens | needed, out=needed)
    command("perplexity", "how well the model predicts a text", text=needed, context=numbers(512, 4))
    command("bench", "measure speed", prompt=numbers(512), generate=numbers(128), batch=numbers([1], 1),
            depth=numbers(0), repetitions=numbers(5, 1), json=flag)  # fmt: skip
    command("synthesize", "write a model with random weights", shape={"choices": SHAPES} | needed, seed=numbers(0),
            mixture={"default": "q4_k_m"}, architecture={"choices": ARCHITECTURES, "default": "qwen2"})  # fmt: skip
    return top


def track(layers: Any) -> Any:
    from rich import console, progress  # imported here, because a program without a terminal needs no such package

    return progress.track(layers, "loading", transient=True, console=console.Console(stderr=True))


def measure(a: argparse.Namespace, model: Model) -> None:
    path, line = Path(a.model), "| {model} | {size} | {backend} | {test} | {avg_ts:.2f} ± {stddev_ts:.2f} |"
    about = {"model": path.stem, "size": f"{path.stat().st_size / 2**20:.1f} MiB", "backend": a.backend or "automatic"}
    records = [about | r for r in bench(model, a.prompt, a.generate, a.batch, a.depth, a.repetitions)]
    head = "| model | size | backend | test | t/s |\n| --- | --- | --- | --- | --- |"
    print(json.dumps(records, indent=1) if a.json else "\n".join([head, *(line.format(**r) for r in records)]))


def logits(a: argparse.Namespace, model: Model) -> None:
    rows = model.prefill(a.tokens, model.cache(len(a.tokens)), every=True)
    with replacing(Path(a.out)) as beside, beside.open("wb") as file:  # the file appears when it is complete
        np.save(file, rows)


def talk(a: argparse.Namespace, model: Model) -> None:
    text = None
    if not getattr(a, "ids", False) or a.tokens is None:  # numbers alone need no tokenizer
        try:
            text = Text(model.checkpoint.metadata)
        except Exception as error:  # what it reads may be anything
            raise EngineError(f"{a.model}: its tokenizer: {error}") from error
    if a.command == "perplexity":
        values = perplexity(model, text.encode(Path(a.text).read_text("utf-8")), a.context)
        return print("perplexity {:.4f} ± {:.4f}".format(*values))
    how = Sampling(a.temperature, a.top_k, a.top_p, a.min_p)
    if a.command == "complete":
        lines = [line for line in Path(a.prompts).read_text("utf-8").splitlines() if line.strip()]
        done, shown = dict[int, str](), 0
        for place, ids in completions(model, map(text.encode, lines), a.n, how, a.seed, text.ends, a.rows):
            done[place] = text.tokenizer.decode(ids)
            while shown in done:  # in the file's order
                print(lines[shown] + done[shown], flush=True)
                shown += 1
        return None
    if a.command == "chat":
        return chat(model, text, how, a.seed, a.n, lambda: input("> "), lambda s: print(s, end="", flush=True))
    if a.tokens is not None and a.prompt:
        raise EngineError("--prompt and --tokens both say what to start from; give one of them")
    tokens = text.encode(a.prompt) if a.tokens is None else a.tokens
    ends = () if a.ignore_end else text.ends if text else {model.checkpoint.metadata.get("tokenizer.ggml.eos_token_id")}
    steps = continuations(model, tokens, a.n, how, a.seed, ends, a.count)
    if a.count > 1 or a.ids:
        for ids in [[step[i] for step in taken if i in step] for taken in [list(steps)] for i in range(a.count)]:
            print(*(ids if a.ids else [a.prompt + text.tokenizer.decode(ids)]))
    else:
        for piece in chain([a.prompt], map(text.stream(), (step[0] for step in steps)), "\n"):
            print(piece, end="", flush=True)
    return None


def main() -> None:
    a, stop = parser().parse_args(), trueno.Action.STOP
    try:
        if "out" in a and (Path(a.out).is_dir() or not os.access(f"{Path(a.out).absolute().parent}/", os.W_OK)):
            raise EngineError(f"the output is {a.out!r}; give a file in a folder that exists and may be written to")
        if a.command == "synthesize":
            return synthesize(a.out, a.shape, a.mixture, a.architecture, a.seed)
        guard = trueno.JidokaGuard().on(trueno.Condition.NAN, stop).on(trueno.Condition.INF, stop)
        with guard if a.guard else nullcontext(), trueno.use(a.backend) if a.backend else nullcontext():
            progress = (iter, track)[sys.stderr.isatty()]
            checkpoint, how = Checkpoint(a.model, a.guard), (a.activations, progress, a.cache)
            if a.gpus > 1:
                if a.guard:
                    raise EngineError("--guard looks into one GPU's layers; leave out --gpus")
                model = Parallel(checkpoint, [f"{a.backend or 'cuda'}:{i}" for i in range(a.gpus)], *how)
            else:
                model = Model(checkpoint, a.backend, *how)
            try:
                return {"bench": measure, "logits": logits}.get(a.command, talk)(a, model)
            except trueno.GuardError as error:
                raise EngineError(f"{model.place}, {error}") from error
    except (trueno.TruenoError, OSError, ValueError, ImportError, MemoryError) as error:
        sys.exit("error: " + str(error).removeprefix(f"[Errno {getattr(error, 'errno', None)}] "))
    except (KeyboardInterrupt, EOFError):
        print()


if __name__ == "__main__":
    main()
