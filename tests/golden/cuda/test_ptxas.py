"""Every entry of the catalogue is accepted by ptxas for every architecture that it claims, and takes what it took.

`ptxas.txt` keeps registers, spilled bytes and shared memory of each, as one version of ptxas says; others only have to
accept.  `make golden` (TRUENO_GOLDEN=write) rewrites it with the ptxas at hand.
"""

import os
import re
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

pytest.importorskip("trueno_cuda.ptx", reason="trueno-cuda is not installed")

from trueno_cuda.catalogue import registry
from trueno_cuda.ptx import Kernel
from unit.cuda.ptx.assembler import ptxas

TABLE = Path(__file__).parent / "ptxas.txt"
COLUMNS = ("kernel", "entry", "arch", "registers", "spilled", "shared")
WIDTHS = (64, 24, 8, 9, 7, 6)


@dataclass(frozen=True)
class Row:
    """What ptxas says of a kernel: registers a thread, bytes of them that it keeps in memory, bytes shared by a block."""

    kernel: str
    entry: str
    arch: str
    registers: int
    spilled: int
    shared: int

    def __str__(self) -> str:
        cells = [str(getattr(self, c)) for c in COLUMNS]
        return " ".join(c.ljust(w) if i < 3 else c.rjust(w) for i, (c, w) in enumerate(zip(cells, WIDTHS, strict=True)))


@cache
def version() -> str:
    said = subprocess.run([ptxas(), "--version"], text=True, capture_output=True, check=True).stdout
    found = re.search(r"V(\d+\.\d+\.\d+)", said)
    assert found is not None, said
    return found[1]


def assembled(entry: str, arch: str, kernels: list[Kernel]) -> list[Row]:
    """Rows of kernels that are assembled as one module, which costs one start of ptxas."""
    text = registry.module(kernels)
    command = [ptxas(), "-v", "-arch", arch, "-o", "/dev/null", "/dev/stdin"]
    done = subprocess.run(command, input=text, text=True, capture_output=True, check=False)
    log = done.stderr
    assert done.returncode == 0, f"{entry} for {arch}:\n{log}\n" + "\n".join(
        f"{i:5} {line}" for i, line in enumerate(text.splitlines(), 1)
    )
    assert "warning" not in log.lower(), log
    shared = {k.name: k.shared_bytes for k in kernels}
    rows = []
    for part in log.split("Compiling entry function ")[1:]:
        name, used = part.split("'")[1], re.search(r"Used (\d+) registers", part)
        assert used is not None, part
        spilled = sum(map(int, re.findall(r"(\d+) bytes spill", part)))
        rows.append(Row(name, entry, arch, int(used[1]), spilled, shared.pop(name)))
    assert not shared, f"ptxas says nothing of {', '.join(shared)}"
    return rows


def kept() -> tuple[str, dict[str, list[str]]]:
    """The version of ptxas, and the lines of each entry."""
    lines = TABLE.read_text("ascii").splitlines() if TABLE.exists() else ["# ptxas none"]
    found: dict[str, list[str]] = {}
    for line in lines[2:]:
        found.setdefault(line.split()[1], []).append(line.rstrip())
    return lines[0].split()[2], found


def write(entries: Iterable[str], name: str, lines: list[str]) -> None:
    """Put an entry's lines into the table; those of entries that are gone, and of another ptxas, go."""
    old, found = kept()
    found = {n: found[n] for n in entries if n in found and old == version()} | {name: lines}
    head = [f"# ptxas {version()}", str_row(COLUMNS)]
    TABLE.write_text("\n".join([*head, *(line for n in sorted(found) for line in found[n])]) + "\n", "ascii")


def str_row(cells: Iterable[str]) -> str:
    return " ".join(c.ljust(w) if i < 3 else c.rjust(w) for i, (c, w) in enumerate(zip(cells, WIDTHS, strict=True)))


@pytest.mark.parametrize("name", registry.catalogue())
def test_ptxas_takes_it(name: str) -> None:
    entry = registry.find(name)
    rows: list[Row] = []
    for arch in entry.arches:
        variants = entry.variants if arch == registry.usual(entry) else entry.variants[:1]
        kernels = {k.name: k for v in variants for k in registry.build(entry, arch, v)}
        rows += assembled(name, arch, list(kernels.values()))
    lines = [str(r).rstrip() for r in sorted(rows, key=lambda r: (r.kernel, entry.arches.index(r.arch)))]
    if os.environ.get("TRUENO_GOLDEN") == "write":
        write(registry.catalogue(), name, lines)
    of, table = kept()
    if of == version():
        assert name in table, f"{name} has no rows in {TABLE.name} yet: `make golden` writes what ptxas says"
        assert lines == table[name], "a kernel takes more or less than it did: look at the diff, then `make golden`"


def test_the_table_has_no_other_entry() -> None:
    assert set(kept()[1]) <= set(registry.catalogue()), "rows of entries that are gone: take them out of ptxas.txt"


def test_the_table_has_every_entry() -> None:
    """Only ptxas can write a row, so an op comes in without one and gets it where ptxas is at hand."""
    missing = set(registry.catalogue()) - set(kept()[1])
    assert version() != kept()[0] or not missing, f"no rows of {', '.join(sorted(missing))}: `make golden`"
