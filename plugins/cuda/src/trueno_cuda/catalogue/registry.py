"""Every kernel of this plugin: to list, to print, and to run on the emulator.  Needs neither a GPU nor CuPy.

An entry is written once, beside its kernel: a module below `trueno_cuda.kernels` or `trueno_cuda.rows` that has a list
`CATALOGUE` of entries (see `entry`) is found automatically.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pkgutil import walk_packages
from typing import Any

import numpy as np
from trueno.errors import KernelError, ParameterError, suggestion

from trueno_cuda.catalogue.entry import CatalogueEntry, Constant, Result, Sample, Trial, compare
from trueno_cuda.device.emulated import Emulator, runs
from trueno_cuda.device.protocol import Device, Grid
from trueno_cuda.ptx import TARGETS, BuildError, Kernel
from trueno_cuda.ptx.builder import DYNAMIC
from trueno_cuda.ptx.emulate import Report, load
from trueno_cuda.ptx.types import Type

PACKAGES = ("trueno_cuda.kernels", "trueno_cuda.rows")
ARCH = "sm_90"


@cache
def catalogue() -> dict[str, CatalogueEntry]:
    """All entries by name, families together."""
    entries: list[CatalogueEntry] = []
    for package in PACKAGES:
        if find_spec(package) is None:
            continue
        for module in walk_packages(import_module(package).__path__, f"{package}."):
            entries += getattr(import_module(module.name), "CATALOGUE", [])
    by_name: dict[str, CatalogueEntry] = {}
    for entry in sorted(entries, key=lambda e: (e.family, e.name)):
        if entry.name in by_name:
            raise ValueError(f"two entries of the catalogue are called {entry.name}")
        by_name[entry.name] = entry
    return by_name


def find(name: str) -> CatalogueEntry:
    """The entry with this name; ParameterError with the nearest name."""
    entries = catalogue()
    if name not in entries:
        from trueno.backend import TABLE  # the op table, needed only for a misspelt kernel

        if name in TABLE:
            raise ParameterError(
                f"ptx: {name} is an op of Trueno without a kernel of its own here; `trueno ptx list` has the kernels"
            )
        hint = suggestion(name, entries) or ";"
        raise ParameterError(f'ptx: no kernel is called "{name}"{hint} `trueno ptx list` has them all')
    return entries[name]


def usual(entry: CatalogueEntry) -> str:
    """The architecture for which an entry is printed by default: sm_90, or the newest if sm_90 is not claimed."""
    return ARCH if ARCH in entry.arches else entry.arches[-1]


# ------------------------------------------------------------------------------------- building


def chosen(entry: CatalogueEntry, given: Mapping[str, Any]) -> dict[str, Any]:
    """All constants of a build, `given` ones in place of the defaults; ParameterError for invalid ones."""
    constants = {c.name: c for c in entry.constants}
    for name, value in given.items():
        if name not in constants:
            there = f"it has {', '.join(constants)}" if constants else "it has none"
            raise ParameterError(f"{entry.name}: no constant {name!r}{suggestion(name, constants) or f'; {there}'}")
        choices = constants[name].choices
        if choices and value not in choices:
            raise ParameterError(f"{entry.name}: {name} is {value!r}; it must be {_alternatives(choices)}")
    values = entry.defaults | dict(given)
    missing = [name for name, value in values.items() if value is None]
    if missing:
        raise ParameterError(f"{entry.name}: {missing[0]} has no default; give it with --set {missing[0]}=VALUE")
    return values


def read(entry: CatalogueEntry, name: str, text: str) -> Any:
    """The value of a constant from its text; ParameterError if it has another type."""
    constant = next((c for c in entry.constants if c.name == name), None)
    if constant is None:
        return text  # which `chosen` refuses
    kind = type(constant.default if constant.default is not None else (constant.choices or (0,))[0])
    words = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
    try:
        return words[text.lower()] if kind is bool else kind(text)
    except (KeyError, ValueError):
        wanted = {int: "a whole number", float: "a number", bool: "true or false"}.get(kind, kind.__name__)
        raise ParameterError(f"{entry.name}: {name} is {text!r}; it must be {wanted}{_default(constant)}") from None


def build(entry: CatalogueEntry, arch: str = ARCH, constants: Mapping[str, Any] | None = None) -> tuple[Kernel, ...]:
    """The kernels for an architecture that the entry claims; ParameterError for impossible builds."""
    if arch not in entry.arches:
        arches = ", ".join(entry.arches)
        hint = "" if arch in TARGETS else suggestion(arch, entry.arches)
        raise ParameterError(f"{entry.name}: it is not for {arch}{hint or ';'} it runs on {arches}")
    values = chosen(entry, constants or {})
    try:
        kernels = entry.build(arch, **values)
    except (BuildError, KernelError) as error:
        raise ParameterError(f"{entry.name}: {error}") from None
    except Exception as error:  # Python's own error for an impossible constant: a division by 0, an empty shape
        listed = ", ".join(f"{n}={v}" for n, v in values.items())
        raise ParameterError(f"{entry.name}: no kernel with {listed} ({type(error).__name__}: {error})") from error
    return kernels if isinstance(kernels, tuple) else (kernels,)


def module(kernels: Sequence[Kernel]) -> str:
    """The text of kernels for one architecture as one module, which ptxas accepts at once."""
    if len(kernels) == 1:
        return kernels[0].text
    newest = max(tuple(map(int, k.version.split("."))) for k in kernels)
    heads, bodies, align = [], [], 0
    for k in kernels:
        head, _, body = k.text.partition(".visible")
        heads.append(head.partition("\n")[0])
        bodies.append(f".visible{body}")
        for alignment in re.findall(r"\.extern \.shared \.align (\d+)", head):
            align = max(align, int(alignment))
    shared = [f".extern .shared .align {align} .b8 {DYNAMIC}[];", ""] if align else []
    start = [f".version {newest[0]}.{newest[1]}", f".target {kernels[0].arch}", ".address_size 64", "", *shared]
    return "\n".join([*heads, *start, *bodies])


# ------------------------------------------------------------------------------------- running


@dataclass(frozen=True)
class Run:
    """A sample on the emulator: the report of each launch, and how each result compares."""

    kernels: tuple[Kernel, ...]
    reports: tuple[Report, ...]
    results: tuple[Result, ...]

    @property
    def good(self) -> bool:
        launched = all(r.completed and not r.findings for r in self.reports)
        return launched and all(r.good for r in self.results) and bool(self.reports and self.results)


class Watched(Emulator):
    """Records launches, and the report of each launch; a finding is not an error."""

    def __init__(self, arch: str) -> None:
        super().__init__(arch)
        self.kernels: list[Kernel] = []
        self.reports: list[Report] = []

    def prepare(
        self, kernel: Kernel, grid: Grid, numbers: Sequence[int] = (), block: Grid | None = None, shared: int = -1
    ) -> Callable[..., None]:
        threads = kernel.threads or block
        if threads is None:
            raise KernelError(f"{kernel.name} leaves its threads open: give block=")
        dynamic = kernel.dynamic_shared if shared < 0 else shared

        def launch(given: Sequence[int], floats: Sequence[float] = ()) -> None:
            self.run(kernel, grid, threads, [*map(self._at, given), *numbers, *map(float, floats)], dynamic)

        return launch

    def run(self, kernel: Kernel, grid: Grid, threads: Grid, operands: Sequence[Any], shared: int) -> None:
        self.reports.append(load(kernel.text).launch(kernel.name, grid, threads, operands, shared=shared))
        self.kernels.append(kernel)


def run(entry: CatalogueEntry, arch: str = ARCH, constants: Mapping[str, Any] | None = None, seed: int = 0) -> Run:
    """The entry's sample on the emulator, compared with its oracle."""
    kernels = build(entry, arch, constants)
    device = Watched(arch)
    sample = _sample(entry, constants, seed)
    if isinstance(sample, Trial):
        results = tuple(sample.run(device))
        return Run(tuple(device.kernels), tuple(device.reports), results)
    kernel, threads = _alone(entry, kernels, sample)
    device.run(kernel, sample.grid, threads, [sample.operands[p.name] for p in kernel.params], kernel.dynamic_shared)
    results = tuple(compare(n, sample.operands[n], want) for n, want in sample.wants.items())
    return Run((kernel,), tuple(device.reports), results)


