"""Encoding gives ggml's bytes, in any shape and any number of pieces, and refuses what no block can hold."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from trueno.errors import ParameterError, ShapeError
from trueno.formats import ACTIVATIONS, FORMATS, WEIGHTS, decode, encode, encode_activations, encode_arithmetic
from trueno.formats.decode import codes, field, group_mins, group_scales
from trueno.formats.encode_codebook import nearest_entry, thresholds
from trueno.formats.encode_minmax import _as_stored
from trueno.formats.pack import pack

GGML = np.load(Path(__file__).parents[2] / "golden/ggml/quant.npz", allow_pickle=False)
ROWS = [str(name) for name in GGML["row_names"]]


@pytest.mark.parametrize("name", WEIGHTS)
@pytest.mark.parametrize("key, weighted", [("q", False), ("qim", True)])
def test_gives_the_bytes_of_ggml(name: str, key: str, weighted: bool) -> None:
    got = encode(FORMATS[name], GGML["x"], GGML["imatrix"] if weighted else None)
    wanted = GGML[f"{key}_{name.upper()}"]
    wrong = [row for row, a, b in zip(ROWS, got, wanted, strict=True) if not np.array_equal(a, b)]
    assert got.shape == wanted.shape and not wrong


@pytest.mark.parametrize("name", WEIGHTS)
@pytest.mark.parametrize("weighted", [False, True])
def test_a_row_of_the_table_says_how_to_encode(name: str, weighted: bool) -> None:
    """Under another name too: no encoder knows formats by name."""
    renamed = replace(FORMATS[name], name="renamed")
    assert np.array_equal(
        encode(renamed, GGML["x"], GGML["imatrix"] if weighted else None),
        GGML[f"{'qim' if weighted else 'q'}_{name.upper()}"],
    )


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_so_does_one_of_activations(name: str) -> None:
    renamed = replace(FORMATS[name], name="renamed")
    assert np.array_equal(encode_activations(renamed, GGML["x"]), encode_activations(FORMATS[name], GGML["x"]))


def test_a_scale_too_wide_runs_into_the_number_that_shares_its_byte() -> None:
    """As ggml's bits lie: above a group's scale its min in q2_k, two bits of number j + 4 above number j in q4_k."""
    numbers = np.zeros((1, 16), np.int32)
    scales, mins = numbers.copy(), numbers.copy()
    scales[0, 3], mins[0, 3] = 0x6A, 0x81
    scales, mins = _as_stored(FORMATS["q2_k"], scales, mins, capped=False)
    assert (scales[0, 3], mins[0, 3], scales.sum(), mins.sum()) == (0xA, 0x7, 0xA, 0x7)

    scales, mins = numbers[:, :8].copy(), numbers[:, :8].copy()
    scales[0, 1], scales[0, 5], mins[0, 2], mins[0, 7] = 0xC5, 0x01, 0x80, 0xFF
    scales, mins = _as_stored(FORMATS["q4_k"], scales, mins, capped=False)
    assert (scales[0, 1], scales[0, 5], mins[0, 2], mins[0, 6], mins[0, 7]) == (0x05, 0x31, 0, 0x20, 0x3F)
    assert _as_stored(FORMATS["q4_k"], np.full((1, 8), 200), mins, capped=True)[0].tolist() == [[63] * 8]


@pytest.mark.parametrize("f", FORMATS.values(), ids=FORMATS)
def test_packing_is_the_inverse_of_unpacking(f) -> None:
    print("seed 30")
    blocks = np.random.default_rng(30).integers(0, 256, (50, f.nbytes), np.uint8)
    rest = {name: field(f, blocks, name) for name in ("d", "dmin", "m", "s", "bsums") if name in f.fields}
    scales = group_scales(f, blocks) + (0 if f.scale_signed else f.scale_bias) if f.scales else None
    mins = group_mins(f, blocks) if f.mins else None
    assert np.array_equal(pack(f, codes(f, blocks), rest, scales, mins), blocks)


@pytest.mark.parametrize("name", WEIGHTS)
@pytest.mark.parametrize("weighted", [False, True])
def test_pieces_and_shapes_change_no_byte(name: str, weighted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    f = FORMATS[name]
    print("seed 31")
    rng = np.random.default_rng(31)
    x = rng.standard_normal((6, 512)).astype(np.float32)
    imatrix = rng.random(512).astype(np.float32) if weighted else None
    whole = encode(f, x, imatrix)
    assert np.array_equal(encode(f, x.reshape(2, 3, 512), imatrix).reshape(6, -1), whole)
    assert np.array_equal(encode(f, np.asfortranarray(x), imatrix), whole)
    assert np.array_equal(np.stack([encode(f, row, imatrix) for row in x]), whole)
    monkeypatch.setattr(encode_arithmetic, "CHUNK", 1)  # one block at a time
    assert np.array_equal(encode(f, x, imatrix), whole)
    assert encode(f, np.zeros((0, 512), np.float32), imatrix).shape == (0, f.row_bytes(512))
    assert encode(f, np.zeros((3, 0), np.float32)).shape == (3, 0)


@pytest.mark.parametrize("name", WEIGHTS)
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("weighted", [False, True])
def test_refuses_what_is_no_finite_number(name: str, bad: float, weighted: bool) -> None:
    x = np.ones((3, 1024), np.float32)
    x[2, 700] = x[2, 701] = bad
    text = re.escape(f"encode to {name}: x[2, 700] is {bad}; a block holds finite numbers only")
    with pytest.raises(ParameterError, match=text):
        encode(FORMATS[name], x, np.ones(1024, np.float32) if weighted else None)
    with pytest.raises(ParameterError, match=re.escape("x[0] is inf")):
        encode(FORMATS[name], np.full(256, 1e300))  # beyond float32


@pytest.mark.parametrize("name", WEIGHTS)
@pytest.mark.parametrize("bad", [np.nan, np.inf, -0.5])
def test_refuses_an_importance_that_is_none(name: str, bad: float) -> None:
    imatrix = np.ones(256, np.float32)
    imatrix[13] = bad
    with pytest.raises(ParameterError, match=re.escape(f"encode to {name}: imatrix[13] is {bad}; weights")):
        encode(FORMATS[name], np.ones((2, 256), np.float32), imatrix)
    with pytest.raises(ShapeError, match=r"imatrix has shape \(1, 256\), but a row of x has 256 elements"):
        encode(FORMATS[name], np.ones((1, 256), np.float32), np.ones((1, 256), np.float32))


def test_checks_format_and_length() -> None:
    with pytest.raises(ParameterError, match="q8_k holds no weights; these do: q4_0"):
        encode(FORMATS["q8_k"], np.zeros(256, np.float32))
    with pytest.raises(ShapeError, match=r"a row of 32 elements .* q5_0, whose blocks are smaller"):
        encode(FORMATS["q4_k"], np.zeros(32, np.float32))
    assert set(ACTIVATIONS) - set(WEIGHTS) == {"q8_1", "q8_k"}


@pytest.mark.parametrize("name", WEIGHTS)
def test_where_nothing_counts_nothing_is_kept(name: str) -> None:
    """As in ggml, an importance matrix of zeros leaves zeros, but in formats that ignore it, or that start from
    the extremes of the block."""
    f = FORMATS[name]
    print("seed 32")
    x = np.random.default_rng(32).standard_normal((2, 512)).astype(np.float32)
    got = encode(f, x, np.zeros(512, np.float32))
    if name in ("q8_0", "mxfp4", "q4_1", "q5_1"):
        assert np.array_equal(got, encode(f, x))
    else:
        assert not decode(f, got).any()


@pytest.mark.parametrize("name", WEIGHTS)
def test_a_run_without_weight_is_kept_where_another_group_of_the_block_has_some(name: str) -> None:
    """Formats with a min start from the extremes of a group, and need weights for the scales of a block alone."""
    f = FORMATS[name]
    print("seed 34")
    x = np.random.default_rng(34).standard_normal((2, 512)).astype(np.float32)
    weights = np.ones(512, np.float32)
    weights[64:96] = weights[256:] = 0
    y = decode(f, encode(f, x, weights))
    assert y[:, :64].any() and y[:, 96:256].any()
    assert y[:, 64:96].any() == (name in ("q4_1", "q5_1", "q2_k", "q4_k", "q5_k", "q8_0", "mxfp4"))
    assert y[:, 256:].any() == (name in ("q4_1", "q5_1", "q8_0", "mxfp4"))


@pytest.mark.parametrize("name", [n for n in WEIGHTS if n != "mxfp4"])
@pytest.mark.parametrize("size", [1e10, 1e15, 1e20, 3e38])
def test_a_scale_too_large_for_float16_is_no_finite_number(name: str, size: float) -> None:
    """Numbers that a format cannot hold come back as Inf and NaN; but where even their squares overflow, the search of
    some formats finds nothing in ggml, which then writes blocks of zeros."""
    f = FORMATS[name]
    print("seed 33")
    x = np.random.default_rng(33).uniform(-1, 1, (4, 512)).astype(np.float32) * np.float32(size)
    y = decode(f, encode(f, x))
    if size > 1e19 and name in ("q3_k", "q6_k", "iq4_xs"):
        assert not y.any()
    else:
        assert not np.isfinite(y).any()


@pytest.mark.parametrize("name", ["iq4_nl", "iq4_xs"])
def test_nearest_entry_is_the_search_of_ggml(name: str) -> None:
    values = FORMATS[name].values

    def best_index(x: np.float32) -> int:
        table = np.array(values, np.float32)
        if x <= table[0]:
            return 0
        if x >= table[-1]:
            return len(table) - 1
        upper = int(np.searchsorted(table, x, side="right"))
        return upper - 1 if x - table[upper - 1] < table[upper] - x else upper

    limits = thresholds(values)
    near = [limits, *(np.nextafter(limits, np.float32(s)) for s in (-np.inf, np.inf))]
    x = np.concatenate([*near, np.array(values, np.float32), np.linspace(-140, 130, 997, dtype=np.float32)])
    x = np.append(x, np.array([np.inf, -np.inf], np.float32))
    assert nearest_entry(values, x).tolist() == [best_index(v) for v in x]
    assert nearest_entry(values, np.array([np.nan], np.float32)).tolist() == [15]
