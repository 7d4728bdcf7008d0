"""Clusters on paper: what a graph would take on workers that are not here, and what would limit it.

`cluster` describes workers, link and scheduler, `graphs` reads the tasks of a lazy array and measures one of each kind,
`engine` lets events happen in order, `path` says which of them decide, and `decoding` predicts tokens per second of a
model that several GPUs share.
"""

from trueno_dask.simulation.cluster import Cost, Link, Scheduler, Work, Workers
from trueno_dask.simulation.decoding import tensor_parallel
from trueno_dask.simulation.graphs import measure
from trueno_dask.simulation.simulate import simulate

__all__ = ["Cost", "Link", "Scheduler", "Work", "Workers", "measure", "simulate", "tensor_parallel"]
