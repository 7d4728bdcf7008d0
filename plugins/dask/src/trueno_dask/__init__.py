"""Trueno's ops on Dask arrays: `trueno.softmax(x)` of a Dask array is a lazy Dask array.

Once this distribution is installed, the public functions of `trueno` take Dask arrays; nothing needs to be imported.
Each worker is an ordinary Trueno, which chooses its backend by its own probes and settings.  This module has what
stands beside the ops: `open_gguf` reads quantized matrices by the workers, `fused` makes chains of ops one batch per
block, `explain` says where an array's chunks would run, `stats` and `trace` collect what has happened on the workers,
and `check` compares their versions.  `simulate` predicts what an array would take on a cluster that is not here.
"""

from trueno_dask.chains import fused
from trueno_dask.explaining import explain
from trueno_dask.gguf import open_gguf
from trueno_dask.simulation import Cost, Link, Scheduler, Work, Workers, measure, simulate, tensor_parallel
from trueno_dask.workers import check, stats, trace

__all__ = [
    "Cost", "Link", "Scheduler", "Work", "Workers", "check", "explain", "fused", "measure", "open_gguf", "simulate",
    "stats", "tensor_parallel", "trace",
]  # fmt: skip
