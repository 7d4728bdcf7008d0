"""A source file can be read in one sitting."""

from pathlib import Path

from trueno.ops import FAMILIES

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "core" / "src" / "trueno"
FILES = sorted(path for folder in ("core", "plugins") for path in ROOT.glob(f"{folder}/**/src/**/*.py"))
LINES = 400

# What every call needs beside the op's own kernel, and what finds that kernel: an afternoon's reading.  The rows of the
# table are not in it: nobody reads them all to understand a call, and they grow with every op.
CORE = ("ops", "discovery", "select", "dispatch", "guards")
ROWS = {PACKAGE / "ops" / f"{family}.py" for family in FAMILIES}
CORE_LINES = 8280


def test_no_source_file_is_long():
    assert len(FILES) > 100
    lengths = {str(path.relative_to(ROOT)): len(path.read_text("utf-8").splitlines()) for path in FILES}
    long = {name: length for name, length in lengths.items() if length > LINES}
    assert not long, f"split these files, or what is new in them: {long}"


def test_the_core_stays_within_its_budget():
    assert all(path.is_file() for path in ROWS), f"a family of ops has no file of its name: {ROWS}"
    lines = {
        folder: sum(
            len(path.read_text("utf-8").splitlines()) for path in (PACKAGE / folder).rglob("*.py") if path not in ROWS
        )
        for folder in CORE
    }
    assert all(lines.values()), f"a folder of the core is gone; name what is there in CORE: {lines}"
    assert sum(lines.values()) <= CORE_LINES, f"{sum(lines.values())} lines; make one of these shorter: {lines}"
