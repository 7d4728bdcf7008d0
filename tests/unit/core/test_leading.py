"""Leading axes for kernels of plugins: against the offsets of NumPy's own broadcasting."""

from math import prod

import numpy as np
from seeds import fresh_seed
from trueno.backend import stacked


def offsets(lead, steps):
    """What a kernel computes: the first element of each problem, in the order of the problems."""
    if not lead:
        return np.zeros(1, int)
    places = np.indices(lead).reshape(len(lead), -1)
    return (places * np.reshape(steps, (-1, 1))).sum(0)


def test_every_problem_begins_where_numpy_has_it():
    seed = fresh_seed()
    print(f"seed {seed}")
    rng = np.random.default_rng(seed)
    for _ in range(300):
        whole = tuple(rng.integers(1, 4, rng.integers(0, 6)).tolist())
        leads = []
        for _ in range(rng.integers(1, 4)):
            own = [size if rng.integers(2) else 1 for size in whole[rng.integers(0, len(whole) + 1) :]]
            leads.append(tuple(own))
        elements = rng.integers(1, 9, len(leads)).tolist()
        found = stacked(whole, leads, elements)
        if np.broadcast_shapes(*leads) != whole:
            assert found is None
            continue
        lead, steps = found
        assert prod(lead) == prod(whole) and 1 not in lead and len(lead) <= len(whole)
        for own, size, step in zip(leads, elements, steps, strict=True):
            numbers = np.arange(prod(own)).reshape(own) * size
            np.testing.assert_array_equal(offsets(lead, step), np.broadcast_to(numbers, whole).ravel())


def test_what_does_not_broadcast_is_none():
    assert stacked((2,), ((3,),), (1,)) is None
    assert stacked((2, 3), ((3,), (3,)), (1, 1)) is None, "an axis that no operand has"
    assert stacked((2, 3), ((1, 3), (3,)), (1, 1)) is None
    assert stacked((), (), ()) is None
