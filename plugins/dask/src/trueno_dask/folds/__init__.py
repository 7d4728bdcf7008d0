"""Row programs whose rows lie in several chunks: no row is ever gathered.

`split` derives from a program what each chunk computes, `partial` computes it and merges it, and `graph` makes the layers.
"""

from trueno_dask.folds.graph import folded

__all__ = ["folded"]
