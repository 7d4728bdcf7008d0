"""Decoding is bit for bit ggml's, and the table says of each format what ggml's headers say."""

from pathlib import Path

import numpy as np
import pytest
from trueno.errors import ParameterError, ShapeError
from trueno.formats import FORMATS, WEIGHTS, decode, format_of

GGML = np.load(Path(__file__).parents[2] / "golden/ggml/quant.npz", allow_pickle=False)


@pytest.mark.parametrize("name", WEIGHTS)
@pytest.mark.parametrize("data, values", [("q", "dq"), ("rb", "rbdq")])
def test_decodes_to_the_bits_that_ggml_gives(name: str, data: str, values: str) -> None:
    got = decode(FORMATS[name], GGML[f"{data}_{name.upper()}"])
    assert got.view(np.uint32).tobytes() == GGML[f"{values}_{name.upper()}"].view(np.uint32).tobytes()


@pytest.mark.parametrize("name", ["q8_0", "q8_k"])
def test_decodes_activation_formats(name: str) -> None:
    assert np.array_equal(decode(FORMATS[name], GGML[f"act_cpu_{name.upper()}"]), GGML[f"act_dq_{name.upper()}"])


def test_every_format_of_the_golden_file_is_in_the_table() -> None:
    assert {str(t).lower() for t in GGML["types"]} == set(WEIGHTS)


def test_the_gguf_package_knows_the_same_blocks() -> None:
    gguf = pytest.importorskip("gguf", reason="the gguf package is not installed")
    for f in FORMATS.values():
        kind = gguf.GGMLQuantizationType(f.type_id)
        assert kind.name.lower() == f.name
        if f.name != "q8_1":  # gguf counts 4 bytes for each of the two scales, as old files had them
            assert gguf.GGML_QUANT_SIZES[kind] == (f.elements, f.nbytes)


@pytest.mark.parametrize("f", FORMATS.values(), ids=FORMATS)
def test_planes_and_groups_cover_a_block(f) -> None:
    for plane in f.planes:
        assert f.fields[plane.field].nbytes * plane.ways == f.elements
    assert len(f.scales) in (0, f.groups)
    assert len(f.mins) in (0, f.groups)
    taken = sorted((p.byte, p.shift + bit) for g in (*f.scales, *f.mins) for p in g for bit in range(p.bits))
    assert len(taken) == len(set(taken)), "two groups read the same bit"


def test_scales_that_are_no_numbers_give_no_numbers() -> None:
    block = np.zeros((1, 18), np.uint8)
    block[0, :2] = np.array([np.inf], "<f2").view(np.uint8)
    y = decode(FORMATS["q4_0"], block)
    assert np.all(np.isneginf(y))  # code 0 stands for −8
    block[0, 2:] = 0x88  # and 8 for 0: 0 · Inf
    assert np.all(np.isnan(decode(FORMATS["q4_0"], block)))


def test_names_and_lengths_are_checked() -> None:
    assert format_of("Q4_K") is FORMATS["q4_k"]
    with pytest.raises(ParameterError, match=r'"?q4_k'):
        format_of("q4k")
    with pytest.raises(ShapeError, match="a row of 100 elements"):
        FORMATS["q4_k"].row_bytes(100)
    with pytest.raises(ShapeError, match="a row of 100 bytes"):
        FORMATS["q4_k"].row_elements(100)
    assert FORMATS["q4_k"].row_elements(FORMATS["q4_k"].row_bytes(512)) == 512
