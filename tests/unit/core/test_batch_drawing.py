"""How a batch draws itself: what stands where, what leads to what, and that no text becomes markup."""

import re
from xml.etree import ElementTree

import pytest
import trueno
from trueno.batch.draw import Box, mermaid, svg
from trueno.batch.show import LINES

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture
def batch(rng):
    with trueno.Batch("scalar") as b:
        x, w = b.upload(rng.standard_normal((6, 4), "float32")), b.upload(rng.standard_normal((4, 5), "float32"))
        h = b.keep(b.softmax(b.relu(x)))
        product = b.matmul(h, w)
        result = b.add(b.exp(product), b.neg(product))
        yield b, result


def rectangles(root):
    return [(float(r.get("x")), float(r.get("y")), float(r.get("width")), float(r.get("height")))
            for r in root.iter(f"{SVG}rect")]  # fmt: skip


def test_the_chart_has_the_plan_in_it(batch):
    b, result = batch
    chart = b.to_mermaid()
    lines = [line.strip() for line in chart.splitlines()]
    assert lines[0] == "flowchart TB" and lines.count("end") == len(re.findall("subgraph", chart)) == 3
    assert [re.sub(r".*\[|\].*", "", line) for line in lines if "subgraph" in line] and "1 · scalar" in chart
    named = {line.split("[")[0]: line for line in lines if re.match(r"k\d+o\d+\[", line)}
    assert [re.findall(r'"(.*)"', line)[0] for line in named.values()] == [
        "relu", "softmax", "matmul", "exp", "neg", "add"
    ]  # fmt: skip
    edges = [re.match(r"(\w+) -->(?:.*\|)? ?(\w+)$", line) for line in lines]
    pairs = {match.groups() for match in edges if match}
    assert {("v0", "k1o1"), ("k1o2", "k2o1"), ("v1", "k2o1"), ("k2o1", "k3o1")} <= pairs
    assert f"r{result.value}" in {below for _, below in pairs}
    b.execute()
    assert b.to_mermaid() == chart


def test_no_box_of_the_picture_covers_another(batch):
    b, _ = batch
    root = ElementTree.fromstring(b._repr_svg_())
    found = rectangles(root)
    assert len(found) == 2 + 3 + 2  # uploads, kernels, results: the kept one and the last
    width, height = float(root.get("width")), float(root.get("height"))
    for i, (x, y, w, h) in enumerate(found):
        assert x >= 0 and y >= 0 and x + w <= width and y + h <= height
        for x2, y2, w2, h2 in found[:i]:
            assert x + w <= x2 or x2 + w2 <= x or y + h <= y2 or y2 + h2 <= y
    words = [t.text for t in root.iter(f"{SVG}text")]
    assert words[0].endswith("6 ops in 3 kernels") and {"relu", "softmax", "1 · scalar", "6×4 float32"} <= set(words)


def test_what_is_read_stands_above_what_reads_it(rng):
    """Random graphs: every line goes down, however far."""
    drawn = {"v0": Box("upload", ["h0"])}
    for at in range(1, 30):
        names = list(drawn)
        above = {names[i]: "3" for i in rng.integers(0, len(names), int(rng.integers(1, 4)))}
        drawn[f"k{at}"] = Box("kernel", [f"{at} · simd", "add"], above)
    root = ElementTree.fromstring(svg("title", drawn))
    tops = dict(zip(drawn, [y for _, y, _, _ in rectangles(root)], strict=True))
    assert all(tops[above] < tops[name] for name, box in drawn.items() for above in box.reads)
    assert len(list(root.iter(f"{SVG}path"))) == sum(len(box.reads) for box in drawn.values())


def test_a_long_batch_is_cut_and_an_empty_one_drawn(rng):
    with trueno.Batch("scalar") as b:
        assert "0 ops in 0 kernels" in b._repr_svg_() and b.to_mermaid() == "flowchart TB\n"
        x = h = b.upload(rng.standard_normal(3, "float32"))
        for _ in range(LINES + 3):
            h = b.keep(b.softmax(h))
        assert x is not h and b._repr_svg_().count("<rect") <= 2 * LINES + 2
    assert b._repr_svg_() is None
    with pytest.raises(trueno.BatchError, match="closed"):
        b.to_mermaid()


def test_words_from_outside_are_escaped():
    drawn = {"k1": Box("kernel", ['1 · <b>"x"', "add];click\x1b"], {})}
    assert "<b>" not in svg("<script>", drawn) and "<script>" not in svg("<script>", drawn)
    ElementTree.fromstring(svg("<script>", drawn))
    chart = mermaid(drawn)
    assert "<" not in chart and "\x1b" not in chart and "];click" not in chart and "#34;x#34;" in chart
