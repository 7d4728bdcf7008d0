"""No file imports, by any way round, a file that imports it."""

from pathlib import Path

import pytest
from architecture.circles import Graph

ROOT = Path(__file__).parents[2]
PACKAGES = [ROOT / "core" / "src", *sorted(ROOT.glob("plugins/*/src")), *sorted(ROOT.glob("examples/*/src"))]


def test_no_file_imports_itself_by_way_of_others():
    graph = Graph(*PACKAGES)
    assert not graph.knots(), "\n".join(["files import each other in a circle:", *map(graph.sentence, graph.knots())])


def tree(root: Path, files: dict[str, str]) -> Graph:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    return Graph(root)


def found(graph: Graph, root: Path) -> list[str]:
    return [graph.sentence(knot).replace(f"{root}/", "") for knot in graph.knots()]


BACK = "which leads back:\n    p/top.py:1 imports p.middle\n    p/middle.py:1 imports p.sub.low"
CLOSED = {
    "at module level": ("from p import top", "imports p.top"),
    "relative": ("from ..top import name", "imports p.top"),
    "relative, of the package": ("from .. import top", "imports p.top"),
    "by attribute": ("import p\np.top.f()", "imports p.top"),
    "in a function": ("def f():\n    from p.top import name", "imports p.top in a function"),
    "in a lambda's attribute": ("import p\nasync def f():\n    return lambda: p.top.f", "imports p.top in a function"),
    "for types": ("if TYPE_CHECKING:\n    from p.top import T", "imports p.top under TYPE_CHECKING"),
    "for types, by attribute": (
        "import typing\nif typing.TYPE_CHECKING:\n    import p.top",
        "imports p.top under TYPE_",
    ),
    "sys.modules.get": ("import sys\nf = sys.modules.get('p.top')", "imports p.top by its name as text"),
    "sys.modules[]": ("import sys\nf = sys.modules['p.top']", "imports p.top by its name as text"),
    "in sys.modules": ("import sys\nf = 'p.top' in sys.modules", "imports p.top by its name as text"),
    "import_module": ("f = lambda: import_module('p.top')", "imports p.top by its name as text"),
    "importlib.import_module": (
        "import importlib\nf = importlib.import_module('p.top')",
        "imports p.top by its name as",
    ),
    "a table of modules": ("T = {'f': 'p.top'}\ndef f(x): return import_module(T[x])", "imports p.top by its name as"),
    "a lazy name": ("def f():\n    from p import lazy", "imports p.top in a function"),
    "a lazy name's attribute": ("import p\ndef f(): return p.lazy()", "imports p.top in a function"),
}
LAZY = "H = {'lazy': 'p.top'}\ndef __getattr__(name): return getattr(import_module(H[name]), name)\n"


@pytest.mark.parametrize("code, said", CLOSED.values(), ids=CLOSED)
def test_the_arrow_that_closes_a_circle_is_named(tmp_path, code, said):
    files = {
        "p/__init__.py": LAZY,
        "p/top.py": "from p.middle import name\nimport p.sub.other",
        "p/middle.py": "from p.sub import low\nfrom p.sub.other import name",
        "p/sub/__init__.py": "",
        "p/sub/low.py": "import math",
        "p/sub/other.py": "from p.sub import low",
    }
    assert not tree(tmp_path, files).knots()
    at = next(i for i, line in enumerate(code.splitlines(), 1) if "top" in line or "lazy" in line)
    (sentence,) = found(tree(tmp_path, files | {"p/sub/low.py": code}), tmp_path)
    assert sentence.startswith(f"p/sub/low.py:{at} {said}") and sentence.endswith(BACK)


@pytest.mark.parametrize(
    "code, tied",
    [
        ("from p.sub import b", False),
        ("import p.sub.b", False),
        ("from . import b", False),
        ("from p.sub import name", True),
        ("from . import name", True),
        ("import p.sub", True),
        ("from p.sub import *", True),
        ("from importlib import import_module as _\nX = 'p.sub.a'", False),
        ("log = getLogger('p.sub')", False),
        ("import_module(x)\n__module__ = 'p'", False),
    ],
)
def test_a_file_imports_the_package_that_it_is_in_only_if_it_asks_it_for_a_name(tmp_path, code, tied):
    files = {"p/__init__.py": "", "p/sub/__init__.py": "from p.sub.a import x", "p/sub/a.py": code, "p/sub/b.py": ""}
    assert [sorted(knot) for knot in tree(tmp_path, files).knots()] == ([["p.sub", "p.sub.a"]] if tied else [])


def test_importing_a_file_runs_the_packages_that_it_is_in(tmp_path):
    files = {"p/sub/__init__.py": "from p.user import x", "p/sub/a.py": "", "p/user.py": "from p.sub.a import y"}
    assert found(tree(tmp_path, files), tmp_path) == [
        "p/sub/__init__.py:1 imports p.user, which leads back:\n    p/user.py:1 imports p.sub"
    ]


def test_a_knot_of_several_circles_names_its_most_hidden_arrow(tmp_path):
    files = {
        "p/a.py": "import p.b\nimport p.c",
        "p/b.py": "import p.c",
        "p/c.py": "import p.d\ndef f(): import p.a",
        "p/d.py": "if TYPE_CHECKING: import p.b",
    }
    (sentence,) = found(tree(tmp_path, files), tmp_path)
    assert sentence.startswith("p/d.py:1 imports p.b under TYPE_CHECKING, which leads back:")


def test_separate_knots_are_separate(tmp_path):
    files = {f"p/{a}.py": f"import p.{b}" for a, b in ["ab", "ba", "cd", "de", "ec", "fa", "gf"]}
    assert sorted(map(sorted, tree(tmp_path, files).knots())) == [["p.a", "p.b"], ["p.c", "p.d", "p.e"]]
