"""A source file can be read in one sitting."""

from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "core" / "src" / "trueno"
FILES = sorted(path for folder in ("core", "plugins") for path in ROOT.glob(f"{folder}/**/src/**/*.py"))
LINES = 400

# What every call needs beside the op's own kernel, and what finds that kernel: an afternoon's reading.
CORE = ("ops", "discovery", "select", "dispatch", "guards")
CORE_LINES = 9500


def test_no_source_file_is_long():
    assert len(FILES) > 100
    lengths = {str(path.relative_to(ROOT)): len(path.read_text("utf-8").splitlines()) for path in FILES}
    long = {name: length for name, length in lengths.items() if length > LINES}
    assert not long, f"split these files, or what is new in them: {long}"


def test_the_core_stays_within_its_budget():
    lines = {
        folder: sum(len(path.read_text("utf-8").splitlines()) for path in (PACKAGE / folder).rglob("*.py"))
        for folder in CORE
    }
    assert all(lines.values()), f"a folder of the core is gone; name what is there in CORE: {lines}"
    assert sum(lines.values()) <= CORE_LINES, f"{sum(lines.values())} lines; make one of these shorter: {lines}"
