"""Mutated PTX: the emulator reads, compiles and runs it, or says what is wrong with it in an error of Trueno's.

A case is a text and whether it is launched, and follows from its number alone.  Three kinds, from the quickest: a few
instructions of any form, with operands that may fit; a few lines of a real kernel under its own declarations; a whole
kernel, cut and spliced.

`python -m tests.hostile.ptx_mutants --count 1000000 --jobs 2` runs many, `--case NUMBER` shows one.
"""

import argparse
import multiprocessing
import os
import random
import sys
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from trueno.errors import TruenoError
from trueno_cuda.ptx.emulate import Module
from trueno_cuda.ptx.syntax.errors import InternalError

from .ptx_mutations import borrowed, formed, pool, whole

LAUNCHED = 0.2
"""The share of texts that are launched."""
STEPS = 400
MAKERS, SHARES = (formed, borrowed, whole), (16, 8, 1)


class Case(NamedTuple):
    """number: `case` gives this one for it again."""

    number: int
    text: str
    launched: bool


def case(number: int) -> Case:
    """The case of a number."""
    rng = random.Random(number)
    text = rng.choices(MAKERS, SHARES)[0](rng)
    return Case(number, text, rng.random() < LAUNCHED)


def cases(rng: random.Random | np.random.Generator) -> Iterator[Case]:
    """Cases without end."""
    while True:
        yield case(rng.getrandbits(48) if isinstance(rng, random.Random) else int(rng.integers(1 << 48)))


def run(one: Case) -> str:
    """Load, compile and perhaps launch a text; what became of it in a word.  Raises bugs alone."""
    try:
        module = Module(one.text)
        for name in module.names:
            module.kernel(name)
        for name in module.names if one.launched else ():
            launch(module, name)
    except InternalError:
        raise
    except TruenoError as error:
        return type(error).__name__
    return "launched" if one.launched else "compiled"


def launch(module: Module, name: str) -> None:
    """Run an entry for a while on a few small arrays and numbers."""
    kernel = module.kernel(name)
    args: list[object] = []
    for p in kernel.params:
        pointer = p.type.bits == 64 and p.type.kind != "f"
        number = 3.0 if p.type.kind == "f" else 3
        args.append(bytes(p.size) if p.array else np.arange(1024, dtype=np.float32) if pointer else number)
    directives = kernel.function.directives
    block = (*directives.get("reqntid", (64,)), 1, 1)[:3]
    grid = (*directives.get("reqnctapercluster", (2,)), 1, 1)[:3]
    if np.prod(grid, dtype=object) <= 16:  # what a directive may ask for is slow, not wrong
        str(module.launch(name, grid, block, args, shared=1024, global_races=True, max_steps=STEPS))


# ---- the command line ---------------------------------------------------------------------------


class Stretch(NamedTuple):
    """What became of some cases: how often each word, the failures, and the slowest with its seconds."""

    words: "Counter[str]"
    failures: list[tuple[int, str]]
    slowest: tuple[float, int]


def stretch(numbers: range) -> Stretch:
    warnings.simplefilter("error")
    words: Counter[str] = Counter()
    failures = []
    slowest = (0.0, 0)
    for number in numbers:
        start = time.process_time()
        try:
            words[run(case(number))] += 1
        except Exception:
            words["FAILED"] += 1
            failures.append((number, traceback.format_exc()))
        slowest = max(slowest, (time.process_time() - start, number))
    return Stretch(words, failures, slowest)


def place(trace: str) -> str:
    """The innermost line of a traceback's cause, by which failures that are the same are told."""
    return [line for line in trace.partition("\nThe above exception")[0].splitlines() if "File " in line][-1]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.hostile.ptx_mutants", description=__doc__)
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument(
        "--seed", type=int, default=int(os.environ.get("TRUENO_HOSTILE_SEED") or 0), help="default: new"
    )
    parser.add_argument("--case", type=int, help="print the text of a case and run it")
    given = parser.parse_args()
    if given.case is not None:
        print(case(given.case).text)
        print(run(case(given.case)))
        return 0
    seed = given.seed or random.SystemRandom().getrandbits(31)
    print(f"seed {seed}", flush=True)
    base, start, most = seed << 32, time.perf_counter(), 500
    jobs = [range(base + k, base + min(k + most, given.count)) for k in range(0, given.count, most)]
    pool()  # before the fork, so that every process has it
    words: Counter[str] = Counter()
    slowest, seen = (0.0, 0), set()
    with multiprocessing.get_context("fork").Pool(given.jobs) as workers:
        for done in workers.imap_unordered(stretch, jobs):
            words += done.words
            slowest = max(slowest, done.slowest)
            for number, trace in done.failures:
                if place(trace) not in seen:
                    seen.add(place(trace))
                    print(f"--case {number}\n{trace}", flush=True)
            rate = words.total() / (time.perf_counter() - start)
            if words.total() % 20_000 == 0 or words.total() == given.count:
                told = ", ".join(f"{count} {word}" for word, count in words.most_common())
                print(f"{told}; {rate:.0f} a second; {slowest[0]:.1f} s for case {slowest[1]}", flush=True)
    return int(bool(seen))


if __name__ == "__main__":
    sys.exit(main())
