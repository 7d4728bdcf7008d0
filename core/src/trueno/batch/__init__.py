"""Batches: record ops on handles, fuse them, run them as few kernels on buffers that are reused.

    with trueno.Batch("simd") as b:
        h = b.upload(x)
        h = b.add(b.scale(b.relu(h), 2.0), b.upload(y))
        b.execute()
        out = b.read(h)

`record` is the user's object (`incoming` what it accepts, `methods` its ops), `graph` the recorded ops, `fuse` decides
which ops become one kernel, `merged` makes one op of several, `epilogue` of a structured op and its tail, `steps` the
plan, `buffers` gives every result its memory, `run` replays, `show` prints the plan.
"""

from trueno.batch.counts import Counts
from trueno.batch.handle import Handle
from trueno.batch.record import Batch

__all__ = ["Batch", "Counts", "Handle"]
