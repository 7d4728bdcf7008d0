"""Objects that are none of what a function takes: an error of Trueno's, which says what is wanted."""

import numpy as np
import pytest
import trueno


@pytest.mark.parametrize("name", [None, 3, 1.5, ("TRUENO_THREADS",), ["x"], {}, np.ones(2)], ids=repr)
def test_names_of_settings(name):
    with pytest.raises(trueno.SettingError, match=f"this is {type(name).__name__}"):
        trueno.settings.override(name, 1)


@pytest.mark.parametrize("rows", [None, 1.5, "2", np.ones(2), object()], ids=lambda x: type(x).__name__)
def test_sizes_of_a_matrix(rows):
    with pytest.raises(trueno.ShapeError, match=f"rows and cols are {type(rows).__name__} and int"):
        trueno.Matrix.from_slice(rows, 2, [1.0, 2.0])


def test_data_of_a_matrix():
    with pytest.raises(trueno.ShapeError, match="ragged"):
        trueno.Matrix.from_slice(1, 2, [[1.0, 2.0], [3.0]])
    with trueno.Batch("scalar") as b, pytest.raises(trueno.DtypeError, match=r"from_slice: data is a Handle.*b\.read"):
        trueno.Matrix.from_slice(1, 3, b.upload(np.ones(3, np.float32)))
    held = trueno.Matrix.from_slice(np.int64(1), 2, trueno.Vector([1.0, 2.0]))
    assert held.shape == (1, 2) and held.dtype == np.float32


def test_a_handle_is_not_quantized():
    with trueno.Batch("scalar") as b:
        for shape in (32, (1, 32)):
            with pytest.raises(trueno.DtypeError, match=r"quantize: x is a handle of a batch.*b\.quantize_rows"):
                trueno.quantize(b.upload(np.ones(shape, np.float32)), "q8_0")


def test_indices_that_are_no_numbers():
    table, q = np.ones((3, 3), np.float32), trueno.quantize(np.ones((2, 32), np.float32), "q8_0")
    with pytest.raises(trueno.DtypeError, match="embedding_lookup: i is a QuantizedMatrix"):
        trueno.embedding_lookup(table, q)
    with pytest.raises(trueno.ShapeError, match="embedding_lookup: i is a ragged list"):
        trueno.embedding_lookup(table, [[1], [1, 2]])


def test_a_tensor_of_a_file_that_is_no_array(tmp_path):
    within: list = []
    within.append(within)
    for data in (within, [[1.0], [1.0, 2.0]]):
        with pytest.raises(trueno.TruenoError, match="gguf: tensor 'w'"):
            trueno.gguf.write(tmp_path / "x.gguf", {"w": data}, {"general.architecture": "llama"})
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "x", [memoryview(bytearray(64)), object(), None, "abc", {}, {1.0}], ids=lambda x: type(x).__name__
)
def test_what_is_no_matrix_is_not_quantized(x):
    with pytest.raises(trueno.TruenoError, match=r"quantize.*: x "):
        trueno.quantize(x, "q8_0")
    assert trueno.quantize(memoryview(np.ones(32, np.float32)), "q8_0").shape == (1, 32)


def test_eigenvalues_under_a_strict_error_state():
    """Of the caller's: what LAPACK lets underflow on the way is not a concern of his."""
    a = np.array([[1e-30, 1e-38], [1e-38, 1e-30]], np.float32)
    for backend in ("simd", "scalar", "reference"):
        with trueno.use(backend), np.errstate(all="raise"):
            values, _ = trueno.symmetric_eigen(a)
        np.testing.assert_allclose(values, [1e-30, 1e-30], rtol=1e-5)
