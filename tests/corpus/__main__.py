"""`python -m tests.corpus`: compile the corpus, list it, make mutants, and measure an analyzer.

    python -m tests.corpus list
    python -m tests.corpus compile --into FOLDER
    python -m tests.corpus mutants --into FOLDER --seed 7 --per-fault 5
    python -m tests.corpus measure --analyzer package.module:function
    python -m tests.corpus measure --command 'trueno ptx analyze --json'
    python -m tests.corpus sanitize --prepare FILE.zip --seed 7 --per-fault 8
    python -m tests.corpus sanitize --prepared FILE.zip --json FILE.json

`sanitize --prepare` needs no GPU; `--prepared` needs one, and compute-sanitizer.
`measure` exits with 1 if a bar is missed.
"""

import argparse
import json
import random
import sys
import tempfile
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

from . import sanitizer, sources
from .faults import FAULTS
from .foreign import foreign, foreign_origins
from .launches import Launch
from .measure import Analyzer, Judge, Measured, command, correct, silence
from .mutants import Mutant, confirmed, mutants
from .origins import Origin, launched, origins
from .sanitizer_prepare import prepare
from .statements import entries
from .traps import traps


def correct_texts(arches: list[str], options: list[str]) -> Iterator[tuple[str, str, dict[str, Launch]]]:
    """The name of each build, its text, and the launches of its entries; the kernels of other producers come first."""
    for one in foreign():
        yield one.name, one.text, {one.launch.entry: one.launch}
    if sources.compiler() is None:
        texts = [(stem, stem, text) for stem, text in sources.committed()]
    else:
        chosen = [b for b in sources.builds() if b.arch in arches and b.options in options]
        texts = [(str(b), b.source, sources.compiled(b)) for b in chosen]
    for name, source, text in texts:
        known = {entry.name: launched(source, entry.name) for entry in entries(text)}
        yield name, text, {entry: one for entry, one in known.items() if one is not None}


def named(words: str) -> Analyzer:
    """`package.module:function`."""
    module, _, function = words.partition(":")
    return getattr(import_module(module), function)


def drawn(given: argparse.Namespace) -> Iterator[Mutant]:
    """The mutants that the options select."""
    kinds = given.faults.split(",") if given.faults else None
    if kinds and (unknown := set(kinds) - set(FAULTS)):
        sys.exit(f"no fault {', '.join(sorted(unknown))}; there are {', '.join(FAULTS)}")
    yield from mutants(chosen_origins(given), given.seed, given.per_fault, kinds)


def chosen_origins(given: argparse.Namespace) -> Iterator[Origin]:
    return foreign_origins() if given.corpus == "foreign" else origins(tuple(given.mutant_arches.split(",")))


def measure(given: argparse.Namespace) -> int:
    analyzer = command(given.command) if given.command else named(given.analyzer or "tests.corpus.analyzers:silent")
    measured, judge = Measured(), Judge(analyzer)
    parts = given.parts.split(",")
    if "correct" in parts:
        for name, text, known in correct_texts(given.arches.split(","), given.options.split(",")):
            measured.correct.append(correct(analyzer, name, text, known))
    if "traps" in parts:
        measured.silence = [silence(analyzer, trap) for trap in traps()]
    if "mutants" in parts:
        for one in map(confirmed, drawn(given)):
            if one.proof:
                measured.verdicts.append(judge.verdict(one))
            else:
                measured.unconfirmed[one.fault.id] += 1
    print(f"seed {given.seed}\n\n{measured.tables()}")
    for verdict in measured.verdicts if given.missed else ():
        if verdict.mutant.fault.static and not verdict.right:
            print(f"missed: {verdict.mutant.name} ({verdict.mutant.proof})")
    if given.json:
        given.json.write_text(json.dumps(measured.record(), indent=1), "utf-8")
    return int(not all(kept for *_, kept in measured.bars()))


