"""Every decision has its number, its date, and the headings of the template."""

import re
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "docs/adr"
PAGES = sorted(FOLDER.glob("*.md"))


def test_numbers_follow_each_other():
    assert [page.name[:4] for page in PAGES] == [f"{n:04}" for n in range(len(PAGES))]


@pytest.mark.parametrize("page", PAGES[1:], ids=lambda page: page.stem)
def test_a_decision_has_the_form_of_the_template(page):
    title, _, facts, *rest = page.read_text("utf-8").splitlines()
    assert title.startswith(f"# {page.name[:4]}: ")
    assert re.match(r"Date: \d{4}-\d\d-\d\d · Status: (accepted|replaced by \d{4})", facts), facts
    template = [line for line in PAGES[0].read_text("utf-8").splitlines() if line.startswith("## ")]
    headings = [line for line in rest if line.startswith("## ")]
    assert headings[: len(template)] == template
    assert all(re.fullmatch(r"## Note, \d{4}-\d\d-\d\d", line) for line in headings[len(template) :])