def newest(entry: CatalogueEntry, device: Device) -> str | None:
    """The newest architecture that an entry claims and a device runs; None if there is none."""
    return next((arch for arch in reversed(entry.arches) if runs(arch, device.arch)), None)


def on(
    device: Device, entry: CatalogueEntry, constants: Mapping[str, Any] | None = None, seed: int = 0
) -> tuple[Result, ...]:
    """How the results of the entry's sample compare on any device; ParameterError if the device runs none of it."""
    arch = newest(entry, device)
    if arch is None:
        raise ParameterError(f"{entry.name}: it is for {', '.join(entry.arches)}, and {device.name} is {device.arch}")
    kernels = build(entry, arch, constants)
    sample = _sample(entry, constants, seed)
    if isinstance(sample, Trial):
        return tuple(sample.run(device))
    kernel, threads = _alone(entry, kernels, sample)
    values = [sample.operands[p.name] for p in kernel.params]
    arrays = [device.to_device(x) for x in values if isinstance(x, np.ndarray)]
    numbers = [x for p, x in zip(kernel.params, values, strict=True) if isinstance(p.type, Type) and p.type.integer]
    floats = [x for p, x in zip(kernel.params, values, strict=True) if isinstance(p.type, Type) and not p.type.integer]
    device.prepare(kernel, sample.grid, numbers, threads)([x.data.ptr for x in arrays], floats)
    there = dict(zip((p.name for p in kernel.params), arrays, strict=False))  # pointers come first
    return tuple(compare(n, device.to_host(there[n]), want) for n, want in sample.wants.items())


def _sample(entry: CatalogueEntry, constants: Mapping[str, Any] | None, seed: int) -> Sample | Trial:
    values = chosen(entry, constants or {})
    try:
        return entry.sample(np.random.default_rng(seed), **values)
    except Exception as error:
        listed = ", ".join(f"{n}={v}" for n, v in values.items())
        raise ParameterError(f"{entry.name}: no sample with {listed} ({type(error).__name__}: {error})") from error


def _alone(entry: CatalogueEntry, kernels: Sequence[Kernel], sample: Sample) -> tuple[Kernel, Grid]:
    """The kernel of a sample that is one launch, and the threads of its blocks."""
    (kernel,) = kernels
    threads = kernel.threads or sample.block
    if threads is None:
        raise ParameterError(f"{entry.name}: the sample does not say how many threads a block has")
    return kernel, threads


def _alternatives(choices: Iterable[Any]) -> str:
    *some, last = map(str, choices)
    return f"{', '.join(some)} or {last}" if some else last


def _default(constant: Constant) -> str:
    return "" if constant.default is None else f", as {constant.default}"
