"""The guide to quantized tensors says what the formats are: its table and its plot are made from them."""

import os
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from trueno.formats import FORMATS, WEIGHTS

from benchmarks import formats

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/how-to/quantized-tensors.md"


@pytest.fixture(scope="module")
def errors():
    return formats.errors()


@pytest.mark.slow
def test_the_table_is_the_table_of_formats(errors):
    rows = re.findall(r"^\| `(\w+)` \| (\d+) \| ([\d.]+) \| ([\d.]+) \|$", PAGE.read_text("utf-8"), re.M)
    wanted = [(n, str(FORMATS[n].elements), f"{FORMATS[n].bits:g}", f"{errors[n]:#.2g}") for n in WEIGHTS]
    assert rows == wanted


@pytest.mark.slow
def test_the_plot_is_fresh(errors):
    """By the data that it was drawn from: how wide a text is depends on the fonts of a machine."""
    assert facts(formats.PATH) == formats.facts(errors), "run python -m benchmarks.formats"


def facts(path):
    return ElementTree.parse(path).find(".//{http://purl.org/dc/elements/1.1/}description").text


DRAW = """
import sys
from pathlib import Path
from benchmarks import chain, formats
formats.draw({"q4_0": 0.087, "q8_0": 0.0055, "q6_k": 0.014}, Path(sys.argv[1]))
points = {"single calls": [1.0, 2.5], "batch": [1.0, 1.5]}
chain.draw(points, points, Path(sys.argv[2]))
"""


@pytest.mark.slow
def test_a_plot_is_drawn_from_its_data_alone(tmp_path):
    """In child processes, because matplotlib keeps a list of a machine's fonts in a folder of the user."""
    pytest.importorskip("matplotlib", reason="matplotlib draws the plots: pip install --group docs")
    drawn = []
    for turn in "ab":
        paths = [tmp_path / f"{name}-{turn}.svg" for name in ("formats", "chain")]
        environment = {**os.environ, "MPLCONFIGDIR": str(tmp_path), "SOURCE_DATE_EPOCH": ""}
        environment.pop("SOURCE_DATE_EPOCH")
        subprocess.run([sys.executable, "-c", DRAW, *map(str, paths)], check=True, cwd=ROOT, env=environment)
        drawn.append([path.read_bytes() for path in paths])
    assert drawn[0] == drawn[1]
    assert facts(paths[0]) == "q4_0 4.5 0.087; q8_0 8.5 0.0055; q6_k 6.5625 0.014"
    assert facts(paths[1]).startswith("single calls, ms: 1 2.5; batch, ms: 1 1.5; single calls, MB: 1 2.5")
    text = drawn[0][0].decode()
    assert {">q4_0</text>", ">q6_k</text>", ">blocks of 256</text>"} <= set(re.findall(r">[^<>]+</text>", text))
