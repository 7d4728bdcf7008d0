"""The page of CUDA kernels has every entry of the catalogue, and figures of the benchmarks' files alone."""

import json
from pathlib import Path

import pytest
from trueno_cuda.catalogue import registry

from docs.writing import kernels

PAGE = Path(__file__).parents[2] / "docs/reference/cuda-kernels.md"


def rows() -> list[list[str]]:
    """The cells of every table's rows."""
    lines = [line for line in PAGE.read_text("utf-8").splitlines() if line.startswith("| `")]
    return [[cell.strip() for cell in line.strip("|").replace("\\|", "¦").split(" | ")] for line in lines]


def test_every_entry_and_every_pair_is_there():
    named = [row[0].split(":")[0].strip("`") for row in rows()]
    assert set(registry.catalogue()) == set(named)
    pairs = {row[0].strip("`") for row in rows() if row[1] in ("`grid_y`", "`register_unroll`")}
    assert pairs == {entry.name for entry in registry.catalogue().values() if entry.parity} != set()
    text = PAGE.read_text("utf-8")
    assert "none stated" not in text and text.count("Floor of each: ") >= 3


def test_a_figure_is_that_of_the_newest_file(monkeypatch, tmp_path):
    def write(name: str, *records: dict[str, object]) -> None:
        usual = {"group": "cuda", "shape": "8", "peer": "copy", "problem": ""}
        (tmp_path / name).write_text(json.dumps({"records": [usual | r for r in records]}))

    write("2026-01-01-nvidia-h200-a.json", {"name": "softmax", "value": 0.5}, {"name": "gelu", "value": 0.7})
    write(
        "2026-01-02-nvidia-h100-b.json",
        {"name": "softmax", "value": 0.914},
        {"name": "softmax", "value": 1.0},
        {"name": "softmax bfloat16", "value": 0.9},
        {"name": "relu", "value": 2.0, "problem": "its result is wrong"},
        {"name": "matmul", "value": 1.0, "peer": "torch"},
        {"name": "matmul, our PTX", "value": 0.88, "peer": "torch"},
        {"name": "lz4_compress", "value": 4.5e10, "group": "lz4_gpu", "shape": "4096 bytes a page, cuda", "peer": ""},
        {"name": "lz4_compress", "value": 7e9, "group": "lz4_gpu", "shape": "4096 bytes a page, wgpu", "peer": ""},
    )
    write("2026-01-03-amd-epyc.json", {"name": "softmax", "value": 9.0})
    monkeypatch.setattr(kernels, "RESULTS", tmp_path)
    kernels.figures.cache_clear()
    try:
        assert kernels.measured("softmax") == "0.91 to 1.00 of a copy, 0.90 of a copy in bfloat16"
        assert kernels.measured("gelu") == "0.70 of a copy" and kernels.measured("relu") == ""
        assert kernels.measured("matmul") == "0.88 of cuBLAS"
        assert kernels.measured("lz4_compress") == "45 GB/s of pages"
    finally:
        kernels.figures.cache_clear()


@pytest.mark.parametrize("name", sorted(kernels.figures()))
def test_a_kernel_with_figures_is_in_the_catalogue_or_is_none_of_it(name):
    """A row of the benchmarks that is renamed would lose its figure silently."""
    assert name in registry.catalogue() or name in ("relu scale add", "the tutorial's fused kernel")
