"""The page "How fast, and why" says what was measured: its table and its pictures are made from kept figures."""

from xml.etree import ElementTree

import pytest

from benchmarks import speed
from docs.writing import speed as pages


@pytest.fixture(scope="module")
def results():
    return speed.kept()


def test_the_table_is_that_of_the_figures(results):
    table = "\n".join(speed.lines(speed.rows(results)))
    assert table in speed.PAGE.read_text("utf-8"), "run python -m benchmarks.speed"


def test_the_page_says_which_ops_were_measured(results):
    assert speed.scope(results) in " ".join(speed.PAGE.read_text("utf-8").split()), "run python -m benchmarks.speed"


@pytest.mark.parametrize("shape", speed.SHAPES)
def test_the_picture_shows_the_figures(results, shape):
    path = speed.picture(shape)
    text = ElementTree.parse(path).find(".//{http://purl.org/dc/elements/1.1/}description").text
    assert text == speed.facts(results, shape), "run python -m benchmarks.speed"
    assert f"]({path.name})" in speed.PAGE.read_text("utf-8")


def test_both_makes_of_cpu_are_there(results):
    assert {cpu.split()[0] for cpu in results} == {"AMD", "Intel"}


def test_the_pages_of_the_ops_show_the_same_figures(results):
    values = {
        cpu: {shape: {name: record.value for name, record in here.items()} for shape, here in cells.items()}
        for cpu, (_, cells) in results.items()
    }
    assert pages.kept() == values
    assert "× on AMD EPYC, " in pages.sentence("softmax") and "with 1 024 and 1 000 000 elements" in pages.sentence(
        "softmax"
    )
    assert pages.sentence("lz4_pack") == ""
