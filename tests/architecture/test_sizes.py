"""A source file can be read in one sitting."""

from pathlib import Path

ROOT = Path(__file__).parents[2]
FILES = sorted(path for folder in ("core", "plugins") for path in ROOT.glob(f"{folder}/**/src/**/*.py"))
LINES = 400

# Files that are still to be split, and the lines that they have.  Numbers only ever go down.
LONG = {
    "core/src/trueno/discovery/registry.py": 420,
    "plugins/simd/src/trueno_simd/float32.py": 423,
    "plugins/simd/src/trueno_simd/threads.py": 418,
}


def test_no_source_file_is_long():
    assert len(FILES) > 100
    lengths = {str(path.relative_to(ROOT)): len(path.read_text("utf-8").splitlines()) for path in FILES}
    long = {name: length for name, length in lengths.items() if length > LONG.get(name, LINES)}
    assert not long, f"split these files, or what is new in them: {long}"
    short = [name for name in LONG if lengths.get(name, 0) <= LINES]
    assert not short, f"these files are no longer above {LINES} lines; take them out of LONG: {short}"
