"""Row programs whose rows lie in several chunks: no row is ever gathered.

`split` derives from a program what each chunk computes, `parts` are the programs of that, `partial` merges their
results, `chunk` has the tasks, and `graph` makes the layers.
"""

from trueno_dask.folds.graph import folded

__all__ = ["folded"]
