"""The guide to quantized tensors says what the formats are: its table and its plot are made from them."""

import re
import runpy
from pathlib import Path

import pytest
from trueno.formats import FORMATS, WEIGHTS

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/how-to/quantized-tensors.md"
MADE_BY = runpy.run_path(str(ROOT / "benchmarks/formats.py"))


@pytest.fixture(scope="module")
def errors():
    return MADE_BY["errors"]()


@pytest.mark.slow
def test_the_table_is_the_table_of_formats(errors):
    rows = re.findall(r"^\| `(\w+)` \| (\d+) \| ([\d.]+) \| ([\d.]+) \|$", PAGE.read_text("utf-8"), re.M)
    wanted = [(n, str(FORMATS[n].elements), f"{FORMATS[n].bits:g}", f"{errors[n]:#.2g}") for n in WEIGHTS]
    assert rows == wanted


@pytest.mark.slow
def test_the_plot_is_fresh(errors):
    assert MADE_BY["PATH"].read_text("utf-8") == MADE_BY["drawing"](errors), "run python -m benchmarks.formats"
