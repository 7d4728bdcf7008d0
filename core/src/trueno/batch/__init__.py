"""Batches: record ops on handles, fuse them, run them as few kernels on buffers that are used again.

    with trueno.Batch("simd") as b:
        h = b.upload(x)
        h = b.add(b.scale(b.relu(h), 2.0), b.upload(y))
        b.execute()
        out = b.read(h)

`record` is what the user holds (`incoming` what it takes, `methods` its ops), `graph` what was recorded, `fuse` decides
what becomes one kernel, `merged` makes an op of several, `epilogue` of a structured one and what follows, `steps` the
plan, `buffers` gives every result its memory, `run` replays, `show` prints the plan.
"""

from trueno.batch.counts import Counts
from trueno.batch.handle import Handle
from trueno.batch.record import Batch

__all__ = ["Batch", "Counts", "Handle"]
