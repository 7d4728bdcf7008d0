"""The command line: `python -m examples.qwen2 generate MODEL --prompt TEXT`; --help lists the other commands."""

import argparse
import json
import os
import sys
from contextlib import nullcontext
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import trueno

from examples.qwen2.bench import bench
from examples.qwen2.checkpoint import ARCHITECTURES, Checkpoint, EngineError
from examples.qwen2.model import Model
from examples.qwen2.synthesize import SHAPES, synthesize
from examples.qwen2.text import Sampling, chat, continuations, perplexity


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser("python -m examples.qwen2", description="Run language models in GGUF files.")
    commands = top.add_subparsers(dest="command", required=True)

    def command(name: str, about: str, **options: Any) -> None:
        p = commands.add_parser(name, help=about, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
        p.add_argument("out" if name == "synthesize" else "model", help="a GGUF file")
        if name != "synthesize":
            p.add_argument("--backend", help="compute there, not where Trueno predicts the least time")
            p.add_argument("--activations", choices=("q8", "f32"), default="q8", help="of quantized products")
            p.add_argument("--guard", action="store_true", help="stop at the first NaN or Inf; name layer and op")
        for option, value in options.items():
            keywords = value if (k := type(value)) is dict else {"type": k, "default": value, "help": k.__name__}
            p.add_argument(f"-{option}" if len(option) == 1 else f"--{option.replace('_', '-')}", **keywords)

    flag, many = {"action": "store_true"}, {"type": lambda text: [int(part) for part in text.split(",")]}
    tokens = many | {"metavar": "1,2,3", "help": "tokens instead of a text"}
    draw = {"n": 128, "seed": 0, "top_k": 40, "top_p": 0.95, "min_p": 0.05}
    command("generate", "continue a prompt", prompt="", tokens=tokens, temperature=0.0, count=1, **draw,
            ids=flag | {"help": "print the numbers of the new tokens"}, ignore_end=flag)  # fmt: skip
    command("chat", "talk to the model", temperature=0.7, **draw)
    command("logits", "write the logits after each token", tokens=tokens | {"required": True}, out={"required": True})
    command("perplexity", "how well the model predicts a text", text={"required": True}, context=512)
    command("bench", "measure speed", prompt=512, generate=128, batch=many | {"default": [1]}, depth=0, repetitions=5,
            json=flag)  # fmt: skip
    command("synthesize", "write a model with random weights", shape={"choices": SHAPES, "required": True},
            mixture="q4_k_m", architecture={"choices": ARCHITECTURES, "default": "qwen2"}, seed=0)  # fmt: skip
    return top


def track(layers: Any) -> Any:
    from rich import console, progress  # imported here, because a program without a terminal needs no such package

    return progress.track(layers, "loading", transient=True, console=console.Console(stderr=True))


def run(a: argparse.Namespace) -> None:
    if a.command == "synthesize":
        return synthesize(a.out, a.shape, a.mixture, a.architecture, a.seed)
    guard, stop = trueno.JidokaGuard(), trueno.Action.STOP
    guard = guard.on(trueno.Condition.NAN, stop).on(trueno.Condition.INF, stop) if a.guard else nullcontext()
    with guard, trueno.use(a.backend) if a.backend else nullcontext():
        model = Model(Checkpoint(a.model, a.guard), a.backend, a.activations, track if sys.stderr.isatty() else iter)
        try:
            return {"bench": measure, "logits": logits}.get(a.command, talk)(a, model)
        except trueno.GuardError as error:
            raise EngineError(f"{model.place}, {error}") from error


def measure(a: argparse.Namespace, model: Model) -> None:
    size = f"{os.path.getsize(a.model) >> 20} MiB"
    about = {"model": Path(a.model).stem, "size": size, "backend": a.backend or "automatic"}
    records = bench(model, a.prompt, a.generate, a.batch, a.depth, a.repetitions)
    if a.json:
        return print(json.dumps([about | record for record in records], indent=1))
    rows = [[*about, "test", "t/s"], ["---"] * (len(about) + 2)]
    rows += [[*about.values(), r["test"], f"{r['avg_ts']:.2f} ± {r['stddev_ts']:.2f}"] for r in records]
    return print("\n".join(f"| {' | '.join(row)} |" for row in rows))


def logits(a: argparse.Namespace, model: Model) -> None:
    rows, beside = model.prefill(a.tokens, model.cache(len(a.tokens)), every=True), Path(f"{a.out}.{os.getpid()}.part")
    try:
        with beside.open("wb") as file:
            np.save(file, rows)
        beside.replace(a.out)  # the file appears when it is complete
    finally:
        beside.unlink(missing_ok=True)


def talk(a: argparse.Namespace, model: Model) -> None:
    text = None
    if not getattr(a, "ids", False) or a.tokens is None:  # numbers alone need no tokenizer
        from examples.qwen2.tokenizer import Text

        try:
            text = Text(model.checkpoint.metadata)
        except Exception as error:  # what it reads may be anything
            raise EngineError(f"{a.model}: its tokenizer: {error}") from error
    if a.command == "perplexity":
        value, error = perplexity(model, text.encode(Path(a.text).read_text("utf-8")), a.context)
        return print(f"perplexity {value:.4f} ± {error:.4f}")
    how = Sampling(a.temperature, a.top_k, a.top_p, a.min_p)
    if a.command == "chat":
        return chat(model, text, how, a.seed, a.n, lambda: input("> "), lambda s: print(s, end="", flush=True))
    tokens = text.encode(a.prompt) if a.tokens is None else a.tokens
    ends = () if a.ignore_end else text.ends if text else {model.checkpoint.metadata.get("tokenizer.ggml.eos_token_id")}
    steps = continuations(model, tokens, a.n, how, a.seed, ends, max(a.count, 1))
    if a.count > 1 or a.ids:
        steps = list(steps)
        for ids in ([step[i] for step in steps if i in step] for i in range(a.count)):
            print(*(ids if a.ids else [a.prompt + text.tokenizer.decode(ids)]))
    else:
        for piece in chain([a.prompt], map(text.stream(), (step[0] for step in steps)), "\n"):
            print(piece, end="", flush=True)
    return None


def main() -> None:
    try:
        run(parser().parse_args())
    except (trueno.TruenoError, OSError, ValueError, ImportError, MemoryError) as error:
        sys.exit(f"error: {error}")
    except (KeyboardInterrupt, EOFError):
        print()


if __name__ == "__main__":
    main()
