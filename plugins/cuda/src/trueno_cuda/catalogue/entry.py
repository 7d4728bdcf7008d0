"""The declaration beside a kernel, by which it can be listed, printed and run on the emulator.

A module that has kernels keeps `CATALOGUE = [CatalogueEntry(...), ...]`; `registry` finds these lists.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from trueno_cuda.device.protocol import Device, Grid
from trueno_cuda.ptx import TARGETS, Kernel, Source

ALL = tuple(TARGETS)


@dataclass(frozen=True)
class Constant:
    """A constant of the build.  default: None if it is required.  choices: all allowed values, if few."""

    name: str
    default: Any
    help: str = ""
    choices: tuple[Any, ...] = ()


ITEMSIZE = Constant("itemsize", 4, "bytes of an element", (4, 8))
GUARDED = Constant("guarded", False, "report NaN and Inf in `status`", (False, True))
"""Constants of many kernels."""


@dataclass(frozen=True)
class Want:
    """The expected result: within `bound` of `value`, and with the same bits if the bound is 0.

    value: computed by other means than the kernel's, in float64.  bound: a number, or one per element.
    """

    value: np.ndarray[Any, Any]
    bound: Any = 0.0


@dataclass(frozen=True)
class Sample:
    """One launch that is small enough for the emulator.

    operands: by the kernel's parameters: arrays for pointers, which the launch may change, and numbers.
    wants: the expected results, by their parameters' names.  block: if the kernel leaves it open.
    """

    grid: Grid
    operands: dict[str, Any]
    wants: dict[str, Want]
    block: Grid | None = None


@dataclass(frozen=True)
class Result:
    """How one result compares.

    error: its largest distance from what it must be, in units of what is allowed, so that at most 1 is right; of one
    that must be exact, the number of elements that differ.  wrong: elements that are wrong; worst: where.
    """

    name: str
    elements: int
    exact: bool
    error: float
    wrong: int
    worst: tuple[int, ...]

    @property
    def good(self) -> bool:
        return self.wrong == 0


def compare(name: str, got: np.ndarray[Any, Any], want: Want) -> Result:
    """A NaN is right only where a NaN is wanted, and an Inf where this very Inf is."""
    value = np.asarray(want.value)
    exact = not np.any(want.bound)
    if got.shape != value.shape or (exact and got.dtype != value.dtype):
        raise ValueError(f"{name} is {got.dtype}{got.shape}, and the sample wants {value.dtype}{value.shape}")
    if exact:
        bits = f"u{got.dtype.itemsize}"
        units = (got.view(bits) != np.ascontiguousarray(value).view(bits)).astype(np.float64)
        wrong, error = int(units.sum()), float(units.sum())
    else:
        same = (got == value) | ((got != got) & (value != value))
        with np.errstate(all="ignore"):
            units = np.abs(got.astype(np.float64) - value) / np.broadcast_to(want.bound, value.shape)
        units = np.where(same, 0.0, np.where(np.isnan(units), np.inf, units))
        wrong, error = int(np.count_nonzero(units > 1)), float(units.max(initial=0.0))
    worst = tuple(map(int, np.unravel_index(int(units.argmax()), got.shape))) if got.size else ()
    return Result(name, got.size, exact, error, wrong, worst)


@dataclass(frozen=True)
class Trial:
    """A `Sample` with several launches: a call on a device, which gives how its results compare."""

    run: Callable[[Device], Sequence[Result]]


@dataclass(frozen=True)
class Parity:
    """How a kernel's batched form goes back to its form for one vector; written beside the kernel.

    strategy: `grid_y`, the vectors lie along the grid's y, or `register_unroll`, each thread has them in registers, as
    many as the constant `columns` says.  batched, single: the constants of the two builds; of `single` the defaults are
    usual.  both: (device, rng, batched, single) -> the results of one batched launch, and of one launch per vector, on
    the same operands.
    """

    strategy: Literal["grid_y", "register_unroll"]
    batched: Mapping[str, Any]
    both: Callable[[Device, np.random.Generator, Kernel, Kernel], tuple[Any, Any]]
    single: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class CatalogueEntry:
    """A kernel of the catalogue, with all its variants.

    build: (arch, **constants) -> Kernel, or several that run one after the other.
    sample: (rng, **constants) -> Sample or Trial.  arches: those it claims.
    variants: sets of values of its constants that are tested besides the defaults; the tests build and run them all.
    parity: of a kernel that has a batched form.
    """

    name: str
    family: str
    help: str
    build: Callable[..., Kernel | tuple[Kernel, ...]]
    sample: Callable[..., Sample | Trial]
    constants: tuple[Constant, ...] = ()
    arches: tuple[str, ...] = ALL
    variants: tuple[Mapping[str, Any], ...] = field(default=({},))
    parity: Parity | None = None

    @property
    def defaults(self) -> dict[str, Any]:
        return {c.name: c.default for c in self.constants}


def constants(source: Source, **helps: str) -> tuple[Constant, ...]:
    """The constants of a kernel function, from its signature; helps: a sentence for each."""
    declared = []
    for name, parameter in source.defaults.items():
        default = None if parameter.default is parameter.empty else parameter.default
        declared.append(Constant(name, default, helps.get(name, "")))
    return tuple(declared)
