"""The gallery's scripts become pages; `make docs` runs the scripts themselves."""

import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
pytest.importorskip("matplotlib")
spec = importlib.util.spec_from_file_location("gallery", ROOT / "docs" / "gallery.py")
gallery = importlib.util.module_from_spec(spec)
spec.loader.exec_module(gallery)

SCRIPT = '''"""A line of points.

It rises.
"""

import matplotlib.pyplot as plt

print("drawn")
plt.plot([0, 1])
plt.show()
'''


def written(folder: Path, source: str) -> str:
    """The name of a script with this source, kept in `folder` as the child process sees it."""
    (folder / "points.py").write_text(source, "utf-8")
    return "points"


@pytest.fixture
def scripts(tmp_path, monkeypatch):
    """A gallery of its own: a copy of the hook beside an empty folder of scripts."""
    folder = tmp_path / "examples" / "gallery"
    folder.mkdir(parents=True)
    hook = tmp_path / "docs" / "gallery.py"
    hook.parent.mkdir()
    hook.write_bytes((ROOT / "docs" / "gallery.py").read_bytes())
    monkeypatch.setattr(gallery, "__file__", str(hook))
    monkeypatch.setattr(gallery, "ROOT", tmp_path)
    monkeypatch.setattr(gallery, "SCRIPTS", folder)
    return folder


def test_there_are_six():
    assert len(gallery.names()) == 6
    for name in gallery.names():
        assert gallery.title((gallery.SCRIPTS / f"{name}.py").read_text("utf-8"))


def test_a_script_gives_text_and_pictures(scripts):
    name = written(scripts, SCRIPT)
    printed, pictures = gallery.results(name, SCRIPT)
    assert printed == "drawn"
    assert [file for file, _ in pictures] == ["points-1.png"] and pictures[0][1].startswith(b"\x89PNG")
    page = gallery.page(name, SCRIPT, printed, ["points-1.png"])
    assert page.startswith("# A line of points\n\nIt rises.\n\n![A line of points](points-1.png)")
    assert "```text\ndrawn\n```" in page and page.count("plt.plot([0, 1])") == 1 and '"""' not in page
    assert "[A line of points](points.md)" in gallery.overview({name: SCRIPT}, {name: "points-1.png"})


@pytest.mark.parametrize(
    ("line", "problem"),
    [("raise ValueError('no such picture')", "no such picture"), ("plt.close('all')", "draws nothing"),
     ("import warnings; warnings.warn('old')", "old")],
)  # fmt: skip
def test_a_script_that_fails_ends_the_build(scripts, line, problem):
    source = SCRIPT.replace("plt.show()", line)
    with pytest.raises(RuntimeError, match=problem):
        gallery.results(written(scripts, source), source)
