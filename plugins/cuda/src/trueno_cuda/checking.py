"""The analyzer's rules over this plugin's own kernels: every build of the catalogue for each architecture.

Most builds of a kernel for two architectures differ in their first lines alone, so each body is analyzed once.  Where a
rule is wrong about a kernel, its builder says why, `with k.allow("bank-conflict", "read once"):`.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from trueno.errors import ParameterError

from trueno_cuda.catalogue import registry
from trueno_cuda.catalogue.entry import CatalogueEntry
from trueno_cuda.ptx.analyze.check import Excused, check, check_whole
from trueno_cuda.ptx.analyze.entry import entries
from trueno_cuda.ptx.analyze.finding import Finding
from trueno_cuda.ptx.analyze.notes import unread
from trueno_cuda.ptx.syntax.parse import parse

HEAD = re.compile(r"\A(?://[^\n]*\n|\.version[^\n]*\n|\.target[^\n]*\n)*")
"""Lines that no rule reads."""


@dataclass
class Static:
    """What the rules say of one kernel of the catalogue.

    builds: texts that were printed; bodies: those of them that differ in more than their head.  failures: sentences.
    impossible: architectures without any build, because its blocks need more shared memory than they have.
    """

    name: str
    builds: int = 0
    bodies: int = 0
    excused: int = 0
    failures: list[str] = field(default_factory=list)
    impossible: list[str] = field(default_factory=list)


def static(entry: CatalogueEntry, arches: Sequence[str]) -> Static:
    """Run the rules over every variant of an entry for some of the architectures that it claims."""
    result = Static(entry.name)
    seen: set[str] = set()
    for arch in arches:
        before = result.builds
        for constants in entry.variants:
            try:
                kernels = registry.build(entry, arch, constants)
            except ParameterError as error:
                if "bytes of shared memory" not in str(error):
                    result.failures.append(f"{_of(arch, constants)}: {error}")
                continue
            result.builds += 1
            for kernel in kernels:
                body = HEAD.sub("", kernel.text)
                if body not in seen:
                    seen.add(body)
                    result.failures += [
                        f"{_of(arch, constants)}: {reason}" for reason in _analyzed(kernel.text, result)
                    ]
        if result.builds == before:
            result.impossible.append(arch)
    result.bodies = len(seen)
    return result


def _analyzed(text: str, result: Static) -> Iterator[str]:
    """What is wrong with a text, a sentence each."""
    program = parse(text, tolerant=True)
    used: Excused = set()
    parts = entries(program)
    yield from (f"line {note['line']}: {note['message']}" for note in unread(program, parts))
    findings = check_whole(program, used=used)
    for part in parts:
        findings += check(part, used=used)
    result.excused += len(used)
    yield from map(_sentence, findings)


def _sentence(finding: Finding) -> str:
    where = f"{finding.entry}, line {finding.line}" if finding.entry else f"line {finding.line}"
    shown = f" ({finding.text})" if finding.text else ""
    return f"{where}: {finding.severity}: {finding.message}{shown} [{finding.rule}]"


def _of(arch: str, constants: Any) -> str:
    return " ".join([arch, *(f"{name}={value}" for name, value in constants.items())])
