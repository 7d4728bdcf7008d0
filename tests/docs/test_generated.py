"""The pages that are written from tables are committed, and fresh."""

import runpy
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"
REFERENCE = runpy.run_path(str(DOCS / "reference.py"))


def test_generated_pages_are_fresh() -> None:
    assert REFERENCE["stale"](DOCS) == [], "run `make generate`"


def test_a_page_that_differs_is_stale(tmp_path: Path) -> None:
    (tmp_path / "reference" / "ops").mkdir(parents=True)
    for name, write in REFERENCE["PAGES"].items():
        (tmp_path / name).write_text(write(), "utf-8")
    assert REFERENCE["stale"](tmp_path) == []
    (tmp_path / "reference" / "events.md").write_text("old", "utf-8")
    (tmp_path / "reference/ops/layout.md").unlink()
    assert REFERENCE["stale"](tmp_path) == ["reference/ops/layout.md", "reference/events.md"]


def test_so_is_a_table_in_a_page_written_by_hand(tmp_path: Path) -> None:
    (tmp_path / "reference" / "ops").mkdir(parents=True)
    for name, write in REFERENCE["PAGES"].items():
        (tmp_path / name).write_text(write(), "utf-8")
    (guide,) = REFERENCE["FILLED"]
    (tmp_path / guide).parent.mkdir()
    text = (DOCS / guide).read_text("utf-8")
    (tmp_path / guide).write_text(text.replace("| `write(x, out)` |", "| `write(x)` |"), "utf-8")
    assert REFERENCE["stale"](tmp_path) == [guide]
    (tmp_path / guide).write_text(text, "utf-8")
    assert REFERENCE["stale"](tmp_path) == []
