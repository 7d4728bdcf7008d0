"""The kernels that mutants are made from: each alone in its module, with its launch."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from . import sources
from .launches import Launch, Outcome, load, run
from .statements import Entry, alone, entries
from .traps import traps

SEED = 7
"""Of the arguments of a launch."""


@dataclass(frozen=True, eq=False)
class Origin:
    """name: `barriers-sm_80-plain:rounds`, or `trap:brx`."""

    name: str
    text: str
    entry: str
    launch: Launch

    @cached_property
    def kernel(self) -> Entry:
        (one,) = [entry for entry in entries(self.text) if entry.name == self.entry]
        return one

    @cached_property
    def outcome(self) -> Outcome:
        """Of the correct kernel."""
        return run(self.text, self.entry, self.launch, SEED)[0]


def launched(source: str, entry: str) -> Launch | None:
    """The launch of an entry of a file, if it has one."""
    for (stem, name), one in load().items():
        if stem == source and (one.entry == entry or (one.entry != name and one.entry in entry)):
            return one
    return None


def of_text(build: str, source: str, text: str) -> Iterator[Origin]:
    """The launched kernels of a compiled file."""
    for entry in entries(text):
        one = launched(source, entry.name)
        if one is not None:
            yield Origin(f"{build}:{entry.name}", alone(text, entry.name), entry.name, one)


def origins(arches: tuple[str, ...] = ("sm_80", "sm_90a"), options: str = "plain") -> Iterator[Origin]:
    """The traps, and the kernels of every file for these architectures; without nvcc, those of the repository."""
    for trap in traps():
        yield Origin(f"trap:{trap.name}", trap.text, trap.launch.entry, trap.launch)
    if sources.compiler() is None:
        for source, text in sources.committed():
            yield from of_text(source, source, text)
        return
    for build in sources.builds():
        if build.options == options and build.arch in arches:
            yield from of_text(str(build), build.source, sources.compiled(build))
