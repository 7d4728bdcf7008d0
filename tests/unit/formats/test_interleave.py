"""Rows interleaved: which byte goes where, that none is lost, and what the table says of such formats."""

import numpy as np
import pytest
import trueno
from trueno.formats import FORMATS, INTERLEAVED, WEIGHTS, decode, encode, format_of
from trueno.formats.interleave import interleaved, order, plain, units
from trueno.formats.samples import random_rows

ROWS = 16
SEED = 20261122


def any_bytes(f, rows, blocks, seed=SEED):
    w = np.random.default_rng(seed).integers(0, 256, (rows, blocks * f.nbytes), np.uint8)
    w.flags.writeable = False
    return w


@pytest.mark.parametrize("name", WEIGHTS)
def test_every_byte_of_a_group_has_one_place(name):
    f = FORMATS[name]
    assert sorted(order(f).tolist()) == list(range(ROWS * f.nbytes))
    covered = sorted(byte for o, n, unit in units(f) for byte in range(o, o + n) if not n % unit)
    assert covered == list(range(f.nbytes))


@pytest.mark.parametrize("name", WEIGHTS)
def test_bytes_go_where_the_order_says(name):
    """Counted one by one, groups and blocks among them, and rows that fill no group."""
    f = FORMATS[name]
    w, at = any_bytes(f, 37, 3), order(f)
    got = interleaved(w, f)
    for group in range(2):
        run = got[group * ROWS : (group + 1) * ROWS].reshape(-1)
        for block in range(3):
            for place, source in enumerate(at):
                row, byte = divmod(int(source), f.nbytes)
                start = block * f.nbytes
                assert run[start * ROWS + place] == w[group * ROWS + row, start + byte]
    assert np.array_equal(got[32:], w[32:])


def test_where_the_fields_of_two_formats_lie():
    """Written down by hand: d of every row, dmin of every row, scales byte by byte, codes four bytes a row."""
    f = FORMATS["q4_k"]
    w = any_bytes(f, ROWS, 2)
    block = interleaved(w, f).reshape(2, -1)[1]
    row = w[:, f.nbytes :]
    for r in range(ROWS):
        assert np.array_equal(block[2 * r : 2 * r + 2], row[r, :2])
        assert np.array_equal(block[32 + 2 * r : 34 + 2 * r], row[r, 2:4])
        assert np.array_equal(block[64 : 64 + 12 * ROWS].reshape(12, ROWS)[:, r], row[r, 4:16])
        assert np.array_equal(block[256:].reshape(32, ROWS, 4)[:, r].ravel(), row[r, 16:])
    f = FORMATS["q5_0"]  # fields d, qh, qs; bits of codes are codes
    w = any_bytes(f, ROWS, 1)
    block = interleaved(w, f).reshape(-1)
    for r in range(ROWS):
        assert np.array_equal(block[2 * r : 2 * r + 2], w[r, :2])
        assert np.array_equal(block[32 + 4 * r : 36 + 4 * r], w[r, 2:6])
        assert np.array_equal(block[96:].reshape(4, ROWS, 4)[:, r].ravel(), w[r, 6:])


@pytest.mark.parametrize("name", WEIGHTS)
@pytest.mark.parametrize("rows", [0, 1, 15, 16, 17, 70])
def test_nothing_is_lost(name, rows):
    f = FORMATS[name]
    for blocks in (0, 1, 5):
        w = any_bytes(f, rows, blocks)
        found = interleaved(w, f)
        assert found.shape == w.shape
        assert not np.shares_memory(found, w)
        assert np.array_equal(plain(found, INTERLEAVED[f"{name}_r16"]), w)
        whole = rows // ROWS * ROWS
        assert np.array_equal(found[whole:], w[whole:])
        assert not (whole and blocks) or not np.array_equal(found, w)


def test_rows_in_any_layout():
    f = FORMATS["q6_k"]
    w = any_bytes(f, 40, 3)
    spread = np.repeat(w, 2, axis=0)[::2]
    assert np.array_equal(interleaved(spread, f), interleaved(w, f))
    assert np.array_equal(interleaved(np.asfortranarray(w), f), interleaved(w, f))
    with pytest.raises(trueno.ShapeError, match="q6_k: a row of 629 bytes is not a whole number"):
        interleaved(w[:, :-1], f)
    with pytest.raises(trueno.ShapeError, match="q6_k_r16: a row of 629 bytes is not a whole number"):
        plain(w[:, :-1], INTERLEAVED["q6_k_r16"])


@pytest.mark.parametrize("name", WEIGHTS)
def test_the_decoder_reads_them(name):
    """Bit by bit, scales that are not numbers too."""
    f, laid = FORMATS[name], INTERLEAVED[f"{name}_r16"]
    w = any_bytes(f, 35, 2)
    got, wanted = decode(laid, interleaved(w, f)), decode(f, w)
    assert got.tobytes() == wanted.tobytes()
    assert decode(laid, w[:0]).shape == (0, 2 * f.elements)
    sample = random_rows(laid, (35, 2 * f.nbytes), np.random.default_rng(SEED))
    assert np.isfinite(decode(laid, sample)).all()
    assert np.array_equal(plain(sample, f), random_rows(f, (35, 2 * f.nbytes), np.random.default_rng(SEED)))


def test_the_table_has_one_for_each_format_of_matrices():
    assert set(INTERLEAVED) == {f"{name}_r16" for name in WEIGHTS}
    assert not set(INTERLEAVED) & set(FORMATS)
    for name, laid in INTERLEAVED.items():
        f = FORMATS[laid.plain]
        assert laid.name == name == f"{f.name}_r16"
        assert f.plain == ""
        assert laid.type_id == -1  # ggml has no number for it
        assert (laid.elements, laid.nbytes, laid.fields, laid.planes, laid.activations) == (
            f.elements, f.nbytes, f.fields, f.planes, f.activations
        )  # fmt: skip
        assert laid.row_bytes(512) == f.row_bytes(512)
    assert format_of("Q4_K_R16", weights=True) is INTERLEAVED["q4_k_r16"]
    with pytest.raises(trueno.ParameterError, match='did you mean "q4_k_r16"'):
        format_of("q4_k_r61")


def test_nothing_is_encoded_to_them_row_by_row():
    with pytest.raises(trueno.ParameterError, match="q4_k_r16 is q4_k with rows interleaved; encode to that first"):
        encode(INTERLEAVED["q4_k_r16"], np.zeros((1, 256), np.float32))
