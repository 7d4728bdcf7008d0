"""A sample of the long families, so that `make test` takes minutes; `--all` runs every case.

A family is a test function with many cases: of those some run, drawn by a seed that the head of the report shows and
TRUENO_TEST_SEED sets (`seeds`).  What is marked `slow` is drawn more sparingly; everything else runs.  With `--share`,
as in CI, that part of each family runs, and everything else, slow or not: each commit draws its own part.

A case's fate depends on the seed, its name and the size of its family alone, so all workers draw alike.
"""

import argparse
import os
import random
from collections import Counter

import pytest
import seeds

FAMILY = 5
"""Cases from which on a function is a family."""
LEAST = 1.5
"""Cases of a family that run, on average: of a thousand as many as of ten."""
SLOW = 0.2
"""Of what is marked `slow`, the fraction that runs."""
RUN = pytest.StashKey[str]()
"""The run's seed."""
SAMPLED = pytest.StashKey[bool]()
"""Whether long families are sampled; else every case runs."""
SHARE = pytest.StashKey[float]()
"""The part of each family that was asked for; 0 for the smallest sample."""
KNOWN = {RUN: "run", SAMPLED: "sampled", SHARE: "share"}
"""What workers are told."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--all", action="store_true", help="run every case; else long families are sampled")
    parser.addoption("--share", type=_part, default=0.0, help="the part of each long family that runs, as 0.3")


def _part(text: str) -> float:
    part = float(text)
    if not 0 < part <= 1:
        raise argparse.ArgumentTypeError(f"{text} is no part: above 0, and 1 at most")
    return part


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Draw the seed once; workers are handed it, and no test sees the variable, which is not a setting of Trueno's."""
    if hasattr(config, "workerinput"):
        for key, name in KNOWN.items():
            config.stash[key] = config.workerinput[name]
    else:
        config.stash[RUN] = os.environ.pop(seeds.VARIABLE, "") or str(random.SystemRandom().randrange(10**6))
        again = any(getattr(config.option, name, False) for name in ("lf", "failedfirst", "stepwise", "newfirst"))
        selected = again or config.option.keyword or config.option.markexpr
        selected = selected or config.args_source is config.ArgsSource.ARGS
        config.stash[SAMPLED] = not (config.option.all or selected)
        config.stash[SHARE] = config.option.share
    seeds.start(config.stash[RUN])
    if getattr(config.option, "hypothesis_seed", "") is None:  # its plugin is here, and nobody gave it a seed
        config.option.hypothesis_seed = str(seeds.digest(config.stash[RUN], "hypothesis"))


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node) -> None:
    """Of xdist: what a worker knows."""
    node.workerinput.update({name: node.config.stash[key] for key, name in KNOWN.items()})


def pytest_report_header(config: pytest.Config) -> str:
    again = f"{seeds.VARIABLE}={config.stash[RUN]} draws the same numbers"
    return f"long families are sampled: {again} and cases, --all runs every one" if config.stash[SAMPLED] else again


def pytest_terminal_summary(terminalreporter, config: pytest.Config) -> None:
    """At the end again, since `-q` leaves the head out."""
    if terminalreporter.stats.get("failed"):
        terminalreporter.write_line(pytest_report_header(config))


def family(item: pytest.Item) -> str:
    return item.nodeid.partition("[")[0]


def share(item: pytest.Item, size: int, wanted: float) -> float:
    """The fraction of a family of that size that runs; `wanted`: at least this, and of what is slow as much."""
    part = max(LEAST / size, wanted) if size >= FAMILY else 1.0
    return part * (SLOW if item.get_closest_marker("slow") and not wanted else 1.0)


def fate(seed: str, nodeid: str) -> float:
    """A number of [0, 1) from seed and name."""
    return seeds.digest(seed, nodeid) / 2**48


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.stash[SAMPLED]:
        return
    seed, wanted = config.stash[RUN], config.stash[SHARE]
    sizes = Counter(map(family, items))
    kept = [item for item in items if fate(seed, item.nodeid) < share(item, sizes[family(item)], wanted)]
    chosen = set(kept)
    config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
    items[:] = kept
