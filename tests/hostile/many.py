"""Runs many numbered cases of one kind in child processes, and shows one again: what their programs share.

A case follows from its number alone.  `make` gives the case of a number, `run` runs it: it returns a word for what
became of it, and raises what it finds.
"""

import argparse
import multiprocessing
import os
import random
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

MOST = 500
"""Cases that a child process is given at a time."""


class Stretch(NamedTuple):
    """What became of some cases: how often each word, the failures, and the slowest with its seconds."""

    words: "Counter[str]"
    failures: list[tuple[int, str]]
    slowest: tuple[float, int]


def stretch(make: Callable[[int], Any], run: Callable[[Any], str], numbers: range) -> Stretch:
    warnings.simplefilter("error")
    words: Counter[str] = Counter()
    failures = []
    slowest = (0.0, 0)
    for number in numbers:
        start = time.process_time()
        try:
            words[run(make(number))] += 1
        except Exception:
            words["FAILED"] += 1
            failures.append((number, traceback.format_exc()))
        slowest = max(slowest, (time.process_time() - start, number))
    return Stretch(words, failures, slowest)


def place(trace: str) -> str:
    """The innermost line of a traceback's cause, by which failures that are the same are told."""
    return [line for line in trace.partition("\nThe above exception")[0].splitlines() if "File " in line][-1]


def main(
    module: str, about: str, make: Callable[[int], Any], run: Callable[[Any], str], prepare: Callable[[], Any]
) -> int:
    """The command line.  prepare: fills the caches that every child process should have; 1 where a case failed."""
    parser = argparse.ArgumentParser(prog=f"python -m tests.hostile.{module}", description=about)
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument(
        "--seed", type=int, default=int(os.environ.get("TRUENO_HOSTILE_SEED") or 0), help="default: new"
    )
    parser.add_argument("--case", type=int, help="print the text of a case and run it")
    given = parser.parse_args()
    if given.case is not None:
        print(make(given.case).text)
        print(run(make(given.case)))
        return 0
    seed = given.seed or random.SystemRandom().getrandbits(31)
    print(f"seed {seed}", flush=True)
    base, start = seed << 32, time.perf_counter()
    jobs = [range(base + k, base + min(k + MOST, given.count)) for k in range(0, given.count, MOST)]
    prepare()
    words: Counter[str] = Counter()
    slowest, seen = (0.0, 0), set()
    with multiprocessing.get_context("fork").Pool(given.jobs) as workers:
        for done in workers.imap_unordered(partial(stretch, make, run), jobs):
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
