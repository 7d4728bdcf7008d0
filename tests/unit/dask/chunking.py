"""Random chunkings, and the comparison of what lazy arrays say of themselves with what they are."""

from itertools import pairwise

import dask.array as da
import numpy as np
from hypothesis import strategies as st

DRAWN = st.randoms(use_true_random=False)


def chunks(random, size, most=3):
    """Sizes that sum to `size`: some of them 0, or all of it one chunk."""
    cuts = sorted(random.randint(0, size) for _ in range(random.choice([0, 1, 1, 2, most])))
    bounds = [0, *cuts, size]
    return tuple(b - a for a, b in pairwise(bounds))


def chunked(random, x, most=3):
    """A Dask array of an array, cut at random."""
    return da.from_array(x, chunks=tuple(chunks(random, n, most) for n in x.shape))


def computed(result):
    """The results as arrays, each of which is as the lazy one says."""
    arrays = []
    for lazy in result if isinstance(result, tuple) else (result,):
        assert isinstance(lazy, da.Array)
        x = lazy.compute()
        assert np.shape(x) == lazy.shape or any(np.isnan(n) for n in lazy.shape)
        assert np.asarray(x).dtype == lazy.dtype == lazy._meta.dtype
        assert lazy._meta.ndim == lazy.ndim and type(lazy._meta) is np.ndarray
        arrays.append(np.asarray(x))
    return arrays
