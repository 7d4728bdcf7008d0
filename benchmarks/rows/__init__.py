"""Groups of rows, a file each: `cells(plan)` lists what to measure, without making any array yet."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from benchmarks.compare import Record
from benchmarks.timing import QUICK, Budget

SIZES = (1_024, 100_000, 1_000_000, 16_000_000)
ROWS = (4096, 1024)
CALIBRATION = "calibration"
"""The cell that measures the backends before the regret of choosing is; it has no record."""


@dataclass(frozen=True)
class Plan:
    """What was asked for."""

    sizes: tuple[int, ...] = SIZES
    quick: bool = False
    budget: Budget = field(default_factory=Budget)
    dtype: str = "float32"
    """Of the regret rows; all others are float32."""

    @property
    def lengths(self) -> tuple[tuple[int, ...], ...]:
        """The sizes as shapes: one row each."""
        return tuple((n,) for n in self.sizes)

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """One row of each size, and many rows unless it must be quick."""
        return self.lengths if self.quick else (*self.lengths, ROWS)

    @classmethod
    def short(cls, sizes: tuple[int, ...] = (1_024, 100_000), dtype: str = "float32") -> "Plan":
        return cls(sizes, True, QUICK, dtype)


@dataclass(frozen=True)
class Cell:
    """One thing to measure: its records bear this group, name and shape, under which the targets find them."""

    group: str
    name: str
    shape: str
    measure: Callable[[], list[Record]]

    @property
    def label(self) -> str:
        return f"{self.group}: {self.name} {self.shape}".rstrip()


Cells = Callable[[Plan], Iterator[Cell]]


def text(shape: tuple[int, ...]) -> str:
    """4096×1024, 1 000 000."""
    return f"{shape[0]:,}".replace(",", " ") if len(shape) == 1 else "×".join(map(str, shape))


def groups() -> dict[str, Cells]:
    """Every group by name, in the order in which they run: short ones first."""
    from benchmarks.rows import (
        aio,
        batch,
        cuda,
        dask,
        dispatch,
        door,
        elementwise,
        engine,
        engine_cuda,
        functions,
        general,
        gpus,
        guards,
        inplace,
        language,
        language_cuda,
        lz4,
        lz4_gpu,
        ptx,
        quant,
        quartiles,
        reductions,
        regret,
        rowwise,
        rust,
        startup,
        structured,
        threads,
        wgpu,
    )

    return {
        "startup": startup.cells,
        "door": door.cells,
        "dispatch": dispatch.cells,
        "general": general.cells,
        "aio": aio.cells,
        "inplace": inplace.cells,
        "guards": guards.cells,
        "threads": threads.cells,
        "functions": functions.cells,
        "quartiles": quartiles.cells,
        "rust": rust.cells,
        "structured": structured.cells,
        "language": language.cells,
        "rows": rowwise.cells,
        "elementwise": elementwise.cells,
        "reductions": reductions.cells,
        "batch": batch.cells,
        "ptx": ptx.cells,
        "quant": quant.cells,
        "lz4": lz4.cells,
        "engine": engine.cells,
        "dask": dask.cells,
        "wgpu": wgpu.cells,
        "cuda": cuda.cells,
        "language_cuda": language_cuda.cells,
        "engine_cuda": engine_cuda.cells,
        "lz4_gpu": lz4_gpu.cells,
        "gpus": gpus.cells,
        "regret": regret.cells,
    }
