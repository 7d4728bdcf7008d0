"""The targets of ops on Dask arrays."""

from collections.abc import Sequence

from trueno.text import duration

from benchmarks.compare import Record
from benchmarks.rows import dask
from benchmarks.verdict import Verdict, one, times

LEAST = {(dask.CHAIN, dask.PROCESS): 0.9, (dask.CHAIN, dask.DASK): 1.5, (dask.THEIRS, dask.DASK): 1.5}
BEYOND_S = 50e-6


def dask_verdicts(records: Sequence[Record]) -> list[Verdict]:
    """Two workers against one process, and against Dask's own ops; and what a task costs beside them."""
    verdicts = []
    for (name, whom), least in LEAST.items():
        row = f"dask: {name} by two workers, over {whom}"
        key = ("dask", f"{name} over {whom}")
        verdicts.append(one(records, key, row, f"≥ {least:g}×", times, lambda v, least=least: v >= least))
    row = f"dask: {dask.BEYOND}"
    return [*verdicts, one(records, ("dask", dask.BEYOND), row, f"≤ {duration(BEYOND_S)}", duration,
                           lambda v: v <= BEYOND_S)]  # fmt: skip