def write(given: argparse.Namespace) -> int:
    given.into.mkdir(parents=True, exist_ok=True)
    if given.action == "compile":
        for name, text, _ in correct_texts(given.arches.split(","), given.options.split(",")):
            path = given.into / f"{name}.ptx"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, "utf-8")
        return 0
    labels = []
    for number, one in enumerate(map(confirmed, drawn(given))):
        if one.proof:
            path = given.into / f"{number:05}-{one.fault.id}.ptx"
            path.write_text(one.text, "utf-8")
            labels.append({"file": path.name, "mutant": one.name, "rules": one.fault.rules, "proof": one.proof,
                           "static": one.fault.static, "line": one.line})  # fmt: skip
    given.into.joinpath("labels.json").write_text(json.dumps(labels, indent=1), "utf-8")
    print(f"{len(labels)} mutants")
    return 0


def sanitize(given: argparse.Namespace) -> int:
    """Prepare an archive, or run one; with neither option both."""
    with tempfile.TemporaryDirectory() as folder:
        archive = given.prepared or given.prepare or Path(folder) / "mutants.zip"
        if not given.prepared:
            judge = named(given.analyzer or "tests.corpus.ours:analyzer")
            index = prepare(
                chosen_origins(given), given.seed, given.per_fault, judge, archive, {"corpus": given.corpus}
            )
            print(f"seed {given.seed}: {len(index['mutants'])} mutants of {len(index['origins'])} kernels")
            if given.prepare:
                return 0
        record = sanitizer.check(archive, Path(folder), given.jobs, given.seconds, given.limit)
    if given.json:
        given.json.write_text(json.dumps(record, indent=1), "utf-8")
    print(sanitizer.table(record))
    return 0


def show() -> int:
    for name in sources.names():
        print(f"{name}.cu, from {sources.least(name)}")
    for trap in traps():
        print(f"trap {trap.name}: {trap.why}")
    for fault in FAULTS.values():
        print(f"fault {fault.id} ({', '.join(fault.rules)}; by {fault.by}): {fault.sentence}")
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.corpus", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("action", choices=["list", "compile", "commit", "mutants", "measure", "sanitize"])
    parser.add_argument("--into", type=Path, default=Path("corpus"), help="a folder for the texts")
    parser.add_argument("--arches", default=",".join(sources.ARCHES))
    parser.add_argument("--options", default=",".join(sources.OPTIONS))
    parser.add_argument("--mutant-arches", default="sm_80,sm_90a", help="the builds that mutants are made from")
    makers = "what mutants are made from: our CUDA C (own, or nvcc), or what other producers print (foreign)"
    parser.add_argument("--corpus", choices=["own", "nvcc", "foreign"], default="own", help=makers)
    parser.add_argument("--parts", default="correct,traps,mutants", help="what is measured")
    parser.add_argument("--faults", help="some kinds alone")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().getrandbits(31), help="default: new")
    parser.add_argument("--per-fault", type=int, default=25, help="mutants of each kind of fault")
    parser.add_argument("--missed", action="store_true", help="print the mutants that were missed")
    parser.add_argument("--json", type=Path, help="write everything there")
    parser.add_argument("--prepare", type=Path, help="sanitize: write this archive, and run nothing")
    parser.add_argument("--prepared", type=Path, help="sanitize: run this archive")
    parser.add_argument("--jobs", type=int, default=12, help="sanitize: processes at once")
    parser.add_argument("--seconds", type=float, default=200, help="sanitize: stop after so many")
    parser.add_argument("--limit", type=float, default=15, help="sanitize: seconds of one process")
    chosen = parser.add_mutually_exclusive_group()
    chosen.add_argument(
        "--analyzer", help="package.module:function; default: one that finds nothing, for sanitize ours"
    )
    chosen.add_argument("--command", help="a command that prints the JSON of `trueno ptx analyze`")
    given = parser.parse_args()
    if given.action == "list":
        return show()
    if given.action == "commit":
        print(*sources.write_committed(), sep="\n")
        return 0
    if given.action == "sanitize":
        return sanitize(given)
    return measure(given) if given.action == "measure" else write(given)


if __name__ == "__main__":
    sys.exit(main())
