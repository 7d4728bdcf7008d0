"""Mixtures give each tensor the type that llama.cpp gives it."""

import json
from pathlib import Path

import pytest
import trueno
from trueno.formats import FORMATS
from trueno.gguf import RECIPES, tensor_format
from trueno.gguf.recipe import Mixture, recipe

SAID = json.loads((Path(__file__).parents[2] / "golden/ggml/recipe.json").read_text("utf-8"))
"""What llama.cpp itself did: tests/golden/ggml/recipe.py."""


@pytest.mark.parametrize("case", SAID["cases"])
def test_types_are_those_of_llama_cpp(case):
    keys, tensors, types = (SAID["cases"][case][part] for part in ("keys", "tensors", "types"))
    shapes = {name: tuple(shape) for name, (shape, _) in tensors.items()}
    assert {name.removesuffix(" weighted") for name in types} == set(RECIPES)
    wrong = []
    for name, letters in types.items():
        mixture = Mixture(recipe(name.split()[0]), shapes, keys, weighted=name.endswith("weighted"))
        for (tensor, (_, was)), letter in zip(tensors.items(), letters, strict=True):
            got = mixture.format(tensor) or was
            if got != SAID["letters"][letter]:
                wrong.append((name, tensor, got, SAID["letters"][letter]))
    assert not wrong


def test_the_expectations_hold_every_format_that_a_mixture_reaches():
    reached = {
        SAID["letters"][letter] for c in SAID["cases"].values() for said in c["types"].values() for letter in said
    }
    assert set(FORMATS) - reached == {"mxfp4", "q8_1", "q8_k"}


def test_one_tensor_alone():
    shapes = {"token_embd.weight": (32, 256), "output.weight": (32, 256), "blk.0.ffn_down.weight": (256, 288)}
    keys = {"general.architecture": "llama", "llama.block_count": 1}
    found = {name: tensor_format("Q4_K_M", name, shapes, keys) for name in shapes}
    assert found == {"token_embd.weight": "q4_k", "output.weight": "q6_k", "blk.0.ffn_down.weight": "q8_0"}


@pytest.mark.parametrize("name", ["q4_k", "Q4_K", "q4_k_m"])
def test_short_names_mean_the_medium_mixture(name):
    assert recipe(name) is RECIPES["q4_k_m"]


def test_unknown_mixtures_are_refused_with_a_suggestion():
    with pytest.raises(trueno.ParameterError, match=r"'q4km' is not a mixture; did you mean .q4_k_m.\?; known: q4_0, "):
        recipe("q4km")


@pytest.mark.parametrize(
    "value", ["many", ["a", "b"], [], [[1]], float("nan"), float("inf"), -8, 2**63, True, None], ids=repr
)
def test_senseless_keys_are_no_crash(value):
    names = ("block_count", "expert_count", "attention.head_count", "attention.head_count_kv")
    keys = {"general.architecture": "llama"} | {f"llama.{name}": value for name in names}
    shapes = {"blk.0.ffn_down.weight": (64, 256), "blk.x.attn_v.weight": (64, 256), "blk.1.attn_v.weight": (64, 256)}
    for name in RECIPES:
        mixture = Mixture(recipe(name), shapes, keys)
        assert {mixture.format(tensor) for tensor in shapes} <= set(FORMATS)
