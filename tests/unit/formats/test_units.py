"""What kernels of every plugin take from the table of formats: units, formulas of groups, and rows of caches."""

import ml_dtypes
import numpy as np
import pytest
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType
from seeds import fresh_seed
from trueno.formats.table import CACHES, FORMATS, cache_row_bytes
from trueno.formats.units import COLUMN, linear, unit_shape


@pytest.mark.parametrize("name", FORMATS)
def test_units_have_every_element_once(name):
    f, s = FORMATS[name], unit_shape(name)
    period, columns = s.run * s.ways, s.run // COLUMN
    firsts = [u // columns * period + u % columns * COLUMN for u in range(s.units)]
    elements = [e + way * s.run + i for e in firsts for way in range(s.ways) for i in range(COLUMN)]
    assert sorted(elements) == list(range(f.elements)) and len(elements) == s.units * s.elements


def test_formulas_give_every_value_again():
    """Random steps of each bit, of which some double; any further bit of g changes nothing."""
    seed = fresh_seed()
    print(f"seed {seed}")
    rng = np.random.default_rng(seed)
    for _ in range(300):
        bits = int(rng.integers(0, 5))
        steps = rng.choice([0, 1, 2, 4, 8, 3, 6, -1, -2], bits)
        g = np.arange(1 << bits)
        values = int(rng.integers(0, 100)) + ((g[:, None] >> np.arange(bits) & 1) * steps).sum(-1)
        formula = linear(values.tolist())
        assert formula is not None and [formula.at(i) for i in g.tolist()] == values.tolist()
        assert [formula.at(i + (1 << bits)) for i in g.tolist()] == values.tolist()
        if bits > 1:
            values[-1] += 1
            assert linear(values.tolist()) is None


def test_neighbouring_bits_are_one_term():
    formula = linear([96 + 2 * g for g in range(8)])
    assert formula is not None and formula.terms == ((7, 0, 2),)
    formula = linear([0, 1, 5, 6])
    assert formula is not None and formula.terms == ((1, 0, 1), (2, 1, 5))


@pytest.mark.parametrize("name", CACHES)
def test_rows_of_caches_are_as_long_as_their_arrays(name):
    dtypes = {"f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16}
    elements, nbytes = GGML_QUANT_SIZES[GGMLQuantizationType[name.upper()]]
    assert name == "q8_0" or nbytes == np.dtype(dtypes[name]).itemsize
    for n in (0, 1, 31, 32, 33, 96):
        assert cache_row_bytes(name, n) == (n // elements * nbytes if n % elements == 0 else -1)
