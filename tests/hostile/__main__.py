"""`python -m tests.hostile`: attack for some minutes; exit code 1 where something was found."""

import argparse
import json
import os
import sys
from pathlib import Path

from .attack import load, names
from .driver import EVER, Driver


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _range(text: str) -> tuple[int, int]:
    first, _, last = text.partition("-")
    return int(first), int(last or first) + 1


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.hostile", description=__doc__)
    parser.add_argument("--minutes", type=float, default=2.0, help="attack for so long (2), at least a turn each")
    parser.add_argument("--cases", type=int, help="so many cases of each attack on each backend instead")
    parser.add_argument("--case", type=_range, help="that case alone, or those of M-N")
    parser.add_argument(
        "--seed", type=int, default=int(os.environ.get("TRUENO_HOSTILE_SEED") or 0), help="default: new"
    )
    parser.add_argument("--attacks", "--attack", type=_words, default=names(), help=", ".join(names()))
    parser.add_argument("--backends", "--backend", type=_words, default=[], help="default: all that an attack takes")
    parser.add_argument("--jobs", type=int, default=1, help="child processes at a time")
    parser.add_argument("--json", type=Path, help="write the table and the failures there")
    arguments = parser.parse_args()
    seed = arguments.seed or int.from_bytes(os.urandom(4), "big") or 1
    if unknown := {name for name in arguments.attacks if "." not in name} - set(names()):
        parser.error(f"no attack {', '.join(sorted(unknown))}; there are {', '.join(names())}")
    driver = Driver([load(name) for name in arguments.attacks], arguments.backends, seed, arguments.jobs)
    if not driver.rows:
        parser.error("no attack takes these backends")
    print(f"seed {seed}", flush=True)
    first, end = arguments.case or (0, arguments.cases or EVER)
    driver.run(arguments.minutes * 60, first, end)
    print(driver.table())
    if arguments.json:
        report = {"seed": seed, "rows": [row.counts() for row in driver.rows]}
        arguments.json.write_text(json.dumps(report, indent=1))
    return int(any(row.failures for row in driver.rows))


if __name__ == "__main__":
    sys.exit(main())
